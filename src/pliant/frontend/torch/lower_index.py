"""ATen operators with index tensors: gather, scatter, embedding, advanced indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.base.dtypes import boolean
from pliant.frontend.torch.context import Context, Lowering, Table, axis_of
from pliant.graph.function import Value


def embedding(ctx: Context, weight: Value, indices: Value, *_: Any, **__: Any) -> Any:
    """The padding row is an ordinary one in inference."""
    return ctx.call("embedding", weight, ctx.indices(indices))


def index(ctx: Context, x: Value, indices: Sequence[Value | None]) -> Any:
    return ctx.call("index", x, _index_list(ctx, x, indices))


def index_put(
    ctx: Context, x: Value, indices: Sequence[Value | None], values: Value,
    accumulate: bool = False, *_: Any,
) -> Any:  # fmt: skip
    values = ctx.cast(values, x.dtype)
    only = [v for v in indices if v is not None]
    if len(only) == 1 and only[0].dtype is boolean and not accumulate and not values.shape:
        return _put_where(ctx, x, indices, only[0], values)
    places = _index_list(ctx, x, indices)
    return ctx.call("index_put", x, values, places, accumulate=accumulate)


def _put_where(
    ctx: Context, x: Value, indices: Sequence[Value | None], mask: Value, value: Value
) -> Any:
    """x[mask] = number: a mask over some dims, the same for all others."""
    before = next(k for k, v in enumerate(indices) if v is not None)
    after = len(x.shape) - before - len(mask.shape)
    axes = (*range(before), *range(len(x.shape) - after, len(x.shape)))
    wide = ctx.call("unsqueeze", mask, axes=axes) if axes else mask
    return ctx.call("where", wide, value, x)


def _index_list(
    ctx: Context, x: Value, indices: Sequence[Value | None]
) -> tuple[Value | None, ...]:
    if any(v is not None and v.dtype is boolean for v in indices):
        raise ctx.unsupported(
            "indexing with a boolean mask gives a size that depends on the data; use torch.where"
        )
    return tuple(None if v is None else ctx.indices(v) for v in indices)


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
    if not x.shape:
        return x
    return ctx.call("gather_elements", x, ctx.indices(indices), axis=axis_of(dim, len(x.shape)))


def take_along_dim(ctx: Context, x: Value, indices: Value, dim: int | None = None) -> Any:
    if dim is None:
        return take(ctx, x, indices)
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


_REDUCTIONS: Final = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def scatter_reduce(
    ctx: Context, x: Value, dim: int, indices: Value, source: Any, reduce: str,
    *, include_self: bool = True,
) -> Any:  # fmt: skip
    if reduce not in _REDUCTIONS or not include_self:
        raise ctx.unsupported(f"scatter_reduce with reduce={reduce!r}, include_self={include_self}")
    return scatter(_REDUCTIONS[reduce])(ctx, x, dim, indices, source)


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


def masked_select(ctx: Context, *_: Any, **__: Any) -> Any:
    raise ctx.unsupported("its size depends on the data; use torch.where with a fixed size")


def searchsorted(ctx: Context, edges: Value, x: Value, right: bool) -> Any:
    """How many edges lie before x, counted directly (there are few)."""
    wide = ctx.call("unsqueeze", x, axes=(len(x.shape),))
    edge, value = ctx.promoted(edges, wide)
    before = ctx.call("le" if right else "lt", edge, value)
    counts = ctx.cast(before, ctx.out_dtype())
    return ctx.call("sum", counts, axes=(len(x.shape),), keepdims=False)


def bucketize(
    ctx: Context, x: Value, edges: Value, *, out_int32: bool = False, right: bool = False
) -> Any:
    return searchsorted(ctx, edges, x, right)


INDEX: Final[Table] = {
    "aten.embedding.default": embedding,
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
    "aten.index_select.default": index_select,
    "aten.take.default": take,
    "aten.take_along_dim.default": take_along_dim,
    "aten.gather.default": gather,
    "aten.scatter.src": scatter("none"),
    "aten.scatter.value": scatter("none"),
    "aten.scatter.reduce": scatter_with,
    "aten.scatter.value_reduce": scatter_with,
    "aten.scatter_add.default": scatter("add"),
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.index_add.default": index_add,
    "aten.index_copy.default": index_copy,
    "aten.index_fill.int_Scalar": index_fill,
    "aten.index_fill.int_Tensor": index_fill,
    "aten.bucketize.Tensor": bucketize,
    **dict.fromkeys(
        ("aten.masked_select.default", "aten.nonzero.default", "aten.nonzero_numpy.default",
         "aten._unique2.default", "aten.item.default",
         "aten._local_scalar_dense.default", "aten.unique_consecutive.default"),
        masked_select,
    ),
}  # fmt: skip
