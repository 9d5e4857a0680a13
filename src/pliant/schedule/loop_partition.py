"""Run a loop as several, one after the other, and drop conditions that hold throughout all but
the last.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for o, i in grid((n + 7)//8, 8):
            with block("y", S(i + 8*o, n), where=i + 8*o < n) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.loop_partition('o', sym('n//8'))

After:

    for o, i in grid(n//8, 8):
        with block("y", S(i + 8*o, n)) as (a,):
            y[a] = x[a] * 2.0
    for o_t, i_t in grid((n + 7)//8 - (n//8), 8):
        with block("y_t", S(i_t + 8*(n//8) + 8*o_t, n), where=i_t + 8*(n//8) + 8*o_t < n) as (a_t,):
            y[a_t] = x[a_t] * 2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pliant.ir.expr import Expr, Select
from pliant.ir.node import transform
from pliant.loop.bounds import declare_loops, span
from pliant.loop.rewrite import conjoin, conjuncts, copy_of, replace_at, subst
from pliant.loop.stmt import Block, For, If, Stmt, seq, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import bound_ends
from pliant.schedule.nest import blocks_in, iterators_over, require_serial
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import Int, IntLike, as_int, var
from pliant.sym.facts import Facts


@primitive
def loop_partition(p: Program, loop: str, *at: IntLike) -> Program:
    """The loop does the iterations before the first of the points `at`; new loops, one after the
    other, do those up to the next point, and the last of them the rest. Makes the new loops."""
    points = [as_int(point) for point in at]
    check_loop_partition(p, loop, points)
    path = p.loop_path("loop_partition", loop)
    target, names, facts = path[-1], p.names(), p.inside(path[:-1])
    assert isinstance(target, For)
    parts = [without_proved(For(loop, points[0], target.body), facts)]
    made = []
    for first, end in pairwise([*points, target.extent]):
        copy, _ = copy_of(target, names, "_t")
        assert isinstance(copy, For)
        body = subst(copy.body, {copy.var: var(copy.var) + first})
        part: Stmt = For(copy.var, facts.simplify(end - first), body)
        parts.append(part if end is target.extent else without_proved(part, facts))
        made.append(LoopRef(copy.var))
    return p.with_body(replace_at(path, seq(*parts)), *made)


def check_loop_partition(p: Program, loop: str, at: Sequence[Int]) -> None:
    """There is a point; 0 <= each point <= the next <= extent is proved, the loop is serial, and no
    reduction that starts itself runs over it."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("loop_partition", f"loop {loop}", reason)

    path = p.loop_path("loop_partition", loop)
    target, facts = path[-1], p.inside(path[:-1])
    assert isinstance(target, For)
    require_serial("loop_partition", target)
    around = {s.var for s in path[:-1] if isinstance(s, For)}
    if not at:
        raise refuse("there is no point to divide it at")
    for low, point in pairwise([as_int(0), *at]):
        if not point.names <= around | p.sizes:
            raise refuse(f"{point} is not known around it")
        if not (facts.le(low, point) and facts.le(point, target.extent)):
            raise refuse(f"{point} is not known to be from {low} to {target.extent}")
    for block in blocks_in(target):
        if block.init is not None and "R" in iterators_over(block, loop):
            raise refuse(f"block {block.name} has its init inside; decompose_reduction first")


def without_proved(root: Stmt, facts: Facts) -> Stmt:
    """`root` without conditions that hold for all values of the loops in it."""
    loops = [s for s in statements(root) if isinstance(s, For)]
    inside = declare_loops(facts, loops)
    ranges = {x.var: x.extent for x in loops}
    bindings = {
        i.var: b
        for s in statements(root)
        if isinstance(s, Block)
        for i, b in zip(s.iters, s.bindings, strict=True)
    }

    def holds(cond: Expr) -> bool:
        ends = bound_ends(cond)
        if ends is None:
            return False
        gap = _outside(ends[1] - ends[0], bindings)
        low = span(gap, ranges, facts)
        return inside.nonneg(gap) or (low is not None and facts.nonneg(low[0]))

    def visit(node: Any) -> Any:
        match node:
            case Block() if node.where is not None:
                kept = [c for c in conjuncts(node.where) if not holds(c)]
                return node.replace(where=conjoin(kept))
            case Select() if all(holds(c) for c in conjuncts(node.cond)):
                return node.a
            case If() if all(holds(c) for c in conjuncts(node.cond)):
                return node.then
        return node

    return transform(root, visit)  # type: ignore[no-any-return]


def _outside(x: Int, bindings: dict[str, Int]) -> Int:
    """Block iterators replaced by what they are bound to, through nested blocks."""
    while not x.names.isdisjoint(bindings):
        x = x.subs({n: bindings[n] for n in x.names & bindings.keys()})
    return x
