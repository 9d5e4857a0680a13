"""The operators of com.microsoft that exporters commonly write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.base.dtypes import i32, i64
from pliant.frontend.onnx.heads import transposed
from pliant.frontend.onnx.lower_contrib_quant import moved_channels
from pliant.frontend.onnx.lower_index import lower_gather_nd
from pliant.frontend.onnx.lower_math import lower_gelu
from pliant.frontend.onnx.lower_nn import convolved, lower_conv, lower_gemm
from pliant.frontend.onnx.lower_norm import lower_simplified_norm
from pliant.frontend.onnx.lower_shape import lower_trilu
from pliant.frontend.onnx.site import Lowering, Site, product
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def lower_fused_matmul(s: Site) -> Value:
    """Product of transposed operands, scaled. `transBatch`: the first dim belongs behind the
    batch's."""
    a, b = (_turned(s, s.x(k), f"trans{n}", f"transBatch{n}") for k, n in enumerate("AB"))
    result = s.call("matmul", a, b)
    alpha = s.float_attr("alpha", 1.0)
    result = result if alpha == 1.0 else s.call("mul", result, s.scalar(alpha, result.dtype))
    return _activated(s, result)


def _turned(s: Site, x: Value, swap: str, batch: str) -> Value:
    rank = len(x.shape)
    if s.int_attr(batch, 0):
        x = s.call("transpose", x, perm=(*range(1, rank - 1), 0, rank - 1))
    return transposed(s, x) if s.int_attr(swap, 0) and rank > 1 else x


def lower_bias_gelu(s: Site) -> Value:
    """gelu(x + bias)."""
    return s.call("gelu", s.call("add", s.x(0), s.x(1)), approximate="none")


def lower_fast_gelu(s: Site) -> Value:
    """By tanh, with an optional bias."""
    x = s.call("add", s.x(0), s.x(1)) if s.has(1) else s.x(0)
    return s.call("gelu", x, approximate="tanh")


def lower_quick_gelu(s: Site) -> Value:
    """x * sigmoid(alpha * x)."""
    x = s.x()
    scaled = s.call("mul", x, s.scalar(s.float_attr("alpha", 1.702), x.dtype))
    return s.call("mul", x, s.call("sigmoid", scaled))


def lower_skip_layer_norm(s: Site) -> tuple[Value | None, ...]:
    """layer_norm(x + skip + bias); the fourth result is the sum."""
    total = _skip_sum(s, 4)
    eps = s.float_attr("epsilon", 1e-12)
    axis = len(total.shape) - 1
    y = s.call("layer_norm", total, s.x(2), s.opt(3), axes_from=axis, eps=eps)
    _only(s, {0, 3})
    return y, None, None, total


def lower_skip_rms_norm(s: Site) -> tuple[Value | None, ...]:
    """rms_norm(x + skip + bias); the fourth result is the sum."""
    total = _skip_sum(s, 3)
    eps = s.float_attr("epsilon", 1e-12)
    y = s.call("rms_norm", total, s.x(2), axes_from=len(total.shape) - 1, eps=eps)
    _only(s, {0, 3})
    return y, None, None, total


def lower_fused_conv(s: Site) -> Value:
    """A convolution, a sum with an optional fourth operand, an activation."""
    y = lower_conv(s)
    return _activated(s, s.call("add", y, s.x(3)) if s.has(3) else y)


def lower_fused_gemm(s: Site) -> Value:
    """A Gemm, then an activation."""
    return _activated(s, lower_gemm(s))


def _activated(s: Site, y: Value) -> Value:
    """By the activation that the node names, if any; its numbers are one list, or have names."""
    name = s.str_attr("activation", "")
    numbers = s.floats_attr("activation_params", ())
    given = [s.float_attr(f"activation_{n}", 0.0) for n in ("alpha", "beta")]

    def number(k: int) -> float:
        return numbers[k] if k < len(numbers) else given[k]

    match name:
        case "":
            return y
        case "Relu" | "Sigmoid" | "Tanh" | "HardSwish":
            return s.call(name.lower(), y)
        case "LeakyRelu":
            return s.call("leaky_relu", y, alpha=number(0))
        case "HardSigmoid":
            return s.call("hardsigmoid", y, alpha=number(0), beta=number(1))
        case "Clip":
            low, high = (s.scalar(number(k), y.dtype) for k in (0, 1))
            return s.call("clamp", y, low, high)
    raise s.unsupported(f"activation {name!r} is not supported")


def lower_nhwc_conv(s: Site) -> Value:
    """A convolution of channels last, of the weights too."""
    rank = len(s.item(0).shape)
    w = s.call("transpose", s.x(1), perm=(0, rank - 1, *range(1, rank - 1)))
    return moved_channels(s, s.x(0), lambda x: convolved(s, x, w, s.opt(2)))


def lower_embed_layer_norm(s: Site) -> tuple[Value | None, ...]:
    """The sum of the rows for words, places and segments, normalised; how many keys the mask has;
    the sum itself."""
    return _embedded(s, s.x(2), s.x(3), s.opt(4), s.x(5), s.x(6), at=s.opt(8))


def lower_quantized_embed_layer_norm(s: Site) -> tuple[Value | None, ...]:
    """The same of tables of bytes, each with a scale and a zero point."""
    words, places, scale, bias = (_dequantized(s, k) for k in (0, 1, 3, 4))
    segments = _dequantized(s, 2) if s.has(4) else None
    return _embedded(s, words, places, segments, scale, bias, at=None)


def _dequantized(s: Site, k: int) -> Value:
    """Table k with its scale and zero point."""
    numbers = [s.reshape(s.x(first + k), ()) for first in (8, 13)]
    return s.call("dequantize_linear", s.x(2 + k), *numbers, axis=0)


def _embedded(
    s: Site, of_words: Value, of_places: Value, of_segments: Value | None, scale: Value,
    bias: Value, *, at: Value | None,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Of tables of words, places, segments, and the norm's scale and bias."""
    words = s.x(0)
    total = s.call("gather", of_words, words, axis=0)
    if at is None:
        at = s.call("iota", size=words.shape[1], start=0, step=1, dtype=i64)
    total = s.call("add", total, s.call("gather", of_places, at, axis=0))
    if s.has(1) and of_segments is not None:
        total = s.call("add", total, s.call("gather", of_segments, s.x(1), axis=0))
    eps = s.float_attr("epsilon", 1e-12)
    y = s.call("layer_norm", total, scale, bias, axes_from=2, eps=eps)
    if s.has(7):
        kept = s.call("eq", s.x(7), s.scalar(1, s.item(7).dtype))
        count = s.call("sum", s.cast(kept, i32), axes=(1,), keepdims=False)
    else:
        count = s.full((words.shape[0],), 0, i32)
    return y, count, total


def lower_bias_softmax(s: Site) -> Value:
    """softmax(x + bias) over the dims from `axis` on; the bias is for all dims before, or for the
    outer ones of them."""
    x, bias = s.x(0), s.x(1)
    axis = s.axis("axis", 1, rank=len(x.shape))
    total = s.call("add", x, bias)
    flat = s.reshape(total, (product(x.shape[:axis]), product(x.shape[axis:])))
    return s.reshape(s.call("softmax", flat, axis=1), x.shape)


def lower_bias_split_gelu(s: Site) -> Value:
    """The first half of the channels times gelu of the second."""
    x = s.call("add", s.x(0), s.x(1))
    last = len(x.shape) - 1
    half = s.sizes.divide(x.shape[last], as_int(2))
    a, gate = s.call_many("split", x, sizes=(half, half), axis=last)
    return s.call("mul", a, s.call("gelu", gate, approximate="none"))


def lower_group_norm(s: Site) -> Value:
    """Groups of channels, perhaps last, then SiLU if asked."""
    return _group_norm(s, s.x(0))


def lower_skip_group_norm(s: Site) -> tuple[Value, Value]:
    """The same of a sum, which is the second result."""
    x, skip = s.x(0), s.x(3)
    if len(skip.shape) == 2:
        skip = s.reshape(skip, (skip.shape[0], 1, 1, skip.shape[1]))
    total = s.call("add", x, skip)
    total = s.call("add", total, s.x(4)) if s.has(4) else total
    return _group_norm(s, total), total


def _group_norm(s: Site, x: Value) -> Value:
    groups, eps = s.int_attr("groups"), s.float_attr("epsilon", 1e-5)
    scale, bias = (s.cast(s.x(k), x.dtype) for k in (1, 2))

    def normal(t: Value) -> Value:
        return s.call("group_norm", t, scale, bias, groups=groups, eps=eps)

    y = moved_channels(s, x, normal) if s.int_attr("channels_last", 1) else normal(x)
    return s.call("silu", y) if s.int_attr("activation") else y


def lower_bias_add(s: Site) -> Value:
    """x + bias + skip."""
    return s.call("add", s.call("add", s.x(0), s.x(1)), s.x(2))


def lower_expand_dims(s: Site) -> Value:
    """A dim of 1 at the axis that the second operand says."""
    x = s.x(0)
    (axis,) = s.numbers(1, "axis")
    return s.call("unsqueeze", x, axes=(s.positive_axis(axis, len(x.shape) + 1),))


def _skip_sum(s: Site, bias: int) -> Value:
    total = s.call("add", s.x(0), s.x(1))
    return s.call("add", total, s.x(bias)) if s.has(bias) else total


def _only(s: Site, results: set[int]) -> None:
    if s.used - results:
        raise s.unsupported("its mean and deviation results are not supported")


CONTRIB: Final[Mapping[str, Lowering]] = {
    "BiasAdd": lower_bias_add,
    "BiasGelu": lower_bias_gelu,
    "BiasSoftmax": lower_bias_softmax,
    "BiasSplitGelu": lower_bias_split_gelu,
    "EmbedLayerNormalization": lower_embed_layer_norm,
    "ExpandDims": lower_expand_dims,
    "FastGelu": lower_fast_gelu,
    "FusedConv": lower_fused_conv,
    "FusedGemm": lower_fused_gemm,
    "FusedMatMul": lower_fused_matmul,
    "FusedMatMulActivation": lower_fused_matmul,
    "GatherND": lower_gather_nd,
    "Gelu": lower_gelu,
    "GroupNorm": lower_group_norm,
    "NhwcConv": lower_nhwc_conv,
    "QEmbedLayerNormalization": lower_quantized_embed_layer_norm,
    "QuickGelu": lower_quick_gelu,
    "SimplifiedLayerNormalization": lower_simplified_norm,
    "SkipGroupNorm": lower_skip_group_norm,
    "SkipLayerNormalization": lower_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": lower_skip_rms_norm,
    "TransposeMatMul": lower_fused_matmul,
    "Trilu": lower_trilu,
}
