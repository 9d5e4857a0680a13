"""ATen normalisations. Statistics and weights of another float type are brought to one first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.base.dtypes import DType, f32
from pliant.frontend.torch.as_vectors import as_vectors
from pliant.frontend.torch.context import Context, Table, axis_of
from pliant.frontend.torch.lower_shape import expand
from pliant.frontend.torch.promote import TO_TORCH, common_type
from pliant.graph.function import Value


def widest(*values: Value | None) -> DType:
    """The type in which a mixture of float types is computed."""
    ranked = [v for v in values if v is not None]
    return common_type(ranked)


def in_common(ctx: Context, op: str, operands: Sequence[Value | None], **attrs: Any) -> Any:
    """Apply `op` in the widest type of its operands; the result has the type of the first."""
    dtype = widest(*operands)
    first = operands[0]
    assert first is not None
    values = [None if v is None else ctx.cast(v, dtype) for v in operands]
    return ctx.cast(ctx.call(op, *values, **attrs), first.dtype)


def layer_norm(
    ctx: Context, x: Value, shape: Sequence[Any], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    start = len(x.shape) - len(shape)
    return in_common(ctx, "layer_norm", (x, weight, bias), axes_from=start, eps=float(eps))


def native_layer_norm(
    ctx: Context, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None,
    eps: float,
) -> Any:  # fmt: skip
    return layer_norm(ctx, x, shape, weight, bias, eps), None, None


def rms_norm(
    ctx: Context, x: Value, shape: Sequence[Any], weight: Value | None = None, eps: Any = None
) -> Any:
    start = len(x.shape) - len(shape)
    small = torch.finfo(TO_TORCH[x.dtype]).eps if eps is None else float(eps)
    return in_common(ctx, "rms_norm", (x, weight), axes_from=start, eps=small)


def batch_norm(
    ctx: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    var: Value | None, training: bool, momentum: float, eps: float, *_: Any,
) -> Any:  # fmt: skip
    if training and mean is None and var is None:  # what keeps no statistics has those of x
        of = ctx.cast(x, f32) if x.dtype.bits < f32.bits else x
        axes = tuple(d for d in range(len(x.shape)) if d != 1)
        mean = ctx.call("mean", of, axes=axes, keepdims=False)
        var = ctx.call("variance", of, axes=axes, keepdims=False, correction=0)
    elif training or mean is None or var is None:
        raise ctx.unsupported("batch_norm in training mode; call model.eval() before exporting")
    return in_common(ctx, "batch_norm", (x, weight, bias, mean, var), eps=float(eps))


def native_batch_norm(
    ctx: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    return batch_norm(ctx, x, weight, bias, mean, var, False, momentum, eps), None, None


def group_norm(
    ctx: Context, x: Value, groups: int, weight: Value | None = None, bias: Value | None = None,
    eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    return in_common(ctx, "group_norm", (x, weight, bias), groups=groups, eps=float(eps))


def native_group_norm(
    ctx: Context, x: Value, weight: Value | None, bias: Value | None, n: Any, c: Any, hw: Any,
    groups: int, eps: float,
) -> Any:  # fmt: skip
    return group_norm(ctx, x, groups, weight, bias, eps), None, None


def instance_norm(
    ctx: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    var: Value | None, use_input_stats: bool, momentum: float, eps: float, *_: Any,
) -> Any:  # fmt: skip
    if not use_input_stats:
        return batch_norm(ctx, x, weight, bias, mean, var, False, momentum, eps)
    return in_common(ctx, "instance_norm", (x, weight, bias), eps=float(eps))


def cosine_similarity(ctx: Context, a: Value, b: Value, dim: int = 1, eps: float = 1e-8) -> Any:
    a, b = ctx.promoted(a, b)
    shape = ctx.call("mul", a, b).shape
    a, b = expand(ctx, a, shape), expand(ctx, b, shape)
    axes = (axis_of(dim, len(shape)),)
    unit = []
    for v in (a, b):
        size = ctx.call("norm", v, p=2, axes=axes, keepdims=True)
        unit.append(ctx.call("div", v, ctx.call("max", size, ctx.scalar(eps, v.dtype))))
    return ctx.call("sum", ctx.call("mul", *unit), axes=axes, keepdims=False)


NORMALIZE: Final[Table] = {
    "aten.layer_norm.default": layer_norm,
    "aten.native_layer_norm.default": native_layer_norm,
    "aten.rms_norm.default": rms_norm,
    "aten.batch_norm.default": batch_norm,
    "aten._native_batch_norm_legit_no_training.default": native_batch_norm,
    "aten.group_norm.default": group_norm,
    "aten.native_group_norm.default": native_group_norm,
    "aten.instance_norm.default": instance_norm,
    "aten.cosine_similarity.default": as_vectors(cosine_similarity),
}
