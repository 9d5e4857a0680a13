"""Run two loops as one, in the place of the first.

Before:

    @loop
    def two(x: f32["n"], u: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for i in grid(n):
            with block("t", S(i, n)) as (a,):
                t[a] = x[a] * x[a]
        for j in grid(n):
            with block("u", S(j, n)) as (b,):
                u[b] = t[b] + 1.0

Steps:

    p = p.merge('i', 'j')

After:

    t = alloc(f32[n], scope="scratch")
    for i in grid(n):
        with block("t", S(i, n)) as (a,):
            t[a] = x[a] * x[a]
        with block("u", S(i, n)) as (b,):
            u[b] = t[b] + 1.0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pliant.loop.boxes import apart
from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import Access, accesses
from pliant.loop.rewrite import replace_at, subst
from pliant.loop.stmt import For, Seq, Stmt, seq
from pliant.schedule.conflicts import describe
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import require_serial
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import var


@primitive
def merge(p: Program, first: str, second: str) -> Program:
    """The loop `first` does the work of both; `second`, which comes later, goes away."""
    path, a, b = check_merge(p, first, second)
    parent = path[-1]
    assert isinstance(parent, Seq)
    joined = a.replace(body=seq(a.body, subst(b.body, {b.var: var(a.var)})))
    kept = [joined if s is a else s for s in parent.stmts if s is not b]
    return p.with_body(replace_at(path, seq(*kept)), LoopRef(a.var))


def check_merge(p: Program, first: str, second: str) -> tuple[tuple[Stmt, ...], For, For]:
    """The loops are serial, stand in one sequence and are equally long. What the second does
    conflicts neither with what stands between, nor, in one iteration, with what the first does in
    others. (Two loads never conflict, nor do different parts of a buffer.) Gives the path to the
    sequence, and the loops."""

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
    if a is b:
        raise refuse("they are the same")
    if parent.stmts.index(a) > parent.stmts.index(b):
        raise refuse("the second comes before the first")
    facts = p.around(path[:-1])
    if not facts.equal(a.extent, b.extent):
        raise refuse(f"their extents, {a.extent} and {b.extent}, are not known to be equal")
    moved = accesses(subst(b.body, {b.var: var(a.var)}), p.invoked)
    for x, y in _ordered(accesses(a.body, p.invoked), moved):
        if a.var in y.before:
            raise refuse(f"block {y.block} starts before its loop, and {describe(x, y)}")
        if a.var not in agreed_loops(x, y, [a], facts):
            raise refuse(describe(x, y) + " in different iterations")
    for s in parent.stmts[parent.stmts.index(a) + 1 : parent.stmts.index(b)]:
        for x, y in _ordered(accesses(s, p.invoked), accesses(b, p.invoked)):
            if x.indices is not None and y.indices is not None and apart(x, y, facts):
                continue
            raise refuse(f"between them, {describe(x, y)}")
    return path[:-1], a, b


def _ordered(first: Sequence[Access], second: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Pairs whose order may matter."""
    for x in first:
        for y in second:
            if x.buffer is y.buffer and (x.write or y.write) and not (x.local or y.local):
                yield x, y
