"""Quantised operators of com.microsoft: weights in blocks of few bits, and operators of 8 bits.

    MatMulNBits      w[n, k] = (bits of B[n, k] - zero[n, k // block]) * scale[n, k // block]

Weights stay as they are packed: unpacking them is part of what is computed once, of weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from onnx import NodeProto

from pliant.base.dtypes import f32, u8
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.lower_nn import lower_average_pool
from pliant.frontend.onnx.lower_quant import (
    by_blocks,
    dequantized,
    integer_product,
    lower_dequantize,
    lower_quantize,
    zero_or_scale,
)
from pliant.frontend.onnx.lower_recurrent import lower_recurrent
from pliant.frontend.onnx.site import Item, Lowering, Results, Site, product
from pliant.graph.function import Value
from pliant.sym.expr import Int, IntLike, as_int, ceildiv

_OPSET_OF_AXES: Final = 13
"""Since when softmax is along one axis; QLinearSoftmax says which it follows."""


def lower_matmul_n_bits(s: Site) -> Value:
    """A times a matrix of 2, 4 or 8 bits, with a scale for each block of a row."""
    if s.int_attr("weight_prepacked", 0):
        raise s.unsupported("weights packed for one kind of GPU are not supported")
    a, bits = s.x(0), s.int_attr("bits", 4)
    n, k, block = (as_int(s.int_attr(name)) for name in ("N", "K", "block_size"))
    if min(n.value, k.value, block.value) < 1:
        raise InvalidModelError(f"{s.span}: N, K and block_size must be at least 1")
    count = ceildiv(k, block)
    places = _unpacked(s, s.x(1), bits, block)  # [N, count, block]
    shape = (n, count, as_int(1))
    scale = s.reshape(s.x(2), (n, count))
    zero = _zero_points(s, 3, bits, n, count)
    if s.has(4):  # each k belongs to the block that g_idx says
        flat = s.part(s.reshape(places, (n, count * block)), 1, 0, k)
        scale = s.call("gather", scale, s.x(4), axis=1)
        zero = s.call("gather", zero, s.x(4), axis=1) if zero.shape else zero
        w = dequantized(s, flat, scale, zero)
    else:
        zero = s.reshape(zero, shape) if zero.shape else zero
        w = dequantized(s, places, s.reshape(scale, shape), zero)
        w = s.part(s.reshape(w, (n, count * block)), 1, 0, k)
    return s.call("linear", a, s.cast(w, a.dtype), s.opt(5))


def _zero_points(s: Site, index: int, bits: int, rows: IntLike, count: Int) -> Value:
    """[rows, count], unpacked; the middle of the range where there are none."""
    if not s.has(index):
        return s.scalar(1 << bits - 1, u8)
    given = s.x(index)
    if given.dtype is not u8:
        return s.reshape(given, (rows, count))
    wide = ceildiv(count * bits, 8)
    return _unpacked(s, s.reshape(given, (rows, wide)), bits, count)


def _unpacked(s: Site, packed: Value, bits: int, count: IntLike) -> Value:
    """Unsigned integers of so many bits out of bytes, low bits first: `count` along the last
    dim."""
    if packed.dtype is not u8 or bits not in (1, 2, 4, 8):
        raise s.unsupported(f"{bits} bits in {packed.dtype} are not supported: 2, 4 or 8 in u8")
    last = len(packed.shape) - 1
    if bits == 8:
        return s.part(packed, last, 0, count)
    mask = s.scalar((1 << bits) - 1, u8)
    parts = []
    for shift in range(0, 8, bits):
        part = s.call("shr", packed, s.scalar(shift, u8)) if shift else packed
        parts.append(s.call("and", part, mask) if shift + bits < 8 else part)
    apart = s.call("stack", tuple(parts), axis=last + 1)
    bits_apart = s.reshape(apart, (*packed.shape[:-1], packed.shape[-1] * len(parts)))
    return s.part(bits_apart, last, 0, count)


def lower_gather_block_quantized(s: Site) -> Value:
    """Slices of a quantised tensor along an axis, dequantised. Of bytes that hold several elements
    the slices are unpacked, not the tensor."""
    data, at, scale, zero = s.x(0), s.x(1), s.x(2), s.opt(3)
    rank, bits = len(data.shape), s.int_attr("bits", 4)
    gathered = s.axis("gather_axis", 0, rank=rank)
    along = s.axis("quantize_axis", 1, rank=rank)
    block = s.int_attr("block_size", 128)
    packed = data.dtype is u8 and not s.item(0).small
    if packed and gathered in (along, rank - 1):
        raise InvalidModelError(f"{s.span}: it gathers bytes along the axis of blocks or of bits")
    if along == gathered:
        full = _by_blocks(s, data, scale, zero, along, block)
        return s.call("gather", full, at, axis=gathered)
    data, scale = (s.call("gather", t, at, axis=gathered) for t in (data, scale))
    if zero is not None:
        zero = s.call("gather", zero, at, axis=gathered)
    axis = along + (len(at.shape) - 1 if along > gathered else 0)
    if packed:
        data = _unpacked(s, data, bits, data.shape[-1] * (8 // bits))
        if zero is None:
            zero = s.scalar(1 << bits - 1, u8)
        else:
            zero = _unpacked(s, zero, bits, scale.shape[-1])
    return _by_blocks(s, data, scale, zero, axis, block)


def _by_blocks(
    s: Site, data: Value, scale: Value, zero: Value | None, axis: int, block: int
) -> Value:
    """With a scale, and a zero point, for each block along an axis."""
    if zero is not None and zero.shape:
        zero = by_blocks(s, zero, axis, block, data.shape)
    return dequantized(s, data, by_blocks(s, scale, axis, block, data.shape), zero)


def lower_dynamic_quantize_matmul(s: Site) -> Value:
    """A becomes bytes by its own range, then as MatMulIntegerToFloat."""
    a, scale, zero = s.call_many("dynamic_quantize_linear", s.x(0))
    return to_float(s, a, s.x(1), scale, zero, 2, 3, 4)


def lower_matmul_integer_to_float(s: Site) -> Value:
    """The product of bytes, scaled, plus a bias."""
    return to_float(s, s.x(0), s.x(1), s.x(2), s.zero_point(4), 3, 5, 6)


def to_float(
    s: Site, a: Value, b: Value, a_scale: Value, a_zero: Value | None, b_scale: int, b_zero: int,
    bias: int,
) -> Value:  # fmt: skip
    """A product of bytes, scaled, plus a bias; the last three are numbers of operands."""
    sums = integer_product(s, a, b, a_zero, s.zero_point(b_zero))
    scales = [zero_or_scale(s, t, row=r) for t, r in ((a_scale, True), (s.x(b_scale), False))]
    real = s.call("mul", s.cast(sums, scales[0].dtype), s.call("mul", *scales))
    return s.call("add", real, s.x(bias)) if s.has(bias) else real


# Operators of bytes: dequantise, compute, quantise


def _one(s: Site, index: int) -> Value | None:
    found = s.opt(index)
    return None if found is None else s.reshape(found, ())


def _real(s: Site, first: int) -> Value:
    """Operands `first`, its scale, its zero point as a real tensor."""
    scale = s.reshape(s.x(first + 1), ())
    return s.call("dequantize_linear", s.x(first), scale, _one(s, first + 2), axis=0)


def _bytes(s: Site, real: Value, first: int, like: Value) -> Value:
    """A real tensor by the scale and zero point at `first`."""
    scale = s.reshape(s.x(first), ())
    return s.call("quantize_linear", real, scale, _one(s, first + 1), axis=0, to=like.dtype)


def _binary(op: str) -> Lowering:
    return lambda s: _bytes(s, s.call(op, _real(s, 0), _real(s, 3)), 6, s.x(0))


def _unary(compute: Callable[[Site, Value], Value]) -> Lowering:
    return lambda s: _bytes(s, compute(s, _real(s, 0)), 3, s.x(0))


def _leaky_relu(s: Site, x: Value) -> Value:
    return s.call("leaky_relu", x, alpha=s.float_attr("alpha", 0.01))


def _softmax(s: Site, x: Value) -> Value:
    rank = len(x.shape)
    axis = s.axis("axis", -1, rank=rank)
    if s.int_attr("opset") >= _OPSET_OF_AXES or axis == rank - 1:
        return s.call("softmax", x, axis=axis)
    flat = s.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return s.reshape(s.call("softmax", flat, axis=1), x.shape)


def _global_average(s: Site, x: Value) -> Value:
    rank = len(x.shape)
    axes = tuple(range(1, rank - 1) if s.int_attr("channels_last", 0) else range(2, rank))
    return s.call("mean", x, axes=axes, keepdims=True)


def _average(s: Site, x: Value) -> Value:
    return channels_last(s, x, lambda t: lower_average_pool(s, t))


def channels_last(s: Site, x: Value, compute: Callable[[Value], Value]) -> Value:
    """A computation of [N, C, ...], of a tensor that has its channels last if the node says so."""
    if not s.int_attr("channels_last", 0):
        return compute(x)
    return moved_channels(s, x, compute)


def moved_channels(s: Site, x: Value, compute: Callable[[Value], Value]) -> Value:
    """A computation of [N, C, ...] of a tensor [N, ..., C], and back."""
    rank = len(x.shape)
    y = compute(s.call("transpose", x, perm=(0, rank - 1, *range(1, rank - 1))))
    return s.call("transpose", y, perm=(0, *range(2, rank), 1))


def lower_qlinear_concat(s: Site) -> Value:
    """Operands in threes after the result's scale and zero point."""
    if len(s.items) < 5 or len(s.items) % 3 != 2:
        raise InvalidModelError(f"{s.span}: {len(s.items)} operands; it takes 2 and threes")
    parts = tuple(_real(s, k) for k in range(2, len(s.items), 3))
    joined = s.call("concat", parts, axis=s.axis(rank=len(parts[0].shape)))
    return _bytes(s, joined, 0, s.x(2))


def lower_qlinear_where(s: Site) -> Value:
    """cond ? x : y."""
    return _bytes(s, s.call("where", s.x(0), _real(s, 1), _real(s, 4)), 7, s.x(1))


def lower_qgemm(s: Site) -> Value:
    """alpha * (A @ B) + C, of bytes; real where there is no scale of the result."""
    a, b = s.x(0), s.x(3)
    a = s.call("transpose", a, perm=(1, 0)) if s.int_attr("transA", 0) else a
    b = s.call("transpose", b, perm=(1, 0)) if s.int_attr("transB", 0) else b
    sums = integer_product(s, a, b, s.zero_point(2), s.zero_point(5))
    if s.has(6):
        sums = s.call("add", sums, s.x(6))
    scales = [zero_or_scale(s, s.x(k), row=False) for k in (1, 4)]
    alpha = s.scalar(s.float_attr("alpha", 1.0), f32)
    factor = s.call("mul", s.call("mul", *scales), alpha)
    real = s.call("mul", s.cast(sums, f32), factor)
    if not s.has(7):
        return real
    zero = s.opt(8)
    return _bytes(s, real, 7, a if zero is None else zero)


def lower_dynamic_quantize_lstm(s: Site) -> Results:
    """An LSTM whose weights are bytes, [directions, inputs, gates]. They are made real; what the
    states are is not rounded to bytes in every step."""
    weights = []
    for index, scale in ((1, 8), (2, 10)):
        real = _weights(s, s.x(index), s.x(scale), s.opt(scale + 1))
        turned = s.call("transpose", real, perm=(0, 2, 1))
        weights.append(Item(turned.dtype, turned.shape, turned))
    node = NodeProto()
    node.CopyFrom(s.node)
    node.op_type = "LSTM"
    return lower_recurrent(replace(s, node=node, items=(s.item(0), *weights, *s.items[3:8])))


def _weights(s: Site, w: Value, scale: Value, zero: Value | None) -> Value:
    """A scale for each direction, or for each of its gates too."""
    last = scale.shape[1] if len(scale.shape) == 2 else as_int(1)
    shape = (w.shape[0], as_int(1), last)
    return dequantized(
        s, w, s.reshape(scale, shape), None if zero is None else s.reshape(zero, shape)
    )


CONTRIB_QUANT: Final[Mapping[str, Lowering]] = {
    "DequantizeLinear": lower_dequantize,
    "DynamicQuantizeLSTM": lower_dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": lower_dynamic_quantize_matmul,
    "GatherBlockQuantized": lower_gather_block_quantized,
    "MatMulIntegerToFloat": lower_matmul_integer_to_float,
    "MatMulNBits": lower_matmul_n_bits,
    "QGemm": lower_qgemm,
    "QLinearAdd": _binary("add"),
    "QLinearAveragePool": _unary(_average),
    "QLinearConcat": lower_qlinear_concat,
    "QLinearGlobalAveragePool": _unary(_global_average),
    "QLinearLeakyRelu": _unary(_leaky_relu),
    "QLinearMul": _binary("mul"),
    "QLinearSigmoid": _unary(lambda s, x: s.call("sigmoid", x)),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearWhere": lower_qlinear_where,
    "QuantizeLinear": lower_quantize,
}
