"""ATen operators that move data: views, slices, joins, padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import boolean
from pliant.frontend.torch.as_vectors import as_vectors
from pliant.frontend.torch.context import (
    Context,
    Table,
    axes_of,
    axis_of,
    constant,
    size_of,
)  # fmt: skip
from pliant.frontend.torch.promote import common_type
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum

_END: Final = 1 << 62  # torch writes 2**63 - 1 for "to the end"


def reshape(ctx: Context, x: Value, shape: Sequence[Any]) -> Any:
    """With -1 the extent that torch derived; it knows the quotient to be exact."""
    sizes = [size_of(d) for d in shape]
    if any(d == -1 for d in sizes):
        derived = ctx.out_shape()
        sizes = [derived[k] if d == -1 else d for k, d in enumerate(sizes)]
    return to_shape(ctx, x, tuple(sizes))


def to_shape(ctx: Context, x: Value, shape: tuple[Int, ...]) -> Any:
    """`x` with this shape; itself if it has that already."""
    facts = ctx.builder.facts
    if len(shape) == len(x.shape) and all(map(facts.equal, shape, x.shape)):
        return x
    return ctx.call("reshape", x, shape=shape)


def view_as(ctx: Context, x: Value, other: Value) -> Any:
    return to_shape(ctx, x, other.shape)


def flatten(ctx: Context, x: Value, start: int = 0, end: int = -1) -> Any:
    if not x.shape:
        return ctx.call("reshape", x, shape=(as_int(1),))
    first, last = axis_of(start, len(x.shape)), axis_of(end, len(x.shape))
    joined = math.prod(x.shape[first : last + 1], start=as_int(1))
    return to_shape(ctx, x, (*x.shape[:first], joined, *x.shape[last + 1 :]))


def unflatten(ctx: Context, x: Value, dim: int, sizes: Sequence[Any]) -> Any:
    axis = axis_of(dim, len(x.shape))
    parts = [size_of(d) for d in sizes]
    derived = ctx.out_shape()[axis : axis + len(parts)]
    parts = [derived[k] if d == -1 else d for k, d in enumerate(parts)]
    return to_shape(ctx, x, (*x.shape[:axis], *parts, *x.shape[axis + 1 :]))


def permute(ctx: Context, x: Value, dims: Sequence[int]) -> Any:
    perm = tuple(axis_of(d, len(x.shape)) for d in dims)
    return x if perm == tuple(range(len(perm))) else ctx.call("transpose", x, perm=perm)


def transpose(ctx: Context, x: Value, a: int, b: int) -> Any:
    perm = list(range(len(x.shape)))
    if not perm:
        return x
    i, j = axis_of(a, len(perm)), axis_of(b, len(perm))
    perm[i], perm[j] = perm[j], perm[i]
    return permute(ctx, x, perm)


def matrix_transpose(ctx: Context, x: Value) -> Any:
    return x if len(x.shape) < 2 else transpose(ctx, x, -2, -1)


def reverse_dims(ctx: Context, x: Value) -> Any:
    return permute(ctx, x, range(len(x.shape))[::-1])


def movedim(ctx: Context, x: Value, source: Any, destination: Any) -> Any:
    rank = len(x.shape)
    froms = [source] if isinstance(source, int) else list(source)
    tos = [destination] if isinstance(destination, int) else list(destination)
    place = {axis_of(t, rank): axis_of(f, rank) for f, t in zip(froms, tos, strict=True)}
    others = iter(a for a in range(rank) if a not in place.values())
    return permute(ctx, x, [place[k] if k in place else next(others) for k in range(rank)])


def slice_axis(ctx: Context, x: Value, axis: int, start: Any, stop: Any, step: int = 1) -> Any:
    """`x[..., start:stop:step, ...]` with bounds already normalised."""
    zero = as_int(0)
    starts = tuple(as_int(start) if k == axis else zero for k in range(len(x.shape)))
    stops = tuple(as_int(stop) if k == axis else d for k, d in enumerate(x.shape))
    steps = tuple(step if k == axis else 1 for k in range(len(x.shape)))
    return ctx.call("slice", x, starts=starts, stops=stops, steps=steps)


def bounds(ctx: Context, size: Int, start: Any, stop: Any) -> tuple[Int, Int]:
    """Python's slice bounds, negative ones counted from the end, clamped to the size."""
    first = _bound(ctx, size, as_int(0) if start is None else as_int(start))
    last = size if stop is None else _bound(ctx, size, as_int(stop))
    if not ctx.builder.facts.le(first, last):
        last = maximum(first, last)
    return first, last


def _bound(ctx: Context, size: Int, at: Int) -> Int:
    facts = ctx.builder.facts
    if at.is_const and at.value >= _END:
        return size
    from_end = at + size if facts.le(0, at + size) else maximum(0, at + size)
    if facts.lt(at, 0):
        return facts.simplify(from_end)
    from_start = at if facts.le(at, size) else minimum(at, size)
    if facts.le(0, at):
        return facts.simplify(from_start)
    before = size - at  # of size - 2 what counts from the end lies before the start, too
    if before.is_const and before.value <= 2:
        return facts.simplify(maximum(0, at))
    return facts.simplify(_where_negative(at) * from_end + maximum(0, from_start))


def _where_negative(at: Int) -> Int:
    """1 there, and 0 elsewhere: which it is may depend on the sizes of a call."""
    return minimum(1, maximum(0, -at))


def slice_(
    ctx: Context, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    axis = axis_of(dim, len(x.shape))
    first, last = bounds(ctx, x.shape[axis], start, end)
    step = constant(step, "the step of a slice")
    if first == 0 and step == 1 and ctx.builder.facts.equal(last, x.shape[axis]):
        return x
    return slice_axis(ctx, x, axis, first, last, step)


def slice_scatter(
    ctx: Context,
    x: Value,
    source: Value,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Any:
    """`x` with `source` in place of a slice."""
    axis, size = axis_of(dim, len(x.shape)), x.shape[axis_of(dim, len(x.shape))]
    first, last = bounds(ctx, size, start, end)
    step = constant(step, "the step of a slice")
    ctx.builder.equal(
        source.shape[axis], ceildiv(last - first, step),
        f"{ctx.span}: what is put in a slice of dim {axis} must have the slice's size",
    )  # fmt: skip
    if step != 1:
        places = ctx.call("iota", size=source.shape[axis], start=first, step=step, dtype=_I64)
        return put_at(ctx, x, axis, places, source)
    parts = []
    if first != 0:
        parts.append(slice_axis(ctx, x, axis, 0, first))
    parts.append(ctx.cast(source, x.dtype))
    if not ctx.builder.facts.equal(last, size):
        parts.append(slice_axis(ctx, x, axis, last, size))
    return parts[0] if len(parts) == 1 else ctx.call("concat", tuple(parts), axis=axis)


def select_scatter(ctx: Context, x: Value, source: Value, dim: int, index: Any) -> Any:
    axis = axis_of(dim, len(x.shape))
    at = _index(ctx, x.shape[axis], index)
    row = ctx.call("unsqueeze", source, axes=(axis,))
    return slice_scatter(ctx, x, row, axis, at, at + 1)


def put_at(ctx: Context, x: Value, axis: int, places: Value, source: Value) -> Any:
    """`x` with rows `places` along `axis` replaced."""
    index = (*[None] * axis, places)
    return ctx.call("index_put", x, ctx.cast(source, x.dtype), index, accumulate=False)


def select(ctx: Context, x: Value, dim: int, index: Any) -> Any:
    if isinstance(index, Value):  # a rank-0 index tensor
        return ctx.call("gather", x, ctx.indices(index), axis=axis_of(dim, len(x.shape)))
    axis = axis_of(dim, len(x.shape))
    at = _index(ctx, x.shape[axis], index)
    return ctx.call("squeeze", slice_axis(ctx, x, axis, at, at + 1), axes=(axis,))


def _index(ctx: Context, size: Int, index: Any) -> Int:
    """A place counted from the start, or from the end where it is negative."""
    at, facts = as_int(index), ctx.builder.facts
    if facts.lt(at, 0):
        return at + size
    before = size - at  # the last one is negative only where there is none
    if facts.le(0, at) or (before.is_const and before.value <= 1):
        return at
    return at + _where_negative(at) * size


def narrow(ctx: Context, x: Value, dim: int, start: Any, length: Any) -> Any:
    axis = axis_of(dim, len(x.shape))
    at = _index(ctx, x.shape[axis], start)
    return slice_axis(ctx, x, axis, at, at + length)


def unsqueeze(ctx: Context, x: Value, dim: int) -> Any:
    return ctx.call("unsqueeze", x, axes=(axis_of(dim, len(x.shape) + 1),))


def squeeze(ctx: Context, x: Value, dims: Any = None) -> Any:
    """Dims of size 1 only; a symbolic one stays (it is not 1 in general)."""
    given = () if isinstance(dims, list | tuple) and not dims else axes_of(dims, len(x.shape))
    axes = tuple(k for k in given if x.shape[k] == 1)
    if len(ctx.out_shape()) < len(x.shape) - len(axes):  # torch knows of more, by a guard
        return ctx.call("reshape", x, shape=ctx.out_shape())
    return ctx.call("squeeze", x, axes=axes) if axes else x


def expand(ctx: Context, x: Value, sizes: Sequence[Any], *, implicit: bool = False) -> Any:
    offset = len(sizes) - len(x.shape)
    shape = tuple(
        x.shape[k - offset] if size_of(d) == -1 else size_of(d) for k, d in enumerate(sizes)
    )
    return x if shape == x.shape else ctx.call("expand", x, shape=shape)


def expand_as(ctx: Context, x: Value, other: Value) -> Any:
    return expand(ctx, x, other.shape)


def broadcast_tensors(ctx: Context, xs: Sequence[Value]) -> Any:
    return tuple(expand(ctx, x, ctx.symbols.shape(m)) for x, m in zip(xs, ctx.meta(), strict=True))


def meshgrid(ctx: Context, xs: Sequence[Value], indexing: str = "ij") -> Any:
    """Each tensor along an axis of its own; "xy" swaps the first two."""
    rank = len(xs)
    out = []
    for k, (x, shape) in enumerate(zip(xs, map(ctx.symbols.shape, ctx.meta()), strict=True)):
        at = 1 - k if indexing == "xy" and k < 2 and rank > 1 else k
        size = x.shape[0] if x.shape else as_int(1)
        row = tuple(size if j == at else as_int(1) for j in range(rank))
        out.append(expand(ctx, to_shape(ctx, x, row), shape))
    return tuple(out)


def diff(
    ctx: Context, x: Value, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    """x[1:] - x[:-1] along a dimension, `n` times."""
    axis = axis_of(dim, len(x.shape))
    x = cat(ctx, [v for v in (prepend, x, append) if v is not None], axis)
    for _ in range(n):
        size = x.shape[axis]
        first, last = bounds(ctx, size, 1, None)
        later = slice_axis(ctx, x, axis, first, last)
        first, last = bounds(ctx, size, None, -1)
        earlier = slice_axis(ctx, x, axis, first, last)
        x = ctx.call("xor" if x.dtype is boolean else "sub", later, earlier)
    return x


def cat(ctx: Context, xs: Sequence[Value], dim: int = 0) -> Any:
    dtype = common_type(xs)
    parts = [ctx.cast(x, dtype) for x in xs if not (len(x.shape) == 1 and x.shape[0] == 0)]
    parts = parts or [ctx.cast(x, dtype) for x in xs[:1]]
    if len(parts) == 1:
        return parts[0]
    return ctx.call("concat", tuple(parts), axis=axis_of(dim, len(parts[0].shape)))


def stack(ctx: Context, xs: Sequence[Value], dim: int = 0) -> Any:
    parts = tuple(ctx.promoted(*xs))
    return ctx.call("stack", parts, axis=axis_of(dim, len(parts[0].shape) + 1))


def join_rows(axis_of_rank: dict[int, int]) -> Any:
    """hstack and vstack."""

    def lower(ctx: Context, xs: Sequence[Value]) -> Any:
        least = min(axis_of_rank)
        raised = [x if len(x.shape) > least else raise_rank(ctx, x, least) for x in xs]
        rank = len(raised[0].shape)
        return cat(ctx, raised, axis_of_rank.get(rank, max(axis_of_rank.values())))

    return lower


def raise_rank(ctx: Context, x: Value, rank: int) -> Value:
    missing = rank - len(x.shape)
    return ctx.call("unsqueeze", x, axes=tuple(range(missing))) if missing > 0 else x  # type: ignore[no-any-return]


def split(ctx: Context, x: Value, _sizes: Any, dim: int = 0) -> Any:
    """Every way of splitting: the sizes are those that torch derived."""
    axis = axis_of(dim, len(x.shape))
    sizes = tuple(ctx.symbols.shape(part)[axis] for part in ctx.meta())
    if len(sizes) == 1:
        return (x,)
    return ctx.call("split", x, sizes=sizes, axis=axis)


def tensor_split(ctx: Context, x: Value, sections: Any, dim: int = 0) -> Any:
    """In so many sections, as even as may be, the longer first; or as slices between indices. (The
    sizes that torch derives are those of its example where the dimension is symbolic.)"""
    axis, count = axis_of(dim, len(x.shape)), len(ctx.meta())
    if isinstance(sections, Value):
        known = ctx.builder.constant(sections)
        if known is None:
            raise ctx.unsupported("sections that are computed (their sizes depend on the data)")
        sections = known.tolist()
    if isinstance(sections, Sequence):
        ends = [None, *sections, None]
        return tuple(slice_(ctx, x, axis, a, b) for a, b in itertools.pairwise(ends))
    sizes = tuple((x.shape[axis] + (count - 1 - k)) // count for k in range(count))
    return (x,) if count == 1 else ctx.call("split", x, sizes=sizes, axis=axis)


def split_fixed(dim: int) -> Any:
    """hsplit, vsplit, dsplit: along a dimension of their own."""
    return lambda ctx, x, parts: tensor_split(ctx, x, parts, dim if len(x.shape) > 1 else 0)


def unbind(ctx: Context, x: Value, dim: int = 0) -> Any:
    axis = axis_of(dim, len(x.shape))
    return tuple(select(ctx, x, axis, k) for k in range(len(ctx.meta())))


def repeat(ctx: Context, x: Value, repeats: Sequence[Any]) -> Any:
    times = tuple(size_of(r) for r in repeats)
    x = raise_rank(ctx, x, len(times))
    return x if all(t == 1 for t in times) else ctx.call("tile", x, repeats=times)


def tile(ctx: Context, x: Value, repeats: Sequence[Any]) -> Any:
    missing = len(x.shape) - len(repeats)
    return repeat(ctx, x, [*([1] * missing), *repeats])


def repeat_interleave(ctx: Context, x: Value, repeats: Any, dim: Any = None, **_: Any) -> Any:
    if dim is None:
        x, dim = flatten(ctx, x), 0
    axis = axis_of(dim, len(x.shape))
    if isinstance(repeats, Value):
        return _repeated(ctx, x, axis, repeats)
    times = size_of(repeats)
    shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    wide = ctx.call("expand", ctx.call("unsqueeze", x, axes=(axis + 1,)), shape=shape)
    joined = (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :])
    return ctx.call("reshape", wide, shape=joined)


def _repeated(ctx: Context, x: Value, axis: int, repeats: Value) -> Any:
    """Each row as often as a tensor that the model holds says, or all alike by its one number."""
    known = ctx.builder.constant(repeats)
    if known is None or (known.size > 1 and not x.shape[axis].is_const):
        raise ctx.unsupported(
            "repeat_interleave with counts that are computed (data-dependent size)"
        )
    if known.size == 1:
        return repeat_interleave(ctx, x, int(known.reshape(())), axis)
    rows = np.repeat(np.arange(known.size, dtype=np.int64), known)
    return ctx.call("gather", x, ctx.builder.weight("rows", rows), axis=axis)


def flip(ctx: Context, x: Value, dims: Sequence[int]) -> Any:
    axes = axes_of(dims, len(x.shape)) if dims else ()
    return ctx.call("flip", x, axes=axes) if axes else x


def roll(ctx: Context, x: Value, shifts: Any, dims: Any = ()) -> Any:
    shifts = tuple(size_of(s) for s in ([shifts] if isinstance(shifts, int | Int) else shifts))
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = ctx.call("roll", flatten(ctx, x), shifts=shifts, axes=(0,))
        return to_shape(ctx, flat, x.shape)
    axes = tuple(axis_of(d, len(x.shape)) for d in dims)
    return ctx.call("roll", x, shifts=shifts, axes=axes)


def triangle(op: str) -> Any:
    def lower(ctx: Context, x: Value, diagonal: Any = 0) -> Any:
        return ctx.call(op, x, diagonal=diagonal)

    return lower


def diagonal(ctx: Context, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rank = len(x.shape)
    return ctx.call(
        "diagonal", x, offset=offset, axis1=axis_of(dim1, rank), axis2=axis_of(dim2, rank)
    )


def matrix_diagonal(
    ctx: Context, x: Value, *, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Any:
    return diagonal(ctx, x, offset, dim1, dim2)


def pads_of(ctx: Context, rank: int, flat: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """Torch's list (last dimension first) as one pair for each dimension."""
    pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
    for k in range(len(flat) // 2):
        low, high = size_of(flat[2 * k]), size_of(flat[2 * k + 1])
        plain = low.is_const and high.is_const
        pairs[rank - 1 - k] = (low.value, high.value) if plain else (low, high)
    return tuple(pairs)


def pad(
    ctx: Context, x: Value, flat: Sequence[Any], mode: str = "constant", value: Any = None
) -> Any:
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    pairs = pads_of(ctx, len(x.shape), flat)
    if all(p == (0, 0) for p in pairs):
        return x
    if mode == "circular" and any(isinstance(n, int) and n < 0 for p in pairs for n in p):
        x, pairs = _cropped(ctx, x, pairs)
    number = constant(0 if value is None else value, "the value of padding")
    if x.dtype.is_float:
        number = float(number)
    return ctx.call("pad", x, pads=pairs, mode=names[mode], value=number)


def _cropped(
    ctx: Context, x: Value, pairs: tuple[tuple[Any, Any], ...]
) -> tuple[Value, tuple[tuple[Any, Any], ...]]:
    """What negative padding leaves, and the other padding: what is wrapped around is that."""
    off = [tuple(-n if isinstance(n, int) and n < 0 else 0 for n in p) for p in pairs]
    starts = tuple(as_int(low) for low, _ in off)
    stops = tuple(d - high for d, (_, high) in zip(x.shape, off, strict=True))
    x = ctx.call("slice", x, starts=starts, stops=stops, steps=(1,) * len(off))
    rest = zip(pairs, off, strict=True)
    return x, tuple(tuple(n + m for n, m in zip(p, o, strict=True)) for p, o in rest)


def constant_pad(ctx: Context, x: Value, flat: Sequence[Any], value: Any = 0) -> Any:
    return pad(ctx, x, flat, "constant", value)


def pixel_shuffle(ctx: Context, x: Value, factor: int) -> Any:
    if len(x.shape) == 4:
        return ctx.call("pixel_shuffle", x, factor=factor)
    lead = math.prod(x.shape[:-3], start=as_int(1))
    y = ctx.call("reshape", x, shape=(lead, *x.shape[-3:]))
    return ctx.call("reshape", ctx.call("pixel_shuffle", y, factor=factor), shape=ctx.out_shape())


def pixel_unshuffle(ctx: Context, x: Value, factor: int) -> Any:
    """[.., c, h r, w r] -> [.., c r r, h, w]; the place in the block is the fast part."""
    *lead, c, h, w = x.shape
    rank, r = len(lead), factor
    y = ctx.call("reshape", x, shape=(*lead, c, h // r, as_int(r), w // r, as_int(r)))
    perm = (*range(rank), rank, rank + 2, rank + 4, rank + 1, rank + 3)
    y = ctx.call("transpose", y, perm=perm)
    return ctx.call("reshape", y, shape=(*lead, c * r * r, h // r, w // r))


def channel_shuffle(ctx: Context, x: Value, groups: int) -> Any:
    n, c, *rest = x.shape
    y = ctx.call("reshape", x, shape=(n, as_int(groups), c // groups, *rest))
    y = ctx.call("transpose", y, perm=(0, 2, 1, *range(3, len(rest) + 3)))
    return ctx.call("reshape", y, shape=x.shape)


def unfold(ctx: Context, x: Value, dim: int, size: Any, step: Any) -> Any:
    return ctx.call(
        "unfold", x, axis=axis_of(dim, len(x.shape)),
        size=constant(size, "size"), step=constant(step, "step"),
    )  # fmt: skip


def im2col(ctx: Context, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Patches as columns: unfold both spatial dims, then reorder."""
    if any(d != 1 for d in dilation):
        raise ctx.unsupported("unfold (im2col) with dilation")
    (kh, kw), (ph, pw), (sh, sw) = kernel, padding, stride
    batched = len(x.shape) == 4
    y = x if batched else ctx.call("unsqueeze", x, axes=(0,))
    y = pad(ctx, y, [pw, pw, ph, ph])
    y = ctx.call("unfold", y, axis=2, size=kh, step=sh)
    y = ctx.call("unfold", y, axis=3, size=kw, step=sw)  # n c oh ow kh kw
    n, c, oh, ow = y.shape[:4]
    y = ctx.call("transpose", y, perm=(0, 1, 4, 5, 2, 3))
    y = ctx.call("reshape", y, shape=(n, c * kh * kw, oh * ow))
    return y if batched else ctx.call("squeeze", y, axes=(0,))


_I64: Final = common_type((0,))

SHAPE: Final[Table] = {
    **dict.fromkeys(
        ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
         "aten.view_copy.default", "aten._reshape_copy.default"), reshape,
    ),
    "aten.view_as.default": view_as,
    "aten.reshape_as.default": view_as,
    "aten.flatten.using_ints": flatten,
    "aten.ravel.default": flatten,
    "aten.unflatten.int": unflatten,
    "aten.permute.default": permute,
    "aten.permute_copy.default": permute,
    "aten.transpose.int": transpose,
    "aten.transpose_copy.int": transpose,
    "aten.swapaxes.default": transpose,
    "aten.swapdims.default": transpose,
    "aten.t.default": matrix_transpose,
    "aten.mT.default": matrix_transpose,
    "aten.matrix_H.default": matrix_transpose,
    "aten.mH.default": matrix_transpose,
    "aten.adjoint.default": matrix_transpose,
    "aten.numpy_T.default": reverse_dims,
    "aten.movedim.int": movedim,
    "aten.movedim.intlist": movedim,
    "aten.moveaxis.int": movedim,
    "aten.moveaxis.intlist": movedim,
    "aten.slice.Tensor": slice_,
    "aten.slice_copy.Tensor": slice_,
    "aten.slice_scatter.default": slice_scatter,
    "aten.select.int": select,
    "aten.select_copy.int": select,
    "aten.select_scatter.default": select_scatter,
    "aten.narrow.default": narrow,
    "aten.narrow.Tensor": narrow,
    "aten.unsqueeze.default": unsqueeze,
    "aten.unsqueeze_copy.default": unsqueeze,
    "aten.squeeze.default": squeeze,
    "aten.squeeze.dim": squeeze,
    "aten.squeeze.dims": squeeze,
    "aten.squeeze_copy.dims": squeeze,
    "aten.expand.default": expand,
    "aten.expand_copy.default": expand,
    "aten.broadcast_to.default": expand,
    "aten.expand_as.default": expand_as,
    "aten.broadcast_tensors.default": broadcast_tensors,
    "aten.meshgrid.default": meshgrid,
    "aten.meshgrid.indexing": meshgrid,
    "aten.diff.default": diff,
    "aten.cat.default": cat,
    "aten.concat.default": cat,
    "aten.concatenate.default": cat,
    "aten.stack.default": stack,
    "aten.hstack.default": join_rows({1: 0, 2: 1}),
    "aten.vstack.default": join_rows({2: 0}),
    "aten.split.Tensor": split,
    "aten.split.sizes": split,
    "aten.split_with_sizes.default": split,
    "aten.split_with_sizes_copy.default": split,
    "aten.chunk.default": split,
    "aten.tensor_split.sections": tensor_split,
    "aten.tensor_split.indices": tensor_split,
    "aten.tensor_split.tensor_indices_or_sections": tensor_split,
    **{
        f"aten.{name}split.{overload}": split_fixed(dim)
        for name, dim in (("h", 1), ("v", 0), ("d", 2))
        for overload in ("int", "array")
    },
    "aten.unsafe_split.Tensor": split,
    "aten.unsafe_chunk.default": split,
    "aten.unbind.int": unbind,
    "aten.repeat.default": repeat,
    "aten.tile.default": tile,
    "aten.repeat_interleave.self_int": repeat_interleave,
    "aten.repeat_interleave.self_Tensor": repeat_interleave,
    "aten.flip.default": flip,
    "aten.roll.default": roll,
    "aten.tril.default": triangle("tril"),
    "aten.triu.default": triangle("triu"),
    "aten.diagonal.default": diagonal,
    "aten.diagonal_copy.default": diagonal,
    "aten.linalg_diagonal.default": matrix_diagonal,
    "aten.pad.default": pad,
    "aten.constant_pad_nd.default": constant_pad,
    **dict.fromkeys(
        (f"aten.reflection_pad{n}d.default" for n in (1, 2, 3)),
        lambda ctx, x, flat: pad(ctx, x, flat, "reflect"),
    ),
    **dict.fromkeys(
        (f"aten.replication_pad{n}d.default" for n in (1, 2, 3)),
        lambda ctx, x, flat: pad(ctx, x, flat, "replicate"),
    ),
    "aten.pixel_shuffle.default": pixel_shuffle,
    "aten.pixel_unshuffle.default": pixel_unshuffle,
    "aten.channel_shuffle.default": channel_shuffle,
    "aten.native_channel_shuffle.default": channel_shuffle,
    "aten.unfold.default": as_vectors(unfold),
    "aten.im2col.default": im2col,
}  # fmt: skip
