"""Fill first, then copy: a padded copy without a choice in it.


The fill is done in front of a loop, for all iterations of it. `loop_partition` then cuts the loop
of the copy where its condition changes.

Before:

    @loop
    def frame(x: f32["n"], t: f32["n + 2"], n: i64):
        for i in grid(n + 2):
            with block("t", S(i, n + 2)) as (a,):
                t[a] = select((0 <= a - 1) & (a - 1 < n), x[a - 1], 0.0)

Steps:

    p = p.decompose_padding('t', 'i')

After:

    for i_init in grid(n + 2):
        with block("t_init", S(i_init, n + 2)) as (a_init,):
            t[a_init] = 0.0
    for i in grid(n + 2):
        with block("t", S(i, n + 2), where=(0 <= i - 1) & (i - 1 < n)) as (a,):
            t[a] = x[a - 1]
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Expr, Select, Unary, loads_of
from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import CannotSeparateError, separate_init
from pliant.loop.regions import accesses, bindings_of
from pliant.loop.rewrite import conjoin, conjuncts, replace_at, subst
from pliant.loop.stmt import Block, For, Stmt, Store
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import BlockRef, Program, primitive


@primitive
def decompose_padding(p: Program, block: str, loop: str) -> Program:
    """Makes the block that fills, just before `loop`; `block` copies what is not padding."""
    plan = check_decompose_padding(p, block, loop)
    names, copy = p.names(), plan.block.replace(body=plan.copy, init=plan.fill)
    path = p.with_body(replace_at(plan.path, copy)).block_path("decompose_padding", block)
    try:
        q = p.with_body(separate_init(path, plan.at, names))
    except CannotSeparateError as error:
        raise SchedulingError("decompose_padding", f"block {block}", str(error)) from error
    (made,) = set(q.blocks) - set(p.blocks)
    inside = subst(plan.inside, bindings_of(plan.block))
    where = conjoin([*conjuncts(plan.block.where), *conjuncts(inside)])
    path = q.block_path("decompose_padding", block)
    return q.with_body(replace_at(path, path[-1].replace(where=where)), BlockRef(made))


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]
    at: int  # of the loop in the path
    block: Block
    inside: Expr  # where the copy is not padding
    copy: Store
    fill: Store


def check_decompose_padding(p: Program, block: str, loop: str) -> _Plan:
    """The block is one store of a choice, of which one side loads nothing; its iterators are data
    parallel. The loop is around it; nothing else in the loop uses what it writes, and iterations
    of the loop write different elements."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("decompose_padding", f"block {block}", reason)

    path = p.block_path("decompose_padding", block)
    target = path[-1]
    assert isinstance(target, Block)
    store = target.body
    if not isinstance(store, Store) or target.init is not None:
        raise refuse("it is more than one store")
    choice = store.value
    if not isinstance(choice, Select):
        raise refuse("its value is no choice")
    if any(i.kind != "S" for i in target.iters):
        raise refuse("not all of its iterators are data parallel")
    inside, value, rest = choice.cond, choice.a, choice.b
    if _loads(rest):
        inside, value, rest = Unary("not", inside), rest, value
    if _loads(rest):
        raise refuse("both sides of its choice load something: neither is padding")
    if _loads(inside):  # which other conditions of the block may have to allow
        raise refuse("its choice depends on data")
    at = next((k for k, s in enumerate(path) if isinstance(s, For) and s.var == loop), None)
    if at is None:
        raise refuse(f"loop {loop} is not around it")
    found = [a for a in accesses(path[at], p.invoked) if a.buffer is store.buffer]
    for a in found:
        if a.block != block or not a.write:
            other = f"block {a.block}" if a.block else "a statement"
            raise refuse(f"{other} in loop {loop} uses {a.buffer.name} too")
    loops, facts = [s for s in path[at:] if isinstance(s, For)], p.inside(path[:at])
    for a in found:
        agreed = agreed_loops(a, a, loops, facts)
        again = [x.var for x in loops if x.var not in agreed]
        if again:
            raise refuse(f"it may write an element of {a.buffer.name} again in loop {again[0]}")
    fill = store.replace(value=rest)
    return _Plan(path, at, target, inside, store.replace(value=value), fill)


def _loads(x: Expr) -> bool:
    return next(loads_of(x), None) is not None
