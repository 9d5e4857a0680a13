"""ATen reductions, running reductions, sorting."""

from __future__ import annotations

import math
from typing import Any, Final

from pliant.base.dtypes import DType, boolean, f32, i64, u8
from pliant.frontend.torch.as_vectors import all_as_vectors
from pliant.frontend.torch.context import (
    Context,
    Lowering,
    Table,
    axes_of,
    axis_of,
    constant,
    dtype_of,
)  # fmt: skip
from pliant.frontend.torch.in_f32 import all_in_f32
from pliant.frontend.torch.lazy import Lazy
from pliant.frontend.torch.lower_elementwise import convert
from pliant.frontend.torch.lower_shape import flatten, slice_axis, to_shape
from pliant.frontend.torch.promote import floating
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def reduction(op: str, *, widen: bool = False) -> Lowering:
    """A reduction over `dim` (all without one). `widen`: integers accumulate in i64."""

    def lower(
        ctx: Context, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        to = dtype_of(dtype, i64 if widen and not x.dtype.is_float else x.dtype)
        axes = axes_of(dim, len(x.shape))
        return ctx.call(op, ctx.cast(x, to), axes=axes, keepdims=keepdim)

    return lower


def reduce_all(op: str, *, widen: bool = False) -> Lowering:
    """sum(x, dtype=), prod(x, dtype=): no dimension argument."""
    inner = reduction(op, widen=widen)
    return lambda ctx, x, dtype=None: inner(ctx, x, None, False, dtype)


def truth_reduction(op: str) -> Lowering:
    def lower(ctx: Context, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
        axes = axes_of(dim, len(x.shape))
        found = ctx.call(op, ctx.truth(x), axes=axes, keepdims=keepdim)
        return ctx.cast(found, u8) if x.dtype is u8 else found  # as torch has it, of bytes alone

    return lower


def extreme_along(op: str) -> Lowering:
    """max(x, dim), min(x, dim): values and where they are."""

    def lower(ctx: Context, x: Value, dim: int, keepdim: bool = False) -> Any:
        axis = axis_of(dim, len(x.shape))
        values = ctx.call(op, x, axes=(axis,) if x.shape else (), keepdims=keepdim)
        return values, Lazy(lambda: arg_extreme("arg" + op)(ctx, x, dim, keepdim))

    return lower


def arg_extreme(op: str) -> Lowering:
    def lower(ctx: Context, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
        rank = len(x.shape)
        if not rank:
            return ctx.scalar(0, i64)
        if dim is not None:
            return ctx.call(op, x, axis=axis_of(dim, rank), keepdims=keepdim, last=False)
        at = ctx.call(op, flatten(ctx, x), axis=0, keepdims=False, last=False)
        return to_shape(ctx, at, (as_int(1),) * rank) if keepdim else at

    return lower


def variance(root: bool) -> Lowering:
    """var, std (`root`) in all their overloads."""

    def lower(
        ctx: Context, x: Value, dim: Any = None, *rest: Any, correction: Any = 1,
        keepdim: bool = False, unbiased: bool | None = None,
    ) -> Any:  # fmt: skip
        if isinstance(dim, bool):  # var(x, unbiased)
            unbiased, dim = dim, None
        if rest:
            unbiased, keepdim = rest[0], rest[1] if len(rest) > 1 else keepdim
        if unbiased is not None:
            correction = int(unbiased)
        axes = axes_of(dim, len(x.shape))
        number = 1 if correction is None else correction
        result = ctx.call("variance", x, axes=axes, keepdims=keepdim, correction=number)
        return ctx.call("sqrt", result) if root else result

    return lower


def variance_and_mean(root: bool) -> Lowering:
    inner = variance(root)

    def lower(
        ctx: Context, x: Value, dim: Any = None, *rest: Any, keepdim: bool = False, **options: Any
    ) -> Any:
        axes = () if isinstance(dim, bool) else axes_of(dim, len(x.shape))
        keep = rest[1] if len(rest) > 1 else keepdim
        mean = ctx.call("mean", x, axes=axes or axes_of(None, len(x.shape)), keepdims=keep)
        return inner(ctx, x, dim, *rest, keepdim=keep, **options), mean

    return lower


def vector_norm(
    ctx: Context, x: Value, order: Any = 2, dim: Any = None, keepdim: bool = False,
    *, dtype: Any = None,
) -> Any:  # fmt: skip
    order = 2 if order is None else constant(order, "the order of a norm")
    x = ctx.cast(x, floating(dtype_of(dtype, x.dtype)))
    axes = axes_of(dim, len(x.shape))
    if order in (1, 2):
        return ctx.call("norm", x, p=int(order), axes=axes, keepdims=keepdim)
    size = ctx.call("abs", x)
    if order == math.inf:
        return ctx.call("max", size, axes=axes, keepdims=keepdim)
    if order == -math.inf:
        return ctx.call("min", size, axes=axes, keepdims=keepdim)
    if order == 0:
        nonzero = ctx.cast(ctx.truth(x), x.dtype)
        return ctx.call("sum", nonzero, axes=axes, keepdims=keepdim)
    powers = ctx.call("pow", size, ctx.scalar(order, x.dtype))
    total = ctx.call("sum", powers, axes=axes, keepdims=keepdim)
    return ctx.call("pow", total, ctx.scalar(1 / order, x.dtype))


def logsumexp(ctx: Context, x: Value, dim: Any, keepdim: bool = False) -> Any:
    x = ctx.cast(x, floating(x.dtype))
    return ctx.call("logsumexp", x, axes=axes_of(dim, len(x.shape)), keepdims=keepdim)


def count_nonzero(ctx: Context, x: Value, dim: Any = None) -> Any:
    axes = axes_of(dim, len(x.shape))
    return ctx.call("sum", ctx.cast(ctx.truth(x), i64), axes=axes, keepdims=False)


def running(op: str) -> Lowering:
    def lower(ctx: Context, x: Value, dim: int, dtype: Any = None) -> Any:
        to = dtype_of(dtype, x.dtype if x.dtype.is_float else i64)
        return ctx.call(
            op, ctx.cast(x, to), axis=axis_of(dim, len(x.shape)), exclusive=False, reverse=False
        )

    return lower


def running_extreme(op: str) -> Lowering:
    """cummax, cummin: the values, and where each was met last."""

    def lower(ctx: Context, x: Value, dim: int) -> Any:
        axis = axis_of(dim, len(x.shape))
        wide = ctx.cast(x, u8) if x.dtype is boolean else x
        values = ctx.call(op, wide, axis=axis, exclusive=False, reverse=False)
        return convert(ctx, values, x.dtype), Lazy(lambda: _met_last(ctx, wide, values, axis))

    return lower


def _met_last(ctx: Context, x: Value, extreme: Value, axis: int) -> Any:
    """The place of the last element so far that is the extreme; of the last NaN, where there is."""
    found = ctx.call("eq", x, extreme)
    if x.dtype.is_float:
        found = ctx.call("or", found, ctx.call("isnan", x))
    places = ctx.call("where", found, positions(ctx, x, axis), ctx.scalar(0, i64))
    return ctx.call("cummax", places, axis=axis, exclusive=False, reverse=False)


def positions(ctx: Context, x: Value, axis: int) -> Value:
    """0, 1, 2 … along an axis of `x`, of its rank."""
    at = ctx.call("iota", size=x.shape[axis], start=0, step=1, dtype=i64)
    shape = tuple(d if k == axis else as_int(1) for k, d in enumerate(x.shape))
    return ctx.call("reshape", at, shape=shape)  # type: ignore[no-any-return]


def sort(ctx: Context, x: Value, dim: int = -1, descending: bool = False) -> Any:
    axis = axis_of(dim, len(x.shape))
    return ctx.call("sort", x, axis=axis, descending=descending, stable=True)


def stable_sort(
    ctx: Context, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    return sort(ctx, x, dim, descending)


def argsort(ctx: Context, x: Value, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    return sort(ctx, x, dim, descending)[1]


def argsort_stable(
    ctx: Context, x: Value, *, stable: bool = True, dim: int = -1, descending: bool = False
) -> Any:
    return sort(ctx, x, dim, descending)[1]


def topk(
    ctx: Context, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    axis = axis_of(dim, len(x.shape))
    return ctx.call("topk", x, k=k, axis=axis, largest=largest, sorted=sorted)


def kth_value(ctx: Context, x: Value, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest along a dimension, counted from 1, and where it is."""
    axis = axis_of(dim, len(x.shape))
    at = as_int(k) - 1
    picked = [
        slice_axis(ctx, t, axis, at, at + 1)
        for t in ctx.call("sort", x, axis=axis, descending=False, stable=True)
    ]
    return tuple(t if keepdim else ctx.call("squeeze", t, axes=(axis,)) for t in picked)


def median(ctx: Context, x: Value, dim: int = 0, keepdim: bool = False) -> Any:
    """The lower median along a dimension, and where it is; NaN where there is one."""
    axis = axis_of(dim, len(x.shape))
    values, at = kth_value(ctx, x, (x.shape[axis] + 1) // 2, dim, keepdim)
    if not x.dtype.is_float:
        return values, at
    odd = ctx.call("any", ctx.call("isnan", x), axes=(axis,), keepdims=keepdim)
    values = ctx.call("where", odd, ctx.scalar(math.nan, x.dtype), values)
    return values, ctx.call("where", odd, arg_extreme("argmax")(ctx, x, dim, keepdim), at)


def median_of_all(ctx: Context, x: Value) -> Any:
    return median(ctx, flatten(ctx, x))[0]


def softmax(op: str) -> Lowering:
    def lower(ctx: Context, x: Value, dim: int, dtype: Any = None) -> Any:
        to: DType = dtype_of(dtype, x.dtype if x.dtype.is_float else floating(x.dtype))
        return ctx.call(op, ctx.cast(x, to), axis=axis_of(dim, len(x.shape)))

    return lower


def safe_softmax(ctx: Context, x: Value, dim: int, dtype: Any = None) -> Any:
    """Zeros where all is masked by minus infinity."""
    y = softmax("softmax")(ctx, x, dim, dtype)
    axis = axis_of(dim, len(x.shape))
    most = ctx.call("max", x, axes=(axis,), keepdims=True)
    none = ctx.call("eq", most, ctx.scalar(-math.inf, x.dtype))
    return ctx.call("where", none, ctx.scalar(0, y.dtype), y)


def raw_softmax(op: str) -> Lowering:
    """`_softmax(x, dim, half_to_float)`."""

    def lower(ctx: Context, x: Value, dim: int, half_to_float: bool) -> Any:
        return softmax(op)(ctx, ctx.cast(x, f32) if half_to_float else x, dim)

    return lower


def all_elements(op: str) -> Lowering:
    """max(x), min(x)."""
    return lambda ctx, x: ctx.call(op, x, axes=axes_of(None, len(x.shape)), keepdims=False)


_STATISTICS: Final[Table] = {
    **{
        f"aten.{name}.{overload}": variance(name == "std")
        for name in ("var", "std")
        for overload in ("default", "dim", "correction")
    },
    **{
        f"aten.{name}_mean.{overload}": variance_and_mean(name == "std")
        for name in ("var", "std")
        for overload in ("default", "dim", "correction")
    },
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.norm.Scalar": vector_norm,
    "aten.norm.ScalarOpt_dim": vector_norm,
    "aten.norm.ScalarOpt_dim_dtype": vector_norm,
    "aten.norm.ScalarOpt_dtype": lambda ctx, x, p, dtype: vector_norm(ctx, x, p, dtype=dtype),
}

_ALONG: Final[Table] = {
    "aten.cumsum.default": running("cumsum"),
    "aten.cumprod.default": running("cumprod"),
    "aten.cummax.default": running_extreme("cummax"),
    "aten.cummin.default": running_extreme("cummin"),
    "aten.sort.default": sort,
    "aten.sort.stable": stable_sort,
    "aten.argsort.default": argsort,
    "aten.argsort.stable": argsort_stable,
    "aten.topk.default": topk,
    "aten.kthvalue.default": kth_value,
    "aten.median.dim": median,
    "aten.softmax.int": softmax("softmax"),
    "aten.log_softmax.int": softmax("log_softmax"),
    "aten._softmax.default": raw_softmax("softmax"),
    "aten._safe_softmax.default": safe_softmax,
    "aten._log_softmax.default": raw_softmax("log_softmax"),
}

REDUCE: Final[Table] = {
    "aten.sum.default": reduce_all("sum", widen=True),
    "aten.sum.dim_IntList": reduction("sum", widen=True),
    "aten.prod.default": reduce_all("prod", widen=True),
    "aten.prod.dim_int": reduction("prod", widen=True),
    "aten.mean.default": reduce_all("mean"),
    "aten.mean.dim": reduction("mean"),
    "aten.amax.default": reduction("max"),
    "aten.amin.default": reduction("min"),
    "aten.max.default": all_elements("max"),
    "aten.min.default": all_elements("min"),
    "aten.max.dim": extreme_along("max"),
    "aten.min.dim": extreme_along("min"),
    "aten.argmax.default": arg_extreme("argmax"),
    "aten.argmin.default": arg_extreme("argmin"),
    **{
        f"aten.{op}.{overload}": truth_reduction(op)
        for op in ("any", "all")
        for overload in ("default", "dim", "dims")
    },
    "aten.count_nonzero.default": count_nonzero,
    "aten.count_nonzero.dim_IntList": count_nonzero,
    "aten.logsumexp.default": logsumexp,
    **all_in_f32(_STATISTICS),
    **all_as_vectors(_ALONG),
    "aten.median.default": median_of_all,
}
