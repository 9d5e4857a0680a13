"""Reshape: the same elements in row-major order under other dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from pliant.ir.tensor import Tensor, compute
from pliant.ops.common import Shape, equal, positive, product, shape_of
from pliant.sym.expr import Int, IntLike, as_int


def reshape(x: Tensor, *, shape: Sequence[IntLike]) -> Tensor:
    """The elements of x under other dimensions; their number must be the same.

    Where products of leading or trailing dimensions agree, the dimensions in between are a group of
    their own and only they are taken apart:

        [b, s, 384] -> [b, s, 12, 32]     x[i0, i1, i2*32 + i3]
    """
    out = shape_of(shape)
    have, want = product(x.shape), product(out)
    message = f"a tensor of {have} elements cannot be reshaped to {want}"
    requires = equal(have, want, message)
    groups = list(grouped(x.shape, out))

    def place(i: tuple[Int, ...]) -> list[Int]:
        at: list[Int] = []
        for (a, b), (c, d) in groups:
            at += _regrouped(i[c:d], out[c:d], x.shape[a:b])
        return at

    return compute(out, lambda *i: x[tuple(place(i))], "reshape", requires)


Span = tuple[int, int]


def grouped(left: Shape, right: Shape) -> Iterator[tuple[Span, Span]]:
    """Ranges of dimensions of both shapes with equal products, as small as can be told."""
    starts = _cuts(left, right)
    rest_left, rest_right = left[starts[-1][0] :], right[starts[-1][1] :]
    ends = _cuts(rest_left[::-1], rest_right[::-1])
    cuts = starts + [(len(left) - a, len(right) - b) for a, b in reversed(ends)]
    for (a, c), (b, d) in pairwise(cuts):
        if (a, c) != (b, d):
            yield (a, b), (c, d)


def _cuts(left: Shape, right: Shape) -> list[Span]:
    """All (a, c) for which product(left[:a]) is product(right[:c]), beginning with (0, 0)."""
    cuts = [(0, 0)]
    below = as_int(1)
    prefixes: dict[Int, int] = {}
    for c, dim in enumerate((*right, as_int(1))):
        prefixes.setdefault(below, c)
        below = below * dim
    below = as_int(1)
    _along_units(cuts, left, right)
    for a, dim in enumerate(left, 1):
        below = below * dim
        found = prefixes.get(below)
        if found is not None and found > cuts[-1][1]:
            cuts.append((a, found))
            _along_units(cuts, left, right)
    return cuts


def _along_units(cuts: list[Span], left: Shape, right: Shape) -> None:
    """Dimensions of one element that both shapes go on with are the same, as larger ones are: what
    reads a batch of one does so along its batch."""
    a, c = cuts[-1]
    while a < len(left) and c < len(right) and left[a] == right[c] == 1:
        a, c = a + 1, c + 1
        cuts.append((a, c))


def _regrouped(i: Shape, extents: Shape, dims: Shape) -> list[Int]:
    """Position `i` in a box of `extents`, as a position in a box `dims` with as many elements."""
    if extents == dims:
        return list(i)
    flat = as_int(0)
    for k, extent in zip(i, extents, strict=True):
        if extent != 1:
            flat = flat * extent + k
    at: list[Int] = []
    real = [d for d, n in enumerate(dims) if n != 1]
    for d, n in enumerate(dims):
        if n == 1:
            at.append(as_int(0))
            continue
        inner = product(dims[d + 1 :])
        index = flat if inner == 1 else flat // positive(inner)
        at.append(index if d == real[0] else index % positive(n))
    return at
