"""Reduce along a loop last: partial results for each of its iterations first.

    for i, o, l in grid(n, k//8, 8):          for i, o, l in grid(n, k//8, 8):
        y[i] = y[i] + x[i, 8*o + l]      ->       y_rf[i, l] = y_rf[i, l] + x[i, 8*o + l]
                                              for i', l' in grid(n, 8):
                                                  y[i'] = y[i'] + y_rf[i', l']

The loop is then one over data parallel iterators, so it can be vectorized or parallel.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Expr, Index, Load, Select
from pliant.loop.lower_init import reduction_loops
from pliant.loop.reduction import Update, as_update, combine
from pliant.loop.regions import accesses
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
from pliant.loop.stmt import Alloc, Block, Buffer, For, Iter, Stmt, Store, buffer, for_, seq
from pliant.schedule.conflicts import strict_order
from pliant.schedule.copies import with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import blocks_in
from pliant.schedule.program import BlockRef, LoopRef, MemoryRef, Program, primitive
from pliant.sym.expr import IntLike, var


@primitive
def rfactor(p: Program, loop: str) -> Program:
    """Makes the block of partial results, the buffer that holds them (the loop is its last
    dimension), and the loop of the final reduction, whose block keeps the old block's name."""
    plan = check_rfactor(p, loop)
    names, update = p.names(), plan.update
    partial = buffer(
        names.buffer(f"{update.buffer.name}_rf"),
        (*update.buffer.shape, plan.loop.extent),
        update.buffer.dtype,
        scope="scratch",
    )
    first = _partial_block(plan, partial, names)
    nest = replace_at(plan.path[plan.top :], first)
    last, loops = _final_nest(plan, partial, names)
    body = replace_at(plan.path[: plan.top + 1], seq(nest, last))
    home = path_to(body, lambda s: isinstance(s, Alloc) and s.buffer is update.buffer)
    if home is None:
        body = with_alloc(body, partial)
    else:
        owner = home[-1]
        assert isinstance(owner, Alloc)
        body = replace_at(home, owner.replace(body=Alloc(partial, owner.body)))
    return p.with_body(body, BlockRef(first.name), MemoryRef(partial.name), LoopRef(loops[-1]))


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]
    top: int  # of the outermost loop that is reduced over
    loop: For
    block: Block
    update: Update
    reduced: frozenset[str]  # loops


def check_rfactor(p: Program, loop: str) -> _Plan:
    """One reduction by a known combiner is all that is under the outermost of its reduction
    loops; the loop is one of them; order need not be kept."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("rfactor", f"loop {loop}", reason)

    target = p.loop_path("rfactor", loop)[-1]
    assert isinstance(target, For)
    blocks = blocks_in(target)
    if len(blocks) != 1:
        raise refuse("there is not just one block in it")
    path = p.block_path("rfactor", blocks[0].name)
    block = path[-1]
    assert isinstance(block, Block)
    around = [s.var for s in path if isinstance(s, For)]
    reduced = reduction_loops(block) & set(around)
    if loop not in reduced:
        raise refuse(f"block {block.name} does not reduce over it")
    update = as_update(block)
    if update is None:
        raise refuse(f"block {block.name} is no update by a known combiner")
    if strict_order(p) and update.combiner in ("sum", "prod"):
        raise refuse("the numerics are strict: the order of the reduction must be kept")
    top = next(k for k, s in enumerate(path) if isinstance(s, For) and s.var in reduced)
    if not all(isinstance(s, For) for s in path[top:-1]):
        raise refuse(f"block {block.name} is not all that is in loop {around[0]}")
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "O" or (it.kind == "S" and binding.names & reduced):
            raise refuse(f"iterator {it.var} of block {block.name} is not reduced over it")
    if not target.extent.names <= p.sizes:
        raise refuse(f"its extent {target.extent} varies")
    for cond in conjuncts(block.where):
        names = int_names(cond) & set(around)
        if names & reduced and not names <= reduced:
            raise refuse("a condition depends on reduced and other loops together")
    if any(a.buffer is update.buffer and a.block != block.name for a in accesses(path[top])):
        raise refuse(f"other statements in it use {update.buffer.name}")
    return _Plan(path, top, target, block, update, reduced)


def _partial_block(plan: _Plan, partial: Buffer, names: Names) -> Block:
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
    value: Expr = subst(update.value, at)
    conditions = conjuncts(block.where)
    # The init heeds no condition on loops that are still reduced over, so these may stay.
    rest = plan.reduced - {plan.loop.var}
    exists = [c for c in conditions if int_names(c) & plan.reduced and not int_names(c) & rest]
    inside = conjoin([subst(c, own) for c in exists])
    if inside is not None:
        value = Select(inside, value, update.identity)
    here = (*update.indices, Index(var(inner[plan.loop.var])))
    fresh = {it.var: names.variable(f"{it.var}_rf") for it in block.iters if it.kind != "R"}
    made = Block(
        names.block(f"{block.name}_rf"),
        tuple(iters),
        tuple(bindings),
        Store(partial, here, combine(update.combiner, Load(partial, here), value)),
        Store(partial, here, update.identity),
        conjoin([c for c in conditions if c not in exists]),
        block.notes,
        block.spans,
    )
    return rename(made, fresh)


def _final_nest(plan: _Plan, partial: Buffer, names: Names) -> tuple[Stmt, list[str]]:
    block, update = plan.block, plan.update
    spatial = [
        s for s in plan.path[plan.top : -1] if isinstance(s, For) and s.var not in plan.reduced
    ]
    moved = {s.var: names.variable(f"{s.var}_f") for s in spatial}
    lane = names.variable(f"{plan.loop.var}_f")
    it = names.variable(f"{block.name}_v{lane}")
    kept = [k for k, i in enumerate(block.iters) if i.kind != "R"]
    old = Load(update.buffer, update.indices)
    new = Load(partial, (*update.indices, Index(var(it))))
    own: dict[str, IntLike] = {a: var(b) for a, b in moved.items()}
    where = [c for c in conjuncts(block.where) if not int_names(c) & plan.reduced]
    made = Block(
        block.name,
        (*(block.iters[k] for k in kept), Iter(it, plan.loop.extent, "R")),
        (*(block.bindings[k].subs(own) for k in kept), var(lane)),
        Store(update.buffer, update.indices, combine(update.combiner, old, new)),
        block.init,
        conjoin([subst(c, own) for c in where]),
        block.notes,
        block.spans,
    )
    loops: list[tuple[str, IntLike]] = [(moved[s.var], s.extent.subs(own)) for s in spatial]
    loops.append((lane, plan.loop.extent))
    return for_(loops, made), [name for name, _ in loops]
