"""ATen convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant.frontend.torch.context import Context, Lowering, Table, constant, size_of
from pliant.frontend.torch.lazy import Lazy
from pliant.graph.function import Value
from pliant.sym.expr import Int, IntLike, as_int

Pads = tuple[tuple[int, int], ...]


def spread(x: Any, rank: int) -> tuple[int, ...]:
    """One number for each spatial dimension."""
    values = [x] if isinstance(x, int | Int) else list(x)
    values = values * rank if len(values) == 1 else values
    return tuple(int(constant(v, "kernel, stride, padding and dilation")) for v in values)


def symmetric(padding: Any, rank: int) -> Pads:
    return tuple((p, p) for p in spread(padding, rank))


def batched(ctx: Context, x: Value, spatial: int, apply: Callable[[Value], Any]) -> Any:
    """Inputs without a batch dimension get one for the time being."""
    if len(x.shape) == spatial + 2:
        return apply(x)
    y = apply(ctx.call("unsqueeze", x, axes=(0,)))
    return ctx.call("squeeze", y, axes=(0,))


def conv(
    ctx: Context, x: Value, w: Value, bias: Value | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: IntLike = 1,
) -> Any:  # fmt: skip
    rank = len(w.shape) - 2
    strides, dilations = spread(stride, rank), spread(dilation, rank)
    pads = (
        _named_pads(w, dilations, padding) if isinstance(padding, str) else symmetric(padding, rank)
    )
    return batched(
        ctx, x, rank,
        lambda y: ctx.call(
            "conv", y, w, bias, strides=strides, pads=pads, dilations=dilations, groups=groups
        ),
    )  # fmt: skip


def _named_pads(w: Value, dilations: tuple[int, ...], padding: str) -> Pads:
    """ "valid" is none, "same" keeps the size, the odd one at the end."""
    if padding == "valid":
        return ((0, 0),) * len(dilations)
    totals = [d * (k.value - 1) for d, k in zip(dilations, w.shape[2:], strict=True)]
    return tuple((t // 2, t - t // 2) for t in totals)


def conv_transpose(
    ctx: Context, x: Value, w: Value, bias: Value | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: IntLike = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    rank = len(w.shape) - 2
    attrs = {
        "strides": spread(stride, rank),
        "pads": symmetric(padding, rank),
        "output_padding": spread(output_padding, rank),
        "dilations": spread(dilation, rank),
        "groups": groups,
    }
    return batched(ctx, x, rank, lambda y: ctx.call("conv_transpose", y, w, bias, **attrs))


def convolution(
    ctx: Context, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: IntLike,
) -> Any:  # fmt: skip
    if transposed:
        return conv_transpose(ctx, x, w, bias, stride, padding, output_padding, groups, dilation)
    return conv(ctx, x, w, bias, stride, padding, dilation, groups)


def max_pool(spatial: int, op: str = "max_pool") -> Lowering:
    def lower(
        ctx: Context, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
        dilation: Any = 1, ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        attrs = {
            "kernel": spread(kernel, spatial),
            "strides": spread(stride or kernel, spatial),
            "pads": symmetric(padding, spatial),
            "dilations": spread(dilation, spatial),
            "ceil_mode": ceil_mode,
        }
        return batched(ctx, x, spatial, lambda y: ctx.call(op, y, **attrs))

    return lower


def max_pool_with_indices(spatial: int) -> Lowering:
    """The values, and where in their images they are."""
    both = max_pool(spatial), max_pool(spatial, "max_pool_places")
    return lambda ctx, *args, **kwargs: tuple(lower(ctx, *args, **kwargs) for lower in both)


def max_unpool(spatial: int) -> Lowering:
    """Values at their places in images of zeros."""

    def lower(ctx: Context, x: Value, places: Value, output_size: Sequence[Any], *_: Any) -> Any:
        outer = x.shape[: len(x.shape) - spatial]
        size = tuple(size_of(s) for s in output_size[-spatial:])
        rows, one = math.prod(outer, start=as_int(1)), as_int(1)
        flat = (rows, math.prod(x.shape[-spatial:], start=one))
        zeros = ctx.call("full", shape=(rows, math.prod(size, start=one)), value=0, dtype=x.dtype)
        placed = ctx.call(
            "scatter_elements", zeros, ctx.call("reshape", places, shape=flat),
            ctx.call("reshape", x, shape=flat), axis=1, reduction="none",
        )  # fmt: skip
        return ctx.call("reshape", placed, shape=(*outer, *size))

    return lower


def avg_pool(spatial: int) -> Lowering:
    def lower(
        ctx: Context, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        attrs = {
            "kernel": spread(kernel, spatial),
            "strides": spread(stride or kernel, spatial),
            "pads": symmetric(padding, spatial),
            "dilations": (1,) * spatial,
            "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad,
            "divisor": divisor_override,
        }
        return batched(ctx, x, spatial, lambda y: ctx.call("avg_pool", y, **attrs))

    return lower


def adaptive_avg_pool(spatial: int) -> Lowering:
    def lower(ctx: Context, x: Value, output_size: Sequence[Any]) -> Any:
        sizes = [output_size] if isinstance(output_size, int) else list(output_size)
        wanted = tuple(size_of(s) for s in sizes)
        if all(s == 1 for s in wanted):
            rank = len(x.shape)
            return ctx.call("mean", x, axes=tuple(range(rank - spatial, rank)), keepdims=True)
        return _adaptive(ctx, x, spatial, "adaptive_avg_pool", wanted)

    return lower


def _adaptive(ctx: Context, x: Value, spatial: int, op: str, wanted: tuple[Int, ...]) -> Any:
    return batched(ctx, x, spatial, lambda y: ctx.call(op, y, output_size=wanted))


def conv_of_times(ctx: Context, x: Value, w: Value, bias: Value, pad: int = 0) -> Any:
    """conv_tbc: a convolution over [time, batch, channels]."""
    y = conv(
        ctx, ctx.call("transpose", x, perm=(1, 2, 0)), ctx.call("transpose", w, perm=(2, 1, 0)),
        bias, 1, pad,
    )  # fmt: skip
    return ctx.call("transpose", y, perm=(2, 0, 1))


def adaptive_max_pool(spatial: int) -> Lowering:
    """The values, and where in their images they are."""

    def lower(ctx: Context, x: Value, output_size: Sequence[Any]) -> Any:
        rank = len(x.shape)
        sizes = [output_size] if isinstance(output_size, int) else list(output_size)
        wanted = tuple(size_of(s) for s in sizes)
        if all(s == 1 for s in wanted):
            axes = tuple(range(rank - spatial, rank))
            values = ctx.call("max", x, axes=axes, keepdims=True)
        else:
            values = _adaptive(ctx, x, spatial, "adaptive_max_pool", wanted)
        return values, Lazy(lambda: _adaptive(ctx, x, spatial, "adaptive_max_pool_places", wanted))

    return lower


CONV: Final[Table] = {
    **{f"aten.conv{n}d.{overload}": conv for n in (1, 2, 3) for overload in ("default", "padding")},
    "aten.conv_transpose1d.default": conv_transpose,
    "aten.conv_transpose2d.input": conv_transpose,
    "aten.conv_transpose3d.input": conv_transpose,
    "aten.convolution.default": convolution,
    "aten.conv_tbc.default": conv_of_times,
    "aten._convolution.default": lambda ctx, *args: convolution(ctx, *args[:9]),
    **{f"aten.max_pool{n}d.default": max_pool(n) for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": max_pool_with_indices(n) for n in (1, 2, 3)},
    **{f"aten.max_unpool{n}d.default": max_unpool(n) for n in (2, 3)},
    **{f"aten.avg_pool{n}d.default": avg_pool(n) for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": adaptive_avg_pool(n) for n in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{n}d.default": adaptive_avg_pool(n) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": adaptive_max_pool(n) for n in (1, 2, 3)},
}
