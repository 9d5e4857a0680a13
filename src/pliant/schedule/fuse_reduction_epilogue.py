"""Compute what follows a reduction where the reduction ends: once for each element, after the last
update of it.


Any epilogue is right, linear or not. "after" takes the reduction's own data parallel loops again,
as they were split, merged and marked, and works where nothing is reduced (k = 0) too. "last" stays
in the one nest; it needs proof that each loop that is reduced over runs at least once.

Before:

    @loop
    def product(a: f32["n", 4], b: f32[4, "m"], y: f32["n", "m"], n: i64, m: i64):
        t = alloc(f32[n, m], scope="scratch")
        for i, r, j in grid(n, 4, m):
            with block("t", S(i, n), S(j, m), R(r, 4)) as (v, w, u):
                with init():
                    t[v, w] = 0.0
                t[v, w] = t[v, w] + a[v, u] * b[u, w]
        for c, d in grid(n, m):
            with block("y", S(c, n), S(d, m)) as (e, f):
                y[e, f] = max(t[e, f], 0.0)

Steps:

    p = p.fuse_reduction_epilogue('t', 'y')

After:

    t = alloc(f32[n, m], scope="scratch")
    for i in grid(n):
        for r, j in grid(4, m):
            with block("t", S(i, n), S(j, m), R(r, 4)) as (v, w, u):
                with init():
                    t[v, w] = 0.0
                t[v, w] = t[v, w] + a[v, u] * b[u, w]
        for j_e in grid(m):
            with block("y", S(i, n), S(j_e, m)) as (e, f):
                y[e, f] = max(t[e, f], 0.0)

Steps:

    p = p.fuse_reduction_epilogue('t', 'y', at='last')

After:

    t = alloc(f32[n, m], scope="scratch")
    for i, r, j in grid(n, 4, m):
        with block("t", S(i, n), S(j, m), R(r, 4)) as (v, w, u):
            with init():
                t[v, w] = 0.0
            t[v, w] = t[v, w] + a[v, u] * b[u, w]
        with block("y", S(i, n), S(j, m), where=3 <= r) as (e, f):
            y[e, f] = max(t[e, f], 0.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

from pliant.ir.expr import Binary, Expr, Index
from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import reduced_loops
from pliant.loop.regions import Access, accesses, bindings_of
from pliant.loop.rewrite import (
    conjoin,
    conjuncts,
    int_names,
    less,
    rename,
    replace_at,
    subst,
)
from pliant.loop.stmt import Alloc, Block, Buffer, For, Nop, Seq, Stmt, for_, seq
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.coverage import runs_through
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import (
    Flow,
    common_loops,
    is_leaf,
    only_domain,
    single_iterator,
    stores_everywhere,
    unconditional,
)
from pliant.schedule.nest import check_marked_loops
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import Int, IntLike, const, var


@primitive
def fuse_reduction_epilogue(
    p: Program, block: str, epilogue: str, *, at: Literal["after", "last"] = "after"
) -> Program:
    """Moves the block `epilogue` to where the reduction `block` ends. Makes its loops."""
    plan = check_fuse_reduction_epilogue(p, block, epilogue, at)
    q = p.with_body(replace_at(p.block_path("fuse_reduction_epilogue", epilogue), Nop()))
    names, kept = q.names(), dict(plan.places)
    names.variables.update(it.var for it in plan.epilogue.iters)
    loops: list[tuple[str, IntLike]] = []
    for it, old in zip(plan.epilogue.iters, plan.epilogue.bindings, strict=True):
        if it.var not in kept:
            label = str(old) if str(old).isidentifier() else f"{epilogue}_{it.var}"
            loops.append((names.variable(label), it.extent))
            kept[it.var] = var(loops[-1][0])
    made = plan.epilogue.replace(
        bindings=tuple(kept[it.var] for it in plan.epilogue.iters),
        where=conjoin(plan.conditions),
    )
    nest: Stmt = for_(loops, made)
    fresh: dict[str, str] = {}
    if at == "after":
        fresh = {s.var: names.variable(f"{s.var}_e") for s in plan.spatial}
        for s in reversed(plan.spatial):
            nest = s.replace(body=nest)
        nest = rename(nest, fresh)
    path = (
        q.block_path("fuse_reduction_epilogue", block)
        if at == "last"
        else q.loop_path("fuse_reduction_epilogue", plan.top.var)
    )
    new = [*fresh.values(), *(name for name, _ in loops)]
    q = p.with_body(replace_at(path, seq(path[-1], nest)), *map(LoopRef, new))
    around = q.loops(epilogue)
    if around:
        check_marked_loops(q, "fuse_reduction_epilogue", epilogue, around[-1])
    return q


@dataclass(frozen=True)
class _Plan:
    top: For  # the outermost loop that is reduced over
    spatial: tuple[For, ...]  # the other loops from there on
    epilogue: Block
    places: dict[str, Int]  # what the epilogue's iterators are, in terms of the reduction's loops
    conditions: list[Expr]


def check_fuse_reduction_epilogue(
    p: Program, block: str, epilogue: str, at: str = "after"
) -> _Plan:
    """The epilogue is data parallel, under no condition but its domain, and reads what the block
    reduces at distinct iterators, inside what is reduced. The loops run through all elements of
    that, each in one iteration of the loops around the reduction, and nothing else writes it from
    there on. What else the epilogue reads is there before the reduction; nothing between uses its
    result. From the outermost loop that is reduced over there are only loops, sequences and
    allocations down to the block. For "last", each loop that is reduced over runs at least once."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("fuse_reduction_epilogue", f"block {epilogue}", reason)

    if at not in ("after", "last"):
        raise refuse(f"there is no place {at!r}")
    path = p.block_path("fuse_reduction_epilogue", block)
    source = p.block_path("fuse_reduction_epilogue", epilogue)
    target, end, flow = path[-1], source[-1], Flow(p)
    assert isinstance(target, Block) and isinstance(end, Block)
    first = _outermost(path, target, refuse)
    top = path[first]
    assert isinstance(top, For)
    _check_epilogue(p, source, refuse)
    mine, under = flow.of_block(epilogue), flow.under(top.var)
    if mine[0].position < under[0].position or top in source:
        raise refuse(f"it does not come after loop {top.var}, over which block {block} reduces")
    outs, reads = ({a.buffer for a in mine if a.write is w} for w in (True, False))
    made = {a.buffer for a in under if a.write and a.block == block} & reads
    if not made:
        raise refuse(f"it reads nothing that block {block} reduces")
    if reads & outs:
        raise refuse("it reads what it writes")
    shared = common_loops(under[0].loops, mine[0].loops)
    apart = set[str]()  # loops around both in whose iterations the results are different memory
    for buffer in made:
        home = next(
            (k for k, s in enumerate(path) if isinstance(s, Alloc) and s.buffer is buffer), 0
        )
        apart |= {s.var for s in shared if s in path[:home]}
        _check_final(p, flow, buffer, path, home, first, refuse)
    to = path if at == "last" else path[: first + 1]
    why = flow.moved_up(epilogue, reads - made, outs, under[0], {x.var for x in shared}, to)
    why = why or flow.out_of_scope(made, to)
    if why:
        raise refuse(why)
    places, crop = _places(p, end, path, made, refuse)
    for it, binding in zip(end.iters, end.bindings, strict=True):
        around = binding.names & {x.var for x in shared}
        if it.var not in places and around:
            if not binding.names <= around:
                raise refuse(f"iterator {it.var} is of loop {min(around)} and of others")
            places[it.var] = binding
        elif binding.names & apart:
            raise refuse(f"it reads another part in each iteration of {min(binding.names & apart)}")
    loops = [s for s in path[first:-1] if isinstance(s, For)]
    reduced = reduced_loops(path)
    if not _runs_through(p, path, target, reduced, {x.var for x in shared}):
        raise refuse(f"the loops around block {block} do not run through all that it reduces")
    given = bindings_of(target)
    conditions = [subst(c, given) for c in conjuncts(target.where)]
    conditions = [c for c in conditions if int_names(c).isdisjoint(reduced)] + crop
    if at == "last":
        conditions += _last(p, path, first, reduced, refuse)
    spatial = tuple(s for s in loops if s.var not in reduced)
    return _Plan(top, spatial, end, places, conditions)


def _outermost(path: Sequence[Stmt], target: Block, refuse: Refuse) -> int:
    """Where in the path the outermost loop is that the block reduces over."""
    reduced = reduced_loops(path)
    first = next((k for k, s in enumerate(path) if isinstance(s, For) and s.var in reduced), None)
    if first is None:
        raise refuse(f"block {target.name} reduces over no loop")
    for it, binding in zip(target.iters, target.bindings, strict=True):
        if it.kind == "O" or (it.kind == "S" and binding.names & reduced):
            raise refuse(f"iterator {it.var} of block {target.name} is not reduced over it")
    for s in path[first:-1]:
        if not isinstance(s, For | Seq | Alloc):
            raise refuse(f"block {target.name} runs under a condition or inside a block")
        if isinstance(s, For) and s.var not in reduced and s.extent.names & reduced:
            raise refuse(f"the extent of loop {s.var} depends on what is reduced over")
    return first


def _check_epilogue(p: Program, source: tuple[Stmt, ...], refuse: Refuse) -> None:
    end = source[-1]
    assert isinstance(end, Block)
    if not is_leaf(end):
        raise refuse("it holds loops or blocks of its own")
    if end.init is not None or any(i.kind != "S" for i in end.iters):
        raise refuse("not all of its iterators are data parallel")
    if not unconditional(source[:-1]) or not only_domain(end, p.inside(source)):
        raise refuse("it runs under a condition")
    if int_names(end.body) - {i.var for i in end.iters} - p.sizes:
        raise refuse("it uses variables of the loops around it")
    if any(not i.extent.names <= p.sizes for i in end.iters):
        raise refuse("the extent of an iterator varies")


def _check_final(
    p: Program,
    flow: Flow,
    buffer: Buffer,
    path: tuple[Stmt, ...],
    home: int,
    first: int,
    refuse: Refuse,
) -> None:
    """Each element has its last value when the outermost loop that is reduced over, at `first` in
    the path, ends; the buffer lives from `home` on."""
    top, block = path[first], path[-1]
    assert isinstance(top, For) and isinstance(block, Block)
    outer, outside = [s for s in path[home:first] if isinstance(s, For)], p.inside(path[:home])

    def within(a: Access) -> Access:
        return replace(a, loops=tuple(x for x in a.loops if x not in path[:home]))

    uses = [within(a) for a in flow.all if a.buffer is buffer]
    begin = flow.under(top.var)[0].position
    for a in uses:
        if a.indices is None:
            raise refuse(f"a call takes the address of {buffer.name}")
        if a.write and a.block != block.name and (a.position > begin):
            raise refuse(f"{buffer.name} is written by block {a.block} as well")
    for w in uses:
        if not (w.write and w.block == block.name):
            continue
        for a in uses:
            common = common_loops(outer, a.loops)
            agreed = agreed_loops(w, a, common, outside)
            if not all(x.var in agreed for x in common):
                late = next(x.var for x in common if x.var not in agreed)
                raise refuse(f"an element of {buffer.name} may be used again in loop {late}")


def _places(
    p: Program, end: Block, path: tuple[Stmt, ...], made: set[Buffer], refuse: Refuse
) -> tuple[dict[str, Int], list[Expr]]:
    """What each iterator that indexes a result of the reduction is, in terms of its loops, and
    conditions that it be in its domain."""
    iters, target = {i.var: i.extent for i in end.iters}, path[-1]
    assert isinstance(target, Block)
    given, reduced, facts = bindings_of(target), reduced_loops(path), p.around(path)
    spatial = [c for c in conjuncts(target.where) if int_names(subst(c, given)).isdisjoint(reduced)]
    whole = target.replace(where=conjoin(spatial))
    places: dict[str, Int] = {}
    crop: list[Expr] = []
    for buffer in sorted(made, key=lambda b: b.name):
        if not stores_everywhere(whole, buffer, facts):
            raise refuse(f"block {target.name} does not write all of {buffer.name}")
    stores = {a.buffer: a for a in accesses(target) if a.write and a.buffer in made}
    for load in accesses(end.body, p.invoked):
        if load.write or load.buffer not in made:
            continue
        store, seen = stores[load.buffer], set[str]()
        for d, extent in enumerate(load.buffer.shape):
            found, here = single_iterator(load.index(d), iters), store.index(d)
            if found is None or here is None or (found[0] and found[0] in seen):
                raise refuse(f"it does not read {load.buffer.name} at distinct iterators")
            name, offset = found
            if not name:
                if not (facts.equal(extent, 1) and facts.equal(offset, 0)):
                    raise refuse(f"it does not read {load.buffer.name} at distinct iterators")
                continue
            seen.add(name)
            if not (facts.nonneg(offset) and facts.le(iters[name] + offset, extent)):
                raise refuse(f"it may read outside of {load.buffer.name}")
            at = here - offset
            if not facts.equal(places.setdefault(name, at), at):
                raise refuse(f"it reads results of different iterations at {name}")
            if not facts.equal(offset, 0):
                crop.append(less(const(-1), at))
            if not facts.equal(iters[name] + offset, extent):
                crop.append(less(at, iters[name]))
    return places, crop


def _runs_through(
    p: Program,
    path: tuple[Stmt, ...],
    target: Block,
    reduced: frozenset[str],
    shared: AbstractSet[str],
) -> bool:
    """Whether every element is reduced here, in whatever steps: one of the parts of a partitioned
    loop makes only a part, and so would an epilogue in it. Loops of both that the block is not
    bound to repeat it with the epilogue."""
    given = bindings_of(target)
    kept = [k for k, it in enumerate(target.iters) if it.kind == "S"]
    each = target.replace(
        iters=tuple(target.iters[k] for k in kept),
        bindings=tuple(target.bindings[k] for k in kept),
        where=conjoin(
            [c for c in conjuncts(target.where) if int_names(subst(c, given)).isdisjoint(reduced)]
        ),
    )
    bound = frozenset[str]().union(*(b.names for b in each.bindings))
    gone = reduced | (shared - bound)
    around = [s for s in path[:-1] if not (isinstance(s, For) and s.var in gone)]
    return runs_through(p, (*around, each), 0)


def _last(
    p: Program, path: tuple[Stmt, ...], first: int, reduced: frozenset[str], refuse: Refuse
) -> list[Expr]:
    """That every loop that is reduced over is in its last iteration."""
    conditions: list[Expr] = []
    for k, s in enumerate(path):
        if k < first or not isinstance(s, For) or s.var not in reduced:
            continue
        if not p.inside(path[:k]).positive(s.extent):
            raise refuse(f"loop {s.var} is not known to run: its extent {s.extent} may be 0")
        if s.extent != 1:
            conditions.append(Binary("le", Index(s.extent - 1), Index(var(s.var))))
    return conditions
