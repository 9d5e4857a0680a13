"""Run parts of a loop's iterations at different times, to overlap loading with computing.

Before:

    @loop
    def sums(x: f32["n", 8], y: f32[8], n: i64):
        for k in grid(n):
            s = alloc(f32[8], scope="shared")
            for a in grid(8):
                with block("s", S(k, n), S(a, 8)) as (i, j):
                    s[j] = x[i, j]
            for b in grid(8):
                with block("y", R(k, n), S(b, 8)) as (i, j):
                    y[j] = y[j] + s[j]

Steps:

    p = p.software_pipeline('k', (0, 1))

After:

    for k in grid(n, notes={"pipeline": ((0, 1), (0, 1))}):
        s = alloc(f32[8], scope="shared")
        for a in grid(8):
            with block("s", S(k, n), S(a, 8)) as (i, j):
                s[j] = x[i, j]
        for b in grid(8):
            with block("y", R(k, n), S(b, 8)) as (i, j):
                y[j] = y[j] + s[j]

The program means the same. `loop/lower_pipeline.py` makes prologue, steady state and epilogue of
it, in which s of iteration k + 1 is loaded, into another version, while y takes that of k.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.loop.lower_pipeline import PIPELINE, pipeline_fault, pipeline_of
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import For
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import require_serial
from pliant.schedule.program import Program, primitive


@primitive
def software_pipeline(
    p: Program, loop: str, stages: Sequence[int], orders: Sequence[int] | None = None
) -> Program:
    """Notes that part k of the body (its k-th statement) runs `stages[k]` iterations late, and of
    what runs at one time in the place `orders[k]`; without orders, as the parts stand.

    Buffers allocated inside the loop get as many versions as are in use at once.
    """
    given = tuple(range(len(stages))) if orders is None else tuple(orders)
    check_software_pipeline(p, loop, stages, given)
    path = p.loop_path("software_pipeline", loop)
    target = path[-1]
    assert isinstance(target, For)
    notes = (*target.notes, (PIPELINE, (tuple(stages), given)))
    return p.with_body(replace_at(path, target.replace(notes=notes)))


def check_software_pipeline(
    p: Program, loop: str, stages: Sequence[int], orders: Sequence[int]
) -> None:
    """The loop is serial and not noted yet. Stages begin at 0, orders are a permutation. No two
    uses of an element, one of them a store, change their order; memory of the loop's own does not
    count between iterations, nor has it a shape that varies. Reductions over the loop have been
    started before it. Nothing need be constant."""
    path = p.loop_path("software_pipeline", loop)
    target, place = path[-1], f"loop {loop}"
    assert isinstance(target, For)
    require_serial("software_pipeline", target)
    if PIPELINE in dict(target.notes):
        raise SchedulingError("software_pipeline", place, "it has stages already")
    whole = [x for x in (*stages, *orders) if not isinstance(x, int) or isinstance(x, bool)]
    if whole or min(stages, default=-1) < 0:
        raise SchedulingError("software_pipeline", place, "stages and orders are numbers from 0 on")
    pipeline = pipeline_of(target, stages, orders)
    fault = pipeline_fault(pipeline, p.inside(path[:-1]), p.invoked)
    if fault:
        raise SchedulingError("software_pipeline", place, fault)
