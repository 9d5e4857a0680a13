"""Torch's type promotion, to the letter, on Pliant's types.

Tensors with dimensions count most, then rank-0 tensors, then Python numbers; a lower class changes
the result only when its kind (bool < integer < float) is higher.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch

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
)  # fmt: skip
from pliant.base.errors import UnsupportedError
from pliant.graph.function import Value
from pliant.sym.expr import Int

_PAIRS: Final = (
    (torch.float64, f64), (torch.float32, f32), (torch.float16, f16), (torch.bfloat16, bf16),
    (torch.int64, i64), (torch.int32, i32), (torch.int16, i16), (torch.int8, i8),
    (torch.uint64, u64), (torch.uint32, u32), (torch.uint16, u16), (torch.uint8, u8),
    (torch.bool, boolean),
)  # fmt: skip
_PARTS: Final = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
FROM_TORCH: Final[dict[torch.dtype, DType]] = dict(_PAIRS)
TO_TORCH: Final[dict[DType, torch.dtype]] = {b: a for a, b in _PAIRS}


def from_torch(dtype: torch.dtype) -> DType:
    """The element type. Raises UnsupportedError when Pliant has none."""
    found = FROM_TORCH.get(dtype)
    if found is None:
        raise UnsupportedError(f"tensors of {dtype} are not supported")
    return found


def part_of(dtype: torch.dtype) -> torch.dtype:
    """The type of the parts of complex numbers; another type itself."""
    return _PARTS.get(dtype, dtype)


def default_float() -> DType:
    """The type of a Python float (`torch.set_default_dtype`)."""
    return from_torch(torch.get_default_dtype())


def common_type(operands: Iterable[Any]) -> DType:
    """`torch.result_type` of tensors and numbers."""
    ranked: DType | None = None
    zero: DType | None = None
    number: DType | None = None
    for x in operands:
        if isinstance(x, Value):
            if x.shape:
                ranked = _promote(ranked, x.dtype)
            else:
                zero = _promote(zero, x.dtype)
        elif x is not None:
            number = _promote(number, number_type(x))
    result = _combine(_combine(ranked, zero), number)
    if result is None:
        raise UnsupportedError("an operator without operands")
    return result


def number_type(x: Any) -> DType:
    """The type that a Python number brings."""
    if isinstance(x, bool):
        return boolean
    return i64 if isinstance(x, int | Int) else default_float()


def floating(dtype: DType) -> DType:
    """What a float function makes of this type: integers become the default float type."""
    return dtype if dtype.is_float else default_float()


def in_sums(dtype: DType) -> DType:
    """The type in which what becomes this type is computed: f32 for 16-bit floats."""
    return f32 if dtype.is_float and dtype.bits < f32.bits else dtype


def _promote(a: DType | None, b: DType | None) -> DType | None:
    if a is None or b is None:
        return b if a is None else a
    return from_torch(torch.promote_types(TO_TORCH[a], TO_TORCH[b]))


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_float:
        return higher
    if higher is boolean or lower.is_float:
        return _promote(higher, lower)
    return higher
