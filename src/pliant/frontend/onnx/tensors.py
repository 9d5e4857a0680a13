"""ONNX tensors and element types as NumPy arrays and `DType`s."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from pliant.base.dtypes import (
    DType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from pliant.base.errors import InvalidModelError, UnsupportedError

DTYPE_OF: Final[dict[int, DType]] = {
    TensorProto.FLOAT: f32,
    TensorProto.DOUBLE: f64,
    TensorProto.FLOAT16: f16,
    TensorProto.BFLOAT16: bf16,
    TensorProto.INT8: i8,
    TensorProto.INT16: i16,
    TensorProto.INT32: i32,
    TensorProto.INT64: i64,
    TensorProto.UINT8: u8,
    TensorProto.UINT16: u16,
    TensorProto.UINT32: u32,
    TensorProto.UINT64: u64,
    TensorProto.BOOL: boolean,
}
ELEMENT_OF: Final[dict[str, int]] = {d.name: code for code, d in DTYPE_OF.items()}

SMALL_INTS: Final[dict[int, tuple[DType, int]]] = {
    code: (dtype, bits)
    for name, dtype, bits in (("INT4", i8, 4), ("UINT4", u8, 4), ("INT2", i8, 2), ("UINT2", u8, 2))
    if (code := getattr(TensorProto, name, None)) is not None
}
"""Integers of less than a byte: each is kept in a byte here, as a constant or between nodes."""

SMALL_FLOATS: Final[dict[int, int]] = {
    code: bits
    for name, bits in (
        ("FLOAT8E4M3FN", 8), ("FLOAT8E4M3FNUZ", 8), ("FLOAT8E5M2", 8), ("FLOAT8E5M2FNUZ", 8),
        ("FLOAT8E8M0", 8), ("FLOAT4E2M1", 4),
    )
    if (code := getattr(TensorProto, name, None)) is not None
}  # fmt: skip
"""Floats of a byte or less: constants of them are f32 here, which has all their values."""


@dataclass(frozen=True)
class TensorFolder:
    """Where the external data of a model lies; `path` is None when it came from memory.

    What links point to must lie in one of `roots`: the folder, or where a model file that is a
    link itself (as in download caches) points.
    """

    path: Path | None = None
    roots: tuple[Path, ...] = ()

    @staticmethod
    def of(file: Path) -> TensorFolder:
        """The folder of a model file."""
        return TensorFolder(file.parent, (file.parent.resolve(), file.resolve().parent))


def dtype_of(code: int, what: str) -> DType:
    """The `DType` of an ONNX element type.

    Raises InvalidModelError where ONNX has no such type, UnsupportedError where Pliant has none.
    """
    found = DTYPE_OF.get(code)
    if found is not None:
        return found
    if code == TensorProto.UNDEFINED or code not in TensorProto.DataType.values():
        raise InvalidModelError(f"{what} has the unknown element type {code}")
    name = TensorProto.DataType.Name(code).lower()
    have = ", ".join(d.name for d in DTYPE_OF.values())
    raise UnsupportedError(f"{what} has element type {name}; supported are {have}")


def small_range(code: int) -> tuple[int, int]:
    """The least and the greatest of an integer type of less than a byte."""
    dtype, bits = SMALL_INTS[code]
    return (-1 << bits - 1, (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


def stored_type(code: int, what: str) -> tuple[DType, int]:
    """What the elements of a tensor become here, and how many bits each has in the file."""
    if code in SMALL_INTS:
        return SMALL_INTS[code]
    if code in SMALL_FLOATS:
        return f32, SMALL_FLOATS[code]
    dtype = dtype_of(code, what)
    return dtype, 8 * dtype.bytes


def small_element(tensor: TensorProto | SparseTensorProto) -> int:
    """The element type of a tensor where it is kept as another one here, else 0."""
    code = tensor.data_type if isinstance(tensor, TensorProto) else 0
    return code if code in SMALL_INTS or code in SMALL_FLOATS else 0


def to_array(tensor: TensorProto, folder: TensorFolder) -> np.ndarray:
    """The contents of a tensor, read-only where they are mapped from a file."""
    what = f"tensor {tensor.name!r}"
    dtype, bits = stored_type(tensor.data_type, what)
    if any(d < 0 for d in tensor.dims):
        raise InvalidModelError(f"{what} has a negative dimension: {list(tensor.dims)}")
    if tensor.data_location == TensorProto.EXTERNAL:
        if bits == 8 * dtype.bytes:
            return _external(
                tensor, dtype.numpy, math.prod(tensor.dims), tuple(tensor.dims), folder
            )
        return _external_small(tensor, bits, folder).astype(dtype.numpy)
    _check_length(tensor, bits, what)
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidModelError(f"{what} is damaged: {error}") from error
    return array.astype(dtype.numpy, copy=False)


def to_dense(tensor: SparseTensorProto, folder: TensorFolder) -> np.ndarray:
    """A sparse tensor with its zeros written out."""
    values = to_array(tensor.values, folder)
    indices = to_array(tensor.indices, folder)
    shape, name = tuple(tensor.dims), tensor.values.name
    if any(d < 0 for d in shape):
        raise InvalidModelError(f"sparse tensor {name!r} has a negative dimension: {list(shape)}")
    try:
        flat = np.zeros(math.prod(shape), values.dtype)
        if indices.ndim == 2:
            indices = np.ravel_multi_index(tuple(indices.T), shape)
        flat[indices] = values
        return flat.reshape(shape)
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidModelError(f"sparse tensor {name!r} is damaged: {error}") from error


def element_code(dtype: DType) -> int:
    """The ONNX element type of a `DType`."""
    return ELEMENT_OF[dtype.name]


def _check_length(tensor: TensorProto, bits: int, what: str) -> None:
    count = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        have, need = len(tensor.raw_data), -(-count * bits // 8)
        unit = "bytes"
    else:
        field = helper.tensor_dtype_to_field(tensor.data_type)
        have, need = len(getattr(tensor, field)), -(-count * min(bits, 8) // 8)
        unit = "elements"
    if have != need:
        raise InvalidModelError(f"{what} needs {need} {unit} and has {have}")


def _external_small(tensor: TensorProto, bits: int, folder: TensorFolder) -> np.ndarray:
    """External data of less than two bytes an element, several to a byte, as NumPy has them."""
    count = -(-math.prod(tensor.dims) * bits // 8)
    data = _external(tensor, np.dtype(np.uint8), count, (count,), folder)
    inside = TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=data.tobytes())
    return np.asarray(numpy_helper.to_array(inside))


def _external(
    tensor: TensorProto, dtype: np.dtype, count: int, shape: tuple[int, ...], folder: TensorFolder
) -> np.ndarray:
    entries = {e.key: e.value for e in tensor.external_data}
    what = f"tensor {tensor.name!r}"
    location = entries.get("location", "")
    path = _data_path(location, folder, what)
    need = count * dtype.itemsize
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(need)))
    except ValueError as error:
        raise InvalidModelError(f"{what}: external data entry is no number: {error}") from error
    if length != need or offset < 0:
        raise InvalidModelError(
            f"{what} needs {need} bytes; its entry gives {length} at {offset} in {location!r}"
        )
    size = path.stat().st_size
    if offset + length > size:
        raise InvalidModelError(
            f"{what}: bytes {offset} to {offset + length} of {location!r} are wanted, "
            f"but the file has {size}"
        )
    if need == 0:
        try:
            return np.zeros(shape, dtype)
        except ValueError as error:  # more elements than can be counted, were it not for the 0
            raise InvalidModelError(f"{what} has impossible dims {list(shape)}") from error
    with path.open("rb") as file:
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        view = mmap.mmap(
            file.fileno(), offset + length - start, access=mmap.ACCESS_READ, offset=start
        )
    return np.frombuffer(view, dtype, count, offset - start).reshape(shape)


def _data_path(location: str, folder: TensorFolder, what: str) -> Path:
    if not location:
        raise InvalidModelError(f"{what}: its external data has no location")
    if folder.path is None:
        raise InvalidModelError(
            f"{what} is stored in {location!r}, and a model from memory has no folder; "
            "pass the path of the model file"
        )
    relative = PurePosixPath(location.replace("\\", "/"))
    if relative.is_absolute() or ".." in relative.parts or ":" in relative.parts[0]:
        raise InvalidModelError(f"{what}: {location!r} leads out of the model's folder")
    path = folder.path / relative
    if not any(path.resolve().is_relative_to(root) for root in folder.roots):
        raise InvalidModelError(f"{what}: {location!r} leads out of the model's folder")
    if not path.is_file():
        raise InvalidModelError(f"{what}: the external data file {location!r} is missing")
    return path
