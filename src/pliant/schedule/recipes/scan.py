"""Running reductions: in order along one dimension, side by side along the others.

    along the innermost dimension               along another

    parallel over rows, SIDE at a time          parallel over what is outside and blocks of columns
        steps                                       steps
            each of the rows                            columns in vectors

A step waits for the one before it; of several rows, or columns, one does not wait for the other's.
The first step, which starts the sum, is apart from the others.
"""

from __future__ import annotations

from typing import Final

from pliant.ir.tensor import Scan
from pliant.lower.canonical import Spec
from pliant.lower.row_facts import LARGE
from pliant.schedule.program import LoopRef, Program
from pliant.schedule.recipes.nests import grain, in_vectors, work_of
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, as_int, minimum

SIDE: Final = 8  # rows, each with its sum in a register
COLUMNS: Final = 4  # vectors of a block: a cache line each, in as many streams


def scan_recipe(spec: Spec, lanes: int, large: int = LARGE) -> Program:
    """A schedule for a running reduction."""
    ((name, tensor),) = spec.members
    assert isinstance(tensor, Scan)
    p = start(spec)
    loops, work = p.loops(name), as_int(work_of(p, [name]))
    order = spec.order if len(spec.order) == len(loops) else range(len(loops))
    along, around = loops[tensor.along], [loops[d] for d in order if d != tensor.along]
    others = [x for x in around if p.loop(x).extent != 1]
    if not others:
        return p
    p = p.reorder(*(x for x in around if x not in others), *others, along)
    work = work * p.loop(along).extent
    inner = next((d for d in reversed(order) if p.loop(loops[d]).extent != 1), tensor.along)
    if inner == tensor.along:
        return _rows(p, others, along, work)
    return _columns(p, others, along, work, lanes, large)


def _rows(p: Program, others: list[LoopRef], along: LoopRef, work: Int) -> Program:
    """Several at a time, and those that are left one by one."""
    p = p.fuse(*others)
    (rows,) = p.made
    p = p.split(rows, SIDE, tail="peel", tail_loop="exact")
    several, one, *rest = p.made
    p = p.reorder(several, along, one).parallel(several, grain=grain(work * SIDE))
    for loop in (along, *(p.loops(b)[-1] for b in p.blocks if rest and rest[0] in p.loops(b))):
        p = _first_apart(p, loop)
    for block in p.blocks:
        p = p.unroll(p.loops(block)[-1]) if several in p.loops(block) else p
    return p


def _columns(
    p: Program, others: list[LoopRef], along: LoopRef, work: Int, lanes: int, large: int
) -> Program:
    *outer, last = others
    extent, width = p.loop(last).extent, lanes * COLUMNS
    while extent.is_const and width >= 2 * max(extent.value, 1):
        width //= 2
    p = p.split(last, width)
    blocks, column = p.made
    p = p.reorder(*outer, blocks, along, column).fuse(*outer, blocks)
    (tasks,) = p.made
    p = _first_apart(p.parallel(tasks, grain=grain(work * width)), along)
    return in_vectors(p, p.innermost(tasks), lanes, large)


def _first_apart(p: Program, along: str) -> Program:
    """The step that starts, and the others."""
    return p.loop_partition(along, minimum(1, p.loop(along).extent))
