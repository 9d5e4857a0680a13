"""Split a loop into two, and for tail="peel" a third.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for i in grid(n):
            with block("y", S(i, n)) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.split('i', 8)

After:

    for i_0, i_1 in grid((n + 7)//8, 8):
        with block("y", S(8*i_0 + i_1, n), where=8*i_0 + i_1 < n) as (a,):
            y[a] = x[a] * 2.0

Steps:

    p = p.split('i', 8, tail='peel')

After:

    for i_0, i_1 in grid(n//8, 8):
        with block("y", S(8*i_0 + i_1, n)) as (a,):
            y[a] = x[a] * 2.0
    for i_any, i_t in grid(min(1, n%8), 8):
        with block("y_t", S(i_t + 8*(n//8), n), where=i_t + 8*(n//8) < n) as (a_t,):
            y[a_t] = x[a_t] * 2.0

Steps:

    p = p.split('i', 8, tail='clip')

After:

    for i_0 in grid((n + 7)//8):
        for i_1 in grid(min(8, -8*i_0 + n)):
            with block("y", S(8*i_0 + i_1, n)) as (a,):
                y[a] = x[a] * 2.0
"""

from __future__ import annotations

from typing import Literal

from pliant.ir.expr import Expr
from pliant.loop.rewrite import conjoin, conjuncts, copy_of, less, replace_at, subst
from pliant.loop.stmt import Alloc, Block, For, If, Seq, Stmt, seq
from pliant.schedule.errors import SchedulingError
from pliant.schedule.loop_partition import later
from pliant.schedule.nest import blocks_in, iterators_over, require_serial
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, minimum, var

Tail = Literal["mask", "peel", "clip", "exact"]


@primitive
def split(
    p: Program,
    loop: str,
    factor: IntLike,
    tail: Tail = "mask",
    *,
    tail_loop: Literal["mask", "exact"] = "mask",
) -> Program:
    """Makes the loops `outer` and `inner` (of extent `factor`), and the tail loop for "peel".

    "mask" runs whole tiles under a condition, which is left out where it is proved. "peel" runs
    whole tiles without one, then the remainder: `tail_loop` "mask" gives it `factor` iterations
    under a condition, "exact" just as many as are left. "clip" makes the last tile shorter, so that
    the extent of the inner loop depends on the outer one. "exact" needs a proof of divisibility.
    """
    f = as_int(factor)
    check_split(p, loop, f, tail)
    if tail_loop not in ("mask", "exact"):
        raise SchedulingError("split", f"loop {loop}", f"there is no tail loop {tail_loop!r}")
    path = p.loop_path("split", loop)
    target = path[-1]
    assert isinstance(target, For)
    names, n, facts = p.names(), target.extent, p.around(path)
    outer, inner = names.variable(f"{loop}_0"), names.variable(f"{loop}_1")
    exact = facts.divisible(n, f)
    trips = facts.simplify(n // f if tail == "peel" else ceildiv(n, f))
    if facts.bounds(trips) == (1, 1):
        trips = as_int(1)
    at = var(inner) if trips == 1 else var(outer) * f + var(inner)
    body = subst(target.body, {loop: at})
    if tail == "mask" and not exact:
        body = guard(body, less(at, n))
    run = f
    if tail == "clip" and not exact:
        run = n if trips == 1 else minimum(f, n - var(outer) * f)
    main = For(outer, trips, For(inner, run, body))
    if tail != "peel" or exact:
        return p.with_body(replace_at(path, main), LoopRef(outer), LoopRef(inner))
    copy, _ = copy_of(For(loop, n, target.body), names, "_t")
    assert isinstance(copy, For)
    base = f * (n // f)
    rest = later(copy, base, p.sizes)
    if tail_loop == "mask":
        rest = guard(rest, less(base + var(copy.var), n))
    over = facts.simplify(n % f)
    left = For(copy.var, f if tail_loop == "mask" else over, rest)
    if tail_loop == "mask" and not facts.positive(over):
        # Not only faster: what is inside may divide by a part of n, and n may be 0.
        left = For(names.variable(f"{loop}_any"), minimum(over, 1), left)
    made = LoopRef(outer), LoopRef(inner), LoopRef(copy.var)
    return p.with_body(replace_at(path, seq(main, left)), *made)


def check_split(p: Program, loop: str, factor: Int, tail: Tail) -> None:
    """The loop is serial, the factor at least 1 and the same in every iteration; divisible for
    "exact"; for "peel", no reduction that starts itself runs over the loop."""
    path = p.loop_path("split", loop)
    target = path[-1]
    assert isinstance(target, For)
    place = f"loop {loop}"
    require_serial("split", target)
    facts = p.around(path)
    around = {s.var for s in path[:-1] if isinstance(s, For)}
    strange = factor.names - around - p.sizes
    if strange:
        raise SchedulingError("split", place, f"the factor mentions {', '.join(sorted(strange))}")
    if not facts.positive(factor):
        raise SchedulingError("split", place, f"the factor {factor} is not known to be at least 1")
    if tail not in ("mask", "peel", "clip", "exact"):
        raise SchedulingError("split", place, f"there is no tail {tail!r}")
    if tail == "exact" and not facts.divisible(target.extent, factor):
        reason = f"{factor} is not known to divide {target.extent}"
        raise SchedulingError("split", place, reason)
    if tail == "peel":
        for block in blocks_in(target):
            if block.init is not None and "R" in iterators_over(block, loop):
                reason = f"block {block.name} has its init inside; decompose_reduction first"
                raise SchedulingError("split", place, reason)


def guard(s: Stmt, cond: Expr) -> Stmt:
    """`s` done only where `cond` holds: in the blocks' own conditions where there are blocks."""
    match s:
        case Block():
            return s.replace(where=conjoin([*conjuncts(s.where), cond]))
        case For() | Alloc() if not _needs_outside(s):
            return s.map_children(lambda c: guard(c, cond) if c is s.body else c)
        case Seq():
            return Seq(tuple(guard(part, cond) for part in s.stmts))
    return If(cond, s)


def _needs_outside(s: For | Alloc) -> bool:
    """A nest without blocks is skipped as a whole."""
    return not blocks_in(s)
