"""A stable merge sort along one axis, as a loop program.

    for every line along the axis:
        order = 0, 1, 2, …
        width = 1
        while width < n:
            merge neighbouring runs of `width` from order into spare; copy back; width *= 2
        values = x[order]; indices = order

Counters that change live in a small buffer: the loop language has no assignment to scalars.
"""

from __future__ import annotations

from functools import reduce

from pliant.base.dtypes import DType, boolean, i64
from pliant.ir.expr import Binary, Expr, Load, Select, Unary, Var, as_expr
from pliant.loop.stmt import (
    Alloc,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    While,
    buffer,
    for_,
    seq,
)
from pliant.sym.expr import Int, as_int, var

WIDTH, LEFT, RIGHT = (as_int(k) for k in range(3))
"""Slots of the counters: width of the runs, next element of the left and of the right run."""


def merge_sort(rank: int, dtype: DType, axis: int, descending: bool) -> Function:
    """Sorts `x` along `axis` into `values`, and the positions they had into `indices`.

    NaN counts as the largest value; equal elements keep their order. The extents are the program's
    own sizes n0, n1, …
    """
    return _MergeSort(rank, dtype, axis, descending).function()


class _MergeSort:
    def __init__(self, rank: int, dtype: DType, axis: int, descending: bool) -> None:
        self.shape = tuple(var(f"n{d}") for d in range(rank))
        self.axis, self.descending = axis, descending
        self.n = self.shape[axis]
        self.x = buffer("x", self.shape, dtype)
        self.values = buffer("values", self.shape, dtype)
        self.indices = buffer("indices", self.shape, i64)
        self.order = buffer("order", (self.n,), i64, scope="scratch")
        self.spare = buffer("spare", (self.n,), i64, scope="scratch")
        self.counters = buffer("counters", (3,), i64, scope="register")

    def function(self) -> Function:
        """The program."""
        outer = [(f"i{d}", e) for d, e in enumerate(self.shape) if d != self.axis]
        line = seq(
            For("k", self.n, Store(self.order, (at("k"),), at("k"))),
            self._set(WIDTH, as_expr(1)),
            While(self._get(WIDTH) < as_expr(self.n), self._pass()),
            For("k", self.n, self._write("k")),
        )
        body: Stmt = for_(list(outer), line)
        body = reduce(lambda s, b: Alloc(b, s), (self.counters, self.spare, self.order), body)
        buffers = (self.x, self.values, self.indices)
        return Function("merge_sort", buffers, tuple(map(str, self.shape)), body)

    def _get(self, slot: Int) -> Load:
        return self.counters[slot]

    def _set(self, slot: Int, value: Expr) -> Stmt:
        return Store(self.counters, (as_expr(slot),), value)

    def _line(self, position: Expr) -> tuple[Expr, ...]:
        """The place of an element of the line that is being sorted."""
        return tuple(position if d == self.axis else at(f"i{d}") for d in range(len(self.shape)))

    def _key(self, position: Expr) -> Load:
        """x at the element that stands at `position` of the order."""
        return Load(self.x, self._line(Load(self.order, (position,))))

    def _write(self, k: str) -> Stmt:
        original = Load(self.order, (at(k),))
        return seq(
            Store(self.values, self._line(at(k)), self._key(at(k))),
            Store(self.indices, self._line(at(k)), original),
        )

    def _pass(self) -> Stmt:
        """Merge all pairs of runs, then take the result over and double the width."""
        width = var("width")
        pairs = (self.n + 2 * width - 1) // (2 * width)
        work = seq(
            For("pair", pairs, self._merge(width)),
            For("k", self.n, Store(self.order, (at("k"),), self.spare[var("k")])),
            self._set(WIDTH, as_expr(2 * width)),
        )
        return Let(Var("width", i64), self._get(WIDTH), work)

    def _merge(self, width: Int) -> Stmt:
        """Merge runs [begin, middle) and [middle, end) of the order into the spare."""
        begin = 2 * width * var("pair")
        middle, end = var("middle"), var("end")
        step = If(
            self._right_first(middle, end),
            self._take(RIGHT),
            self._take(LEFT),
        )
        work = seq(
            self._set(LEFT, as_expr(begin)),
            self._set(RIGHT, as_expr(middle)),
            For("j", end - begin, step),
        )
        bound = _least(begin + 2 * width, self.n)
        inner = Let(Var("end", i64), bound, work)
        return Let(Var("middle", i64), _least(begin + width, self.n), inner)

    def _take(self, slot: Int) -> Stmt:
        place = 2 * var("width") * var("pair") + var("j")
        return seq(
            Store(self.spare, (as_expr(place),), Load(self.order, (self._get(slot),))),
            self._set(slot, self._get(slot) + as_expr(1)),
        )

    def _right_first(self, middle: Int, end: Int) -> Expr:
        """Whether the next element comes from the right run: the left one is used up, or the right
        one goes strictly before."""
        left, right = self._get(LEFT), self._get(RIGHT)
        earlier = goes_before(self._key(right), self._key(left), self.descending)
        both = Select(right < as_expr(end), earlier, as_expr(False, boolean))
        return Select(left < as_expr(middle), both, as_expr(True, boolean))


def goes_before(a: Expr, b: Expr, descending: bool) -> Expr:
    """Whether a stands strictly before b; NaN is the largest of all."""
    low, high = (b, a) if descending else (a, b)
    less = Binary("lt", low, high)
    if not a.dtype.is_float:
        return less
    only_high = Binary("and", Unary("isnan", high), ~Unary("isnan", low))
    return Binary("or", less, only_high)


def at(name: str) -> Expr:
    """A loop variable as an index."""
    return as_expr(var(name))


def _least(a: Int, b: Int) -> Expr:
    return Binary("min", as_expr(a), as_expr(b))
