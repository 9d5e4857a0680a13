"""Systems of linear equations and Cholesky factors, matrix after matrix, as loop programs.

for every matrix:                                     Gauss and Jordan, with partial pivoting
    work, x = a, b
    for k = 0, 1, … n - 1:
        swap row k with that below which has the greatest element in column k
        pivots[k] = work[k, k], negative where rows were swapped: their product is det a
        divide row k by it, and take multiples of it off all other rows
"""

from __future__ import annotations

from functools import reduce

from pliant.base.dtypes import DType, i64
from pliant.ir.expr import Expr, Load, Select, Unary, Var, as_expr
from pliant.loop.stmt import (
    Alloc,
    Buffer,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    buffer,
    seq,
)
from pliant.ops.lines import for_lines
from pliant.ops.merge_sort import at
from pliant.sym.expr import Int, as_int, var

ZERO = as_int(0)
N, M = var("n"), var("m")


def eliminate(batch: int, dtype: DType) -> Function:
    """x of a x = b and the pivots of a, whose product is its determinant; a [..., n, n] and b
    [..., n, m] after `batch` dims n0, n1 …"""
    return _Eliminate(batch, dtype).function()


class _Eliminate:
    def __init__(self, batch: int, dtype: DType) -> None:
        self.outer = tuple(var(f"n{d}") for d in range(batch))
        self.place = tuple(at(f"i{d}") for d in range(batch))
        self.dtype = dtype
        self.a = buffer("a", (*self.outer, N, N), dtype)
        self.b = buffer("b", (*self.outer, N, M), dtype)
        self.x = buffer("x", (*self.outer, N, M), dtype)
        self.pivots = buffer("pivots", (*self.outer, N), dtype)
        self.work = buffer("work", (N, N), dtype, scope="scratch")
        self.best = buffer("best", (1,), i64, scope="register")
        self.size = buffer("size", (1,), dtype, scope="register")

    def function(self) -> Function:
        """The program."""
        i, j = at("i"), at("j")
        there = (*self.place, i, j)
        matrix = seq(
            For("i", N, For("j", N, Store(self.work, (i, j), Load(self.a, there)))),
            For("i", N, For("j", M, Store(self.x, there, Load(self.b, there)))),
            For("k", N, self._step()),
        )
        matrix = reduce(lambda s, b: Alloc(b, s), (self.best, self.size, self.work), matrix)
        extents = [(f"i{d}", e) for d, e in enumerate(self.outer)]
        body = for_lines(extents, matrix, N * N * (N + M))
        sizes = (*map(str, self.outer), "n", "m")
        return Function("eliminate", (self.a, self.b, self.x, self.pivots), sizes, body)

    def _step(self) -> Stmt:
        """The pivot of column k, and its row off all others."""
        k, row, pivot = at("k"), Var("row", i64), Var("pivot", self.dtype)
        swapped = seq(
            Store(self.pivots, (*self.place, k), Select(row.eq(k), pivot, -pivot)),
            self._swap(self.work, (), row, N),
            self._swap(self.x, self.place, row, M),
            self._divide(self.work, (), pivot, N),
            self._divide(self.x, self.place, pivot, M),
            For("r", N, If(at("r").ne(k), self._take_off())),
        )
        chosen = Let(row, self.best[ZERO], Let(pivot, Load(self.work, (row, k)), swapped))
        return seq(self._search(), chosen)

    def _search(self) -> Stmt:
        """Which row from k on has the greatest element in column k."""
        k, r = at("k"), as_expr(var("k") + 1 + var("s"))
        size = Unary("abs", Load(self.work, (r, k)))
        better = seq(self._set(self.best, r), self._set(self.size, size))
        return seq(
            self._set(self.best, k),
            self._set(self.size, Unary("abs", Load(self.work, (k, k)))),
            For("s", N - var("k") - 1, If(self.size[ZERO] < size, better)),
        )

    def _set(self, register: Buffer, value: Expr) -> Stmt:
        return Store(register, (as_expr(ZERO),), value)

    def _swap(self, of: Buffer, lead: tuple[Expr, ...], row: Expr, count: Int) -> Stmt:
        here, there = (*lead, at("k"), at("j")), (*lead, row, at("j"))
        kept = Var("kept", self.dtype)
        both = seq(Store(of, here, Load(of, there)), Store(of, there, kept))
        return If(row.ne(at("k")), For("j", count, Let(kept, Load(of, here), both)))

    def _divide(self, of: Buffer, lead: tuple[Expr, ...], pivot: Expr, count: Int) -> Stmt:
        here = (*lead, at("k"), at("j"))
        return For("j", count, Store(of, here, Load(of, here) / pivot))

    def _take_off(self) -> Stmt:
        """Row k times what row r has in column k."""
        factor, r, k, j = Var("factor", self.dtype), at("r"), at("k"), at("j")
        rest = Load(self.work, (r, j)) - factor * Load(self.work, (k, j))
        there, here = (*self.place, r, j), (*self.place, k, j)
        right = Load(self.x, there) - factor * Load(self.x, here)
        both = seq(
            For("j", N, Store(self.work, (r, j), rest)), For("j", M, Store(self.x, there, right))
        )
        return Let(factor, Load(self.work, (r, k)), both)


def cholesky(batch: int, dtype: DType) -> Function:
    """The lower triangle l with l l' = a, of the lower triangles of a [..., n, n] after `batch`
    dims, column after column; NaN where there is none."""
    outer = tuple(var(f"n{d}") for d in range(batch))
    place = tuple(at(f"i{d}") for d in range(batch))
    a, factor = (buffer(name, (*outer, N, N), dtype) for name in ("a", "l"))
    total = buffer("total", (1,), dtype, scope="register")

    def rest(row: Expr) -> Stmt:
        """total = a[row, j] - sum over k < j of l[row, k] l[j, k]."""
        less = Load(factor, (*place, row, at("k"))) * Load(factor, (*place, at("j"), at("k")))
        return seq(
            Store(total, (as_expr(ZERO),), Load(a, (*place, row, at("j")))),
            For("k", var("j"), Store(total, (as_expr(ZERO),), total[ZERO] - less)),
        )

    j, below = at("j"), as_expr(var("j") + 1 + var("r"))
    diagonal = Load(factor, (*place, j, j))
    column = seq(
        For("r", var("j"), Store(factor, (*place, at("r"), j), as_expr(0.0, dtype))),
        rest(j),
        Store(factor, (*place, j, j), Unary("sqrt", total[ZERO])),
        For(
            "r", N - var("j") - 1,
            seq(rest(below), Store(factor, (*place, below, j), total[ZERO] / diagonal)),
        ),
    )  # fmt: skip
    extents = [(f"i{d}", e) for d, e in enumerate(outer)]
    body = for_lines(extents, Alloc(total, For("j", N, column)), N * N * N)
    return Function("cholesky", (a, factor), (*map(str, outer), "n"), body)
