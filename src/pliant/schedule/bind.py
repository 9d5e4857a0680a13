"""Give a loop's iterations to blocks of threads, or to the threads of a block.

Before:

    @loop
    def scale(x: f32["n"], y: f32["n"], n: i64):
        for b, t in grid((n + 31)//32, 32):
            with block("y", S(32*b + t, n), where=32*b + t < n) as (i,):
                y[i] = x[i] * 2.0

Steps:

    p = p.bind('b', 'blockIdx.x')
    p = p.bind('t', 'threadIdx.x')

After:

    for b in blockIdx.x((n + 31)//32):
        for t in threadIdx.x(32):
            with block("y", S(32*b + t, n), where=32*b + t < n) as (i,):
                y[i] = x[i] * 2.0
"""

from __future__ import annotations

from typing import Literal

from pliant.loop.cross_threads import cross_thread_fault
from pliant.loop.lower_init import reduction_loops
from pliant.loop.reduction import as_update
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import For
from pliant.loop.threads import AXES, THREAD_AXES, thread_fault
from pliant.schedule.conflicts import carried, describe, strict_order
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import blocks_in, iterators_over, reducing, require_serial
from pliant.schedule.program import Program, primitive

Axis = Literal[
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread"
]


@primitive
def bind(p: Program, loop: str, axis: Axis) -> Program:
    """Iterations run on `axis`: all at the same time, as far as anybody can tell. The rules for
    loops that are bound, and what memory their threads see, are in loop/threads.py."""
    check_bind(p, loop, axis)
    path = p.loop_path("bind", loop)
    return p.with_body(replace_at(path, path[-1].replace(kind=axis)))


def check_bind(p: Program, loop: str, axis: str) -> None:
    """The loop is serial; bound, it keeps the rules of threads. No iteration touches what another
    one writes, but for reductions over threads: one update by a known combiner, all whose loops
    from the outermost one inwards are reduced over, and whose order need not be kept."""
    path = p.loop_path("bind", loop)
    target, place = path[-1], f"loop {loop}"
    assert isinstance(target, For)
    require_serial("bind", target)
    if axis not in AXES:
        raise SchedulingError("bind", place, f"there is no axis {axis!r}")
    bound = replace_at(path, target.replace(kind=axis))
    fault = thread_fault(p.function.replace(body=bound))
    if fault is not None:
        raise SchedulingError("bind", place, fault[1])
    for block in blocks_in(target):
        kinds = iterators_over(block, loop)
        if "O" in kinds:
            raise SchedulingError("bind", place, f"block {block.name} must run over it in order")
        if "R" in kinds:
            why = _cannot_reduce(p, block.name, loop, axis)
            if why:
                raise SchedulingError("bind", place, f"block {block.name} reduces over it; {why}")
    together = reducing(target) if axis in THREAD_AXES else ()
    pair = carried(p, target, p.around(path), together)
    if pair is not None:
        raise SchedulingError("bind", place, describe(*pair) + " in different iterations")


def _cannot_reduce(p: Program, name: str, loop: str, axis: str) -> str:
    """Why threads of the axis cannot reduce together in the block; empty if they can."""
    if axis not in THREAD_AXES:
        return "only threads of one block can do that together"
    path, block = p.block_path("bind", name), p.block(name)
    reduced = reduction_loops(block)
    first = next(k for k, s in enumerate(path) if isinstance(s, For) and s.var in reduced)
    inner = path[first:-1]
    loops = [s for s in inner if isinstance(s, For)]
    if len(loops) != len(inner):
        return f"it is not all that is in loop {loops[0].var}"
    loops = [x.replace(kind=axis) if x.var == loop else x for x in loops]
    why = cross_thread_fault(loops, block)
    if why:
        return why
    update = as_update(block)
    if update is not None and update.rounds and strict_order(p):
        return "the numerics are strict: the order of the reduction must be kept"
    return ""
