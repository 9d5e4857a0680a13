"""Any other reduction: one output element per lane, the reduction loops inside.

    loops over the outputs in memory order; each starts, updates and uses an accumulator of its own
    the innermost in wide vectors (several registers share the loops' overhead), then narrow ones
    the others, fused, shared between threads

Pools with channels innermost, depthwise convolutions along other dimensions, reductions over
leading dimensions, products of types that have no micro-kernel.
"""

from __future__ import annotations

from typing import Final

from pliant.lower.canonical import LARGE, Spec
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import (
    grain,
    reduced_nest,
    vectorize_all,
    vectors,
)
from pliant.sym.expr import minimum

WIDTHS: Final = (4, 8, 16)  # registers of a wide vector, more than of a narrow one
WIDE: Final = 4  # of them without tuning
REST: Final = 2  # of a narrow one: a single register would wait for its own sums


def reduction_recipe(spec: Spec, lanes: int, large: int = LARGE) -> Program:
    """A schedule for a reduction and the maps that follow it."""
    anchor, _ = spec.members[0]
    p, loops, work = reduced_nest(spec)
    if not loops:
        return _with_accumulators(p, anchor)
    *outer, last = loops
    p = _with_accumulators(p.compute_at(anchor, last), anchor, last)
    if outer:
        extent = p.loop(last).extent
        p = p.fuse(*outer)
        p = p.parallel(p.made[0], grain=grain(extent * work))
    p, blocks, inner = _wide(p, last, lanes)
    if not outer:
        p = p.parallel(blocks, grain=grain(work * p.loop(inner[0]).extent))
    return vectorize_all(p, inner, large)


def _with_accumulators(p: Program, block: str, inside: str = "") -> Program:
    """The reduction starts before its outermost loop within `inside`, and keeps what it writes in
    buffers that live there only."""
    loops: list[str] = list(p.loops(block))
    reducing = loops[loops.index(inside) + 1 :] if inside else loops
    if reducing:
        p = p.decompose_reduction(block, reducing[0])
    for buffer in p.written(block):
        p = p.shrink_buffer(buffer)
    return p


def _wide(p: Program, loop: str, lanes: int) -> tuple[Program, str, list[str]]:
    """The loop in vectors of several registers; the rest in one more under a mask, or in one of
    REST where that is enough. Gives the loop over the wide ones, and those to vectorize."""
    extent = p.loop(loop).extent
    if extent.is_const and extent.value < lanes * WIDE:
        return vectors(p, loop, lanes * WIDE)
    p = p.sample_categorical("registers", WIDTHS, default=WIDE)
    all_lanes = p.numbers[0] * lanes
    p = p.split(loop, all_lanes, tail="peel", tail_loop="exact")
    outer, wide, *rest = p.made
    if not rest:
        return p, outer, [wide]
    left, few = extent % all_lanes, lanes * REST
    many = minimum(left, all_lanes * ((left + all_lanes - few - 1) // all_lanes))
    p = p.loop_partition(rest[0], many)
    (second,) = p.made
    p = p.split(rest[0], all_lanes)
    masked = p.made[1]
    p = p.split(second, few)
    return p, outer, [wide, masked, p.made[1]]
