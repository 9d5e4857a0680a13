"""What a target's micro-kernel for matrix products computes: rows of a tile, over all of k.

    c[i, j] = sum over q < P, k < K of a[at[q, i] + k] * b[q*K + k, j]       i < m, j < columns

The rows of `a` begin where the table says; for a negative entry the row `other` is read instead,
of which the entry `ZEROS` says that it holds zeros.
Operands are converted to the type of `c` before they are multiplied.

Instructions that add up `group` products at once want as many neighbours along k together in the
panel, and the loop over k split, so that the last group may be shorter:

    for i, j, q in grid(m, columns, P):
        for k, e in grid(ceildiv(K, group), min(group, K - group*k)):
            c[i, j] += a[at[q, i] + group*k + e] * b[q*ceildiv(K, group) + k, j, e]

Where products are of bf16, sums are in f32, in an order and with roundings that are the
processor's; one that takes denormals for zeros is among them. Integers wrap.

`turn` counts the tiles that pass over a panel: each of them asks for another part of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, f32, i64
from pliant.ir.expr import Expr, Index, Load, Select, as_expr, const
from pliant.ir.tensor import Compute
from pliant.loop.stmt import Buffer, Function, Store, buffer, for_, seq
from pliant.lower.canonical import Spec
from pliant.lower.contraction import tile_product
from pliant.lower.pack import Plan
from pliant.schedule.arrange import Arranged, Rows, arrange
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.program import Program
from pliant.sym.expr import Int, IntLike, ceildiv, minimum, var

ENDLESS: Final = 1 << 60  # elements of `a`: it reaches as far as the table says


@dataclass(frozen=True)
class MatmulIntrinsic:
    """A micro-kernel that a target offers: up to `rows` x `columns` outputs at a time; it takes as
    long for a row as for `row_unit` of them."""

    symbol: str
    rows: int
    columns: int
    lanes: int
    a: DType = f32
    b: DType = f32
    c: DType = f32
    group: int = 1
    row_unit: int = 1

    @property
    def intrinsics(self) -> tuple[Intrinsic, ...]:
        """The micro-kernel, and the same where no row is missing; where it takes groups, also both
        for reductions that have whole groups only."""
        every = ("a", "at", "c", "b", "c", "m", "P", "K", "ldc", "turn")  # any `other` will do
        depth, whole = var("K"), self.group * var("G")
        with_other = (*every[:2], "other", *every[3:])
        found = (
            self._for("", with_other, depth, missing=True),
            self._for("_plain", every, depth, missing=False),
        )
        if self.group == 1:
            return found
        return (
            *found,
            self._for("_whole", with_other, whole, missing=True),
            self._for("_plain_whole", every, whole, missing=False),
        )

    def _for(self, suffix: str, arguments: tuple[str, ...], depth: Int, missing: bool) -> Intrinsic:
        passed = tuple(depth if x == "K" else x for x in arguments)
        meaning, most = self._semantics(depth, missing), (("m", self.rows),)
        return Intrinsic(f"{self.symbol}{suffix}", meaning, self.symbol, passed, most)

    @property
    def copied(self) -> str:
        """The type of rows that are copied together, if they are converted when they are read."""
        return str(self.a) if self.a is not self.c else ""

    @property
    def plain(self) -> str:
        """The name of the intrinsic for operands without missing rows."""
        return f"{self.symbol}_plain"

    def named(self, *, missing: bool, whole: bool) -> str:
        """The name of the intrinsic for operands of which rows are missing, or not, and reductions
        that are known to have whole groups, or not."""
        name = self.symbol if missing else self.plain
        return name + "_whole" * (whole and self.group > 1)

    def _semantics(self, depth: Int, missing: bool) -> Function:
        """For a reduction over `depth`, which is a size or so many groups as a size says."""
        m, positions = var("m"), var("P")
        (size,) = depth.names
        i, j, q, k, e = (var(x) for x in "ijqke")
        a = buffer("a", (ENDLESS,), self.a)
        at = buffer("at", (positions, m), i64)
        other = buffer("other", (depth,), self.a)
        c = buffer("c", (m, self.columns), self.c, strides=(var("ldc"), 1))
        words = ceildiv(depth, self.group)
        if self.group == 1:
            b = buffer("b", (positions * depth, self.columns), self.b)
            loops: list[tuple[str, IntLike]] = [("q", positions), ("k", depth)]
            along, panel = k, b[q * depth + k, j]
        else:
            b = buffer("b", (positions * words, self.columns, self.group), self.b)
            left = depth - self.group * k if depth is var(size) else self.group
            loops = [("q", positions), ("k", words), ("e", minimum(self.group, left))]
            along, panel = self.group * k + e, b[q * words + k, j, e]
        here = (Index(i), Index(j))
        entry = at[q, i]
        row: Expr = Load(a, (entry + Index(along),))
        if missing:
            row = Select(as_expr(0) <= entry, row, other[along])
        update = Store(c, here, c[i, j] + row.cast(self.c) * panel.cast(self.c))
        tile = seq(Store(c, here, const(0, self.c)), for_(loops, update))
        buffers: tuple[Buffer, ...] = (a, at, other, b, c) if missing else (a, at, b, c)
        body = for_([("i", m), ("j", self.columns)], tile)
        return Function(self.symbol, buffers, ("m", "P", size, "ldc", "turn"), body)


def arranged(
    p: Program, spec: Spec, name: str, plan: Plan, mm: MatmulIntrinsic
) -> tuple[Program, Arranged]:
    """A contraction with the loops of a tile product, by its plan."""
    tensor = spec.tensor(name)
    assert isinstance(tensor, Compute)
    names = {
        a.var: i.var
        for a, i in zip((*tensor.axes, *tensor.reduce_axes), p.block(name).iters, strict=True)
    }
    return arrange(
        p, name, tile_product(mm.columns, mm.a, mm.b, mm.c), plan.groups(names),
        [names[v] for v in plan.batch], [names[a.var] for a in tensor.axes],
    )  # fmt: skip


def by_micro_kernel(
    p: Program, block: str, of: Rows, tile: str, row: str, mm: MatmulIntrinsic
) -> Program:
    """The block, the rows of whose first operand were found, calls the micro-kernel; `row` is the
    loop over the rows of a tile, `tile` that over tiles."""
    whole = p.facts.divisible(p.loop(of.along).extent, mm.group)
    if mm.group > 1:
        p = p.split(of.along, mm.group, tail="clip")
    p = p.decompose_reduction(block, of.position)
    return p.tensorize(row, mm.named(missing=of.missing, whole=whole), turn=tile)
