"""The steps of a schedule as data: recorded, printed as Python, parsed back, replayed.

p = p.split('i', 8, tail='mask')
p = p.reorder('i_1', 'j')

A trace is a program with random variables (MetaSchedule, NeurIPS 2022, section 3): a sampling step
decides a value and gives it a name, and the steps after it say what they make of it. Integers are
variables of the integer algebra, other values are `decided('name')`.

p = p.sample_categorical('width', (8, 16, 32), default=16)
p = p.sample_categorical('tail', ('mask', 'peel'), default='mask', decision='peel')
p = p.split('j', sym('2*width'), tail=decided('tail'))
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from pliant.sym.expr import Int, parse_int


@dataclass(frozen=True)
class Decided:
    """What a sampling step of this name decided, where that is no integer."""

    name: str


@dataclass(frozen=True)
class Step:
    """One applied primitive. Arguments are names, numbers, symbolic integers, decisions, None and
    tuples."""

    name: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def call(self) -> str:
        """The call that it was."""
        parts = [_text(a) for a in self.args] + [f"{k}={_text(v)}" for k, v in self.options]
        return f"{self.name}({', '.join(parts)})"

    def __str__(self) -> str:
        return f"p = p.{self.call}"


Trace = tuple[Step, ...]


def step(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Step:
    """A step out of a call's arguments."""
    return Step(name, plain(args), tuple((k, plain(v)) for k, v in options.items()))


def print_trace(trace: Trace) -> str:
    """The steps as Python, a line each."""
    return "".join(f"{s}\n" for s in trace)


def parse_trace(text: str) -> Trace:
    """What `print_trace` printed. Raises ValueError on anything else."""
    return tuple(_parse_step(node, text) for node in ast.parse(text).body)


def _parse_step(node: ast.stmt, text: str) -> Step:
    match node:
        case ast.Assign(
            targets=[ast.Name(id="p")],
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id="p"), attr=name), args=args, keywords=options
            ),
        ):
            named = tuple((str(k.arg), _parse(k.value)) for k in options)
            return Step(name, tuple(_parse(a) for a in args), named)
    raise ValueError(f"not a schedule step: {ast.get_source_segment(text, node)}")


def _parse(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id="sym"), args=[ast.Constant(value=str(text))]):
            return parse_int(text)
        case ast.Call(func=ast.Name(id="decided"), args=[ast.Constant(value=str(text))]):
            return Decided(text)
        case ast.Tuple(elts=parts):
            return tuple(_parse(p) for p in parts)
    return ast.literal_eval(node)


def plain(value: Any) -> Any:
    """References become the names that they are, constants plain numbers, lists tuples."""
    match value:
        case Int():
            return value.value if value.is_const else value
        case bool() | int() | float() | None | Decided():
            return value
        case str():
            return str.__str__(value)
        case list() | tuple():
            return tuple(plain(v) for v in value)
    raise TypeError(f"{value!r} cannot be an argument of a schedule step")


def _text(value: Any) -> str:
    match value:
        case Int():
            return f"sym({str(value)!r})"
        case Decided():
            return f"decided({value.name!r})"
        case tuple():
            return "(" + ", ".join(map(_text, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
