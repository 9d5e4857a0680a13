"""Any other reduction: one output element per lane, the reduction loops inside.

    loops over the outputs in memory order; each starts, updates and uses an accumulator of its own
    the innermost in wide vectors (several registers share the loops' overhead), then narrow ones
    the others, fused, shared between threads

Many rows reduced to one go another way, as each row of a column of vectors is a page of its own:

    blocks of columns, shared between threads; each has a row of accumulators
        rows, several at a time, are added to it

Pools with channels innermost, depthwise convolutions along other dimensions, reductions over
leading dimensions, products of types that have no micro-kernel.
"""

from __future__ import annotations

from typing import Final

from pliant.lower.canonical import Spec
from pliant.lower.row_facts import LARGE
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import (
    grain,
    in_parallel,
    loads_below,
    reduced_nest,
    vectorize_all,
    vectors,
)
from pliant.sym.expr import Int, minimum

WIDTHS: Final = (4, 8, 16)  # registers of a wide vector, more than of a narrow one
WIDE: Final = 4  # of them without tuning
MANY: Final = 16  # rows that are added to a row of accumulators, at least
ROWS: Final = (4, 8, 16)  # of these at a time
TOGETHER: Final = 8  # of them without tuning
COLUMNS: Final = (128, 256, 512, 1024, 2048)
PART: Final = 1024  # of them without tuning
REST: Final = 2  # of a narrow one: a single register would wait for its own sums


def reduction_recipe(spec: Spec, lanes: int, large: int = LARGE) -> Program:
    """A schedule for a reduction and the maps that follow it."""
    anchor, _ = spec.members[0]
    p, loops, work = reduced_nest(spec)
    if not loops:
        return _with_accumulators(p, anchor)
    *outer, last = loops
    if _of_rows(p, anchor, last, lanes):
        return _added_rows(p, anchor, loops, lanes, work, large)
    p = _with_accumulators(p.compute_at(anchor, last), anchor, last)
    if outer:
        extent = p.loop(last).extent
        p, _ = in_parallel(p, outer, grain(extent * work))
    p, blocks, inner = _wide(p, last, lanes)
    if not outer:
        p = p.parallel(blocks, grain=grain(work * p.loop(inner[0]).extent))
    return vectorize_all(p, inner, large)


def _of_rows(p: Program, anchor: str, last: str, lanes: int) -> bool:
    """Whether many rows are reduced to one, each read along the last loop."""
    extent = p.loop(last).extent
    if (extent.is_const and extent.value < lanes * WIDE) or len(p.written(anchor)) > 1:
        return False
    loops = p.loops(anchor)
    kinds = [i.kind for i in p.block(anchor).iters]
    reduced = [p.loop(x).extent for x, kind in zip(loops, kinds, strict=True) if kind == "R"]
    if all(n.is_const and n.value < MANY for n in reduced):
        return False
    along = [x for x, kind in zip(loops, kinds, strict=True) if kind == "S"][-1]
    steps = [x.linear(along) for x in loads_below(p.loop(loops[0])) if along in x.names]
    return bool(steps) and all(s is not None and s[0] == 1 for s in steps)


def _added_rows(
    p: Program, anchor: str, loops: list[str], lanes: int, work: Int, large: int
) -> Program:
    """Blocks of columns; in each, blocks of rows are added to a row of accumulators."""
    *outer, last = loops
    p = p.sample_categorical("columns", COLUMNS, default=PART)
    (columns,) = p.numbers
    p = p.split(last, columns, tail="clip")
    part, column = p.made
    p = p.compute_at(anchor, part)
    across, *reducing = p.made
    p = p.reorder(*reducing, across)
    p = p.decompose_reduction(anchor, reducing[0])
    (init,) = p.made
    for buffer in p.written(anchor):
        p = p.shrink_buffer(buffer)
    p, _ = in_parallel(p, (*outer, part), grain(work * columns))
    p = p.sample_categorical("rows", ROWS, default=TOGETHER)
    before = set(p.blocks)
    p = p.split(reducing[-1], p.numbers[0], tail="peel", tail_loop="exact")
    several, row, *_ = p.made
    few = [n for n in p.blocks if n not in before]
    p = p.reorder(several, across, row)
    inner: list[str] = []
    for loop in (p.loops(init)[-1], *(p.loops(n)[-1] for n in few), column):
        p, _, made = vectors(p, loop, lanes)
        inner += made
    before = set(p.blocks)
    p, _, made = vectors(p, across, lanes)
    for name in (anchor, *(n for n in p.blocks if n not in before)):
        *_, vector, each = p.loops(name)
        p = p.reorder(each, vector)
        p = p.unroll(each)
        inner.append(vector)
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
