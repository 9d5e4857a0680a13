"""Reduce along a loop last: partial results for each of its iterations first.

The loop is then one over data parallel iterators, so it can be vectorized or parallel. A reducer of
several values has partial results for each of them: `m[i], d[i] = normal(m[i], d[i], x[i, r], 1)`
makes `m_rf` and `d_rf`, and last `m[i], d[i] = normal(m[i], d[i], m_rf[i, l], d_rf[i, l])`.

What it needs, of `loop`, of extent e, and of the one block under it that reduces over it:

    the block     is an update by a known combiner or a reducer (`loop.reduction.as_update`); where
                  the numerics are strict, one that rounds nothing. None of its iterators is
                  ordered, and what is reduced over is in the bindings of "R" iterators only
    the nest      from the outermost loop that is reduced over down to the block there are loops,
                  sequences and allocations of other buffers. Nothing else in it uses what the block
                  updates, nor writes what its places, conditions and start depend on. In its data
                  parallel loops different iterations update different elements, and no extent of
                  theirs depends on what is reduced over
    e             mentions sizes of the function only; it need not be constant, and may be 0

Before:

    @loop
    def sums(x: f32["n", "8*k"], y: f32["n"], n: i64, k: i64):
        for i, o, l in grid(n, k, 8):
            with block("y", S(i, n), R(l + 8*o, 8*k)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[a, c]

Steps:

    p = p.rfactor('l')

After:

    y_rf = alloc(f32[n, 8], scope="scratch")
    for i in grid(n):
        for o, l in grid(k, 8):
            with block("y_rf", S(i, n), R(o, k), S(l, 8)) as (a_rf, y_vo, y_vl):
                with init():
                    y_rf[a_rf, y_vl] = 0.0
                y_rf[a_rf, y_vl] = y_rf[a_rf, y_vl] + x[a_rf, y_vl + 8*y_vo]
        for l_f in grid(8):
            with block("y", S(i, n), R(l_f, 8)) as (a, y_vl_f):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + y_rf[a, y_vl_f]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.ir.expr import Expr, Index, Load, Select, loads_of
from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import reduced_loops
from pliant.loop.reduction import Update, as_update
from pliant.loop.regions import accesses, bindings_of
from pliant.loop.rewrite import (
    Names,
    conjoin,
    conjuncts,
    int_names,
    path_to,
    rename,
    replace_at,
    subst,
)
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Flat,
    For,
    Iter,
    Seq,
    Stmt,
    buffer,
    for_,
    seq,
)
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.conflicts import strict_order
from pliant.schedule.copies import with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import blocks_in, iterators_over
from pliant.schedule.program import BlockRef, LoopRef, MemoryRef, Program, primitive
from pliant.sym.expr import IntLike, var


@primitive
def rfactor(p: Program, loop: str) -> Program:
    """Makes the block of partial results, the buffers that hold them (the loop is their last
    dimension), and the loop of the final reduction, whose block keeps the old block's name."""
    plan = check_rfactor(p, loop)
    names = p.names()
    partial = tuple(
        buffer(
            names.buffer(f"{place.buffer.name}_rf"),
            (*place.buffer.shape, plan.loop.extent),
            place.buffer.dtype,
            scope="scratch",
        )
        for place in plan.update.places
    )
    first = _partial_block(plan, partial, names)
    nest = replace_at(plan.path[plan.top :], first)
    last, loops = _final_nest(plan, partial, names)
    body = replace_at(plan.path[: plan.top + 1], seq(nest, last))
    for made, place in zip(partial, plan.update.places, strict=True):
        body = _allocated(body, made, place.buffer)
    memory = map(MemoryRef, (b.name for b in partial))
    return p.with_body(body, BlockRef(first.name), *memory, LoopRef(loops[-1]))


def _allocated(body: Stmt, made: Buffer, beside: Buffer) -> Stmt:
    home = path_to(body, lambda s: isinstance(s, Alloc) and s.buffer is beside)
    if home is None:
        return with_alloc(body, made)
    owner = home[-1]
    assert isinstance(owner, Alloc)
    return replace_at(home, owner.replace(body=Alloc(made, owner.body)))


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]
    top: int  # of the outermost loop that is reduced over
    loop: For
    block: Block
    update: Update
    reduced: frozenset[str]  # loops
    conditions: tuple[Expr, ...]  # of the block, in terms of loops


def check_rfactor(p: Program, loop: str) -> _Plan:
    """The conditions at the top of this file."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("rfactor", f"loop {loop}", reason)

    target = p.loop_path("rfactor", loop)[-1]
    assert isinstance(target, For)
    over = [b for b in blocks_in(target) if "R" in iterators_over(b, loop)]
    if len(over) != 1:
        raise refuse(
            f"{len(over)} blocks reduce over it, not one" if over else "no block reduces over it"
        )
    path = p.block_path("rfactor", over[0].name)
    block = path[-1]
    assert isinstance(block, Block)
    update = as_update(block)
    if update is None:
        raise refuse(f"block {block.name} is no update by a known combiner or reducer")
    if strict_order(p) and update.rounds:
        raise refuse("the numerics are strict: the order of the reduction must be kept")
    reduced = reduced_loops(path)
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "O" or (it.kind == "S" and binding.names & reduced):
            raise refuse(f"iterator {it.var} of block {block.name} is not reduced over it")
    if not target.extent.names <= p.sizes:
        raise refuse(f"its extent {target.extent} varies")
    top = next(k for k, s in enumerate(path) if isinstance(s, For) and s.var in reduced)
    at = bindings_of(block)
    conditions = tuple(subst(c, at) for c in conjuncts(block.where))
    plan = _Plan(path, top, target, block, update, reduced, conditions)
    _check_nest(p, plan, refuse)
    return plan


def _check_nest(p: Program, plan: _Plan, refuse: Refuse) -> None:
    own = {place.buffer for place in plan.update.places}
    inside, block = plan.path[plan.top : -1], plan.block.name
    outer = inside[0]
    assert isinstance(outer, For)
    for s in inside:
        if not isinstance(s, For | Seq | Alloc) or (isinstance(s, Alloc) and s.buffer in own):
            what = f"block {s.name}" if isinstance(s, Block) else type(s).__name__.lower()
            raise refuse(f"there is more than loops between {outer.var} and block {block}: {what}")
    found = accesses(outer, p.invoked)
    for a in found:
        if a.buffer in own and a.block != block:
            raise refuse(f"other statements in loop {outer.var} use {a.buffer.name}")
    again = {
        x.source.buffer if isinstance(x.source, Flat) else x.source
        for e in (*plan.conditions, *(i for t in plan.update.places for i in t.indices))
        for x in loads_of(e)
    }
    if plan.block.init is not None:
        again |= {a.buffer for a in accesses(plan.block.init) if not a.write}
    for a in found:
        if a.write and a.buffer in again:
            raise refuse(
                f"{a.buffer.name}, on which its start or its place depends, is written in it"
            )
    loops = [s for s in inside if isinstance(s, For)]
    spatial = [s for s in loops if s.var not in plan.reduced]
    for s in spatial:
        if s.extent.names & plan.reduced:
            raise refuse(f"the extent of loop {s.var} depends on what is reduced over")
    facts = p.inside(plan.path[: plan.top])
    for a in found:
        if a.write and a.buffer in own:
            unknown = [s.var for s in spatial if s.var not in agreed_loops(a, a, loops, facts)]
            if unknown:
                raise refuse(f"iterations of loop {unknown[0]} may update the same element")


def _partial_block(plan: _Plan, partial: Sequence[Buffer], names: Names) -> Block:
    block, update = plan.block, plan.update
    inner = {
        s.var: names.variable(f"{block.name}_v{s.var}")
        for s in plan.path
        if isinstance(s, For) and s.var in plan.reduced
    }
    extents = {s.var: s.extent for s in plan.path if isinstance(s, For)}
    own: dict[str, IntLike] = {loop: var(it) for loop, it in inner.items()}
    iters, bindings = [], []
    at: dict[str, IntLike] = {}
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "R":
            at[it.var] = binding.subs(own)
        else:
            iters.append(it)
            bindings.append(binding)
    for loop, name in inner.items():
        iters.append(Iter(name, extents[loop], "S" if loop == plan.loop.var else "R"))
        bindings.append(var(loop))
    values: list[Expr] = [subst(v, at) for v in update.values]
    # The init heeds no condition on loops that are still reduced over, so these may stay.
    rest = plan.reduced - {plan.loop.var}
    exists = [c for c in plan.conditions if int_names(c) & plan.reduced and not int_names(c) & rest]
    inside = conjoin([subst(c, own) for c in exists])
    if inside is not None:
        pairs = zip(values, update.identity, strict=True)
        values = [Select(inside, v, nothing) for v, nothing in pairs]
    lane = Index(var(inner[plan.loop.var]))
    pairs_of = zip(partial, update.places, strict=True)
    here = [BufferRef(b, (*place.indices, lane)) for b, place in pairs_of]
    fresh = {it.var: names.variable(f"{it.var}_rf") for it in block.iters if it.kind != "R"}
    made = Block(
        names.block(f"{block.name}_rf"),
        tuple(iters),
        tuple(bindings),
        update.at(here, values),
        update.start(here),
        conjoin([c for c in plan.conditions if c not in exists]),
        block.notes,
        block.spans,
    )
    return rename(made, fresh)


def _final_nest(plan: _Plan, partial: Sequence[Buffer], names: Names) -> tuple[Stmt, list[str]]:
    block, update = plan.block, plan.update
    spatial = [
        s for s in plan.path[plan.top : -1] if isinstance(s, For) and s.var not in plan.reduced
    ]
    moved = {s.var: names.variable(f"{s.var}_f") for s in spatial}
    lane = names.variable(f"{plan.loop.var}_f")
    it = names.variable(f"{block.name}_v{lane}")
    kept = [k for k, i in enumerate(block.iters) if i.kind != "R"]
    pairs = zip(partial, update.places, strict=True)
    new = [Load(b, (*place.indices, Index(var(it)))) for b, place in pairs]
    own: dict[str, IntLike] = {a: var(b) for a, b in moved.items()}
    where = [c for c in plan.conditions if not int_names(c) & plan.reduced]
    made = Block(
        block.name,
        (*(block.iters[k] for k in kept), Iter(it, plan.loop.extent, "R")),
        (*(block.bindings[k].subs(own) for k in kept), var(lane)),
        subst(update.at(update.places, new), own),
        None if block.init is None else subst(block.init, own),
        conjoin([subst(c, own) for c in where]),
        block.notes,
        block.spans,
    )
    loops: list[tuple[str, IntLike]] = [(moved[s.var], s.extent.subs(own)) for s in spatial]
    loops.append((lane, plan.loop.extent))
    return for_(loops, made), [name for name, _ in loops]
