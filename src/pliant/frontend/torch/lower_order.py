"""ATen operators by the order of elements: medians that pass over NaN, the most frequent value."""

from __future__ import annotations

from typing import Any, Final

from pliant.base.dtypes import i64
from pliant.frontend.torch.as_vectors import all_as_vectors
from pliant.frontend.torch.context import Context, Table, axis_of
from pliant.frontend.torch.lower_reduce import median, positions
from pliant.frontend.torch.lower_shape import flatten, slice_axis
from pliant.graph.function import Value


def _picked(ctx: Context, x: Value, place: Value, axis: int, keepdim: bool) -> Any:
    """The element of each line at a place, which has kept its dimension."""
    found = ctx.call("gather_elements", x, place, axis=axis)
    return found if keepdim else ctx.call("squeeze", found, axes=(axis,))


def nan_median(ctx: Context, x: Value, dim: int = 0, keepdim: bool = False) -> Any:
    """The lower median of what is a number, and where it is; sorting has NaN last."""
    if not x.dtype.is_float:
        return median(ctx, x, dim, keepdim)
    axis = axis_of(dim, len(x.shape))
    values, places = ctx.call("sort", x, axis=axis, descending=False, stable=True)
    number = ctx.cast(ctx.call("not", ctx.call("isnan", x)), i64)
    count = ctx.call("sum", number, axes=(axis,), keepdims=True)
    last = ctx.call("sub", ctx.call("max", count, ctx.scalar(1, i64)), ctx.scalar(1, i64))
    at = ctx.call("floordiv", last, ctx.scalar(2, i64))
    return tuple(_picked(ctx, t, at, axis, keepdim) for t in (values, places))


def nan_median_of_all(ctx: Context, x: Value) -> Any:
    return nan_median(ctx, flatten(ctx, x))[0]


def mode(ctx: Context, x: Value, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent values, and the last place where it is.

    In order, equal elements are a run; of the elements that are furthest into theirs the first is
    the end of the longest run.
    """
    axis = axis_of(dim, len(x.shape))
    values, places = ctx.call("sort", x, axis=axis, descending=False, stable=True)
    size = x.shape[axis]
    before = slice_axis(ctx, values, axis, 0, size - 1)
    other = ctx.call("ne", slice_axis(ctx, values, axis, 1, size), before)
    at = positions(ctx, x, axis)
    later = slice_axis(ctx, at, axis, 1, size)
    begins = ctx.call("where", other, later, ctx.scalar(0, i64))
    pads = tuple((1, 0) if k == axis else (0, 0) for k in range(len(x.shape)))
    begins = ctx.call("pad", begins, pads=pads, mode="constant", value=0)
    begins = ctx.call("cummax", begins, axis=axis, exclusive=False, reverse=False)
    length = ctx.call("sub", at, begins)
    best = ctx.call("argmax", length, axis=axis, keepdims=True, last=False)
    return tuple(_picked(ctx, t, best, axis, keepdim) for t in (values, places))


def log_cum_sum_exp(ctx: Context, x: Value, dim: int) -> Any:
    axis = axis_of(dim, len(x.shape))
    return ctx.call("logcumsumexp", x, axis=axis)


_ALONG: Final[Table] = {
    "aten.nanmedian.dim": nan_median,
    "aten.mode.default": mode,
    "aten.logcumsumexp.default": log_cum_sum_exp,
}

ORDER: Final[Table] = {
    **all_as_vectors(_ALONG),
    "aten.nanmedian.default": nan_median_of_all,
}
