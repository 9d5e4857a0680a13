"""A block brought to an intrinsic whose operands may be registers: sums in the lanes of vectors.

    for i in grid(N):                  for block of rows, block of columns:
        for j in grid(M):                  s[4, 16] = 0                          in registers
            for r in grid(3):              for r in unrolled(3):
                y[i, j] += x[i + r, j]  ->     for i in unrolled(4):
                           * w[r, j]               multiply_add(x[i + r, …], w[r, …], s[i, …])
                                           y = s

An operand that does not lie as the intrinsic wants it, or is there only where a condition holds,
is read into a vector first. The loops over blocks run in parts: those in the middle, where all
conditions hold, have none of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pliant.ir.einsum import Einsum
from pliant.ir.expr import Index, Select, loads_of
from pliant.ir.mapping import IteratorMap
from pliant.ir.node import walk
from pliant.loop.lower_init import reduction_loops
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import int_names, subst
from pliant.loop.stmt import Store, offset_of, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.loop_partition import inner_part
from pliant.schedule.nest import blocks_in, step_along
from pliant.schedule.program import LoopRef, Program
from pliant.sym.expr import Int, var

TILE: Final = 4  # vectors of sums at once: enough not to wait for one another
WIDE: Final = 2  # times as many, where nothing more has to be kept
UNROLLED: Final = 8  # iterations of a sum that are worth unrolling


@dataclass(frozen=True)
class _Plan:
    """Iterators of the block: that along which vectors lie, another one of which several are taken
    at once ("" for none), and the one by which a window slides along that; how many of each."""

    intrinsic: str
    lane: str
    tiled: str
    slid: str
    lanes: int
    vectors: int
    height: int


def in_lanes(
    p: Program, block: str, intrinsic: str, m: IteratorMap, form: Einsum, written: Sequence[str]
) -> Program:
    """The program with the block run by the intrinsic of this `form` in this way; `written` says
    which iterator each dimension of its output is. Raises SchedulingError."""
    plan = _planned(p, block, intrinsic, m, form)
    p = p.cache_write(block)
    store, sums = map(str, p.made)
    p, store = _stored_once(p, store)
    loops = _loops_by_iterator(p, store, sums, written)
    if plan.lane not in loops:
        raise _refusal(block, f"what it writes is not stored along {plan.lane}")
    p, outer = _tiles(p, store, loops, plan)
    p = p.compute_at(block, outer[-1])
    order = _window_first(p, block, plan, len(outer))
    p = p.reorder(*order).decompose_reduction(block, order[0]).shrink_buffer(sums)
    start = blocks_in(p.loop(outer[-1]))[0].name
    for name in (start, block, store):
        p = _lanes_apart(p, name, plan)
    p = _operands_apart(p, block, plan)
    if p.block(block).where is not None:
        p = p.pad_block(block, start)
    p, parts = _parts(p, outer)
    for part in parts:
        p = _in_registers(p, part, plan, len(outer))
    return p


def _refusal(block: str, reason: str) -> SchedulingError:
    return SchedulingError("auto_tensorize", f"block {block}", reason)


# ---- which iterators


def _planned(p: Program, block: str, intrinsic: str, m: IteratorMap, form: Einsum) -> _Plan:
    target = p.block(block)
    extents = {i.var: i.extent for i in target.iters}
    axis, *more = form.extents.values()
    if more or not axis.extent.is_const:
        raise _refusal(block, f"{intrinsic} is not of lanes alone")
    group = [v for v in m.groups[axis.var] if extents[v] != 1]
    if len(group) != 1:
        raise _refusal(block, f"{len(group)} iterators would be the lanes of a vector")
    (lane,), lanes = group, axis.extent.value
    store = next(s for s in statements(target.body) if isinstance(s, Store))
    if step_along(offset_of(store.buffer, store.indices), lane) != 1:
        raise _refusal(block, f"what it writes does not lie element after element along {lane}")
    reduced = {i.var for i in target.iters if i.kind == "R" and i.extent != 1}
    windows = list(_windows(m, reduced))
    tiled, slid = _tiled(m, lane, windows)
    slides = any(v == lane for v, _ in windows)
    vectors = TILE if not tiled else 1 if slides else WIDE
    if extents[lane].is_const:
        vectors = min(vectors, max(1, -(-extents[lane].value // lanes)))
    height = _height(extents[tiled], TILE * WIDE // vectors) if tiled else 1
    return _Plan(intrinsic, lane, tiled, slid, lanes, vectors, height)


def _windows(m: IteratorMap, reduced: set[str]) -> Iterator[tuple[str, str]]:
    """Which iterators of the output a window slides along, and by which of the sum's."""
    for o in m.operands:
        for index in o.load.indices:
            names = int_names(index)
            for v in m.outer:
                if v in names:
                    yield from ((v, r) for r in sorted(names & reduced))


def _tiled(m: IteratorMap, lane: str, windows: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The iterator along which several vectors are made at once: what these have in common of the
    operands is loaded once. The innermost with a window, or else that all share an operand of."""
    slid = dict(windows)
    others = [v for v in reversed(m.outer) if v != lane]
    for v in others:
        if v in slid:
            return v, slid[v]
    for v in others:
        if any(v not in int_names(o.value) for o in m.operands):
            return v, ""
    return "", ""


def _height(extent: Int, most: int) -> int:
    """Of a tile: what leaves no rest, where that is known."""
    if not extent.is_const:
        return TILE
    whole = [n for n in range(TILE, most + 1) if extent.value % n == 0]
    return max(whole, default=min(TILE, max(extent.value, 1)))


# ---- tiles


def _stored_once(p: Program, store: str) -> tuple[Program, str]:
    """What the store writes may be read by one block, which makes a parameter of it: then that is
    the store."""
    (place,) = (s for s in statements(p.block(store).body) if isinstance(s, Store))
    if place.buffer in p.function.buffers:
        return p, store
    readers = [b for b in p.blocks if any(x.source is place.buffer for x in loads_of(p.block(b)))]
    if len(readers) != 1:
        return p, store
    return p.compute_inline(store), str(readers[0])


def _loops_by_iterator(
    p: Program, store: str, sums: str, written: Sequence[str]
) -> dict[str, LoopRef]:
    """The loops of the store that run as an iterator of the block, by that."""
    block, loops = p.block(store), p.loops(store)
    (place,) = (s for s in statements(block.body) if isinstance(s, Store))
    (load,) = {x for x in loads_of(place.value) if x.source.name == sums}
    at = [subst(i, bindings_of(block)) for i in load.indices]
    names = [str(i.int_) if isinstance(i, Index) else "" for i in at]
    return {v: LoopRef(x) for v, x in zip(written, names, strict=True) if x in loops}


def _tiles(
    p: Program, store: str, loops: Mapping[str, LoopRef], plan: _Plan
) -> tuple[Program, list[LoopRef]]:
    """The store's loops over tiles, and in these. Gives the former."""
    taken, outer, inner = [], list[LoopRef](), list[LoopRef]()
    sizes = {plan.tiled: plan.height, plan.lane: plan.vectors * plan.lanes}
    for v, size in sizes.items():
        if v in loops:
            p = p.split(loops[v], size)
            over, inside = map(LoopRef, p.made)
            taken.append(over)
            inner.append(inside)
    outer = [x for x in p.loops(store) if x not in (*taken, *inner)]
    return p.reorder(*outer, *taken, *inner), [*outer, *taken]


def _window_first(p: Program, block: str, plan: _Plan, depth: int) -> list[LoopRef]:
    """The block's own loops, of which there are `depth` around: those of the sum, the one that
    slides innermost, then those of the tile."""
    target, own = p.block(block), p.loops(block)[depth:]
    bound = {i.var: b.names for i, b in zip(target.iters, target.bindings, strict=True)}
    kinds = {i.var: i.kind for i in target.iters}

    def place(loop: LoopRef) -> int:
        runs = [v for v, names in bound.items() if loop in names]
        if any(kinds[v] == "R" for v in runs):
            return 1 if plan.slid in runs else 0
        return 4 if plan.lane in runs else 3 if plan.tiled in runs else 2

    return sorted(own, key=place)


def _parts(p: Program, outer: Sequence[LoopRef]) -> tuple[Program, list[LoopRef]]:
    """The loops over tiles in parts: in the middle no conditions are left. Gives a loop for each
    part, around it alone."""
    edges, middle = list[LoopRef](), outer[-1]
    for depth in range(len(outer)):
        middle = p.loops(blocks_in(p.loop(middle))[0].name)[depth] if depth else outer[0]
        first, end = inner_part(p, middle)
        if first == end:
            return p, [*edges, middle]
        points = [x for x in (first, end) if x not in (0, p.loop(middle).extent)]
        if points:
            p = p.loop_partition(middle, *points)
            parts = [middle, *map(LoopRef, p.made)]
            middle = parts.pop(int(first in points))
            edges += parts
    return p, [*edges, middle]


# ---- vectors


def _lanes_apart(p: Program, name: str, plan: _Plan) -> Program:
    """The last loop in vectors."""
    lane = p.loops(name)[-1]
    return p if p.loop(lane).extent == plan.lanes else p.split(lane, plan.lanes)


def _in_registers(p: Program, part: str, plan: _Plan, depth: int) -> Program:
    """The blocks in a part, `depth` loops within the program: the start of a tile of sums, copies
    of operands, what is added to the sums, and their store."""
    blocks = blocks_in(p.loop(part))
    (update,) = (b for b in blocks if any(i.kind == "R" for i in b.iters))
    window = [x for x in p.loops(update.name) if x in reduction_loops(update)]
    unrolled: dict[LoopRef, None] = {}
    for block in blocks:
        *own, lane = p.loops(block.name)[depth:]
        unrolled |= dict.fromkeys(x for x in own if x not in window[:-1])
        if block is update:
            p = p.tensorize(lane, plan.intrinsic)
        elif p.loop(lane).body is block:
            p = p.vectorize(lane)
    for loop in unrolled:
        extent = p.loop(loop).extent
        if extent.is_const and extent.value <= UNROLLED:
            p = p.unroll(loop)
    return p


def _operands_apart(p: Program, update: str, plan: _Plan) -> Program:
    """Each operand that cannot be read as it lies is copied into a vector."""
    block, lane = p.block(update), p.loops(update)[-1]
    (place,) = (s for s in statements(block.body) if isinstance(s, Store))
    value, at = place.value, bindings_of(block)
    limits = frozenset[str]() if block.where is None else int_names(block.where)
    given = {x.a: int_names(x.cond) for x in walk(value) if isinstance(x, Select)}
    for load in [x for x in loads_of(value) if x.source is not place.buffer]:
        here = subst(load, at)
        missing = load in given or not limits.isdisjoint(int_names(here))
        if missing or step_along(offset_of(load.source, here.indices), lane) not in (0, 1):
            filled = plan.lane in given.get(load, frozenset())
            p = _in_vector(p, update, load.source.name, plan, filled=filled)
    return p


def _in_vector(p: Program, update: str, source: str, plan: _Plan, *, filled: bool) -> Program:
    """An operand copied into a vector, which has zeros for lanes that are not there; `filled`: it
    is a choice which has such already."""
    depth = len(p.loops(update)) - 1
    p = p.reindex(update, source)
    copy, vector = map(str, p.made[:2])
    if not filled:
        d = _dimension(p, update, vector, plan.lane)
        if d is not None and not p.facts.divisible(p.buffer(vector).shape[d], plan.lanes):
            at = [var(f"_{k}") for k in range(p.buffer(vector).rank)]
            at[d : d + 1] = [at[d] // plan.lanes, at[d] % plan.lanes]
            p = p.transform_layout(vector, tuple(at), 0)
    p = p.compute_at(copy, p.loops(update)[-2]).shrink_buffer(vector)
    inside = p.loops(copy)[depth:]
    if filled and inside and p.loop(inside[-1]).extent != plan.lanes:
        p = p.split(inside[-1], plan.lanes)
    if p.block(copy).where is not None:
        with suppress(SchedulingError):  # the copy is of what is there
            p = p.pad_block(copy)
    return p


def _dimension(p: Program, block: str, buffer: str, iterator: str) -> int | None:
    """The dimension of a buffer that a block reads at an iterator."""
    for load in loads_of(p.block(block).body):
        if load.source.name == buffer:
            names = [str(i.int_) if isinstance(i, Index) else "" for i in load.indices]
            return names.index(iterator) if iterator in names else None
    return None
