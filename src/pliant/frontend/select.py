"""Which frontend takes a model. Frameworks are loaded only when a model of theirs comes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pliant.base.errors import InvalidModelError, ShapeError, UnsupportedError
from pliant.base.load import load_module
from pliant.frontend.imported import ImportedModel
from pliant.graph.function import Dim, Function
from pliant.graph.operator import Operators


@dataclass(frozen=True)
class Request:
    """A model as the user gave it."""

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    dims: Mapping[str, Dim] | None = None

    def __post_init__(self) -> None:
        """Raises InvalidModelError and ShapeError for options that are not what they should be."""
        if not isinstance(self.args, tuple | list):
            raise InvalidModelError(
                f"args are the example inputs in a tuple, not a {_type_name(self.args)}; "
                "for one input write (x,)"
            )
        if self.kwargs is not None and not isinstance(self.kwargs, Mapping):
            raise InvalidModelError(
                f"kwargs are example inputs in a dict by name, not a {_type_name(self.kwargs)}"
            )
        if self.dims is None:
            return
        if not isinstance(self.dims, Mapping):
            raise ShapeError(
                f"dims is a dict from a dimension's name to a pliant.Dim, not a "
                f"{_type_name(self.dims)}"
            )
        for name, dim in self.dims.items():
            if not isinstance(name, str) or not isinstance(dim, Dim):
                raise ShapeError(
                    "dims is a dict from a dimension's name to a pliant.Dim, such as "
                    f'{{"seq": pliant.Dim(min=1, max=4096)}}; it has {name!r:.60}: {dim!r:.60}'
                )


def import_model(request: Request, operators: Operators) -> ImportedModel:
    """Turn the user's model into a graph function.

    Raises UnsupportedError for a kind of model that there is no frontend for, and what the
    frontend raises.
    """
    kind = _kind(request)
    if kind == "graph":
        function, weights = request.model
        names = tuple(v.name for v in function.params), tuple(v.name for v in function.results)
        return ImportedModel(function, weights, *names)
    frontend = load_module(f"pliant.frontend.{kind}.entry")
    imported: ImportedModel = frontend.import_request(request, operators)
    return imported


def _kind(request: Request) -> str:
    model = request.model
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], Function):
        return "graph"
    if isinstance(model, str | os.PathLike | bytes | bytearray | memoryview):
        return "onnx"
    roots = {c.__module__.split(".")[0] for c in type(model).__mro__}
    for kind in ("torch", "onnx"):
        if kind in roots:
            return kind
    if callable(model) and _has_tensor((*request.args, *(request.kwargs or {}).values())):
        return "torch"  # a function of torch tensors
    raise not_a_model(model)


def _has_tensor(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, tuple | list):
            found = _has_tensor(value)
        elif isinstance(value, dict):
            found = _has_tensor(value.values())
        else:
            found = type(value).__module__.split(".")[0] == "torch"
        if found:
            return True
    return False


def not_a_model(model: Any) -> UnsupportedError:
    """The error for something that there is no frontend for."""
    return UnsupportedError(
        f"cannot compile a {_type_name(model)}: give a torch module, a "
        "torch.export.ExportedProgram, a function with example inputs that are torch tensors, or "
        "the path, bytes or ModelProto of an ONNX model"
    )


def _type_name(value: Any) -> str:
    home = type(value).__module__
    return type(value).__qualname__ if home == "builtins" else f"{home}.{type(value).__qualname__}"
