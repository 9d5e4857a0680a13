"""The operators of com.microsoft that exporters commonly write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.frontend.onnx.lower_math import lower_gelu
from pliant.frontend.onnx.lower_nn import lower_conv
from pliant.frontend.onnx.site import Lowering, Site
from pliant.graph.function import Value


def lower_fused_matmul(s: Site) -> Value:
    """Product of transposed operands, scaled."""
    a, b = s.x(0), s.x(1)
    if s.int_attr("transBatchA", 0) or s.int_attr("transBatchB", 0):
        raise s.unsupported("transBatch is not supported")
    a = _swapped(s, a) if s.int_attr("transA", 0) else a
    b = _swapped(s, b) if s.int_attr("transB", 0) else b
    result = s.call("matmul", a, b)
    alpha = s.float_attr("alpha", 1.0)
    return result if alpha == 1.0 else s.call("mul", result, s.scalar(alpha, result.dtype))


def _swapped(s: Site, x: Value) -> Value:
    rank = len(x.shape)
    return s.call("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))


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
    y = s.call("add", y, s.x(3)) if s.has(3) else y
    name = s.str_attr("activation", "")
    if name in ("Relu", "Sigmoid", "Tanh"):
        return s.call(name.lower(), y)
    if name:
        raise s.unsupported(f"activation {name!r} is not supported")
    return y


def _skip_sum(s: Site, bias: int) -> Value:
    total = s.call("add", s.x(0), s.x(1))
    return s.call("add", total, s.x(bias)) if s.has(bias) else total


def _only(s: Site, results: set[int]) -> None:
    if s.used - results:
        raise s.unsupported("its mean and deviation results are not supported")


CONTRIB: Final[Mapping[str, Lowering]] = {
    "BiasGelu": lower_bias_gelu,
    "FastGelu": lower_fast_gelu,
    "FusedConv": lower_fused_conv,
    "FusedMatMul": lower_fused_matmul,
    "Gelu": lower_gelu,
    "QuickGelu": lower_quick_gelu,
    "SkipLayerNormalization": lower_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": lower_skip_rms_norm,
}
