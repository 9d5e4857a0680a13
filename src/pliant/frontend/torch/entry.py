"""The entry point that `frontend.select` calls: torch models with their structure as trees."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import torch

from pliant.base.errors import UnsupportedError
from pliant.frontend.imported import ImportedModel
from pliant.frontend.select import Request
from pliant.frontend.torch.functions import as_module
from pliant.frontend.torch.importer import import_torch
from pliant.frontend.torch.structure import Call, Template
from pliant.graph.operator import Operators
from pliant.runtime.manifest import Parameter
from pliant.runtime.tree import LEAF, Key, Tree

_TRACING: Final = threading.RLock()
"""Torch traces one model at a time, and what is written otherwise meanwhile is the process's."""


def import_request(request: Request, operators: Operators) -> ImportedModel:
    """Export and import a torch module or a function, or import an ExportedProgram."""
    given = request.model
    of_torch = type(given).__module__.partition(".")[0] == "torch"
    if callable(given) and not of_torch and not isinstance(given, torch.nn.Module):
        given = as_module(given, len(request.args))
    with _TRACING:
        model = import_torch(
            given, request.args, request.kwargs, operators=operators,
            dynamic_shapes=request.dynamic_shapes, dims=request.dims,
        )  # fmt: skip
    order = list(_leaf_indices(model.output))
    function = model.function.replace(results=tuple(model.function.results[k] for k in order))
    outputs = tuple(_output_names(model.output, "output"))
    return ImportedModel(
        function, model.weights, model.input_names, outputs, _parameters(model.call),
        _tree(model.output), model.notes,
    )  # fmt: skip


def _parameters(call: Call) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(name, _tree(template), keyword_only=name not in call.names)
        for name, template in call.arguments.items()
    )


def _tree(template: Template) -> Tree:
    kind = template["kind"]
    if kind == "leaf":
        return LEAF
    if kind == "size":
        return Tree("scalar")
    if kind == "constant":
        return Tree("const", value=template["value"])
    children = tuple(_tree(t) for t in template["items"])
    if kind not in ("dict", "namedtuple"):
        return Tree(kind, children)
    module, _, cls = str(template.get("type", "")).rpartition(".")
    keys = tuple(template["keys"])
    for key in keys:
        if not isinstance(key, Key):
            raise UnsupportedError(
                f"an argument or result is a dict with the key {key!r:.60}: keys are strings, "
                "numbers, booleans or None"
            )
    return Tree(kind, children, keys, type_name=f"{module}:{cls}" if module else "")


def _leaf_indices(template: Template) -> Iterator[int]:
    """Which result each leaf is, in the order of the structure."""
    if template["kind"] in ("leaf", "size"):
        yield template["index"]
    for item in template.get("items", ()):
        yield from _leaf_indices(item)


def _output_names(template: Template, path: str) -> Iterator[str]:
    """A name for each leaf: its place in the structure."""
    if template["kind"] in ("leaf", "size"):
        yield path
    keys = template.get("keys")
    for k, item in enumerate(template.get("items", ())):
        place = str(keys[k]) if keys else f"{path}_{k}"
        yield from _output_names(item, place)
