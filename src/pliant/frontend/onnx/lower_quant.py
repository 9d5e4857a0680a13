"""Quantised operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pliant.base.dtypes import DType, f32, i32, u8
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.lower_nn import conv_integer
from pliant.frontend.onnx.site import Item, Lowering, Site, product
from pliant.frontend.onnx.tensors import SMALL_INTS, dtype_of, small_range
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, ceildiv


def lower_quantize(s: Site) -> Value | Item:
    """Round half to even, saturate."""
    x, scale, zero = s.x(0), s.x(1), s.opt(2)
    small = s.item(2).small if s.has(2) else 0
    wanted = s.int_attr("output_dtype", 0) if s.opset >= 21 else 0
    if wanted in SMALL_INTS:
        small = wanted
    if small and small not in SMALL_INTS:
        raise s.unsupported("results of 8-bit floats are not supported")
    if zero is not None:
        to = zero.dtype
    elif small:
        to = SMALL_INTS[small][0]
    else:
        to = dtype_of(wanted, "the result") if wanted else u8
    precision = s.int_attr("precision", 0) if s.opset >= 23 else 0
    wide = dtype_of(precision, "precision") if precision else scale.dtype
    y = quantized(s, s.cast(x, wide), s.cast(scale, wide), zero, to)
    if not small:
        return y
    low, high = (s.scalar(bound, to) for bound in small_range(small))
    y = s.call("clamp", y, low, high)
    return Item(to, y.shape, y, small=small)


def quantized(s: Site, x: Value, scale: Value, zero: Value | None, to: DType) -> Value:
    """saturate(round(x / scale) + zero), the scale for all, along the node's axis or by blocks."""
    axis, scale, zero, blocks = _layout(s, x, scale, zero)
    if not blocks:
        return s.call("quantize_linear", x, scale, zero, axis=axis, to=to)
    wide = f32 if x.dtype.bits == 16 else x.dtype
    places = s.call("round", s.call("div", s.cast(x, wide), s.cast(scale, wide)))
    if zero is not None:
        places = s.call("add", places, s.cast(zero, wide))
    return s.cast(places, to)


def lower_dequantize(s: Site) -> Value:
    """(x - zero) * scale, in the type of the scale."""
    x, scale, zero = s.x(0), s.x(1), s.opt(2)
    axis, scale, zero, blocks = _layout(s, x, scale, zero)
    if x.dtype.is_float:  # it was less than 16 bits wide: no zero point
        place = tuple(d if k == axis else as_int(1) for k, d in enumerate(x.shape))
        scale = s.reshape(scale, place) if len(scale.shape) == 1 else scale
        result = s.call("mul", s.cast(x, scale.dtype), scale)
    elif blocks:
        result = dequantized(s, x, scale, zero)
    else:
        result = s.call("dequantize_linear", x, scale, zero, axis=axis)
    if s.opset >= 23 and s.int_attr("output_dtype", 0):
        return s.cast(result, dtype_of(s.int_attr("output_dtype"), "the result"))
    return result


def dequantized(s: Site, x: Value, scale: Value, zero: Value | None) -> Value:
    """(x - zero) * scale where these broadcast, computed in f32 or f64."""
    wide = f32 if scale.dtype.bits == 16 else scale.dtype
    if zero is None:
        places = s.cast(x, wide)
    elif zero.dtype.is_float:
        places = s.call("sub", s.cast(x, wide), s.cast(zero, wide))
    else:
        places = s.cast(s.call("sub", s.cast(x, i32), s.cast(zero, i32)), wide)
    return s.cast(s.call("mul", places, s.cast(scale, wide)), scale.dtype)


def _layout(
    s: Site, x: Value, scale: Value, zero: Value | None
) -> tuple[int, Value, Value | None, bool]:
    """A scale for all, for each slice along an axis, or for each block: then spread to all."""
    rank = len(x.shape)
    block = s.int_attr("block_size", 0) if s.opset >= 21 else 0
    if not block and product(scale.shape) == 1 and len(scale.shape) <= 1:
        scalar = None if zero is None else s.reshape(zero, ())
        return 0, s.reshape(scale, ()), scalar, False
    axis = s.axis("axis", 1, rank=rank)
    if not block and len(scale.shape) == 1:
        return axis, scale, zero, False
    if not block or len(scale.shape) != rank:
        raise InvalidModelError(f"{s.span}: a scale of rank {len(scale.shape)} for rank {rank}")
    spread = [None if t is None else by_blocks(s, t, axis, block, x.shape) for t in (scale, zero)]
    assert spread[0] is not None
    return axis, spread[0], spread[1], True


def by_blocks(s: Site, t: Value, axis: int, block: int, shape: Sequence[Int]) -> Value:
    """`t`, which has an element for each block of so many along `axis`, with one for each element
    of `shape` there; the last block may be a part of one."""
    if block < 1:
        raise InvalidModelError(f"{s.span}: blocks of {block}")
    if shape[axis].is_const:
        block = min(block, max(shape[axis].value, 1))
    count = t.shape[axis]
    message = f"{s.span}: dim {axis} of a scale or zero point has not one for each block"
    s.builder.equal(count, ceildiv(shape[axis], as_int(block)), message)
    for k, (have, want) in enumerate(zip(t.shape, shape, strict=True)):
        if k != axis:
            s.builder.equal(have, want, f"{s.span}: dim {k} of a scale or zero point")
    apart = s.call("unsqueeze", t, axes=(axis + 1,))
    each = (*t.shape[: axis + 1], as_int(block), *t.shape[axis + 1 :])
    whole = (*t.shape[:axis], count * block, *t.shape[axis + 1 :])
    spread = s.reshape(s.call("expand", apart, shape=each), whole)
    return s.part(spread, axis, 0, shape[axis])


def lower_dynamic_quantize(s: Site) -> tuple[Value, ...]:
    """To u8, with scale and zero point of the data."""
    return s.call_many("dynamic_quantize_linear", s.x())


def lower_matmul_integer(s: Site) -> Value:
    """8-bit operands, 32-bit sums."""
    return integer_product(s, s.x(0), s.x(1), s.zero_point(2), s.zero_point(3))


def integer_product(
    s: Site, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    """(a - a_zero) @ (b - b_zero), a zero point for all, for each row of a, each column of b."""
    a_zero = None if a_zero is None else zero_or_scale(s, a_zero, row=True)
    b_zero = None if b_zero is None else zero_or_scale(s, b_zero, row=False)
    return s.call("matmul_integer", a, b, a_zero, b_zero)


def zero_or_scale(s: Site, zero: Value, *, row: bool) -> Value:
    """A zero point or scale, shaped to broadcast with a product."""
    if product(zero.shape) == 1 and len(zero.shape) <= 1:
        return s.reshape(zero, ())
    if row and len(zero.shape) == 1:  # one for each row of the left operand
        return s.reshape(zero, (*zero.shape, 1))
    return zero


def lower_qlinear_matmul(s: Site) -> Value:
    """Integer product, then one scale."""
    sums = integer_product(s, s.x(0), s.x(3), s.zero_point(2), s.zero_point(5))
    a_scale = _broadcast_scale(s, s.x(1), row=True)
    b_scale = _broadcast_scale(s, s.x(4), row=False)
    scale = s.call("mul", a_scale, b_scale)
    real = s.call("mul", s.cast(sums, f32), scale)
    return _requantize(s, real, s.x(6), s.x(7))


def _broadcast_scale(s: Site, scale: Value, *, row: bool) -> Value:
    return s.cast(zero_or_scale(s, scale, row=row), f32)


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
