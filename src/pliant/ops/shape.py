"""Operators that only move elements: every element of the result is one of the operand's, or a
constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, select
from pliant.ops.common import (
    Requirement,
    aligned,
    at_least,
    broadcast_to,
    check_axes,
    check_axis,
    check_rank,
    equal,
    nonnegative,
    positive,
    replaced,
    same_type,
    shape_of,
    without,
)
from pliant.ops.pad import pad
from pliant.ops.reshape import reshape
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, minimum

Index = tuple[Int, ...]
MAX_JOINED: Final = 64  # operands of one concatenation


def moved(
    x: Tensor,
    shape: Sequence[IntLike],
    place: Callable[[Index], Sequence[IntLike]],
    name: str,
    requires: Sequence[Requirement] = (),
) -> Compute:
    """`out[i] = x[place(i)]`."""
    return compute(shape, lambda *i: x[tuple(place(i))], name, requires)


def transpose(x: Tensor, *, perm: Sequence[int]) -> Tensor:
    """Dimension k of the result is dimension perm[k] of x."""
    check_axes(perm, x.rank)
    if len(perm) != x.rank:
        raise InvalidModelError(f"perm {tuple(perm)} of a tensor of rank {x.rank}")
    inverse = [list(perm).index(d) for d in range(x.rank)]
    return moved(x, [x.shape[p] for p in perm], lambda i: [i[k] for k in inverse], "transpose")


def slice_(
    x: Tensor, *, starts: Sequence[IntLike], stops: Sequence[IntLike], steps: Sequence[int]
) -> Tensor:
    """x[start:stop:step] in every dimension, already normalised: inside of x, and in order."""
    if not len(starts) == len(stops) == len(steps) == x.rank:
        raise InvalidModelError(f"a slice of rank {x.rank} needs as many starts, stops and steps")
    requires: list[Requirement] = []
    for d, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        requires += _inside(x.shape[d], as_int(start), as_int(stop), step, d)
    shape = [_count(*s) for s in zip(starts, stops, steps, strict=True)]

    def place(i: Index) -> list[Int]:
        return [as_int(s) + k * step for k, s, step in zip(i, starts, steps, strict=True)]

    return moved(x, shape, place, "slice", requires)


def _inside(size: Int, start: Int, stop: Int, step: int, d: int) -> Iterator[Requirement]:
    what = f"the slice [{start}:{stop}:{step}] must lie inside of dim {d}, of size {size}"
    if step > 0:
        for high, low in ((start, 0), (stop, start), (size, stop)):
            yield from at_least(high, low, what)
    else:  # from start down to stop, which is not taken: -1 takes all
        yield from at_least(stop, -1, what)
        yield from at_least(size - 1, start, what)


def _count(start: IntLike, stop: IntLike, step: int) -> Int:
    if step == 0:
        raise InvalidModelError("the step of a slice is 0")
    if step > 0:  # start <= stop
        return ceildiv(as_int(stop) - start, step)
    return nonnegative(ceildiv(as_int(start) - stop, -step))


def concat(xs: tuple[Tensor, ...], *, axis: int) -> Tensor:
    """The operands one after the other along `axis`; other dims must be equal.

    A kernel reads a limited number of tensors, so many operands are joined in pieces first.
    """
    same_type(*xs)
    if len(xs) > MAX_JOINED:
        pieces = (xs[k : k + MAX_JOINED] for k in range(0, len(xs), MAX_JOINED))
        return concat(tuple(concat(piece, axis=axis) for piece in pieces), axis=axis)
    first = xs[0]
    check_axis(axis, first.rank)
    requires: list[Requirement] = []
    for x in xs[1:]:
        check_rank(x, first.rank)
        for d in range(first.rank):
            if d != axis:
                message = f"dim {d} must be the same in all operands"
                requires += equal(first.shape[d], x.shape[d], message)
    ends = [as_int(0)]
    for x in xs:
        ends.append(ends[-1] + x.shape[axis])
    shape = replaced(first.shape, axis, ends[-1])

    def pick(i: Index, low: int, high: int) -> Expr:
        if high - low == 1:
            return xs[low][replaced(i, axis, i[axis] - ends[low])]
        middle = (low + high) // 2
        before = as_expr(i[axis]) < as_expr(ends[middle])
        return select(before, pick(i, low, middle), pick(i, middle, high))

    return compute(shape, lambda *i: pick(i, 0, len(xs)), "concat", requires)


def stack(xs: tuple[Tensor, ...], *, axis: int) -> Tensor:
    """The operands side by side along a new dimension."""
    return concat(tuple(unsqueeze(x, axes=(axis,)) for x in xs), axis=axis)


def split(x: Tensor, *, sizes: Sequence[IntLike], axis: int) -> tuple[Tensor, ...]:
    """Consecutive pieces of `sizes` along `axis`."""
    check_axis(axis, x.rank)
    total = sum((as_int(s) for s in sizes), as_int(0))
    extent = x.shape[axis]
    requires = equal(
        total, extent, f"the sizes of a split add up to {total}, dim {axis} is {extent}"
    )
    pieces, start = [], as_int(0)
    for s in sizes:
        shape = replaced(x.shape, axis, s)
        place = partial(_shifted, axis=axis, by=start)
        pieces.append(moved(x, shape, place, "split", requires))
        start = start + s
    return tuple(pieces)


def _shifted(i: Index, *, axis: int, by: Int) -> Index:
    return replaced(i, axis, i[axis] + by)


def expand(x: Tensor, *, shape: Sequence[IntLike]) -> Tensor:
    """NumPy's broadcast_to."""
    out = shape_of(shape)
    requires = broadcast_to(x.shape, out)
    return moved(x, out, lambda i: aligned(i, x.shape, out), "expand", requires)


def squeeze(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """Without the dimensions `axes`, which are 1."""
    check_axes(axes, x.rank)
    requires: list[Requirement] = []
    for a in axes:
        requires += equal(x.shape[a], 1, f"squeezed dim {a} must be 1, not {x.shape[a]}")
    kept = [d for d in range(x.rank) if d not in axes]

    def place(i: Index) -> list[Int]:
        at = dict(zip(kept, i, strict=True))
        return [at.get(d, as_int(0)) for d in range(x.rank)]

    return moved(x, [x.shape[d] for d in kept], place, "squeeze", requires)


def unsqueeze(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """With new dimensions of 1 at the positions `axes` of the result."""
    rank = x.rank + len(axes)
    check_axes(axes, rank)
    dims = iter(x.shape)
    shape = [as_int(1) if d in axes else next(dims) for d in range(rank)]
    return moved(x, shape, lambda i: without(i, *axes), "unsqueeze")


def tile(x: Tensor, *, repeats: Sequence[IntLike]) -> Tensor:
    """x repeated along every dimension."""
    if len(repeats) != x.rank:
        raise InvalidModelError(f"{len(repeats)} repeats for a tensor of rank {x.rank}")
    shape = [d * r for d, r in zip(x.shape, repeats, strict=True)]

    def place(i: Index) -> list[Int]:
        return [
            k if as_int(r) == 1 else k % positive(d)
            for k, d, r in zip(i, x.shape, repeats, strict=True)
        ]

    return moved(x, shape, place, "tile")


def flip(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """Reversed along `axes`."""
    check_axes(axes, x.rank)

    def place(i: Index) -> list[Int]:
        return [x.shape[d] - 1 - k if d in axes else k for d, k in enumerate(i)]

    return moved(x, x.shape, place, "flip")


def roll(x: Tensor, *, shifts: Sequence[IntLike], axes: Sequence[int]) -> Tensor:
    """Shifted cyclically along `axes`; an axis may occur twice."""
    by = {a: as_int(0) for a in axes}
    for a, s in zip(axes, shifts, strict=True):
        check_axis(a, x.rank)
        by[a] = by[a] + s

    def place(i: Index) -> list[Int]:
        return [(k - by[d]) % positive(x.shape[d]) if d in by else k for d, k in enumerate(i)]

    return moved(x, x.shape, place, "roll")


def depth_to_space(x: Tensor, *, block: int, mode: str = "DCR") -> Tensor:
    """[N, C*b*b, H, W] -> [N, C, H*b, W*b]; the block's position is the outer (DCR) or the inner
    (CRD) part of the channel."""
    check_rank(x, 4)
    if mode not in ("DCR", "CRD"):
        raise InvalidModelError(f'mode is "DCR" or "CRD", not {mode!r}')
    n, c, h, w = x.shape
    channels = c // (block * block)
    requires = _divisible(c, block * block, "channels")

    def place(i: Index) -> list[Int]:
        inside = i[2] % block * block + i[3] % block
        channel = inside * channels + i[1] if mode == "DCR" else i[1] * (block * block) + inside
        return [i[0], channel, i[2] // block, i[3] // block]

    return moved(x, (n, channels, h * block, w * block), place, "depth_to_space", requires)


def _divisible(size: Int, by: int, what: str) -> tuple[Requirement, ...]:
    return equal(size // by * by, size, f"the {what}, {size}, must be a multiple of {by}")


def space_to_depth(x: Tensor, *, block: int) -> Tensor:
    """[N, C, H*b, W*b] -> [N, C*b*b, H, W], the block's position being the outer part."""
    check_rank(x, 4)
    n, c, h, w = x.shape
    requires = _divisible(h, block, "height") + _divisible(w, block, "width")

    def place(i: Index) -> list[Int]:
        inside = i[1] // positive(c)
        return [
            i[0], i[1] % positive(c), i[2] * block + inside // block, i[3] * block + inside % block,
        ]  # fmt: skip

    shape = (n, c * (block * block), h // block, w // block)
    return moved(x, shape, place, "space_to_depth", requires)


def pixel_shuffle(x: Tensor, *, factor: int) -> Tensor:
    """[..., C*r*r, H, W] -> [..., C, H*r, W*r] (torch)."""
    if x.rank < 3:
        raise InvalidModelError(f"pixel_shuffle of rank {x.rank}")
    *batch, c, h, w = x.shape
    requires = _divisible(c, factor * factor, "channels")

    def place(i: Index) -> list[Int]:
        *outer, channel, row, col = i
        inside = row % factor * factor + col % factor
        return [*outer, channel * (factor * factor) + inside, row // factor, col // factor]

    shape = (*batch, c // (factor * factor), h * factor, w * factor)
    return moved(x, shape, place, "pixel_shuffle", requires)


def triangle(x: Tensor, *, diagonal: IntLike = 0, lower: bool) -> Tensor:
    """Zero above (lower) or below (upper) the given diagonal of the last two dimensions."""
    if x.rank < 2:
        raise InvalidModelError(f"a triangle of a tensor of rank {x.rank}")

    def body(*i: Int) -> Expr:
        offset, limit = as_expr(i[-1] - i[-2]), as_expr(as_int(diagonal))
        return select(offset <= limit if lower else offset >= limit, x[i], as_expr(0, x.dtype))

    return compute(x.shape, body, "tril" if lower else "triu")


def diagonal(x: Tensor, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements with i2 - i1 == offset, as a new last dimension (NumPy)."""
    check_axes((axis1, axis2), x.rank)
    down, right = max(-offset, 0), max(offset, 0)
    length = nonnegative(minimum(x.shape[axis1] - down, x.shape[axis2] - right))
    shape = (*without(x.shape, axis1, axis2), length)

    def place(i: Index) -> list[Int]:
        rest = iter(i[:-1])
        special = {axis1: i[-1] + down, axis2: i[-1] + right}
        return [special[d] if d in special else next(rest) for d in range(x.rank)]

    return moved(x, shape, place, "diagonal")


def unfold(x: Tensor, *, axis: int, size: IntLike, step: int) -> Tensor:
    """All windows of `size` along `axis`, `step` apart; the window is a new last dimension."""
    check_axis(axis, x.rank)
    extent = x.shape[axis]
    requires = at_least(extent, size, f"dim {axis} must be at least the window's size {size}")
    count = (extent - size) // step + 1
    shape = (*replaced(x.shape, axis, count), as_int(size))
    return moved(
        x, shape, lambda i: replaced(i[:-1], axis, i[axis] * step + i[-1]), "unfold", requires
    )


SHAPE: Final[tuple[Operator, ...]] = (
    Operator("reshape", reshape),
    Operator("transpose", transpose),
    Operator("slice", slice_),
    Operator("concat", concat, variadic=True),
    Operator("stack", stack, variadic=True),
    Operator("split", split),
    Operator("pad", pad),
    Operator("expand", expand),
    Operator("squeeze", squeeze),
    Operator("unsqueeze", unsqueeze),
    Operator("tile", tile),
    Operator("flip", flip),
    Operator("roll", roll),
    Operator("depth_to_space", depth_to_space),
    Operator("space_to_depth", space_to_depth),
    Operator("pixel_shuffle", pixel_shuffle),
    Operator("tril", partial(triangle, lower=True)),
    Operator("triu", partial(triangle, lower=False)),
    Operator("diagonal", diagonal),
    Operator("unfold", unfold),
)
