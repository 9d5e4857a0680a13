"""Give an integer that depends on sizes alone a name, which other steps may use as a size.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for i in grid(n):
            with block("y", S(i, n)) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.name_size('tile', sym('min(14, n//4 + 1)'))
    p = p.split('i', sym('tile'), tail='clip')

After:

    tile: i64 = min(14, n//4 + 1)
    for i_0 in grid((n - 1)//tile + 1):
        for i_1 in grid(min(-i_0*tile + n, tile)):
            with block("y", S(i_0*tile + i_1, n)) as (a,):
                y[a] = x[a] * 2.0
"""

from __future__ import annotations

from dataclasses import replace

from pliant.base.dtypes import i64
from pliant.ir.expr import Index, Var
from pliant.loop.stmt import Let, Stmt
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import Int, IntLike, as_int


@primitive
def name_size(p: Program, name: str, value: IntLike) -> Program:
    """`name` stands for `value` from now on. Of it no more is known than the least and the greatest
    number that it can be, which keeps what is made of it short."""
    size = as_int(value)
    check_name_size(p, name, size)
    facts = p.facts.copy()
    low, high = facts.bounds(size)
    facts.declare(name, min=low, max=high)
    body = _after_names(p.function.body, name, size)
    return replace(p.with_body(body), facts=facts, scopes={})


def check_name_size(p: Program, name: str, value: Int) -> None:
    """The name is an identifier not in use, and the value depends on sizes alone."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("name_size", f"size {name}", reason)

    if not name.isidentifier() or name in p.names().variables:
        raise refuse("this is no name, or one in use")
    strange = value.names - p.sizes
    if strange:
        raise refuse(f"{value} mentions {', '.join(sorted(strange))}, which are not sizes")


def _after_names(root: Stmt, name: str, value: Int) -> Stmt:
    if isinstance(root, Let):
        return root.replace(body=_after_names(root.body, name, value))
    return Let(Var(name, i64), Index(value), root)
