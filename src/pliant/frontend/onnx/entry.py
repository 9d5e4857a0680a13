"""The entry point that `frontend.select` calls."""

from __future__ import annotations

from pliant.base.errors import InvalidModelError
from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.importer import import_onnx
from pliant.frontend.select import Request
from pliant.graph.operator import Operators


def import_request(request: Request, operators: Operators) -> ImportedModel:
    """Import an ONNX model. It needs no examples; `dynamic_shapes` may name dims by input."""
    if request.args or request.kwargs:
        raise InvalidModelError(
            "an ONNX model takes no example inputs: its file says what they are; call "
            "pliant.compile(path)"
        )
    shapes = request.dynamic_shapes or None
    return import_onnx(request.model, operators, dims=request.dims or {}, input_shapes=shapes)
