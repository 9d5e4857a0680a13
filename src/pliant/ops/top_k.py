"""The best k along one axis, as a loop program: a heap of the best so far, its worst on top.

    for every line along the axis:
        heap = the first k elements, each above those that go before it
        for the others: one that goes before the top takes its place and sinks
        for place = k - 1, k - 2, … 0:
            indices[place] = the top, values[place] = what is there; the last of the heap takes
            its place and sinks

(Knuth, The Art of Computer Programming 3, 5.2.3.) Most elements are compared with the top and no
more, so this takes about as long as reading them where k is small, and n log k steps at most.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pliant.base.dtypes import DType, i64
from pliant.ir.expr import Binary, Expr, Load, Select, Var, as_expr
from pliant.loop.stmt import Alloc, For, Function, If, Let, Stmt, Store, While, buffer, seq
from pliant.ops.lines import for_lines
from pliant.ops.merge_sort import at, in_order
from pliant.sym.expr import Int, as_int, var

LOOKED_AT: Final = 8  # multiply-adds that take as long as a look at an element
HOLE = as_int(0)
"""The slot of the counter: where the sinking element would lie."""


def top_k(rank: int, dtype: DType, axis: int, largest: bool) -> Function:
    """The k best of `x` along `axis`, in order, into `values`, and their positions into `indices`.

    NaN counts as the largest value; of equal elements those with lower positions are better. The
    extents are the program's own sizes n0, n1, …, and k.
    """
    return _TopK(rank, dtype, axis, largest).function()


class _TopK:
    def __init__(self, rank: int, dtype: DType, axis: int, largest: bool) -> None:
        self.shape = tuple(var(f"n{d}") for d in range(rank))
        self.axis, self.largest = axis, largest
        self.n, self.k = self.shape[axis], var("k")
        short = tuple(self.k if d == axis else e for d, e in enumerate(self.shape))
        self.x = buffer("x", self.shape, dtype)
        self.values = buffer("values", short, dtype)
        self.indices = buffer("indices", short, i64)
        self.key_type = in_order(Var("x", dtype)).dtype
        self.keys = buffer("keys", (self.k,), self.key_type, scope="scratch")
        self.places = buffer("places", (self.k,), i64, scope="scratch")
        self.hole = buffer("hole", (1,), i64, scope="register")

    def function(self) -> Function:
        """The program."""
        outer = [(f"i{d}", e) for d, e in enumerate(self.shape) if d != self.axis]
        line = seq(
            For("j", self.k, self._put(at("j"), self._key_of(at("j")), at("j"))),
            For("j", self.k // 2, self._sink_own(self.k // 2 - 1 - var("j"))),
            For("j", self.n - self.k, self._consider(self.k + var("j"))),
            For("j", self.k, self._take(self.k - 1 - var("j"))),
        )
        chosen: Stmt = If(as_expr(0) < as_expr(self.k), line)
        chosen = reduce(lambda s, b: Alloc(b, s), (self.hole, self.places, self.keys), chosen)
        body = for_lines(outer, chosen, LOOKED_AT * self.n)
        buffers = (self.x, self.values, self.indices)
        sizes = (*map(str, self.shape), "k")
        return Function("top_k", buffers, sizes, body)

    def _line(self, position: Expr) -> tuple[Expr, ...]:
        """The place of an element of the line."""
        return tuple(position if d == self.axis else at(f"i{d}") for d in range(len(self.shape)))

    def _key_of(self, position: Expr) -> Expr:
        return in_order(self.x[self._line(position)])

    def _before(self, a: Expr, b: Expr) -> Expr:
        """Whether a key goes strictly before another."""
        return b < a if self.largest else a < b

    def _put(self, slot: Expr, key: Expr, place: Expr) -> Stmt:
        return seq(Store(self.keys, (slot,), key), Store(self.places, (slot,), place))

    def _consider(self, j: Int) -> Stmt:
        """One that is not better than the top was there later, so equal ones stay out."""
        sunk = self._sink(as_expr(0), self._key, as_expr(j), self.k)
        better = If(self._before(self._key, self.keys[as_int(0)]), sunk)
        return Let(self._key, self._key_of(as_expr(j)), better)

    def _sink_own(self, slot: Int) -> Stmt:
        """Sink what is in the slot already."""
        return self._let(slot, self._sink(as_expr(slot), self._key, self._place, self.k))

    def _take(self, place: Int) -> Stmt:
        """The top is the worst of `place` + 1 elements, so it comes last of them."""
        to, best = self._line(as_expr(place)), self.places[as_int(0)]
        return seq(
            Store(self.values, to, self.x[self._line(best)]),
            Store(self.indices, to, best),
            self._let(place, self._sink(as_expr(0), self._key, self._place, place)),
        )

    @property
    def _key(self) -> Var:
        return Var("key", self.key_type)

    @property
    def _place(self) -> Var:
        return Var("place", i64)

    def _let(self, slot: Int, body: Stmt) -> Stmt:
        """`body` for the element in the slot."""
        return Let(self._key, self.keys[slot], Let(self._place, self.places[slot], body))

    def _sink(self, start: Expr, key: Expr, place: Expr, end: Int) -> Stmt:
        """The element goes down from `start`, until it is worse than what is below; the worse of
        the two below goes up each time."""
        size = as_expr(end)
        hole = self.hole[HOLE]
        left = hole * 2 + 1
        right = Binary("min", left + 1, size - 1)
        down = Select(self._worse(self._at(right), self._at(left)), right, left)
        child = Var("child", i64)
        below = self._at(child)
        step = If(
            self._worse(below, (key, place)),
            seq(self._put(hole, *below), Store(self.hole, (as_expr(HOLE),), child)),
            seq(self._put(hole, key, place), Store(self.hole, (as_expr(HOLE),), size)),
        )
        return seq(
            Store(self.hole, (as_expr(HOLE),), start),
            While(left < size, Let(child, down, step)),
            If(hole < size, self._put(hole, key, place)),
        )

    def _at(self, slot: Expr) -> tuple[Expr, Expr]:
        return Load(self.keys, (slot,)), Load(self.places, (slot,))

    def _worse(self, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
        """Whether a comes after b: what it holds does, or that is equal and a was there later."""
        after = self._before(b[0], a[0])
        return Binary("or", after, Binary("and", a[0].eq(b[0]), b[1] < a[1]))
