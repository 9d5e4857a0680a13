"""Quantised operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.base.dtypes import f32, i32, u8
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.lower_nn import conv_integer
from pliant.frontend.onnx.site import Lowering, Site, product
from pliant.frontend.onnx.tensors import dtype_of
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def lower_quantize(s: Site) -> Value:
    """Round half to even, saturate."""
    x, scale, zero = s.x(0), s.x(1), s.opt(2)
    if zero is not None:
        to = zero.dtype
    elif s.opset >= 21 and s.int_attr("output_dtype", 0):
        to = dtype_of(s.int_attr("output_dtype"), "the result")
    else:
        to = u8
    axis, scale, zero = _layout(s, x, scale, zero)
    if x.dtype is not scale.dtype:
        wide = f32 if x.dtype.is_int else x.dtype
        x, scale = s.cast(x, wide), s.cast(scale, wide)
    return s.call("quantize_linear", x, scale, zero, axis=axis, to=to)


def lower_dequantize(s: Site) -> Value:
    """(x - zero) * scale, in the type of the scale."""
    x, scale, zero = s.x(0), s.x(1), s.opt(2)
    axis, scale, zero = _layout(s, x, scale, zero)
    result = s.call("dequantize_linear", x, scale, zero, axis=axis)
    if s.opset >= 23 and s.int_attr("output_dtype", 0):
        return s.cast(result, dtype_of(s.int_attr("output_dtype"), "the result"))
    return result


def _layout(s: Site, x: Value, scale: Value, zero: Value | None) -> tuple[int, Value, Value | None]:
    """A scale for all, for each slice along an axis, or for each block: then spread to all."""
    rank = len(x.shape)
    if product(scale.shape) == 1 and len(scale.shape) <= 1:
        scalar = None if zero is None else s.reshape(zero, ())
        return 0, s.reshape(scale, ()), scalar
    axis = s.axis("axis", 1, rank=rank)
    block = s.int_attr("block_size", 0)
    if not block and len(scale.shape) == 1:
        return axis, scale, zero
    if len(scale.shape) != rank:
        raise InvalidModelError(f"{s.span}: a scale of rank {len(scale.shape)} for rank {rank}")
    raise s.unsupported("blocked quantization is not supported")


def lower_dynamic_quantize(s: Site) -> tuple[Value, ...]:
    """To u8, with scale and zero point of the data."""
    return s.call_many("dynamic_quantize_linear", s.x())


def lower_matmul_integer(s: Site) -> Value:
    """8-bit operands, 32-bit sums."""
    return _matmul_integer(s, s.x(0), s.x(1), s.zero_point(2), s.zero_point(3))


def _matmul_integer(
    s: Site, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    a_zero = None if a_zero is None else _zero(s, a_zero, row=True)
    b_zero = None if b_zero is None else _zero(s, b_zero, row=False)
    return s.call("matmul_integer", a, b, a_zero, b_zero)


def _zero(s: Site, zero: Value, *, row: bool) -> Value:
    if product(zero.shape) == 1 and len(zero.shape) <= 1:
        return s.reshape(zero, ())
    if row and len(zero.shape) == 1:  # one for each row of the left operand
        return s.reshape(zero, (*zero.shape, 1))
    return zero


def lower_qlinear_matmul(s: Site) -> Value:
    """Integer product, then one scale."""
    sums = _matmul_integer(s, s.x(0), s.x(3), s.zero_point(2), s.zero_point(5))
    a_scale = _broadcast_scale(s, s.x(1), row=True)
    b_scale = _broadcast_scale(s, s.x(4), row=False)
    scale = s.call("mul", a_scale, b_scale)
    real = s.call("mul", s.cast(sums, f32), scale)
    return _requantize(s, real, s.x(6), s.x(7))


def _broadcast_scale(s: Site, scale: Value, *, row: bool) -> Value:
    return s.cast(_zero(s, scale, row=row), f32)


def _requantize(s: Site, real: Value, scale: Value, zero: Value) -> Value:
    if product(scale.shape) != 1:
        raise s.unsupported("a result scale for each row or column is not supported")
    single = s.cast(s.reshape(scale, ()), f32)
    return s.call("quantize_linear", real, single, s.reshape(zero, ()), axis=0, to=zero.dtype)


def lower_qlinear_conv(s: Site) -> Value:
    """Integer convolution, then a scale for each channel."""
    x, w = s.x(0), s.x(3)
    sums = conv_integer(s, x, w, s.zero_point(2), s.zero_point(5))
    rank = len(x.shape)
    if s.has(8):
        bias = s.reshape(s.cast(s.x(8), i32), (w.shape[0],) + (as_int(1),) * (rank - 2))
        sums = s.call("add", sums, bias)
    w_scale = s.x(4)
    if product(w_scale.shape) == 1:
        w_scale = s.reshape(w_scale, ())
    else:
        w_scale = s.reshape(w_scale, (w.shape[0],) + (as_int(1),) * (rank - 2))
    scale = s.call("mul", s.reshape(s.x(1), ()), w_scale)
    real = s.call("mul", s.cast(sums, f32), scale)
    return _requantize(s, real, s.x(6), s.x(7))


QUANT: Final[Mapping[str, Lowering]] = {
    "DequantizeLinear": lower_dequantize,
    "DynamicQuantizeLinear": lower_dynamic_quantize,
    "MatMulInteger": lower_matmul_integer,
    "QLinearConv": lower_qlinear_conv,
    "QLinearMatMul": lower_qlinear_matmul,
    "QuantizeLinear": lower_quantize,
}
