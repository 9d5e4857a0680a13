"""Keep what iterations of a loop have in common, in a ring.


What an iteration needs and the one before has computed is not computed again: the first iteration
computes all that it needs, each later one what is new. The buffer is as long along its axis as one
iteration needs.

Before:

    @loop
    def products(x: f32["n + 2"], y: f32["n"], n: i64):
        t = alloc(f32[n + 2], scope="scratch")
        for o in grid(n):
            for i in grid(3):
                with block("t", S(i + o, n + 2)) as (a,):
                    t[a] = exp(x[a])
            with block("y", S(o, n)) as (b,):
                y[b] = t[b] * t[b + 2]

Steps:

    p = p.rolling_buffer('t')

After:

    t = alloc(f32[3], scope="scratch")
    for o in grid(n):
        for i in grid(3):
            with block("t", S(i + o, n + 2), where=(o < 1) | (2 <= i)) as (a,):
                t[a%3] = exp(x[a])
        with block("y", S(o, n)) as (b,):
            y[b] = t[b%3] * t[(b + 2)%3]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.ir.expr import Binary, Expr, Index
from pliant.loop.boxes import touched_box
from pliant.loop.regions import Access
from pliant.loop.rewrite import conjoin, conjuncts, less, path_to, replace_at, replace_buffer
from pliant.loop.stmt import Alloc, Block, Buffer, For, Seq, Stmt, compact_strides
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, common_loops, only_domain
from pliant.schedule.nest import check_marked_loops, inner_accesses
from pliant.schedule.program import MemoryRef, Program, primitive
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts
from pliant.sym.index_map import IndexMap


@primitive
def rolling_buffer(p: Program, buffer: str, axis: int = 0) -> Program:
    """The buffer becomes a ring along `axis`, over the innermost loop around all its uses along
    which they move."""
    plan = check_rolling_buffer(p, buffer, axis)
    old, path = plan.buffer, p.block_path("rolling_buffer", plan.block.name)
    shape = tuple(plan.width if d == axis else extent for d, extent in enumerate(old.shape))
    new = old.replace(shape=shape, strides=compact_strides(shape))
    first = less(var(plan.loop.var), as_int(1))
    unseen = Binary("le", Index(plan.overlap), Index(plan.at))
    guard = Binary("or", first, unseen)
    block = plan.block.replace(where=conjoin([*conjuncts(plan.block.where), guard]))

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        at = indices[axis]
        assert isinstance(at, Index)
        return (*indices[:axis], Index(at.int_ % plan.width), *indices[axis + 1 :])

    q = p.with_body(replace_buffer(replace_at(path, block), old, new, place), MemoryRef(new.name))
    check_marked_loops(q, "rolling_buffer", block.name, plan.loop.var)
    return q


@dataclass(frozen=True)
class _Plan:
    buffer: Buffer
    block: Block  # that makes the elements
    loop: For
    at: Int  # how far into the part of this iteration an element is, in terms of loops
    width: Int  # of the part of one iteration
    overlap: Int  # with that of the next


def check_rolling_buffer(p: Program, buffer: str, axis: int) -> _Plan:
    """The function allocates the buffer outside of the loop, which runs in order. One block, under
    no condition but its domain, computes each element, always the same, and starts it itself. The
    part that it computes moves by a fixed step with the loop, is as long in each iteration, all of
    it is computed, and what else indexes the buffer does not depend on the loop. What an iteration
    reads it has computed before, and the length is known where the buffer is allocated."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("rolling_buffer", f"buffer {buffer}", reason)

    old, flow = p.buffer(buffer), Flow(p)
    if not 0 <= axis < old.rank:
        raise refuse(f"it has no axis {axis}")
    home = path_to(p.function.body, lambda s: isinstance(s, Alloc) and s.buffer is old)
    if home is None:
        raise refuse("it is a parameter")
    uses = [*flow.writers(old), *flow.readers(old)]
    if any(a.index(d) is None for a in uses for d in range(old.rank)):
        raise refuse("an index of it is not known, or a call takes its address")
    makers = {a.block for a in flow.writers(old)}
    if len(makers) != 1 or "" in makers:
        raise refuse("not one block computes its elements")
    path = p.block_path("rolling_buffer", makers.pop())
    block = path[-1]
    assert isinstance(block, Block)
    loop = _moving_loop(p, uses, axis, path, len(home), refuse)
    start = path.index(loop)
    outside = frozenset(s.var for s in path[:start] if isinstance(s, For))
    if not flow.is_function_of_place(old, outside):
        raise refuse("its elements may not be the same whenever they are computed")
    if any(not isinstance(s, For | Seq | Alloc) for s in path[start:-1]):
        raise refuse(f"block {block.name} runs under a condition or inside a block")
    if not only_domain(block, p.around(path)):
        raise refuse(f"block {block.name} runs under a condition")
    inner = [a for a in inner_accesses(p, path[: start + 1]) if a.buffer is old]
    _check_order(inner, block.name, loop, refuse)
    plan = _overlap(p, old, block, axis, path, start, inner, refuse)
    scope = p.sizes | {s.var for s in home if isinstance(s, For)}
    if not plan.width.names <= scope:
        raise refuse(f"how much one iteration needs, {plan.width}, is not known where it begins")
    if old.scope == "register" and not plan.width.is_const:
        raise refuse(f"it is in registers, so {plan.width} must be a constant")
    return plan


def _moving_loop(
    p: Program, uses: Sequence[Access], axis: int, path: tuple[Stmt, ...], home: int, refuse: Refuse
) -> For:
    """The innermost loop around all uses, in the buffer's life, that the axis moves with."""
    around = list(uses[0].loops)
    for a in uses:
        around = common_loops(around, a.loops)
    index = uses[0].index(axis)
    assert index is not None
    moving = [x for x in around if x in path[home:] and x.var in index.names]
    if not moving:
        raise refuse(f"no loop around all its uses moves along axis {axis}")
    if moving[-1].kind not in ("serial", "unrolled"):
        raise refuse(f"loop {moving[-1].var} is {moving[-1].kind}")
    return moving[-1]


def _check_order(inner: Sequence[Access], block: str, loop: For, refuse: Refuse) -> None:
    last = max(a.position for a in inner if a.write)
    for a in inner:
        if a.block != block and a.position < last:
            raise refuse(f"an iteration of loop {loop.var} reads it before it has computed it")


def _overlap(
    p: Program,
    old: Buffer,
    block: Block,
    axis: int,
    path: tuple[Stmt, ...],
    start: int,
    inner: Sequence[Access],
    refuse: Refuse,
) -> _Plan:
    loop = path[start]
    assert isinstance(loop, For)
    facts = p.inside(path[: start + 1])
    known = p.sizes | {s.var for s in path[: start + 1] if isinstance(s, For)}
    writes = [a for a in inner if a.write]
    if any(a.indices != writes[0].indices for a in writes):
        raise refuse(f"block {block.name} writes it at several places")
    low, high = touched_box(writes, known, facts)[axis]
    line, width = low.linear(loop.var), facts.simplify(high - low + 1)
    if line is None or loop.var in line[0].names | width.names or not facts.positive(line[0]):
        raise refuse(f"what is computed of axis {axis} does not move on with loop {loop.var}")
    overlap = facts.simplify(width - line[0])
    if not facts.positive(overlap):
        raise refuse(f"iterations of loop {loop.var} are not known to overlap")
    at = writes[0].index(axis)
    assert at is not None
    _check_filled(writes[0], axis, facts.simplify(at - low), width, loop, facts, refuse)
    for a in inner:
        first, last = touched_box([a], known, facts)[axis]
        if not (facts.le(low, first) and facts.le(last, high)):
            raise refuse(f"an iteration of loop {loop.var} uses more than it computes")
    return _Plan(old, block, loop, facts.simplify(at - low), width, overlap)


def _check_filled(
    a: Access, axis: int, at: Int, width: Int, loop: For, facts: Facts, refuse: Refuse
) -> None:
    """All of the part is computed, and of each element along the axis the same in all iterations:
    loops that move along the axis do nothing else."""
    along = [x for x in a.loops if x.var in at.names]
    names = {x.var for x in along}
    others = [a.index(d) for d in range(a.buffer.rank) if d != axis]
    used = frozenset[str]().union(*(x.names for x in others if x is not None))
    used = used.union(*(x.extent.names for x in a.loops))
    if not used.isdisjoint(names | {loop.var}):
        raise refuse(f"loop {loop.var}, or one along axis {axis}, moves along other axes too")
    part = IndexMap(tuple(x.var for x in along), tuple(x.extent for x in along), (at,))
    if not part.covers((width,), facts):
        raise refuse(f"not all of what iterations of loop {loop.var} share is computed")
