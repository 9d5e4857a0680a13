"""The inputs of an ONNX graph: element types, and dims by name.

pixel_values: float[batch, 3, ?, ?]   ->   f32[batch, 3, pixel_values_d2, pixel_values_d3]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import TensorShapeProto, ValueInfoProto

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError, ShapeError, UnsupportedError
from pliant.base.names import fresh_name
from pliant.frontend.names import symbol_name
from pliant.frontend.onnx.tensors import dtype_of
from pliant.graph.function import LARGEST_SIZE, Dim
from pliant.sym.expr import Int, as_int, var

Entry = int | str | None  # a size, a name, a dim without a name
InputShapes = Mapping[str, Sequence[Entry]]


@dataclass
class DimNames:
    """Symbols for the model's dims: one for each `dim_param`, one for each unnamed dim."""

    by_param: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def reserve(self, infos: Sequence[ValueInfoProto], shapes: InputShapes) -> None:
        """Name the named dims first: an unnamed one must not take the name of another."""
        for info in infos:
            dims = info.type.tensor_type.shape.dim
            for entry in shapes.get(info.name) or [_entry(d, info.name) for d in dims]:
                if isinstance(entry, str) and symbol_name(entry):
                    self.named(entry)

    def named(self, param: str) -> str:
        """The symbol of a `dim_param`."""
        if param not in self.by_param:
            self.by_param[param] = self._fresh(symbol_name(param))
        return self.by_param[param]

    def unnamed(self, tensor: str, position: int) -> str:
        """A symbol for a dim without a name."""
        return self._fresh(f"{symbol_name(tensor) or 'x'}_d{position}")

    def _fresh(self, name: str) -> str:
        fresh = fresh_name(name, self.taken)
        self.taken.add(fresh)
        return fresh


def input_type(
    info: ValueInfoProto, names: DimNames, shapes: InputShapes, model: str
) -> tuple[DType, tuple[Int, ...]]:
    """Element type and shape of a graph input; `shapes` has precedence over what the file says."""
    what = f"{model}: input {info.name!r}"
    kind = info.type.WhichOneof("value")
    if kind is None:
        raise InvalidModelError(f"{what} has no type")
    if kind != "tensor_type":
        raise UnsupportedError(f"{what} is no tensor but a {kind.removesuffix('_type')}")
    tensor = info.type.tensor_type
    dtype = dtype_of(tensor.elem_type, what)
    given = shapes.get(info.name)
    if given is not None:
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(given):
            raise ShapeError(f"{what} has rank {len(tensor.shape.dim)}, not {len(given)}")
        entries = tuple(given)
    elif tensor.HasField("shape"):
        entries = tuple(_entry(d, what) for d in tensor.shape.dim)
    else:
        raise UnsupportedError(
            f"{what} has no shape in the file; give one with its rank, such as "
            f'dynamic_shapes={{"{info.name}": ("batch", None, 3)}}'
        )
    return dtype, tuple(_size(e, k, info.name, names, what) for k, e in enumerate(entries))


def declared(dims: Mapping[str, Dim], names: DimNames) -> dict[str, Dim]:
    """What the user says of dims, by symbol. Raises ShapeError for a name that the model lacks."""
    out: dict[str, Dim] = {}
    for name, dim in dims.items():
        symbol = names.by_param.get(name, name)
        if symbol not in names.taken:
            have = ", ".join(sorted(names.taken)) or "none"
            raise ShapeError(f"the model has no dim {name!r}; it has: {have}")
        out[symbol] = dim
    return out


def _entry(dim: TensorShapeProto.Dimension, what: str) -> int | str | None:
    if dim.HasField("dim_value"):
        if dim.dim_value < -1:
            raise InvalidModelError(f"{what} has a dim of size {dim.dim_value}")
        return None if dim.dim_value == -1 else int(dim.dim_value)
    param = str(dim.dim_param)
    # "?", "-1" and the like are no names
    return param if any(c.isalpha() for c in param) and symbol_name(param) else None


def _size(entry: int | str | None, position: int, tensor: str, names: DimNames, what: str) -> Int:
    if isinstance(entry, str):
        if not symbol_name(entry):
            raise ShapeError(f"{what}: {entry!r} cannot name a dim")
        return var(names.named(entry))
    if entry is None or entry == -1:
        return var(names.unnamed(tensor, position))
    if not 0 <= entry <= LARGEST_SIZE:
        raise ShapeError(f"{what}: dim {position} cannot be {entry}")
    return as_int(entry)
