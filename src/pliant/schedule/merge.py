"""Run two loops that follow each other as one.

for i in range(n):            for i in range(n):
    a[i] = f(i)                   a[i] = f(i)
for j in range(n):     ->         b[i] = g(a[i])
    b[j] = g(a[j])
"""

from __future__ import annotations

from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at, subst
from pliant.loop.stmt import For, Seq, Stmt, seq
from pliant.schedule.conflicts import describe
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import require_serial
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import var


@primitive
def merge(p: Program, first: str, second: str) -> Program:
    """The loop `first` does the work of both; `second`, right after it, goes away."""
    path, a, b = check_merge(p, first, second)
    parent = path[-1]
    assert isinstance(parent, Seq)
    joined = a.replace(body=seq(a.body, subst(b.body, {b.var: var(a.var)})))
    kept = [joined if s is a else s for s in parent.stmts if s is not b]
    return p.with_body(replace_at(path, seq(*kept)), LoopRef(a.var))


def check_merge(p: Program, first: str, second: str) -> tuple[tuple[Stmt, ...], For, For]:
    """The loops are serial, next to each other and equally long, and no iteration of the first
    touches what another, earlier one of the second does, unless both read. Gives the path to
    what holds them, and the loops."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("merge", f"loops {first} and {second}", reason)

    path, other = p.loop_path("merge", first), p.loop_path("merge", second)
    a, b = path[-1], other[-1]
    assert isinstance(a, For) and isinstance(b, For)
    require_serial("merge", a)
    require_serial("merge", b)
    parent = path[-2] if len(path) > 1 else None
    if not isinstance(parent, Seq) or other[:-1] != path[:-1]:
        raise refuse("they do not stand side by side")
    here = [k for k, s in enumerate(parent.stmts) if s is a]
    if parent.stmts[here[0] + 1 : here[0] + 2] != (b,):
        raise refuse("the second does not come right after the first")
    facts = p.inside(path[:-1])
    if not facts.equal(a.extent, b.extent):
        raise refuse(f"their extents, {a.extent} and {b.extent}, are not known to be equal")
    moved = subst(b.body, {b.var: var(a.var)})
    for x in accesses(a.body, p.invoked):
        for y in accesses(moved, p.invoked):
            ordered = x.buffer is y.buffer and (x.write or y.write) and not (x.local or y.local)
            if ordered and a.var not in agreed_loops(x, y, [a], facts):
                raise refuse(describe(x, y) + " in different iterations")
    return path[:-1], a, b
