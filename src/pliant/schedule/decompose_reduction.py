"""Do the start of a reduction in a block of its own, before a loop.

Before:

    @loop
    def sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
        for i, r in grid(n, k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[a, c]

Steps:

    p = p.decompose_reduction('y', 'r')

After:

    for i in grid(n):
        with block("y_init", S(i, n)) as (a_init,):
            y[a_init] = 0.0
        for r in grid(k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                y[a] = y[a] + x[a, c]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import CannotSeparateError, reduction_loops, separate_init
from pliant.loop.regions import Access, accesses
from pliant.loop.stmt import Block, For, Nop, Stmt, statements, stored
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import BlockRef, Program, primitive


@primitive
def decompose_reduction(p: Program, block: str, loop: str) -> Program:
    """Makes the block that starts the reduction of `block`, just before `loop`."""
    path, at = check_decompose_reduction(p, block, loop)
    names = p.names()
    try:
        body = separate_init(path, at, names)
    except CannotSeparateError as error:
        reason = str(error)
        raise SchedulingError("decompose_reduction", f"block {block}", reason) from error
    (made,) = {s.name for s in statements(body) if isinstance(s, Block)} - set(p.blocks)
    return p.with_body(body, BlockRef(made))


def check_decompose_reduction(p: Program, block: str, loop: str) -> tuple[tuple[Stmt, ...], int]:
    """The block has an init; the loop is around it, with all the loops that it reduces over
    inside; nothing else in the loop uses what it writes, nor writes what it starts with, and it
    starts each element once there. Gives the block's path and the loop's place in it."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("decompose_reduction", f"block {block}", reason)

    path = p.block_path("decompose_reduction", block)
    target = path[-1]
    assert isinstance(target, Block)
    if target.init is None:
        raise refuse("it has no init")
    around = {s.var: k for k, s in enumerate(path) if isinstance(s, For)}
    if loop not in around:
        raise refuse(f"loop {loop} is not around it")
    outside = [v for v in reduction_loops(target) if around.get(v, len(path)) < around[loop]]
    if outside:
        raise refuse(f"it reduces over {', '.join(sorted(outside))}, outside of loop {loop}")
    own = {x.buffer for x in stored(target.init)}
    inside = accesses(path[around[loop]], p.invoked)
    for a in inside:
        if a.buffer in own and a.block != block:
            other = f"block {a.block}" if a.block else "a statement"
            raise refuse(f"{other} in loop {loop} uses {a.buffer.name} too")
    _check_early(p, path, around[loop], inside, refuse)
    return path, around[loop]


def _check_early(
    p: Program, path: tuple[Stmt, ...], at: int, inside: Sequence[Access], refuse: Refuse
) -> None:
    """Nothing in the loops from `path[at]` to the outermost that is reduced over writes what the
    block starts with, and it starts each element in one of their iterations."""
    block = path[-1]
    assert isinstance(block, Block)
    reduced = reduction_loops(block)
    loops = [s for s in path[at:-1] if isinstance(s, For)]
    outer = list(takewhile(lambda s: s.var not in reduced, loops))
    if not outer:
        return  # there it starts anyway
    started_with = {a.buffer for a in accesses(block.replace(body=Nop())) if not a.write}
    facts = p.inside(path[:at])
    for a in inside:
        if not a.write:
            continue
        if a.buffer in started_with:
            reason = f"{a.buffer.name}, with which it starts, is written in loop {outer[0].var}"
            raise refuse(reason)
        agreed = agreed_loops(a, a, outer, facts)
        again = [x.var for x in outer if x.var not in agreed]
        if a.block == block.name and again:
            raise refuse(f"it may start an element again in loop {again[0]}")
