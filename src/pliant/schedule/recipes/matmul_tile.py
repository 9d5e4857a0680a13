"""What a target's micro-kernel for matrix products computes: rows of a tile, over all of k.

    c[i, j] = sum over q < P, k < K of a[at[q, i] + k] * b[q*K + k, j]       i < m, j < columns

The rows of `a` begin where the table says; for a negative entry the row `other` is read instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import f32, i64
from pliant.ir.expr import Expr, Index, Load, Select, as_expr, const
from pliant.loop.stmt import Buffer, Function, Store, buffer, for_, seq
from pliant.schedule.intrinsic import Intrinsic
from pliant.sym.expr import var

ENDLESS: Final = 1 << 60  # elements of `a`: it reaches as far as the table says


@dataclass(frozen=True)
class MatmulIntrinsic:
    """The micro-kernel that a target offers: up to `rows` x `columns` outputs at a time."""

    symbol: str
    rows: int
    columns: int
    lanes: int

    @property
    def intrinsics(self) -> tuple[Intrinsic, Intrinsic]:
        """The micro-kernel, and the same where no row is missing."""
        every = ("a", "at", "c", "b", "c", "m", "P", "K", "ldc")  # any address will do for `other`
        most = (("m", self.rows),)
        return (
            Intrinsic(self.symbol, self._semantics(missing=True), most=most),
            Intrinsic(self.plain, self._semantics(missing=False), self.symbol, every, most),
        )

    @property
    def plain(self) -> str:
        """The name of the intrinsic for operands without missing rows."""
        return f"{self.symbol}_plain"

    def _semantics(self, missing: bool) -> Function:
        m, positions, depth = var("m"), var("P"), var("K")
        i, j, q, k = (var(x) for x in "ijqk")
        a = buffer("a", (ENDLESS,), f32)
        at = buffer("at", (positions, m), i64)
        other = buffer("other", (depth,), f32)
        b = buffer("b", (positions * depth, self.columns), f32)
        c = buffer("c", (m, self.columns), f32, strides=(var("ldc"), 1))
        here = (Index(i), Index(j))
        entry = at[q, i]
        row: Expr = Load(a, (entry + Index(k),))
        if missing:
            row = Select(as_expr(0) <= entry, row, other[k])
        update = Store(c, here, c[i, j] + row * b[q * depth + k, j])
        tile = seq(
            Store(c, here, const(0.0, f32)),
            for_([("q", positions), ("k", depth)], update),
        )
        buffers: tuple[Buffer, ...] = (a, at, other, b, c) if missing else (a, at, b, c)
        body = for_([("i", m), ("j", self.columns)], tile)
        return Function(self.symbol, buffers, ("m", "P", "K", "ldc"), body)
