"""Give a block other iterators, and loops that follow them.

The new iterators are a layout of the old ones (`schedule.layout`): fused, in another order, of
extent 1. Unlike `fuse` and `reorder` it changes what the block itself is written in, so that
primitives that look at a block's iterators see the new ones.

Before:

    @loop
    def turn(x: f32["m", "n"], y: f32["n", "m"], n: i64, m: i64):
        for i, j in grid(n, m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[b, a]

Steps:

    p = p.transform_block('y', (sym('_0*m + _1'),))

After:

    for y_0 in grid(m*n):
        with block("y", S(y_0, m*n)) as (y_v0,):
            y[y_v0//m, y_v0%m] = x[y_v0%m, y_v0//m]
"""

from __future__ import annotations

from pliant.loop.dependence import agreed_loops
from pliant.loop.rewrite import conjoin, conjuncts, replace_at, subst
from pliant.loop.stmt import Block, For, Iter, Stmt, for_
from pliant.schedule.conflicts import conflicting_pairs, describe, strict_order
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import Layout, Packing, known_layout, packing
from pliant.schedule.nest import inner_accesses
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import Int, IntLike, var


@primitive
def transform_block(p: Program, block: str, layout: Layout) -> Program:
    """Makes the block's new loops, one for each entry of `layout`, outermost first. `_0`, `_1`, …
    in it are the block's iterators."""
    path, at, packed = check_transform_block(p, block, layout)
    target, names = path[-1], p.names()
    assert isinstance(target, Block)
    loops = [names.variable(f"{block}_{d}") for d in range(len(packed.shape))]
    iters = [names.variable(f"{block}_v{d}") for d in range(len(packed.shape))]
    old, outside = packed.back([var(i) for i in iters])
    moved: dict[str, IntLike] = {i.var: x for i, x in zip(target.iters, old, strict=True)}
    kinds = [_kind(target, x) for x in packed.forward]
    made = target.replace(
        iters=tuple(Iter(i, d, k) for i, d, k in zip(iters, packed.shape, kinds, strict=True)),
        bindings=tuple(map(var, loops)),
        body=subst(target.body, moved),
        init=None if target.init is None else subst(target.init, moved),
        where=conjoin([*(subst(c, moved) for c in conjuncts(target.where)), *outside]),
    )
    nest = for_(list(zip(loops, packed.shape, strict=True)), made)
    return p.with_body(replace_at(path[: at + 1], nest), *map(LoopRef, loops))


def check_transform_block(
    p: Program, block: str, layout: Layout
) -> tuple[tuple[Stmt, ...], int, Packing]:
    """The loops of the block are its iterators, each runs through the whole of one, and they hold
    nothing else; the layout has an inverse and does not mix what is reduced over with what is not;
    no two accesses to an element, one of them a store, may change order. Gives the block's path,
    where its loops begin in it, and the packing of its iterators."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("transform_block", f"block {block}", reason)

    path = p.block_path("transform_block", block)
    target = path[-1]
    assert isinstance(target, Block)
    at = len(path) - 1
    while at > 0 and isinstance(path[at - 1], For):
        at -= 1
    wanted = {str(b): i.extent for i, b in zip(target.iters, target.bindings, strict=True)}
    chain = [s for s in path[at:-1] if isinstance(s, For)]
    while chain and chain[0].var not in wanted:
        chain, at = chain[1:], at + 1
    if {s.var for s in chain} != set(wanted) or len(wanted) < len(target.iters):
        raise refuse("its loops are not just its iterators")
    facts = p.inside(path[:at])
    for loop in chain:
        if loop.kind != "serial":
            raise refuse(f"loop {loop.var} is {loop.kind}")
        if not facts.equal(loop.extent, wanted[loop.var]):
            raise refuse(f"loop {loop.var} does not run through all of its iterator")
    rank = len(target.iters)
    if not known_layout(layout, rank, p.sizes):
        raise refuse(f"the layout is not one of {rank} iterators")
    packed = packing(tuple(i.extent for i in target.iters), layout, facts)
    if packed is None:
        raise refuse("the layout has no inverse")
    for x in packed.forward:
        used = {i.kind for d, i in enumerate(target.iters) if f"_{d}" in x.names}
        if "O" in used or len(used) > 1:
            raise refuse(f"{x} mixes iterators of different kinds, or must run in order")
    if chain:
        names = {s.var for s in chain}
        for a, b in conflicting_pairs(inner_accesses(p, path[: at + 1]), strict_order(p)):
            if not names <= agreed_loops(a, b, chain, facts):
                raise refuse(describe(a, b) + " in another order")
    return path, at, packed


def _kind(block: Block, x: Int) -> str:
    used = [i.kind for d, i in enumerate(block.iters) if f"_{d}" in x.names]
    return used[0] if used else "S"
