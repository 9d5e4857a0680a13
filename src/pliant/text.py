"""Programs of every level as Python text, and back: what dumps, golden files and bug reports hold.

to_text(x)                a module, a graph function, a loop program or tensor expressions
parse(text, weights)      the same object again (modules: equal)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pliant.graph import parser as graph_parser
from pliant.graph import printer as graph_printer
from pliant.graph.function import Function as GraphFunction
from pliant.graph.function import Module
from pliant.ir.parser import Text
from pliant.ir.tensor import Tensor
from pliant.ir.tensor_parser import parse_tensors as _parse_tensors
from pliant.ir.tensor_printer import tensors_text
from pliant.loop import parser as loop_parser
from pliant.loop import printer as loop_printer
from pliant.loop.stmt import Function as LoopFunction

Printable = Module | GraphFunction | LoopFunction | Tensor | tuple[Tensor, ...]


def to_text(what: Printable) -> str:
    """The text of a module, a function of any level, or tensor expressions."""
    match what:
        case Module():
            return graph_printer.module_text(what, to_text)
        case GraphFunction():
            return graph_printer.function_text(what, loop_printer.function_text)
        case LoopFunction():
            return loop_printer.function_text(what)
        case Tensor():
            return to_text((what,))
        case tuple():
            return tensors_text(what, loop_printer.function_text)


def parse_module(text: str, weights: Mapping[str, np.ndarray] | None = None) -> Module:
    """A module; its weights are taken from `weights` by key."""
    return graph_parser.parse_module(text, weights or {}, _LEVELS)


def parse_function(text: str) -> Any:
    """One graph function or loop program."""
    source = Text(text)
    match source.tree.body:
        case [ast.FunctionDef() as node]:
            return graph_parser.function_level(source, node, _LEVELS)
    raise source.error(source.tree, "expected one function")


def parse_tensors(text: str) -> tuple[Tensor, ...]:
    """The tensors that the last line names."""
    return _parse_tensors(text, loop_parser.function_of)


def _graph_function(text: Text, node: ast.FunctionDef) -> GraphFunction:
    return graph_parser.function_of(text, node, loop_parser.function_of)


_LEVELS: Final[dict[str, graph_parser.FunctionOf]] = {
    "graph": _graph_function, "loop": loop_parser.function_of, "host": loop_parser.function_of,
    "device": loop_parser.function_of,
}  # fmt: skip
