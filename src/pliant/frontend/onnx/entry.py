"""The entry point that `frontend.select` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.base.errors import InvalidModelError, ShapeError
from pliant.frontend.imported import ImportedModel
from pliant.frontend.onnx.importer import import_onnx
from pliant.frontend.onnx.inputs import Entry, InputShapes
from pliant.frontend.onnx.load import OnnxModel, load_model
from pliant.frontend.select import Request
from pliant.graph.function import Dim
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
    dims = dict(request.dims or {})
    shapes = _shapes(model, request.dynamic_shapes, dims)
    return import_onnx(model, operators, dims=dims, input_shapes=shapes)


def _shapes(model: OnnxModel, dynamic: Any, dims: dict[str, Dim]) -> InputShapes:
    """{"x": {0: "batch"}}: the file's shapes with these dims named. What a `pliant.Dim` or
    `torch.export.Dim` says goes to `dims`."""
    if dynamic is None:
        return {}
    if not isinstance(dynamic, Mapping):
        raise ShapeError("dynamic_shapes of an ONNX model is a dict by input name")
    infos = {i.name: i for i in model.proto.graph.input}
    out: dict[str, Sequence[Entry]] = {}
    for name, entries in dynamic.items():
        if name not in infos:
            raise ShapeError(f"{model.name} has no input {name!r}; it has: {', '.join(infos)}")
        if entries is not None:
            out[name] = _shape(infos[name], name, entries, dims)
    return out


def _shape(info: Any, name: str, entries: Any, dims: dict[str, Dim]) -> list[Entry]:
    tensor = info.type.tensor_type
    if isinstance(entries, list | tuple):
        return [_dim(d, None, f"{name}_d{k}", dims) for k, d in enumerate(entries)]
    if not isinstance(entries, Mapping):
        raise ShapeError(
            f'dynamic_shapes of {name!r} is a dict by dimension, such as {{0: "batch"}}, or a '
            f"tuple with an entry for each; not {entries!r:.60}"
        )
    if not tensor.HasField("shape"):
        raise ShapeError(f"{name!r} has no shape in the file: name all its dims, in a tuple")
    shape: list[Entry] = [
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    ]
    for axis, dim in entries.items():
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise ShapeError(f"{name!r} has rank {len(shape)}, there is no dim {axis!r}")
        shape[axis] = _dim(dim, shape[axis], f"{name}_d{axis % len(shape)}", dims)
    return shape


def _dim(dim: Any, otherwise: Entry, unnamed: str, dims: dict[str, Dim]) -> Entry:
    """What a user says of a dim: a size, a name, or an object with a range and maybe a name."""
    if dim is None:
        return otherwise
    if isinstance(dim, int | str):
        return dim
    name = getattr(dim, "__name__", otherwise if isinstance(otherwise, str) else unnamed)
    if not isinstance(dim, Dim):
        if not (isinstance(name, str) and hasattr(dim, "min") and hasattr(dim, "max")):
            raise ShapeError(f"dynamic_shapes: {dim!r:.60} is no dimension")
        high = dim.max  # torch's infinity is no int
        dim = Dim(int(dim.min), high if isinstance(high, int) else None)
    dims[name] = dim.merged(dims.get(name))
    return name
