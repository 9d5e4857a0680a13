"""The entry point that `frontend.select` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.base.errors import InvalidModelError, ShapeError
from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.importer import import_onnx
from pliant.frontend.onnx.inputs import InputShapes
from pliant.frontend.onnx.load import OnnxModel, load_model
from pliant.frontend.select import Request
from pliant.graph.operator import Operators


def import_request(request: Request, operators: Operators) -> ImportedModel:
    """Import a model; `dynamic_shapes` names dims that the file does not."""
    if request.args or request.kwargs:
        raise InvalidModelError(
            "an ONNX model takes no example inputs: its file says what they are; call "
            "pliant.compile(path)"
        )
    source = request.model
    model = load_model(bytes(source) if isinstance(source, bytearray | memoryview) else source)
    shapes = _shapes(model, request.dynamic_shapes)
    return import_onnx(model, operators, dims=request.dims, input_shapes=shapes)


def _shapes(model: OnnxModel, dynamic: Any) -> InputShapes:
    """{"x": {0: "batch"}}: the file's shapes with these dims named."""
    if not dynamic:
        return {}
    if not isinstance(dynamic, Mapping):
        raise ShapeError("dynamic_shapes of an ONNX model is a dict by input name")
    infos = {i.name: i for i in model.proto.graph.input}
    out: dict[str, Sequence[int | str | None]] = {}
    for name, entries in dynamic.items():
        if name not in infos:
            raise ShapeError(f"{model.name} has no input {name!r}; it has: {', '.join(infos)}")
        if entries is not None:
            out[name] = _shape(infos[name], name, entries)
    return out


def _shape(info: Any, name: str, entries: Any) -> list[int | str | None]:
    tensor = info.type.tensor_type
    if not isinstance(entries, Mapping):
        return [_dim(d, None) for d in entries]
    if not tensor.HasField("shape"):
        raise ShapeError(f"{name!r} has no shape in the file: name all its dims, in a tuple")
    shape: list[int | str | None] = [
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    ]
    for axis, dim in entries.items():
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"{name!r} has rank {len(shape)}, there is no dim {axis}")
        shape[axis] = _dim(dim, shape[axis])
    return shape


def _dim(dim: Any, otherwise: int | str | None) -> int | str | None:
    if dim is None:
        return otherwise
    if isinstance(dim, int | str):
        return dim
    return str(getattr(dim, "__name__", dim))  # torch.export.Dim
