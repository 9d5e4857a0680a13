"""Which frontend takes a model. Frameworks are loaded only when a model of theirs comes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pliant.base.errors import UnsupportedError
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


def import_model(request: Request, operators: Operators) -> ImportedModel:
    """Turn the user's model into a graph function.

    Raises UnsupportedError for a kind of model that there is no frontend for, and what the
    frontend raises.
    """
    kind = _kind(request.model)
    if kind == "graph":
        function, weights = request.model
        names = tuple(v.name for v in function.params), tuple(v.name for v in function.results)
        return ImportedModel(function, weights, *names)
    module = importlib.import_module(f"pliant.frontend.{kind}.entry")
    return module.import_request(request, operators)  # type: ignore[no-any-return]


def _kind(model: Any) -> str:
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], Function):
        return "graph"
    if isinstance(model, str | os.PathLike | bytes | bytearray | memoryview):
        return "onnx"
    roots = {c.__module__.split(".")[0] for c in type(model).__mro__}
    for kind in ("torch", "onnx"):
        if kind in roots:
            return kind
    raise UnsupportedError(
        f"cannot compile a {type(model).__module__}.{type(model).__qualname__}: give a torch "
        "module, a torch.export.ExportedProgram, or the path, bytes or ModelProto of an ONNX model"
    )
