"""Normalisation in inference form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pliant.base.dtypes import DType
from pliant.frontend.onnx.site import Lowering, Site
from pliant.frontend.onnx.tensors import dtype_of
from pliant.graph.function import Value
from pliant.sym.expr import IntLike, as_int


def lower_batch_norm(s: Site) -> Value:
    """With the stored mean and variance."""
    training = bool(s.int_attr("training_mode", 0)) if s.opset >= 14 else len(s.node.output) > 1
    if training:
        raise s.unsupported("training mode is not supported")
    if s.opset < 9 and not s.int_attr("spatial", 1):
        raise s.unsupported("statistics of each pixel (spatial = 0) are not supported")
    x, scale, bias, mean, var = (s.x(k) for k in range(5))
    wide = mean.dtype if mean.dtype.bits > x.dtype.bits else x.dtype
    cast = [s.cast(v, wide) for v in (x, scale, bias, mean, var)]
    result = s.call("batch_norm", *cast, eps=s.float_attr("epsilon", 1e-5))
    return s.cast(result, x.dtype)


def lower_instance_norm(s: Site) -> Value:
    """Each channel of each sample."""
    eps = s.float_attr("epsilon", 1e-5)
    return s.call("instance_norm", s.x(0), s.x(1), s.x(2), eps=eps)


def lower_group_norm(s: Site) -> Value:
    """Before opset 21 scale and bias belong to groups, not channels."""
    x, scale, bias = s.x(0), s.x(1), s.x(2)
    groups, eps = s.int_attr("num_groups"), s.float_attr("epsilon", 1e-5)
    if s.opset < 21:
        each = s.sizes.divide(x.shape[1], as_int(groups))
        scale, bias = (_repeated(s, v, groups, each) for v in (scale, bias))
    wide = _stash(s, x)
    normal = s.call("group_norm", s.cast(x, wide), None, None, groups=groups, eps=eps)
    return _scaled_channels(s, s.cast(normal, x.dtype), scale, bias)


def _repeated(s: Site, v: Value, groups: int, each: IntLike) -> Value:
    spread = s.call("expand", s.reshape(v, (groups, 1)), shape=(as_int(groups), as_int(each)))
    return s.reshape(spread, (groups * as_int(each),))


def _scaled_channels(s: Site, x: Value, scale: Value, bias: Value) -> Value:
    shape = (x.shape[1],) + (as_int(1),) * (len(x.shape) - 2)
    scaled = s.call("mul", x, s.reshape(scale, shape))
    return s.call("add", scaled, s.reshape(bias, shape))


def _stash(s: Site, x: Value) -> DType:
    wanted = dtype_of(s.int_attr("stash_type", 1), "stash_type")
    return wanted if wanted.bits > x.dtype.bits else x.dtype


def lower_layer_norm(s: Site) -> tuple[Value | None, ...]:
    """Over the dims from `axis` on; mean and inverse deviation only where they are read."""
    x, scale, bias = s.x(0), s.x(1), s.opt(2)
    axis = s.axis("axis", -1, rank=len(x.shape))
    eps = s.float_attr("epsilon", 1e-5)
    wide = _stash(s, x)
    wide_x = s.cast(x, wide)
    inner = x.shape[axis:]
    fits = scale.shape == inner and (bias is None or bias.shape == inner)
    if fits and wide is x.dtype:
        y = s.call("layer_norm", x, scale, bias, axes_from=axis, eps=eps)
    else:
        y = s.cast(s.call("layer_norm", wide_x, None, None, axes_from=axis, eps=eps), x.dtype)
        y = s.call("mul", y, scale)
        y = y if bias is None else s.call("add", y, bias)
    if s.used <= {0}:
        return (y,)
    axes = tuple(range(axis, len(x.shape)))
    mean = s.call("mean", wide_x, axes=axes, keepdims=True)
    var = s.call("variance", wide_x, axes=axes, keepdims=True, correction=0)
    inverse = s.call("rsqrt", s.call("add", var, s.scalar(eps, wide)))
    kept = dtype_of(s.int_attr("stash_type", 1), "LayerNormalization")
    return y, s.cast(mean, kept), s.cast(inverse, kept)


def lower_rms_norm(s: Site) -> Value:
    """Over the dims from `axis` on."""
    x, scale = s.x(0), s.x(1)
    axis = s.axis("axis", -1, rank=len(x.shape))
    eps = s.float_attr("epsilon", 1e-5)
    wide = _stash(s, x)
    if scale.shape == x.shape[axis:] and wide is x.dtype and scale.dtype is x.dtype:
        return s.call("rms_norm", x, scale, axes_from=axis, eps=eps)
    normal = s.call("rms_norm", s.cast(x, wide), None, axes_from=axis, eps=eps)
    narrow = s.cast(s.cast(normal, x.dtype), scale.dtype)
    return s.call("mul", narrow, scale)


def lower_simplified_norm(s: Site) -> tuple[Value, ...]:
    """RMSNormalization before it was standard; the second result is the inverse deviation."""
    y = lower_rms_norm(s)
    if 1 not in s.used:
        return (y,)
    x = s.cast(s.x(0), _stash(s, s.x(0)))
    axes = tuple(range(s.axis("axis", -1, rank=len(x.shape)), len(x.shape)))
    square = s.call("mean", s.call("mul", x, x), axes=axes, keepdims=True)
    eps = s.scalar(s.float_attr("epsilon", 1e-5), x.dtype)
    return y, s.call("rsqrt", s.call("add", square, eps))


def lower_lrn(s: Site) -> Value:
    """Across neighbouring channels."""
    return s.call(
        "lrn", s.x(), size=s.int_attr("size"), alpha=s.float_attr("alpha", 1e-4),
        beta=s.float_attr("beta", 0.75), bias=s.float_attr("bias", 1.0),
    )  # fmt: skip


def lower_lp_normalization(s: Site) -> Value:
    """To unit 1- or 2-norm; a zero vector stays zero."""
    x = s.x()
    axis, p = s.axis("axis", -1, rank=len(x.shape)), s.int_attr("p", 2)
    norm = s.call("norm", x, p=p, axes=(axis,), keepdims=True)
    zero = s.scalar(0.0, x.dtype)
    safe = s.call("where", s.call("eq", norm, zero), s.scalar(1.0, x.dtype), norm)
    return s.call("div", x, safe)


def lower_mean_variance(s: Site) -> Value:
    """Zero mean, unit variance."""
    x = s.x()
    axes: Sequence[int] = s.ints_attr("axes", (0, 2, 3))
    positive = tuple(s.positive_axis(a, len(x.shape)) for a in axes)
    return s.call("mean_variance_normalize", x, axes=positive, eps=1e-9)


NORM: Final[Mapping[str, Lowering]] = {
    "BatchNormalization": lower_batch_norm,
    "GroupNormalization": lower_group_norm,
    "InstanceNormalization": lower_instance_norm,
    "LRN": lower_lrn,
    "LayerNormalization": lower_layer_norm,
    "LpNormalization": lower_lp_normalization,
    "MeanVarianceNormalization": lower_mean_variance,
    "RMSNormalization": lower_rms_norm,
    "SimplifiedLayerNormalization": lower_simplified_norm,  # as ONNX Runtime writes it
}
