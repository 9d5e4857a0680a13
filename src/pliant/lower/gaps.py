"""Rows of a product's first operand that would push one another out of the first cache.

A tile's rows are read together: a step over all of them reads a line of each. Where rows begin
multiples of 4096 bytes after one another, all those lines lie in one set of the cache, and it holds
fewer than a tile has rows (of 1,024 or 3,072 channels in f32, say). An intermediate value then gets
a gap of one line after each row. Of others, which must be compact, a block of rows is copied first.
Where rows are as long as a call says, there is a kernel for either case (`canonical.Variant`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pliant.ir.mapping import Strides, step_along
from pliant.ir.tensor import Compute
from pliant.loop.stmt import LINE
from pliant.lower.contraction import Contraction, Factors
from pliant.lower.layout import Gap, Order, row_major_values
from pliant.lower.stages import Stages
from pliant.sym.expr import Int, as_int
from pliant.sym.facts import Facts


def rows_collide(c: Contraction, kind: Factors, strides: Strides, facts: Facts) -> Int | None:
    """What must be 0 when the kernel is called for the rows of a tile to do so; None where they
    never do. (Windows are left as they are: copied together they would take many times their
    space.)"""
    if not kind.apart or len(c.k) > 1 or not c.m:
        return None
    step = step_along(c.a, c.m[-1], strides(c.a.source), facts)
    if step is None or step == 0:
        return None
    rest = facts.simplify(step * c.a.source.dtype.bytes % kind.apart)
    return None if rest.is_const and rest != 0 else rest


def gap_for(
    c: Contraction, depth: Int, s: Stages, orders: Mapping[str, Order], compact: Collection[str]
) -> Gap | None:
    """The gap after each row, of `depth` elements, of the first operand; None where it has no such
    rows in memory, or must be compact."""
    source = c.a.source
    if source.name in compact or source.name not in s.stages:
        return None
    row = as_int(1)
    for dims, dim in enumerate(reversed(orders.get(source.name, ())), 1):
        row = row * source.shape[dim]
        if s.facts.equal(row, depth):
            return Gap(dims, LINE // source.dtype.bytes)
    return None


def compact_values(s: Stages, constants: Collection[str]) -> set[str]:
    """What is stored without gaps: results, what is computed when the function is compiled, and
    what hand-written programs read and write."""
    others = (n for n, stage in s.stages.items() if not isinstance(stage.tensor, Compute))
    return {*row_major_values(s), *constants, *others}


def gaps_before(s: Stages) -> dict[str, Gap]:
    """The gaps that were decided where the function was lowered so far already."""
    return {n: Gap(*stage.note("gap")) for n, stage in s.stages.items() if stage.note("gap")}
