"""Conversion between real numbers and small integers: real = scale * (q - zero)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.base.dtypes import DType, f32, i32, u8
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Binary, Expr, Unary
from pliant.ir.tensor import Tensor, compute, select
from pliant.ops.activation import maximum_of, minimum_of
from pliant.ops.common import (
    Requirement,
    accumulator,
    check_axis,
    equal,
    needs_float,
    same_type,
)
from pliant.ops.reduce import over_axes
from pliant.sym.expr import Int, as_int


def quantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int, to: DType
) -> Tensor:
    """saturate(round(x / scale) + zero), rounding half to even; scale and zero are one number, or
    one for each place on `axis`."""
    needs_float(x)
    if zero is not None and zero.dtype is not to:
        raise InvalidModelError(f"the zero point is {zero.dtype}, not {to}")
    wide = accumulator(x.dtype)
    parameters = _Parameters(x, scale, zero, axis)

    def body(*i: Int) -> Expr:
        value = Unary("round", x[i].cast(wide) / parameters.scale_at(i).cast(wide))
        offset = parameters.zero_at(i)
        return (value if offset is None else value + offset.cast(wide)).cast(to)

    return compute(x.shape, body, "quantize", parameters.requires)


def dequantize_linear(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int) -> Tensor:
    """(x - zero) * scale, in the type of the scale."""
    if not x.dtype.is_int:
        raise InvalidModelError(f"dequantize of {x.dtype}")
    if zero is not None:
        same_type(x, zero)
    wide = accumulator(scale.dtype)
    parameters = _Parameters(x, scale, zero, axis)

    def body(*i: Int) -> Expr:
        value, offset = x[i].cast(i32), parameters.zero_at(i)
        difference = value if offset is None else value - offset.cast(i32)
        return (difference.cast(wide) * parameters.scale_at(i).cast(wide)).cast(scale.dtype)

    return compute(x.shape, body, "dequantize", parameters.requires)


def _is_one(t: Tensor) -> bool:
    """Whether a parameter is one number for the whole tensor."""
    return t.rank == 0 or (t.rank == 1 and t.shape[0] == 1)


class _Parameters:
    """Scale and zero point: rank 0, or rank 1 along an axis of x."""

    def __init__(self, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int) -> None:
        needs_float(scale)
        self.scale, self.zero, self.axis = scale, zero, axis
        self.requires: tuple[Requirement, ...] = ()
        for t in (scale, zero):
            if t is None or _is_one(t):
                continue
            check_axis(axis, x.rank)
            if t.rank != 1:
                raise InvalidModelError(f"scale and zero point have rank 0 or 1, not {t.rank}")
            n, extent = t.shape[0], x.shape[axis]
            message = f"the scale has {n} elements, axis {axis} of the operand {extent}"
            self.requires += equal(n, extent, message)

    def _at(self, t: Tensor, i: Sequence[Int]) -> Expr:
        if _is_one(t):
            return t[(as_int(0),) * t.rank]
        return t[i[self.axis]]

    def scale_at(self, i: Sequence[Int]) -> Expr:
        return self._at(self.scale, i)

    def zero_at(self, i: Sequence[Int]) -> Expr | None:
        return None if self.zero is None else self._at(self.zero, i)


def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(y u8, scale f32, zero u8) for the range of x widened to hold 0 (ONNX); the scale of a
    tensor of zeros is 1."""
    if x.dtype is not f32:
        raise InvalidModelError(f"dynamic quantization of {x.dtype}")
    axes = tuple(range(x.rank))
    most = over_axes(x, "max", axes, False, lambda p: x[p], "max")
    least = over_axes(x, "min", axes, False, lambda p: x[p], "min")

    def scale_body() -> Expr:
        width = maximum_of(most[()], 0.0) - minimum_of(least[()], 0.0)
        return select(width.eq(0.0), 1.0, width / 255.0)

    scale = compute((), scale_body, "scale")

    def zero_body() -> Expr:
        exact = 0.0 - minimum_of(least[()], 0.0) / scale[()]
        return Unary("round", minimum_of(maximum_of(exact, 0.0), 255.0)).cast(u8)

    zero = compute((), zero_body, "zero")

    def body(*i: Int) -> Expr:
        value = Unary("round", x[i] / scale[()])
        return Binary("add", value, zero[()].cast(f32)).cast(u8)

    return compute(x.shape, body, "quantize"), scale, zero


QUANTIZE: Final[tuple[Operator, ...]] = (
    Operator("quantize_linear", quantize_linear),
    Operator("dequantize_linear", dequantize_linear),
    Operator("dynamic_quantize_linear", dynamic_quantize_linear),
)
