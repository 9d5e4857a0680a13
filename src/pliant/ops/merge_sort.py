"""A stable merge sort along one axis, as a loop program.

    for every line along the axis:
        keys, places = x, (0, 1, 2, …)
        width = 1
        while width < n:
            merge neighbouring runs of `width` into spares, those of 2 * `width` back; width *= 4
        values, indices = x[places], places

A merge takes no branch for which run is next, as half of the guesses would be wrong: both heads are
read, and one is chosen. Keys are integers in the order of the elements, which one instruction
compares. Counters that change live in a small buffer: the loop language has no assignment to
scalars.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

from pliant.base.dtypes import DType, boolean, f32, f64, i32, i64, u8
from pliant.ir.expr import Binary, Bitcast, Expr, Load, Select, Unary, Var, as_expr, const
from pliant.loop.stmt import (
    Alloc,
    Buffer,
    For,
    Function,
    Let,
    Stmt,
    Store,
    While,
    buffer,
    seq,
)
from pliant.ops.lines import for_lines
from pliant.sym.expr import Int, as_int, var

MERGED: Final = 64  # multiply-adds that take as long as all passes over an element
WIDTH, LEFT, RIGHT = (as_int(k) for k in range(3))
"""Slots of the counters: width of the runs, next element of the left and of the right run."""


class _Line(NamedTuple):
    """The elements of a line in some order: their keys, and where they were."""

    keys: Buffer
    places: Buffer


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
        self.key = in_order(Load(self.x, self._element(at("k"))))
        self.line = self._scratch("keys", "places")
        self.spare = self._scratch("spare_keys", "spare_places")
        self.counters = buffer("counters", (3,), i64, scope="register")

    def function(self) -> Function:
        """The program."""
        outer = [(f"i{d}", e) for d, e in enumerate(self.shape) if d != self.axis]
        width = var("width")
        passes = seq(
            self._pass(self.line, self.spare, width),
            self._pass(self.spare, self.line, 2 * width),
            self._set(WIDTH, as_expr(4 * width)),
        )
        line = seq(
            For("k", self.n, self._read()),
            self._set(WIDTH, as_expr(1)),
            While(
                self._get(WIDTH) < as_expr(self.n),
                Let(Var("width", i64), self._get(WIDTH), passes),
            ),
            For("k", self.n, self._write()),
        )
        own = (self.counters, *self.spare, *self.line)
        line = reduce(lambda s, b: Alloc(b, s), own, line)
        body = for_lines(outer, line, MERGED * self.n)
        buffers = (self.x, self.values, self.indices)
        return Function("merge_sort", buffers, tuple(map(str, self.shape)), body)

    def _scratch(self, keys: str, places: str) -> _Line:
        return _Line(
            buffer(keys, (self.n,), self.key.dtype, scope="scratch"),
            buffer(places, (self.n,), i64, scope="scratch"),
        )

    def _get(self, slot: Int) -> Load:
        return self.counters[slot]

    def _set(self, slot: Int, value: Expr) -> Stmt:
        return Store(self.counters, (as_expr(slot),), value)

    def _element(self, k: Expr) -> tuple[Expr, ...]:
        """The place of an element of the line that is being sorted."""
        return tuple(k if d == self.axis else at(f"i{d}") for d in range(len(self.shape)))

    def _read(self) -> Stmt:
        return seq(
            Store(self.line.keys, (at("k"),), self.key),
            Store(self.line.places, (at("k"),), at("k")),
        )

    def _write(self) -> Stmt:
        to, place = self._element(at("k")), Load(self.line.places, (at("k"),))
        return seq(
            Store(self.values, to, Load(self.x, self._element(place))),
            Store(self.indices, to, place),
        )

    def _pass(self, source: _Line, target: _Line, width: Int) -> Stmt:
        """Merge all pairs of runs; where one is all there is, it is copied."""
        pairs = (self.n + 2 * width - 1) // (2 * width)
        return For("pair", pairs, self._merge(source, target, 2 * width * var("pair"), width))

    def _merge(self, source: _Line, target: _Line, begin: Int, width: Int) -> Stmt:
        """Merge the runs [begin, middle) and [middle, end)."""
        middle, end = var("middle"), var("end")
        work = seq(
            self._set(LEFT, as_expr(begin)),
            self._set(RIGHT, as_expr(middle)),
            For("j", end - begin, self._step(source, target, begin + var("j"))),
        )
        inner = Let(Var("end", i64), _least(as_expr(begin + 2 * width), as_expr(self.n)), work)
        return Let(Var("middle", i64), _least(as_expr(begin + width), as_expr(self.n)), inner)

    def _step(self, source: _Line, target: _Line, to: Int) -> Stmt:
        """The next element comes from the right run where the left one is used up, or where the
        right one goes strictly before. A run that is used up is read at its last element."""
        left, right = Var("left", i64), Var("right", i64)
        a, b = Var("a", self.key.dtype), Var("b", self.key.dtype)
        middle, end = as_expr(var("middle")), as_expr(var("end"))
        one, taken = as_expr(1), Var("taken", boolean)
        earlier = a < b if self.descending else b < a
        before = Binary("and", right < end, earlier)
        place = Select(taken, right, left)
        body = seq(
            Store(target.keys, (as_expr(to),), Select(taken, b, a)),
            Store(target.places, (as_expr(to),), Load(source.places, (place,))),
            self._set(LEFT, Select(taken, left, left + one)),
            self._set(RIGHT, Select(taken, right + one, right)),
        )
        body = Let(taken, Binary("or", middle <= left, before), body)
        body = Let(b, Load(source.keys, (_least(right, end - one),)), body)
        body = Let(a, Load(source.keys, (_least(left, middle - one),)), body)
        return Let(left, self._get(LEFT), Let(right, self._get(RIGHT), body))


def in_order(x: Expr) -> Expr:
    """An integer for each value, greater where the value is; NaN is the largest of all."""
    if x.dtype is boolean:
        return x.cast(u8)
    if not x.dtype.is_float:
        return x
    wide, whole = (f64, i64) if x.dtype is f64 else (f32, i32)
    value = x.cast(wide)
    bits = Bitcast(whole, value + 0.0)  # -0.0 is as large as 0.0
    # The bits of negative numbers grow with their size.
    negative = Binary("shr", bits, const(whole.bits - 1, whole))
    ordered = Binary("xor", bits, Binary("and", negative, const(whole.max, whole)))
    return Select(Unary("isnan", value), const(whole.max, whole), ordered)


def at(name: str) -> Expr:
    """A loop variable as an index."""
    return as_expr(var(name))


def _least(a: Expr, b: Expr) -> Expr:
    return Binary("min", a, b)
