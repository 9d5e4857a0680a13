"""Write a copy that is indexed by the block's iterators, as an index map says, and bring it to its
place afterwards.

Where `cache_write` arranges the elements of the buffer, this arranges what iterations write.

Before:

    @loop
    def odd(x: f32["n", "k"], y: f32["2*n", "k"], n: i64, k: i64):
        for i, j in grid(n, k):
            with block("y", S(i, n), S(j, k)) as (a, b):
                y[2*a + 1, b] = x[a, b]

Steps:

    p = p.reindex_cache_write('y', 'y', (sym('_1'), sym('_0')))

After:

    y_local = alloc(f32[k, n], scope="scratch")
    for i, j in grid(n, k):
        with block("y", S(i, n), S(j, k)) as (a, b):
            y_local[b, a] = x[a, b]
    for y_store_0, y_store_1 in grid(n, k):
        with block("y_store", S(y_store_0, n), S(y_store_1, k)) as (y_store_v0, y_store_v1):
            y[2*y_store_v0 + 1, y_store_v1] = y_local[y_store_v1, y_store_v0]
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Expr, Index, loads_of
from pliant.loop.rewrite import int_names, replace_at, replace_buffer, subst
from pliant.loop.stmt import Block, Buffer, Iter, Seq, Stmt, Store, seq, stored
from pliant.loop.stmt import buffer as make_buffer
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.copies import place_behind, store_nest, varies, with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, only_domain
from pliant.schedule.layout import Layout, Packing
from pliant.schedule.program import BlockRef, MemoryRef, Program, primitive
from pliant.schedule.set_scope import InnerScope
from pliant.schedule.staging import check_leaf, layout_of_iterators
from pliant.sym.expr import IntLike, var
from pliant.sym.index_map import IndexMap


@primitive
def reindex_cache_write(
    p: Program, block: str, buffer: str, index_map: Layout, scope: InnerScope = "scratch"
) -> Program:
    """Makes the copying block and the buffer that `block` writes instead. `index_map` tells the
    indices there as integers over `_0`, `_1`, …, the block's iterators."""
    plan = check_reindex_write(p, "reindex_cache_write", block, buffer, index_map)
    return written_apart(p, plan, f"{buffer}_local", scope)


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]  # to the block
    at: int  # of the statement in it that the copying nest comes after
    memory: Buffer
    place: tuple[Expr, ...]  # in it
    iters: tuple[Iter, ...]  # the copy's, before it is packed
    packed: Packing


def written_apart(p: Program, plan: _Plan, label: str, scope: InnerScope) -> Program:
    """The program in which the block writes a copy called `label`."""
    names, target, memory = p.names(), plan.path[-1], plan.memory
    local = make_buffer(names.buffer(label), plan.packed.shape, memory.dtype, scope=scope)
    here = plan.packed.place(tuple(Index(var(i.var)) for i in plan.iters))
    own: dict[str, IntLike] = {i.var: var(f"_{d}") for d, i in enumerate(plan.iters)}
    place = tuple(subst(x, own) for x in plan.place)

    copy = store_nest(names, f"{memory.name}_store", plan.packed, local, memory, place)
    writer = replace_at(plan.path[plan.at :], replace_buffer(target, memory, local, lambda _: here))
    body = with_alloc(replace_at(plan.path[: plan.at + 1], seq(writer, copy.nest)), local)
    return p.with_body(body, BlockRef(copy.block), MemoryRef(local.name))


def check_reindex_write(
    p: Program, primitive: str, block: str, buffer: str, index_map: Layout | None
) -> _Plan:
    """The block, under no condition but its domain, always writes the buffer, at one place, which
    is another one for all values of the data parallel iterators. What it reads of the buffer is
    there too, and written before. The layout has an inverse and mentions those iterators. No other
    use of the buffer is in a loop around. Without `index_map` the copy's indices are the
    iterators in the access."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError(primitive, f"block {block}", reason)

    path, memory, flow = p.block_path(primitive, block), p.buffer(buffer), Flow(p)
    target = path[-1]
    assert isinstance(target, Block)
    check_leaf(target, path, refuse)
    if not only_domain(target, p.around(path)):
        raise refuse("it runs under a condition")
    if any(a.indices is None for a in flow.all if a.buffer is memory):
        raise refuse(f"a call takes the address of {buffer}")
    place = _only_place(target, memory, refuse)
    iters, packed = layout_of_iterators(p, target, frozenset(_names(place)), index_map, refuse)
    strange = frozenset(_names(place)) - {i.var for i in iters} - p.sizes
    if strange:
        raise refuse(f"where it writes {buffer} depends on {', '.join(sorted(strange))}")
    for i in target.iters:
        if i.kind == "S" and i not in iters and i.extent != 1:
            raise refuse(f"it writes the same element of {buffer} for all {i.var}")
        if i.kind != "S" and (i in iters or i.kind == "O"):
            raise refuse(f"iterator {i.var} is not data parallel")
    where = tuple(x.int_ for x in place if isinstance(x, Index))
    names, extents = tuple(i.var for i in iters), tuple(i.extent for i in iters)
    if not IndexMap(names, extents, where).is_injective(p.facts):
        raise refuse(f"it may write an element of {buffer} twice")
    _check_start(target, memory, refuse)
    if varies(extents, p):
        raise refuse("how many iterations it has varies")
    at = place_behind(p, path, memory, [block], refuse)
    return _Plan(path, at, memory, place, iters, packed)


def _only_place(target: Block, memory: Buffer, refuse: Refuse) -> tuple[Expr, ...]:
    roots = [target.body, *([target.init] if target.init is not None else [])]
    stores = [x for root in roots for x in stored(root) if x.buffer is memory]
    loads = [x for root in roots for x in loads_of(root) if x.source is memory]
    places = dict.fromkeys([*(x.indices for x in stores), *(x.indices for x in loads)])
    if not stores:
        raise refuse(f"it does not write {memory.name}")
    if len(places) != 1:
        raise refuse(f"it uses {memory.name} at {len(places)} places, not one")
    (place,) = places
    if not all(isinstance(x, Index) for x in place):
        raise refuse(f"where it writes {memory.name} depends on data")
    return place


def _check_start(target: Block, memory: Buffer, refuse: Refuse) -> None:
    """The first thing that happens to every place is a store to it."""
    first = target.body if target.init is None else target.init
    parts = first.stmts if isinstance(first, Seq) else (first,)
    start = next((s for s in parts if isinstance(s, Store) and s.buffer is memory), None)
    before = parts if start is None else (start.value, *parts[: parts.index(start)])
    read = [x.source for root in before for x in loads_of(root)]
    read += [x.buffer for s in before if isinstance(s, Stmt) for x in stored(s)]  # reducers do
    if memory in read:
        raise refuse(f"it reads what was in {memory.name} before")
    if start is None:
        raise refuse(f"it does not always write {memory.name}")
    if target.init is None and any(i.kind == "R" for i in target.iters):
        raise refuse("it has iterators that it reduces over, but no start")


def _names(place: tuple[Expr, ...]) -> set[str]:
    return set().union(*(int_names(x) for x in place))
