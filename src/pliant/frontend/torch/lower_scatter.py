"""ATen operators that write some elements of a tensor: diagonals, flat places, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.base.dtypes import i64
from pliant.frontend.torch.as_vectors import as_vectors
from pliant.frontend.torch.context import Context, Table, axis_of, constant, size_of
from pliant.frontend.torch.in_f32 import in_f32
from pliant.frontend.torch.lower_index import scatter_reduce
from pliant.frontend.torch.lower_shape import flatten, slice_axis, to_shape
from pliant.graph.function import Value
from pliant.sym.expr import as_int, maximum, minimum


def index_reduce(
    ctx: Context, x: Value, dim: int, indices: Value, source: Value, reduce: str,
    *, include_self: bool = True,
) -> Any:  # fmt: skip
    """Slices of the source combined into those of `x` that the indices name."""
    axis = axis_of(dim, len(x.shape))
    shape = tuple(d if k == axis else as_int(1) for k, d in enumerate(source.shape))
    places = ctx.call("expand", to_shape(ctx, indices, shape), shape=source.shape)
    return scatter_reduce(ctx, x, axis, places, source, reduce, include_self=include_self)


def put(ctx: Context, x: Value, indices: Value, source: Value, accumulate: bool = False) -> Any:
    """Elements of the flat tensor replaced, or added to."""
    flat, places = flatten(ctx, x), flatten(ctx, ctx.indices(indices))
    values = flatten(ctx, ctx.cast(source, x.dtype))
    made = ctx.call("index_put", flat, values, (places,), accumulate=accumulate)
    return to_shape(ctx, made, x.shape)


def _diagonal_places(ctx: Context, x: Value, offset: int) -> tuple[Value, Value]:
    """Which rows and columns of matrices are on a diagonal."""
    rows, columns = x.shape[:2]
    low, right = max(-offset, 0), max(offset, 0)
    count = ctx.builder.facts.simplify(maximum(minimum(rows - low, columns - right), 0))
    return tuple(ctx.call("iota", size=count, start=k, step=1, dtype=i64) for k in (low, right))


def diagonal_scatter(
    ctx: Context, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """`x` with `source` on a diagonal, along its last dimension."""
    rank = len(x.shape)
    first, second = axis_of(dim1, rank), axis_of(dim2, rank)
    front = (first, second, *(d for d in range(rank) if d not in (first, second)))
    matrices = ctx.call("transpose", x, perm=front)
    rows, columns = _diagonal_places(ctx, matrices, offset)
    turned = (rank - 2, *range(rank - 2))
    values = ctx.call("transpose", ctx.cast(source, x.dtype), perm=turned) if rank > 2 else source
    made = ctx.call(
        "index_put", matrices, ctx.cast(values, x.dtype), (rows, columns), accumulate=False
    )
    back = tuple(front.index(d) for d in range(rank))
    return ctx.call("transpose", made, perm=back)


def fill_diagonal(ctx: Context, x: Value, value: Any, wrap: bool = False) -> Any:
    """A number on the main diagonal; with `wrap` again below each square of a tall matrix."""
    rank, number = len(x.shape), ctx.tensor(value, x.dtype)
    if rank == 2 and wrap:
        rows, columns = x.shape
        count = (rows * columns + columns) // (columns + 1)
        step = constant(columns + 1, "the width of what is filled along a wrapped diagonal")
        at = ctx.call("iota", size=count, start=0, step=step, dtype=i64)
        made = ctx.call("index_put", flatten(ctx, x), number, (at,), accumulate=False)
        return to_shape(ctx, made, x.shape)
    count = ctx.builder.facts.simplify(minimum(*x.shape))
    at = ctx.call("iota", size=count, start=0, step=1, dtype=i64)
    return ctx.call("index_put", x, number, (at,) * rank, accumulate=False)


def nonzero_static(ctx: Context, x: Value, *, size: Any, fill_value: int = -1) -> Any:
    """The places of the first `size` elements that are not 0, the rest filled."""
    flat, count = ctx.cast(flatten(ctx, ctx.truth(x)), i64), size_of(size)
    order = ctx.call("cumsum", flat, axis=0, exclusive=True, reverse=False)
    last = ctx.tensor(count, i64)
    kept = ctx.call("where", ctx.truth(flat), ctx.call("min", order, last), last)
    at = ctx.call("iota", size=flat.shape[0], start=0, step=1, dtype=i64)
    base = ctx.call("full", shape=(count + 1,), value=-1, dtype=i64)
    found = ctx.call("scatter_elements", base, kept, at, axis=0, reduction="none")
    found, columns = slice_axis(ctx, found, 0, 0, count), []
    stride = as_int(1)
    for extent in reversed(x.shape):
        along = ctx.call("floordiv", found, ctx.tensor(maximum(stride, 1), i64))
        columns.append(ctx.call("floormod", along, ctx.tensor(maximum(extent, 1), i64)))
        stride = stride * extent
    if not columns:
        return ctx.call("full", shape=(count, 0), value=0, dtype=i64)
    places = ctx.call("stack", tuple(reversed(columns)), axis=1)
    empty = ctx.call("unsqueeze", ctx.call("lt", found, ctx.scalar(0, i64)), axes=(1,))
    return ctx.call("where", empty, ctx.tensor(fill_value, i64), places)


def as_strided(
    ctx: Context, x: Value, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Any:
    """Elements of what lies in memory, where torch has all of it in the order of `x`."""
    assert ctx.node is not None
    of = ctx.node.args[0].meta["val"]  # type: ignore[union-attr]
    whole = of.untyped_storage().nbytes() == of.numel() * of.element_size()
    if not whole or not of.is_contiguous() or of.storage_offset():
        raise ctx.unsupported("as_strided of a view; write it with slices, unfold or reshape")
    at = ctx.tensor(0 if offset is None else offset, i64)
    for k, (extent, step) in enumerate(zip(size, stride, strict=True)):
        row = ctx.call("iota", size=size_of(extent), start=0, step=1, dtype=i64)
        row = ctx.call("mul", row, ctx.tensor(step, i64))
        shape = (size_of(extent), *(as_int(1) for _ in size[k + 1 :]))
        at = ctx.call("add", at, ctx.call("reshape", row, shape=shape))
    return ctx.call("gather", flatten(ctx, x), at, axis=0)


SCATTER: Final[Table] = {
    "aten.index_reduce.default": as_vectors(in_f32(index_reduce)),
    "aten.put.default": put,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.fill_diagonal_.default": fill_diagonal,
    "aten.nonzero_static.default": nonzero_static,
    "aten.as_strided.default": as_strided,
}
