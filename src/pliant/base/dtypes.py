"""Data types of tensor elements and scalars.

NumPy has no bfloat16: it comes from a package that takes 3 MB, and is imported where it is asked
for. Whoever loads an artifact without it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np

Kind = Literal["float", "bfloat", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. Compare with `is` or `==`; the only instances are those of `DTYPES`."""

    name: str
    kind: Kind
    bits: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name if self.name != "bool" else "boolean"  # a copy is the one of that name

    def __getitem__(self, shape: object) -> DType:
        """`f32["n", 4]`, as tensor programs annotate their parameters: read from the source, so
        that here the shape says nothing."""
        return self

    @property
    def bytes(self) -> int:
        """Size of one element in memory (bool takes one byte)."""
        return max(self.bits // 8, 1)

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat")

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer; bool is not one."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind != "uint" and self.kind != "bool"

    @property
    def numpy(self) -> np.dtype:
        return _bfloat16() if self.kind == "bfloat" else _NUMPY[self.name]

    @property
    def min(self) -> int | float:
        """Smallest value; -inf for floats."""
        if self.is_float:
            return float("-inf")
        if self.kind == "bool" or self.kind == "uint":
            return 0
        return -(1 << (self.bits - 1))

    @property
    def max(self) -> int | float:
        """Largest value; inf for floats."""
        if self.is_float:
            return float("inf")
        if self.kind == "bool":
            return 1
        return (1 << self.bits) - 1 if self.kind == "uint" else (1 << (self.bits - 1)) - 1

    @property
    def dlpack(self) -> int:
        """DLPack type as `code << 8 | bits` (bool: code 6, 8 bits)."""
        code = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}[self.kind]
        return code << 8 | (8 if self.kind == "bool" else self.bits)


f64: Final = DType("f64", "float", 64)
f32: Final = DType("f32", "float", 32)
f16: Final = DType("f16", "float", 16)
bf16: Final = DType("bf16", "bfloat", 16)
i64: Final = DType("i64", "int", 64)
i32: Final = DType("i32", "int", 32)
i16: Final = DType("i16", "int", 16)
i8: Final = DType("i8", "int", 8)
u64: Final = DType("u64", "uint", 64)
u32: Final = DType("u32", "uint", 32)
u16: Final = DType("u16", "uint", 16)
u8: Final = DType("u8", "uint", 8)
boolean: Final = DType("bool", "bool", 1)

DTYPES: Final[dict[str, DType]] = {
    d.name: d for d in (f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean)
}

_NUMPY: Final[dict[str, np.dtype]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u64": np.dtype(np.uint64),
    "u32": np.dtype(np.uint32),
    "u16": np.dtype(np.uint16),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}

_FROM_NUMPY: Final[dict[np.dtype, DType]] = {n: DTYPES[k] for k, n in _NUMPY.items()}


def from_numpy(dtype: np.dtype) -> DType:
    """The `DType` of a NumPy dtype (native byte order). Raises KeyError when there is none."""
    dtype = np.dtype(dtype)
    if dtype.name == "bfloat16" and dtype == _bfloat16():
        return bf16
    return _FROM_NUMPY[dtype]


@cache
def _bfloat16() -> np.dtype:
    import ml_dtypes

    found: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return found
