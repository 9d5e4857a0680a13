"""The loops of a block that computes only a part of its domain."""

from __future__ import annotations

from collections.abc import Mapping

from pliant.ir.expr import Expr
from pliant.loop.bounds import Span
from pliant.loop.rewrite import Names, conjoin, less
from pliant.loop.stmt import Block, Iter, Stmt, for_
from pliant.sym.expr import Int, const, var
from pliant.sym.facts import Facts


def region_nest(
    block: Block, ranges: Mapping[str, Span], facts: Facts, names: Names
) -> tuple[Stmt, list[str]]:
    """The block under new loops: iterators in `ranges` go from the first to the last of their
    range, where that is in their domain, others through all of it. Gives the loops' names too.

    A condition is added where the range may leave the domain; loops of extent 1 are left out.
    """
    names.variables.update(it.var for it in block.iters)
    loops: list[tuple[str, Int]] = []
    bindings: list[Int] = []
    where: list[Expr] = []
    for it, old in zip(block.iters, block.bindings, strict=True):
        low, high = ranges.get(it.var, (const(0), it.extent - 1))
        extent = facts.simplify(high - low + 1)
        if extent == 1:
            at = low
        else:
            name = names.variable(_loop_name(it, old))
            loops.append((name, extent))
            at = low + var(name)
        bindings.append(at)
        if it.var in ranges:
            if not facts.le(0, low):
                where.append(less(const(-1), at))
            if not facts.lt(high, it.extent):
                where.append(less(at, it.extent))
    made = block.replace(bindings=tuple(bindings), where=conjoin(where))
    return for_(list(loops), made), [name for name, _ in loops]


def _loop_name(it: Iter, binding: Int) -> str:
    """After the loop that the iterator was bound to, if it was one."""
    text = str(binding)
    return text if text.isidentifier() else it.var.replace("_v", "_", 1)
