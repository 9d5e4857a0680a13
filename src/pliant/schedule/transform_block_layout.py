"""Give a block other iterators, and loops that follow them.

The new iterators are an index map of the old ones, written as a layout (`schedule.layout`): fused,
split, in another order, of extent 1. Unlike `fuse`, `split` and `reorder` it changes what the block
itself is written in, so that primitives that look at a block's iterators see the new ones. Where a
split leaves a rest, the block has a condition. The loops are made anew: what the old ones had been
split or fused to is forgotten.

Before:

    @loop
    def turn(x: f32["m", "n"], y: f32["n", "m"], n: i64, m: i64):
        for i, j in grid(n, m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[b, a]

Steps:

    p = p.transform_block_layout('y', (sym('_0*m + _1'),))

After:

    for y_0 in grid(m*n):
        with block("y", S(y_0, m*n)) as (y_v0,):
            y[y_v0//m, y_v0%m] = x[y_v0%m, y_v0//m]

Before:

    @loop
    def copy(x: f32["n"], y: f32["n"], n: i64):
        for i in grid(n):
            with block("y", S(i, n)) as (a,):
                y[a] = x[a]

Steps:

    p = p.transform_block_layout('y', (sym('_0//4'), sym('_0%4')))

After:

    for y_0, y_1 in grid((n + 3)//4, 4):
        with block("y", S(y_0, (n + 3)//4), S(y_1, 4), where=4*y_0 + y_1 < n) as (y_v0, y_v1):
            y[4*y_v0 + y_v1] = x[4*y_v0 + y_v1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pliant.ir.expr import Expr, Index
from pliant.ir.node import transform
from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import reduction_loops
from pliant.loop.rewrite import Names, conjoin, conjuncts, int_names, less, replace_at, subst
from pliant.loop.stmt import Block, For, Iter, Stmt, for_
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.conflicts import conflicting_pairs, describe, reduced_in_order
from pliant.schedule.coverage import iteration_map
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import is_domain
from pliant.schedule.layout import Layout, Packing, known_layout, packing
from pliant.schedule.nest import inner_accesses
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.atoms import VarAtom
from pliant.sym.expr import Int, IntLike, var
from pliant.sym.facts import Facts


@primitive
def transform_block_layout(p: Program, block: str, index_map: Layout) -> Program:
    """Makes the block's new loops, one for each entry of `index_map`, outermost first. `_0`, `_1`,
    … in it are the block's iterators."""
    plan = check_transform_block_layout(p, block, index_map)
    made, loops, outside = plan.transformed(p.names())
    made = made.replace(where=conjoin([*conjuncts(made.where), *outside]))
    nest = for_(list(zip(loops, plan.packed.shape, strict=True)), made)
    return p.with_body(replace_at(plan.path[: plan.at + 1], nest), *map(LoopRef, loops))


@dataclass(frozen=True)
class BlockLayout:
    """A block that can be given other iterators."""

    path: tuple[Stmt, ...]  # to the block
    at: int  # where its loops begin in it
    packed: Packing  # of its iterators
    where: tuple[Expr, ...]  # what it still needs for a condition

    def transformed(self, names: Names) -> tuple[Block, list[str], list[Expr]]:
        """The block with its new iterators, its new loops' names, and what must hold of them for
        the old iterators to be in their domains."""
        target = self.path[-1]
        assert isinstance(target, Block)
        loops = [names.variable(f"{target.name}_{d}") for d in range(len(self.packed.shape))]
        iters = [names.variable(f"{target.name}_v{d}") for d in range(len(self.packed.shape))]
        old, _ = self.packed.back([var(i) for i in iters])
        around, outside = self.packed.back([var(x) for x in loops])
        if target.init is not None:
            # An iterator of at most one value is in its domain, or else its loop does not run: a
            # condition that says so of what is reduced over is none on the start.
            pairs = zip(target.iters, around, strict=True)
            reduced = {less(x, i.extent) for i, x in pairs if i.kind == "R"}
            outside = [c for c in outside if c not in reduced or int_names(c) & set(loops)]
        moved: dict[str, IntLike] = {i.var: x for i, x in zip(target.iters, old, strict=True)}
        for new, x in zip(iters, self.packed.forward, strict=True):  # also what runs once
            moved |= {i.var: var(new) for d, i in enumerate(target.iters) if x is var(f"_{d}")}
        there: dict[str, IntLike] = {}
        for i, b, x in zip(target.iters, target.bindings, around, strict=True):
            there |= {i.var: x, str(b): x}
        kinds = [_kind(target, x) for x in self.packed.forward]
        parts = zip(iters, self.packed.shape, kinds, strict=True)
        made = target.replace(
            iters=tuple(Iter(i, d, k) for i, d, k in parts),
            bindings=tuple(map(var, loops)),
            body=self._simple(subst(target.body, moved), iters),
            init=None if target.init is None else self._simple(subst(target.init, moved), iters),
            where=conjoin([subst(c, there) for c in self.where]),
        )
        return made, loops, outside

    def _simple(self, root: Stmt, iters: Sequence[str]) -> Stmt:
        """Indices as simple as the iterators' domains allow: (3*g + j)//3 is g where j < 3. What
        runs over whole tiles later on must not seem to depend on the padding. An iterator that runs
        once is not replaced by 0, since such a tile may become larger."""
        facts = self.packed.facts.copy()
        for name, extent in zip(iters, self.packed.shape, strict=True):
            if extent != 1:
                facts.declare_index(name, extent)

        def visit(node: Any) -> Any:
            return Index(facts.simplify(node.int_)) if isinstance(node, Index) else node

        return transform(root, visit)  # type: ignore[no-any-return]


def check_transform_block_layout(p: Program, block: str, index_map: Layout) -> BlockLayout:
    """The loops of the block run through all of its iterators' domains, each place once, and hold
    nothing else; their extents do not depend on one another. A reduction does not start outside.
    The map has an inverse and does not mix what is reduced over with what is not. No two accesses
    to an element, one of them a store, change order."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("transform_block_layout", f"block {block}", reason)

    path = p.block_path("transform_block_layout", block)
    target = path[-1]
    assert isinstance(target, Block)
    at = len(path) - 1
    while at > 0 and isinstance(path[at - 1], For):
        at -= 1
    used = frozenset[str]().union(*(b.names for b in target.bindings))
    chain = [s for s in path[at:-1] if isinstance(s, For)]
    while chain and chain[0].var not in used:
        chain, at = chain[1:], at + 1
    started = reduction_loops(target) if target.init is not None else frozenset()
    for k, s in enumerate(path[:at]):
        # The start would go with the new loops, into what may not run at all.
        if isinstance(s, For) and s.var in started and not p.inside(path[:k]).positive(s.extent):
            raise refuse(f"it starts in front of loop {s.var}, in which there is more")
    facts = p.inside(path[:at])
    _check_chain(target, chain, facts, refuse)
    own = int_names(target.body) | (frozenset() if target.init is None else int_names(target.init))
    loose = own & {s.var for s in chain}
    if loose:
        raise refuse(f"it uses loop {min(loose)} itself, not by an iterator")
    rank = len(target.iters)
    if not known_layout(index_map, rank, p.sizes):
        raise refuse(f"the layout is not one of {rank} iterators")
    packed = packing(tuple(i.extent for i in target.iters), index_map, facts)
    if packed is None:
        raise refuse("the layout has no inverse")
    for x in packed.forward:
        kinds = {i.kind for d, i in enumerate(target.iters) if f"_{d}" in x.names}
        if len(kinds) > 1 or ("O" in kinds and not _is_var(x)):
            raise refuse(f"{x} mixes iterators of different kinds, or must run in order")
    if chain:
        alone = _alone(target, packed.forward)
        for a, b in conflicting_pairs(inner_accesses(p, path[: at + 1]), reduced_in_order(p)):
            agreed = agreed_loops(a, b, chain, facts)
            rest = [alone.get(s.var, -1) for s in chain if s.var not in agreed]
            if -1 in rest or rest != sorted(rest):
                raise refuse(describe(a, b) + " in another order")
    where = _conditions(target, chain, p.around(path), refuse)
    return BlockLayout(path, at, packed, tuple(where))


def _check_chain(target: Block, chain: Sequence[For], facts: Facts, refuse: Refuse) -> None:
    names = {s.var for s in chain}
    for loop in chain:
        if loop.kind != "serial":
            raise refuse(f"loop {loop.var} is {loop.kind}")
        if not loop.extent.names.isdisjoint(names):
            raise refuse(f"the extent {loop.extent} of loop {loop.var} depends on another")
    bound, domain = iteration_map(target, {s.var: s.extent for s in chain}, facts)
    if not bound.is_injective(facts):
        raise refuse("its loops are not just its iterators")
    if not bound.covers(domain, facts):
        raise refuse("its loops do not run through all of its iterators")


def _alone(target: Block, forward: Sequence[Int]) -> dict[str, int]:
    """Loops that an iterator is bound to which stays one: where it stands among the new ones."""
    found = {}
    for d, binding in enumerate(target.bindings):
        if _is_var(binding) and var(f"_{d}") in forward:
            found[str(binding)] = forward.index(var(f"_{d}"))
    return found


def _conditions(target: Block, chain: Sequence[For], facts: Facts, refuse: Refuse) -> list[Expr]:
    """The block's conditions but for its iterators' domains, which the new loops are as long as."""
    alone = {str(b): i for i, b in zip(target.iters, target.bindings, strict=True)}
    kinds = {i.var: i.kind for i in target.iters} | {v: i.kind for v, i in alone.items()}
    kept = [c for c in conjuncts(target.where) if not is_domain(c, target, facts)]
    for c in kept:
        loose = int_names(c) & {s.var for s in chain} - alone.keys()
        if loose:
            raise refuse(f"a condition depends on loop {min(loose)}, which is no iterator")
        reduced = {v for v in int_names(c) if kinds.get(v) == "R"}
        if target.init is not None and reduced:
            raise refuse(f"a condition depends on {min(reduced)}, which it reduces over")
    return kept


def _is_var(x: Int) -> bool:
    return isinstance(x.sole_atom, VarAtom)


def _kind(block: Block, x: Int) -> str:
    used = [i.kind for d, i in enumerate(block.iters) if f"_{d}" in x.names]
    return used[0] if used else "S"
