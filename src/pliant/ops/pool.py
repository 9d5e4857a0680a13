"""Pooling: reductions over windows of the spatial dims, those after the first two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Binary, Expr, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, reduce, select
from pliant.ops.common import accumulator, needs_float, not_empty, positive, product
from pliant.ops.reduce import count_as, is_best
from pliant.ops.window import Pads, Windows, windows
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, maximum, minimum


def over_windows(
    x: Tensor, box: Windows, combiner: str, outside: float, ceil_mode: bool, dtype: DType,
    fn: str = "",
) -> Compute:  # fmt: skip
    """The reduction of every window, `outside` standing in the padding; `fn` is applied first."""

    def body(n: Int, c: Int, *p: Int) -> Expr:
        def term(*k: Int) -> Expr:
            position = box.at(p, k)
            value = _applied(fn, x[(n, c, *position)].cast(dtype))
            inside = box.inside(position, ceil_mode=ceil_mode)
            return value if inside is None else select(inside, value, as_expr(outside, dtype))

        return reduce(combiner, box.kernel, term)

    shape = (*x.shape[:2], *box.counts(ceil_mode=ceil_mode))
    return compute(shape, body, f"window_{combiner}", () if ceil_mode else box.fit())


def _applied(fn: str, value: Expr) -> Expr:
    if fn == "square":
        return value * value
    return Unary(fn, value) if fn else value


def max_pool(
    x: Tensor,
    *,
    kernel: Sequence[IntLike],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> Tensor:
    """The greatest of every window; NaN wins, padding never does."""
    box = windows(x, kernel, strides, pads, dilations)
    return over_windows(x, box, "max", x.dtype.min, ceil_mode, x.dtype)


def max_pool_places(
    x: Tensor,
    *,
    kernel: Sequence[IntLike],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> Tensor:
    """Where in its channel's image the first greatest element of every window lies, or its last
    NaN (torch), as i64: how many elements are before it, row by row."""
    box = windows(x, kernel, strides, pads, dilations)
    best = over_windows(x, box, "max", x.dtype.min, ceil_mode, x.dtype)
    everywhere = product(box.spatial)

    def body(n: Int, c: Int, *p: Int) -> Expr:
        def term(*k: Int) -> Expr:
            position = box.at(p, k)
            found = is_best(x[(n, c, *position)], best[(n, c, *p)])
            inside = box.inside(position, ceil_mode=ceil_mode)
            place = as_int(0)
            for at, extent in zip(position, box.spatial, strict=True):
                place = place * extent + at
            found = found if inside is None else select(inside, found, False)
            return select(found, _signed(place, best[(n, c, *p)]), everywhere)

        return reduce("min", box.kernel, term)

    places = compute(best.shape, body, "window_place", () if ceil_mode else box.fit())
    return compute(best.shape, lambda *i: Unary("abs", places[i]), "window_place")


def avg_pool(
    x: Tensor,
    *,
    kernel: Sequence[IntLike],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    divisor: int | None = None,
) -> Tensor:
    """The mean of every window, over its elements in x, or in x and the padding; its sum by a
    `divisor` where one is given."""
    needs_float(x)
    box = windows(x, kernel, strides, pads, dilations)
    total = over_windows(x, box, "sum", 0.0, ceil_mode, accumulator(x.dtype))

    def count(*p: Int) -> Int:
        if divisor is not None:
            return as_int(divisor)
        sizes = []
        for d in range(len(p)):
            padded = any(side != 0 for side in box.pads[d])
            if (ceil_mode and box.strides[d] > 1) or (padded and not count_include_pad):
                sizes.append(_members(box, d, p[d], padding=count_include_pad))
            else:
                sizes.append(box.kernel[d])
        return product(sizes)

    return compute(
        total.shape,
        lambda *i: (total[i] / count_as(count(*i[2:]), total.dtype)).cast(x.dtype),
        "avg_pool",
    )


def _members(box: Windows, d: int, window: Int, *, padding: bool) -> Int:
    """How many elements of a window lie in x, or in x and its padding."""
    lo, hi = box.pads[d]
    begin = window * box.strides[d] - lo
    end = box.spatial[d] + hi if padding else box.spatial[d]
    last = minimum(box.kernel[d], ceildiv(end - begin, box.dilations[d]))
    return last if padding else last - maximum(0, ceildiv(-begin, box.dilations[d]))


def adaptive_avg_pool(x: Tensor, *, output_size: Sequence[IntLike | None]) -> Tensor:
    """The mean over elements floor(o*n/m) to ceil((o+1)*n/m) for each o of m results (torch).

    None keeps a dimension.
    """
    needs_float(x)
    wide = accumulator(x.dtype)
    total, count = _adaptive(x, output_size, "sum", 0, wide)

    def mean(*i: Int) -> Expr:
        return (total[i] / count_as(count(i), wide)).cast(x.dtype)

    return compute(total.shape, mean, "adaptive_avg_pool")


def adaptive_max_pool(x: Tensor, *, output_size: Sequence[IntLike | None]) -> Tensor:
    """The greatest of the elements that `adaptive_avg_pool` takes the mean of; NaN wins."""
    return _adaptive(x, output_size, "max", x.dtype.min, x.dtype)[0]


def adaptive_max_pool_places(x: Tensor, *, output_size: Sequence[IntLike | None]) -> Tensor:
    """Where in its image the first element is that `adaptive_max_pool` takes, or the last NaN, as
    i64: how many elements are before it, row by row."""
    best = adaptive_max_pool(x, output_size=output_size)
    rank = len(output_size)
    spatial = x.shape[x.rank - rank :]
    everywhere = product(spatial)

    def place(value: Expr, i: Sequence[Int], position: Sequence[Int]) -> Expr:
        top, flat = best[tuple(i)], as_int(0)
        for at, extent in zip(position, spatial, strict=True):
            flat = flat * extent + at
        return select(is_best(value, top), _signed(flat, top), everywhere)

    places = _adaptive(x, output_size, "min", everywhere, x.dtype, place)[0]
    return compute(places.shape, lambda *i: Unary("abs", places[i]), "window_place")


def _signed(place: Int, best: Expr) -> Expr:
    """A place, negative where a NaN is sought: of those the last is the least."""
    at = as_expr(place)
    return select(Unary("isnan", best), -at, at) if best.dtype.is_float else at


def _adaptive(
    x: Tensor, output_size: Sequence[IntLike | None], combiner: str, outside: float | Int,
    dtype: DType,
    fn: Callable[[Expr, Sequence[Int], Sequence[Int]], Expr] = lambda value, i, position: value,
) -> tuple[Compute, Callable[[Sequence[Int]], Int]]:  # fmt: skip
    """The reductions over the spans of each result, and how many elements they have; `fn` is
    applied to each element, given which result it is for and where it is."""
    rank = len(output_size)
    if not 0 < rank <= x.rank:
        raise InvalidModelError(f"{rank} output sizes for a tensor of rank {x.rank}")
    outer, spatial = x.shape[: x.rank - rank], x.shape[x.rank - rank :]
    sizes = [n if m is None else as_int(m) for n, m in zip(spatial, output_size, strict=True)]
    spans = [_longest(n, m) for n, m in zip(spatial, sizes, strict=True)]

    def body(*i: Int) -> Expr:
        starts, ends = _spans(i[len(outer) :], spatial, sizes)

        def term(*k: Int) -> Expr:
            at = [s + r for s, r in zip(starts, k, strict=True)]
            value = fn(x[(*i[: len(outer)], *at)].cast(dtype), i, at)
            for p, end, (_, exact) in zip(at, ends, spans, strict=True):
                if not exact:
                    value = select(as_expr(p) < as_expr(end), value, as_expr(outside, value.dtype))
            return value

        return reduce(combiner, [span for span, _ in spans], term)

    requires = [
        r
        for n, m in zip(spatial, sizes, strict=True)
        if n != m
        for r in not_empty(n, "a pooled dim")
    ]

    def count(i: Sequence[Int]) -> Int:
        starts, ends = _spans(i[len(outer) :], spatial, sizes)
        return product([e - s for s, e in zip(starts, ends, strict=True)])

    return compute((*outer, *sizes), body, f"window_{combiner}", requires), count


def _longest(n: Int, m: Int) -> tuple[Int, bool]:
    """The length of the longest span, and whether all are that long."""
    if n == m or m == 1:
        return (as_int(1) if n == m else n), True
    whole = n // positive(m)
    if n - whole * m == 0:
        return whole, True
    if n.is_const and m.is_const:
        spans = (-(-(o + 1) * n.value // m.value) - o * n.value // m.value for o in range(m.value))
        return as_int(max(spans, default=0)), False
    return ceildiv(n, positive(m)) + 1, False


def _spans(
    i: Sequence[Int], spatial: Sequence[Int], sizes: Sequence[Int]
) -> tuple[list[Int], list[Int]]:
    starts = [o * n // positive(m) for o, n, m in zip(i, spatial, sizes, strict=True)]
    ends = [ceildiv((o + 1) * n, positive(m)) for o, n, m in zip(i, spatial, sizes, strict=True)]
    return starts, ends


def lp_pool(
    x: Tensor,
    *,
    kernel: Sequence[IntLike],
    strides: Sequence[int],
    pads: Pads,
    p: float,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum of |x|**p)**(1/p) of every window, zeros in the padding."""
    needs_float(x)
    box = windows(x, kernel, strides, pads, dilations)
    wide = accumulator(x.dtype)
    if p in (1, 2):
        total = over_windows(x, box, "sum", 0.0, ceil_mode, wide, "abs" if p == 1 else "square")
    else:
        power = as_expr(p, wide)
        powers = compute(
            x.shape, lambda *i: Binary("pow", Unary("abs", x[i].cast(wide)), power), "powers"
        )
        total = over_windows(powers, box, "sum", 0.0, ceil_mode, wide)

    def root(*i: Int) -> Expr:
        if p == 1:
            return total[i].cast(x.dtype)
        if p == 2:
            return Unary("sqrt", total[i]).cast(x.dtype)
        return Binary("pow", total[i], as_expr(1 / p, wide)).cast(x.dtype)

    return compute(total.shape, root, "lp_pool")


POOL: Final[tuple[Operator, ...]] = (
    Operator("max_pool", max_pool),
    Operator("max_pool_places", max_pool_places),
    Operator("avg_pool", avg_pool),
    Operator("adaptive_avg_pool", adaptive_avg_pool),
    Operator("adaptive_max_pool", adaptive_max_pool),
    Operator("adaptive_max_pool_places", adaptive_max_pool_places),
    Operator("lp_pool", lp_pool),
)
