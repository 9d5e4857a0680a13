"""Put a loop of one iteration around a block or loop.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for i in grid(n):
            with block("y", S(i, n)) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.add_unit_loop('i')

After:

    for u, i in grid(1, n):
        with block("y", S(i, n)) as (a,):
            y[a] = x[a] * 2.0
"""

from __future__ import annotations

from pliant.loop.rewrite import path_to, replace_at
from pliant.loop.stmt import Block, For
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import const


@primitive
def add_unit_loop(p: Program, around: str) -> Program:
    """Makes a loop around the block or loop of that name. Always legal."""
    body = p.function.body
    path = path_to(body, lambda s: isinstance(s, For) and s.var == around)
    path = path or path_to(body, lambda s: isinstance(s, Block) and s.name == around)
    if path is None:
        raise SchedulingError("add_unit_loop", around, "there is no such loop or block")
    name = p.names().variable("u")
    return p.with_body(replace_at(path, For(name, const(1), path[-1])), LoopRef(name))
