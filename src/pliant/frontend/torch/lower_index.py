"""ATen operators with index tensors: gather, scatter, embedding, advanced indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType, boolean, i64
from pliant.frontend.torch.as_vectors import all_as_vectors
from pliant.frontend.torch.context import Context, Lowering, Table, axis_of, constant
from pliant.frontend.torch.in_f32 import all_in_f32, in_f32
from pliant.frontend.torch.lower_shape import expand, slice_axis
from pliant.frontend.torch.promote import common_type
from pliant.frontend.torch.selected import select
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int


def embedding(ctx: Context, weight: Value, indices: Value, *_: Any, **__: Any) -> Any:
    """The padding row is an ordinary one in inference."""
    return ctx.call("embedding", weight, ctx.indices(indices))


def index(ctx: Context, x: Value, indices: Sequence[Value | None]) -> Any:
    only = [(k, v) for k, v in enumerate(indices) if v is not None]
    if len(only) == 1 and only[0][1].dtype is boolean and only[0][1].shape:
        before, mask = only[0]
        if ctx.builder.constant(mask) is None:
            return select(ctx, x, mask, before)
    return ctx.call("index", x, _index_list(ctx, x, indices))


def index_put(
    ctx: Context, x: Value, indices: Sequence[Value | None], values: Value,
    accumulate: bool = False, *_: Any,
) -> Any:  # fmt: skip
    values = ctx.cast(values, x.dtype)
    only = [v for v in indices if v is not None]
    if len(only) == 1 and only[0].dtype is boolean and not accumulate:
        place = select(ctx, x, only[0], next(k for k, v in enumerate(indices) if v is not None))
        if len(values.shape) <= place.after:  # the same for all that the mask selects
            return ctx.call("where", place.wide(ctx), values, x)
    places = _index_list(ctx, x, indices)
    return ctx.call("index_put", x, values, places, accumulate=accumulate)


def _index_list(
    ctx: Context, x: Value, indices: Sequence[Value | None]
) -> tuple[Value | None, ...]:
    places: list[Value | None] = []
    for v in indices:
        if v is not None and v.dtype is boolean:
            places += _places_of(ctx, v)
        else:
            places.append(None if v is None else ctx.indices(v))
    return tuple(places)


def _places_of(ctx: Context, mask: Value) -> list[Value]:
    """Where a mask that the model holds is true, an index for each of its dimensions."""
    known = ctx.builder.constant(mask)
    if known is None:
        raise ctx.unsupported(
            "indexing with a boolean mask gives a size that depends on the data; use torch.where"
        )
    return [ctx.builder.weight("places", at.astype(np.int64)) for at in np.nonzero(known)]


def index_select(ctx: Context, x: Value, dim: int, indices: Value) -> Any:
    places = ctx.indices(indices)
    if not places.shape:
        places = ctx.call("unsqueeze", places, axes=(0,))
    return ctx.call("gather", x, places, axis=axis_of(dim, len(x.shape)))


def take(ctx: Context, x: Value, indices: Value) -> Any:
    from_flat = ctx.call("reshape", x, shape=(_count(x),))
    return ctx.call("gather", from_flat, ctx.indices(indices), axis=0)


def _count(x: Value) -> Any:
    total: Any = 1
    for d in x.shape:
        total = d * total
    return total


def gather(ctx: Context, x: Value, dim: int, indices: Value, **_: Any) -> Any:
    return ctx.call("gather_elements", x, ctx.indices(indices), axis=axis_of(dim, len(x.shape)))


def take_along_dim(ctx: Context, x: Value, indices: Value, dim: int | None = None) -> Any:
    if dim is None:
        return take(ctx, x, ctx.call("reshape", indices, shape=(math.prod(indices.shape),)))
    axis = axis_of(dim, len(x.shape))
    sizes = [i if a == 1 else a for a, i in zip(x.shape, indices.shape, strict=True)]
    wide = [*sizes[:axis], x.shape[axis], *sizes[axis + 1 :]]
    places = [*sizes[:axis], indices.shape[axis], *sizes[axis + 1 :]]
    x = ctx.call("expand", x, shape=tuple(wide))
    return gather(ctx, x, axis, ctx.call("expand", indices, shape=tuple(places)))


def scatter(reduction: str) -> Lowering:
    """scatter(x, dim, index, values)."""

    def lower(ctx: Context, x: Value, dim: int, indices: Value, source: Any, **_: Any) -> Any:
        if isinstance(source, Value) and source.shape:
            updates = _crop(ctx, ctx.cast(source, x.dtype), indices)
        else:
            updates = ctx.call("expand", ctx.tensor(source, x.dtype), shape=indices.shape)
        return ctx.call(
            "scatter_elements", x, ctx.indices(indices), updates,
            axis=axis_of(dim, len(x.shape)), reduction=reduction,
        )  # fmt: skip

    return lower


def _crop(ctx: Context, source: Value, indices: Value) -> Value:
    """Only the part of the source that has an index counts."""
    if source.shape == indices.shape:
        return source
    rank = len(source.shape)
    return ctx.call(  # type: ignore[no-any-return]
        "slice", source, starts=(0,) * rank, stops=indices.shape, steps=(1,) * rank
    )


_REDUCTIONS: Final = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def scatter_reduce(
    ctx: Context, x: Value, dim: int, indices: Value, source: Any, reduce: str,
    *, include_self: bool = True,
) -> Any:  # fmt: skip
    """Places that nothing is scattered to keep what they have, whatever `include_self` is."""
    count = None
    if reduce == "mean" or not include_self:
        zeros = ctx.call("full", shape=x.shape, value=0, dtype=i64)
        count = scatter("add")(ctx, zeros, dim, indices, 1)
    if not include_self:
        empty = ctx.call("eq", count, ctx.scalar(0, i64))
        x = ctx.call("where", empty, x, ctx.scalar(_neutral(reduce, x.dtype), x.dtype))
    result = scatter(_REDUCTIONS[reduce])(ctx, x, dim, indices, source)
    if reduce != "mean":
        return result
    if include_self:
        count = ctx.call("add", count, ctx.scalar(1, i64))
    least = ctx.call("max", count, ctx.scalar(1, i64))
    op = "div" if x.dtype.is_float else "floordiv"
    return ctx.call(op, result, ctx.cast(least, x.dtype))


def _neutral(reduce: str, dtype: DType) -> Any:
    """What does not change a reduction."""
    limits = {"amax": dtype.min, "amin": dtype.max}
    return limits.get(reduce, 1 if reduce == "prod" else 0)


def scatter_with(ctx: Context, x: Value, dim: int, indices: Value, source: Any, **kw: Any) -> Any:
    names = {"add": "add", "multiply": "mul"}
    return scatter(names[kw["reduce"]])(ctx, x, dim, indices, source)


def index_add(
    ctx: Context, x: Value, dim: int, indices: Value, source: Value, *, alpha: Any = 1
) -> Any:
    if alpha != 1:
        source = ctx.call("mul", source, ctx.tensor(alpha, source.dtype))
    return _index_along(ctx, x, dim, indices, source, True)


def index_copy(ctx: Context, x: Value, dim: int, indices: Value, source: Value) -> Any:
    return _index_along(ctx, x, dim, indices, source, False)


def index_fill(ctx: Context, x: Value, dim: int, indices: Value, value: Any) -> Any:
    return _index_along(ctx, x, dim, indices, ctx.tensor(value, x.dtype), False)


def _index_along(
    ctx: Context, x: Value, dim: int, indices: Value, source: Value, accumulate: bool
) -> Any:
    axis = axis_of(dim, len(x.shape))
    places = (None,) * axis + (ctx.indices(indices),)
    return ctx.call("index_put", x, ctx.cast(source, x.dtype), places, accumulate=accumulate)


def masked_scatter(ctx: Context, x: Value, mask: Value, source: Value) -> Any:
    """Where the mask holds, the elements of `source` in order."""
    mask, x = (expand(ctx, v, ctx.out_shape()) for v in (mask, x))
    taken = ctx.cast(ctx.call("reshape", mask, shape=(_count(x),)), i64)
    place = ctx.call("cumsum", taken, axis=0, exclusive=True, reverse=False)
    place = ctx.call("min", place, ctx.tensor(_count(source) - 1, i64))  # past the last True
    found = ctx.call("reshape", take(ctx, source, place), shape=x.shape)
    return ctx.call("where", mask, ctx.cast(found, x.dtype), x)


def embedding_bag(
    ctx: Context, weight: Value, indices: Value, offsets: Value, scale: bool = False, mode: int = 0,
    sparse: bool = False, factors: Value | None = None, last: bool = False, padding: Any = None,
) -> Any:  # fmt: skip
    """Sums, means or maxima of rows; `offsets` say where in `indices` each bag begins. What belongs
    to none goes into one more, which is left out: rows of padding, and those behind the last bag
    where `last` offsets say where bags end."""
    places, starts = ctx.indices(indices), ctx.indices(offsets)
    size, bags = places.shape[0], starts.shape[0] - (1 if last else 0)
    bag = ctx.call("sub", _begun(ctx, starts, size), ctx.scalar(1, i64))
    rows = ctx.call("embedding", weight, places)
    if factors is not None:
        rows = ctx.call("mul", rows, ctx.call("unsqueeze", factors, axes=(1,)))
    if padding is not None:
        padded = ctx.call("eq", places, ctx.tensor(padding, i64))
        bag = ctx.call("where", padded, ctx.tensor(bags, i64), bag)
    width, some = weight.shape[1], bags if padding is None and not last else bags + 1
    into = ctx.call("expand", ctx.call("unsqueeze", bag, axes=(1,)), shape=(size, width))
    base = ctx.call("full", shape=(some, width), value=0.0, dtype=weight.dtype)
    reduce = ("sum", "mean", "amax")[mode]
    result = scatter_reduce(ctx, base, 0, into, rows, reduce, include_self=False)
    return slice_axis(ctx, result, 0, 0, bags), None, None, None


def _begun(ctx: Context, starts: Value, size: Int) -> Value:
    """How many bags have begun at each of `size` places."""
    zeros = ctx.call("full", shape=(size + 1,), value=0, dtype=i64)
    ones = ctx.call("full", shape=starts.shape, value=1, dtype=i64)
    begin = ctx.call("scatter_elements", zeros, starts, ones, axis=0, reduction="add")
    begun = ctx.call("cumsum", begin, axis=0, exclusive=False, reverse=False)
    return slice_axis(ctx, begun, 0, 0, size)  # type: ignore[no-any-return]


def wrapped_embedding_bag(
    ctx: Context, weight: Value, indices: Value, offsets: Value, scale: bool, mode: int,
    sparse: bool, factors: Value | None, last: bool, padding: int | None,
) -> Any:  # fmt: skip
    """A negative padding index counts from the end; None is for none."""
    at = weight.shape[0] + padding if padding is not None and padding < 0 else padding
    return embedding_bag(ctx, weight, indices, offsets, scale, mode, sparse, factors, last, at)


def plain_embedding_bag(
    ctx: Context, weight: Value, indices: Value, offsets: Value, scale: bool = False, mode: int = 0,
    sparse: bool = False, factors: Value | None = None, last: bool = False, padding: int = -1,
) -> Any:  # fmt: skip
    """-1 is for no padding index."""
    at = None if padding < 0 else padding
    return embedding_bag(ctx, weight, indices, offsets, scale, mode, sparse, factors, last, at)


def masked_select(ctx: Context, x: Value, mask: Value) -> Any:
    """Of both in their common shape."""
    rank = max(len(x.shape), len(mask.shape))
    shapes = [(as_int(1),) * (rank - len(t.shape)) + t.shape for t in (x, mask)]
    shape = [b if a == 1 else a for a, b in zip(*shapes, strict=True)]
    return index(ctx, expand(ctx, x, shape), [expand(ctx, mask, shape)])


def sized_by_data(ctx: Context, *_: Any, **__: Any) -> Any:
    raise ctx.unsupported("its size depends on the data; use torch.where with a fixed size")


def rank_among(ctx: Context, edges: Value, x: Value, right: bool, dtype: DType) -> Any:
    """How many edges lie before x, counted directly (there are few)."""
    wide = ctx.call("unsqueeze", x, axes=(len(x.shape),))
    edge, value = ctx.promoted(edges, wide)
    before = ctx.call("le" if right else "lt", edge, value)
    if value.dtype.is_float:  # NaN is behind all
        before = ctx.call("or", before, ctx.call("isnan", value))
    return ctx.call("sum", ctx.cast(before, dtype), axes=(len(x.shape),), keepdims=False)


def searchsorted(
    ctx: Context, edges: Value, x: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Any:  # fmt: skip
    """`edges` of rank 1 serve all of x; of a higher rank each row of x has its own."""
    if sorter is not None:
        edges = gather(ctx, edges, -1, sorter)
    value = ctx.tensor(x, common_type((edges, x)))
    if len(edges.shape) > 1:
        edges = ctx.call("unsqueeze", edges, axes=(len(edges.shape) - 1,))
    return rank_among(ctx, edges, value, right or side == "right", ctx.out_dtype())


def bucketize(
    ctx: Context, x: Value, edges: Value, *, out_int32: bool = False, right: bool = False
) -> Any:
    return rank_among(ctx, edges, x, right, ctx.out_dtype())


def histc(ctx: Context, x: Value, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    """How many elements lie in each of `bins` bins of one width between `low` and `high`, which
    belongs to the last; between the least and the greatest element where both are the same."""
    low, high = (float(constant(v, "a limit of histc")) for v in (low, high))
    if low > high or not (math.isfinite(low) and math.isfinite(high)):
        raise ctx.unsupported(f"limits {low} and {high}: they must be finite and in order")
    x = ctx.call("reshape", x, shape=(_count(x),))
    least, greatest = ctx.tensor(low, x.dtype), ctx.tensor(high, x.dtype)
    if low == high:
        least = ctx.call("min", x, axes=(0,), keepdims=False)
        greatest = ctx.call("max", x, axes=(0,), keepdims=False)
        alike, one = ctx.call("eq", least, greatest), ctx.tensor(1, x.dtype)
        least = ctx.call("where", alike, ctx.call("sub", least, one), least)
        greatest = ctx.call("where", alike, ctx.call("add", greatest, one), greatest)
    ends = ctx.call("ge", x, least), ctx.call("le", x, greatest)
    inside = ctx.call("and", *ends)
    width = ctx.call("sub", greatest, least)
    place = ctx.call("div", ctx.call("sub", x, least), width)
    place = ctx.call("mul", place, ctx.tensor(bins, x.dtype))
    place = ctx.cast(ctx.call("where", inside, place, ctx.tensor(0, x.dtype)), i64)
    place = ctx.call("min", place, ctx.tensor(bins - 1, i64))
    zeros = ctx.call("full", shape=(bins,), value=0, dtype=i64)
    counts = ctx.call(
        "scatter_elements", zeros, place, ctx.cast(inside, i64), axis=0, reduction="add"
    )
    return ctx.cast(counts, x.dtype)


_ALONG: Final[Table] = {
    "aten.index_select.default": index_select,
    "aten.gather.default": gather,
    "aten.scatter.src": scatter("none"),
    "aten.scatter.value": scatter("none"),
    "aten.scatter.reduce": scatter_with,
    "aten.scatter.value_reduce": scatter_with,
    "aten.scatter_add.default": in_f32(scatter("add")),
    "aten.scatter_reduce.two": in_f32(scatter_reduce),
    "aten.index_add.default": in_f32(index_add),
    "aten.index_copy.default": index_copy,
    "aten.index_fill.int_Scalar": index_fill,
    "aten.index_fill.int_Tensor": index_fill,
}

_BAGS: Final[Table] = {
    "aten.embedding_bag.padding_idx": wrapped_embedding_bag,
    "aten._embedding_bag.default": plain_embedding_bag,
    "aten._embedding_bag_forward_only.default": plain_embedding_bag,
}

INDEX: Final[Table] = {
    "aten.embedding.default": embedding,
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
    "aten.take.default": take,
    "aten.take_along_dim.default": take_along_dim,
    **all_in_f32(_BAGS),
    **all_as_vectors(_ALONG),
    "aten.bucketize.Tensor": bucketize,
    "aten.searchsorted.Tensor": searchsorted,
    "aten.searchsorted.Scalar": searchsorted,
    "aten.histc.default": histc,
    "aten.masked_scatter.default": masked_scatter,
    **dict.fromkeys(
        ("aten.nonzero.default", "aten.nonzero_numpy.default",
         "aten._unique2.default", "aten.unique_dim.default", "aten.bincount.default",
         "aten.argwhere.default", "aten.item.default",
         "aten._local_scalar_dense.default", "aten.unique_consecutive.default"),
        sized_by_data,
    ),
    "aten.masked_select.default": masked_select,
}  # fmt: skip
