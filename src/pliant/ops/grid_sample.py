"""Sampling at coordinates that another tensor holds (torch.grid_sample, ONNX GridSample)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as every_combination
from typing import Final

from pliant.base.dtypes import DType, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Binary, Expr, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, all_of, compute, select
from pliant.ops.activation import maximum_of
from pliant.ops.common import accumulator, equal, needs_float, not_empty
from pliant.ops.cubic import cubic_weights
from pliant.ops.reduce import count_as
from pliant.sym.expr import Int

MODES: Final = {
    "nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic",
    "bicubic": "cubic",
}  # fmt: skip
PADDINGS: Final = ("zeros", "border", "reflection")
CUBIC: Final = -0.75


def grid_sample(x: Tensor, grid: Tensor, *, mode: str, padding: str, align_corners: bool) -> Tensor:
    """out[n, c, o] = x[n, c] at grid[n, o], whose last dim holds coordinates from -1 to 1, that of
    the last dimension of x first. x [N, C, ...], grid [N, ..., rank - 2]."""
    needs_float(x)
    needs_float(grid)
    rank = x.rank - 2
    if mode not in MODES or padding not in PADDINGS:
        raise InvalidModelError(f"no grid_sample {mode!r}, {padding!r}")
    if rank < 1 or grid.rank != x.rank:
        raise InvalidModelError(f"a grid of rank {grid.rank} for an operand of rank {x.rank}")
    requires = equal(x.shape[0], grid.shape[0], "batch sizes of operand and grid must be equal")
    requires += equal(grid.shape[-1], rank, f"the last dim of the grid must be {rank}")
    for d in range(rank):
        requires += not_empty(x.shape[2 + d], f"dim {2 + d}")
    sampler = _Sampler(x, MODES[mode], padding, align_corners)
    at = sampler.coordinates(grid)

    def body(n: Int, c: Int, *o: Int) -> Expr:
        # The grid's coordinates are listed from the last dimension to the first.
        position = [at[(n, *o, rank - 1 - d)] for d in range(rank)]
        return sampler.sample((n, c), position).cast(x.dtype)

    shape = (x.shape[0], x.shape[1], *grid.shape[1:-1])
    return compute(shape, body, "grid_sample", requires)


class _Sampler:
    """The parts of one operator: coordinates, padding, taps.

    Where a coordinate is no number, torch takes the first element of an image's side and the last
    of a volume's; and beside a volume it leaves out products with zeros, whose weights may be NaN.
    """

    def __init__(self, x: Tensor, mode: str, padding: str, align_corners: bool) -> None:
        self.x, self.mode, self.padding, self.align = x, mode, padding, align_corners
        self.images = x.rank == 4
        self.dtype: DType = accumulator(x.dtype)

    def size(self, d: int) -> Expr:
        return count_as(self.x.shape[2 + d], self.dtype)

    def coordinates(self, grid: Tensor) -> Compute:
        """Grid coordinates in elements; reflected or clipped unless taps are (cubic)."""
        rank = self.x.rank - 2

        def body(*i: Int) -> Expr:
            value = grid[i].cast(self.dtype)
            choices = [self._coordinate(value, rank - 1 - k) for k in range(rank)]
            result = choices[-1]
            for k in reversed(range(rank - 1)):
                result = select(as_expr(i[-1]).eq(as_expr(k)), choices[k], result)
            return result

        return compute((*grid.shape[:-1], rank), body, "coordinates")

    def _coordinate(self, value: Expr, d: int) -> Expr:
        n = self.size(d)
        half = ((n - 1.0) if self.align else n) * 0.5  # what is far away must not overflow
        scaled = (value + 1.0) * half if self.align else (value + 1.0) * half - 0.5
        return scaled if self.mode == "cubic" else self._padded(scaled, d)

    def _padded(self, at: Expr, d: int) -> Expr:
        if self.padding == "reflection":
            at = self._reflected(at, d)
        if self.padding == "zeros":
            return at
        last = self.size(d) - 1.0
        if self.images:
            return select(at > 0.0, Binary("min", at, last), 0.0)
        return select(at < last, maximum_of(at, 0.0), last)

    def _reflected(self, at: Expr, d: int) -> Expr:
        """Folded back and forth between the middles of the edge elements, or their outer edges."""
        n = self.size(d)
        low, span = (0.0, n - 1.0) if self.align else (-0.5, n)
        twice = span * 2.0
        distance = Unary("abs", at - low)
        extra = distance - Unary("floor", distance / select(span.eq(0.0), 1.0, twice)) * twice
        return select(span.eq(0.0), low, Binary("min", extra, twice - extra) + low)

    def sample(self, outer: tuple[Int, Int], position: Sequence[Expr]) -> Expr:
        """The weighted sum of the elements around a position."""
        taps = _TAPS[self.mode]
        along = [taps(at) for at in position]
        total: Expr | None = None
        for combination in every_combination(*along):
            value, inside = self._element(outer, [at for at, _ in combination])
            skipped = self.padding == "zeros" and not self.images
            value = value if skipped else self._or_zero(inside, value)
            for _, weight in combination:
                value = value if weight is None else value * weight
            value = self._or_zero(inside, value) if skipped else value
            total = value if total is None else total + value
        assert total is not None
        return total

    def _element(self, outer: tuple[Int, Int], at: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The element at whole coordinates, by the rule for those outside, and whether none is."""
        if self.mode == "cubic":
            at = [self._padded(a, d) for d, a in enumerate(at)]
        inside, index = [], []
        for d, a in enumerate(at):
            last = self.size(d) - 1.0
            inside.append(Binary("and", as_expr(0.0, a.dtype) <= a, a <= last))
            if self.padding != "zeros":  # rounding may have left the range, and NaN has no place
                a = select(inside[-1], a, select(a > last, last, 0.0))
            index.append(a.cast(i64))
        return self.x[(*outer, *index)].cast(self.dtype), all_of(inside)

    def _or_zero(self, inside: Expr, value: Expr) -> Expr:
        return value if self.padding != "zeros" else select(inside, value, 0.0)


Tap = tuple[Expr, Expr | None]


def _nearest(at: Expr) -> list[Tap]:
    return [(Unary("round", at), None)]


def _linear(at: Expr) -> list[Tap]:
    low = Unary("floor", at)
    part = at - low
    return [(low, 1.0 - part), (low + 1.0, part)]


def _cubic(at: Expr) -> list[Tap]:
    low = Unary("floor", at)
    t = at - low
    return [(low + float(k), w) for k, w in cubic_weights(t, CUBIC)]


_TAPS: Final[dict[str, Callable[[Expr], list[Tap]]]] = {
    "nearest": _nearest, "linear": _linear, "cubic": _cubic,
}  # fmt: skip
