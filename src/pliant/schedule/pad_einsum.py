"""Round a block's iterators up to multiples, with copies that hold padding around what it reads.

What it adds for the padding is the identity of its reduction, and results outside of what there was
are not copied back. So the loops run whole tiles with no condition inside, whatever the sizes are;
`pad_block` does the same for a block whose operands are there already.

Before:

    @loop
    def sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
        for i, r in grid(n, k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[a, c]

Steps:

    p = p.pad_einsum('y', (1, 8))

After:

    x_pad = alloc(f32[n, 8*((k + 7)//8)], scope="scratch")
    for x_pad_0, x_pad_1 in grid(n, 8*((k + 7)//8)):
        with block("x_pad", S(x_pad_0, n), S(x_pad_1, 8*((k + 7)//8))) as (x_pad_v0, x_pad_v1):
            x_pad[x_pad_v0, x_pad_v1] = select(x_pad_v1 < k, x[x_pad_v0, x_pad_v1], 0.0)
    for i, r in grid(n, 8*((k + 7)//8)):
        with block("y", S(i, n), R(r, 8*((k + 7)//8))) as (a, c):
            with init():
                y[a] = 0.0
            y[a] = y[a] + x_pad[a, c]

Steps:

    p = p.pad_einsum('y', (4, 1))

After:

    x_pad = alloc(f32[4*((n + 3)//4), k], scope="scratch")
    y_pad = alloc(f32[4*((n + 3)//4)], scope="scratch")
    for x_pad_0, x_pad_1 in grid(4*((n + 3)//4), k):
        with block("x_pad", S(x_pad_0, 4*((n + 3)//4)), S(x_pad_1, k)) as (x_pad_v0, x_pad_v1):
            x_pad[x_pad_v0, x_pad_v1] = select(x_pad_v0 < n, x[x_pad_v0, x_pad_v1], 0.0)
    for i, r in grid(4*((n + 3)//4), k):
        with block("y", S(i, 4*((n + 3)//4)), R(r, k)) as (a, c):
            with init():
                y_pad[a] = 0.0
            y_pad[a] = y_pad[a] + x_pad[a, c]
    for y_crop_0 in grid(n):
        with block("y_crop", S(y_crop_0, n)) as (y_crop_v0,):
            y[y_crop_v0] = y_pad[y_crop_v0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pliant.base.dtypes import i64
from pliant.ir.expr import Const, Expr, Index, Load, as_expr, const, loads_of
from pliant.ir.node import transform
from pliant.ir.simplify import simplify
from pliant.loop.bounds import span
from pliant.loop.reduction import Update, as_update
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at, replace_buffer, replace_loads
from pliant.loop.stmt import Block, Buffer, BufferRef, For, Stmt, seq, stored
from pliant.loop.stmt import buffer as make_buffer
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.copies import check_shared, fill_nest, store_nest, varies, whole, with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import stores_everywhere
from pliant.schedule.layout import enlarged
from pliant.schedule.nest import own_loops
from pliant.schedule.program import BlockRef, MemoryRef, Program, Ref, primitive
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, maximum
from pliant.sym.facts import Facts


@primitive
def pad_einsum(p: Program, block: str, padding: Sequence[IntLike]) -> Program:
    """`padding` has for each iterator what its extent becomes a multiple of. Makes the copies of
    what the block reads, then those that bring back what it writes: blocks, then buffers."""
    plan = check_pad_einsum(p, block, padding)
    names, target, facts = p.names(), plan.block, p.facts
    before, after, buffers = list[Stmt](), list[Stmt](), list[Buffer]()
    made = list[Ref]()
    for old, shape in plan.reads.items():
        packed = enlarged(old.shape, shape, facts)
        value, pad = Load(old, whole(old)), plan.pads[old]
        fill = fill_nest(names, f"{old.name}_pad", packed, value, "scratch", pad=pad)
        target = replace_loads(target, old, _elsewhere(fill.buffer))
        before.append(fill.nest)
        buffers.append(fill.buffer)
        made.append(BlockRef(fill.block))
    for old, shape in plan.writes.items():
        packed = enlarged(old.shape, shape, facts)
        local = make_buffer(names.buffer(f"{old.name}_pad"), shape, old.dtype, scope="scratch")
        back = store_nest(names, f"{old.name}_crop", packed, local, old, whole(old))
        target = replace_buffer(target, old, local, lambda at: at)
        after.append(back.nest)
        buffers.append(local)
        made.append(BlockRef(back.block))
    iters = tuple(i.replace(extent=plan.extents[i.var]) for i in target.iters)
    nest: Stmt = target.replace(iters=iters)
    for loop in reversed(plan.path[plan.at : -1]):
        assert isinstance(loop, For)
        nest = loop.replace(extent=plan.extents[plan.loops[loop.var]], body=nest)
    body = replace_at(plan.path[: plan.at + 1], seq(*before, nest, *after))
    for b in buffers:
        body = with_alloc(body, b)
    q = p.with_body(body, *made, *(MemoryRef(b.name) for b in buffers))
    check_shared(q, "pad_einsum", block, plan.path, plan.at)
    return q


def _elsewhere(copy: Buffer) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda at: Load(copy, at)


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]
    at: int  # of the outermost of the block's loops
    block: Block
    loops: dict[str, str]  # the iterator of each
    extents: dict[str, Int]  # of iterators
    reads: dict[Buffer, tuple[Int, ...]]  # with the shapes of their copies
    writes: dict[Buffer, tuple[Int, ...]]
    pads: dict[Buffer, int | float]  # what the copies of these hold around what is read


def check_pad_einsum(p: Program, block: str, padding: Sequence[IntLike]) -> _Plan:
    """The block is an update by a known combiner or reducer that starts itself, under no condition;
    its loops are its iterators, in serial. Where an iterator that is reduced over is beyond its
    extent, the block adds the identity if what it reads there is padding. It writes all of each
    buffer, at its data parallel iterators, all that grow among them. Shapes are known where the
    program begins."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("pad_einsum", f"block {block}", reason)

    path = p.block_path("pad_einsum", block)
    target = path[-1]
    assert isinstance(target, Block)
    update = as_update(target)
    if update is None:
        raise refuse("it is no update by a known combiner or reducer")
    if target.init is None:
        raise refuse("its reduction is started elsewhere; pad it before decompose_reduction")
    if len(padding) != len(target.iters):
        raise refuse(f"it has {len(target.iters)} iterators, not {len(padding)}")
    if any(i.kind == "O" for i in target.iters):
        raise refuse("it must run in order")
    at, loops = own_loops(p, path, refuse)
    facts = p.inside(path[:at])
    extents = {}
    for it, step in zip(target.iters, map(as_int, padding), strict=True):
        if not step.names <= p.sizes or not facts.positive(step):
            raise refuse(f"{step} is not known to be at least 1")
        fits = facts.divisible(it.extent, step)
        extents[it.var] = it.extent if fits else facts.simplify(ceildiv(it.extent, step) * step)
    grown = {i.var for i in target.iters if extents[i.var] is not i.extent}
    if not grown:
        raise refuse("its extents are multiples already")
    writes = _written(p, path, update, extents, grown, refuse)
    over = [i.var for i in target.iters if i.kind == "R" and i.var in grown]
    pads = _padding(target, update, over, facts, refuse)
    reads = _read(target, update, extents, grown, facts, refuse)
    if varies((d for shape in (*reads.values(), *writes.values()) for d in shape), p):
        raise refuse("how large its operands are varies")
    return _Plan(path, at, target, loops, extents, reads, writes, pads)


def _written(
    p: Program,
    path: tuple[Stmt, ...],
    update: Update,
    extents: dict[str, Int],
    grown: set[str],
    refuse: Refuse,
) -> dict[Buffer, tuple[Int, ...]]:
    """The buffers that need more room, with their shapes."""
    target = path[-1]
    assert isinstance(target, Block) and target.init is not None
    started = set(stored(target.init))
    if started != set(update.places) or any(not a.write for a in accesses(target.init)):
        raise refuse("its start is not one store to each element that it updates")
    found: dict[Buffer, tuple[Int, ...]] = {}
    for place in update.places:
        if not stores_everywhere(target, place.buffer, p.around(path)):
            raise refuse(f"it does not write all of {place.buffer.name} at its iterators")
        used = {n for i in place.indices if isinstance(i, Index) for n in i.int_.names}
        for it in target.iters:
            if it.kind == "S" and it.var in grown - used:
                raise refuse(f"it would write {place.buffer.name} again along iterator {it.var}")
        shape = _reach(place, extents, grown, p.around(path), refuse)
        if shape != place.buffer.shape:
            found[place.buffer] = shape
    return found


def _read(
    target: Block,
    update: Update,
    extents: dict[str, Int],
    grown: set[str],
    facts: Facts,
    refuse: Refuse,
) -> dict[Buffer, tuple[Int, ...]]:
    """The buffers of which a copy is needed, with its shape."""
    found: dict[Buffer, tuple[Int, ...]] = {}
    for a in accesses(target.body):
        if a.write or a.buffer in {place.buffer for place in update.places}:
            continue
        if a.indices is None:
            raise refuse(f"it reads {a.buffer.name} by element offset, or through a call")
        shape = _reach(BufferRef(a.buffer, a.indices), extents, grown, facts, refuse)
        before = found.get(a.buffer, a.buffer.shape)
        found[a.buffer] = tuple(_larger(x, y, facts) for x, y in zip(before, shape, strict=True))
    order = dict.fromkeys(x.source for v in update.values for x in loads_of(v))
    return {b: found[b] for b in order if b in found and found[b] != b.shape}


def _reach(
    place: BufferRef, extents: dict[str, Int], grown: set[str], facts: Facts, refuse: Refuse
) -> tuple[Int, ...]:
    """The shape that holds all places, for all values of the larger iterators."""
    shape = []
    for index, extent in zip(place.indices, place.buffer.shape, strict=True):
        if not isinstance(index, Index):
            raise refuse(f"an index of {place.buffer.name} depends on data")
        if index.int_.names.isdisjoint(grown):
            shape.append(extent)
            continue
        ends = span(index.int_, extents, facts)
        if ends is None or not facts.nonneg(ends[0]):
            raise refuse(f"it may be outside of {place.buffer.name} at {index.int_}")
        shape.append(_larger(extent, facts.simplify(ends[1] + 1), facts))
    return tuple(shape)


def _larger(a: Int, b: Int, facts: Facts) -> Int:
    if facts.le(b, a):
        return a
    return b if facts.le(a, b) else maximum(a, b)


def _padding(
    target: Block, update: Update, over: Sequence[str], facts: Facts, refuse: Refuse
) -> dict[Buffer, int | float]:
    """What the copies hold around what is read, so that nothing comes of it: for all of them the
    same number, or each the identity of what is computed of it."""
    wanted = tuple(map(_literal, update.identity))
    sources = [[load.source for load in loads_of(v)] for v in update.values]
    numbers = [_number(v) for v in update.identity]
    buffers = list(dict.fromkeys(b for found in sources for b in found))
    tried = [dict.fromkeys(buffers, x) for x in dict.fromkeys([0, *numbers])]
    tried.append({b: x for found, x in zip(sources, numbers, strict=True) for b in found})
    for pads in tried:
        if all(_beyond(target, update, r, pads, facts) == wanted for r in over):
            return pads
    name = next(
        r for r in over if all(_beyond(target, update, r, x, facts) != wanted for x in tried)
    )
    raise refuse(f"beyond the extent of {name} it would reduce more than padding")


def _beyond(
    target: Block,
    update: Update,
    name: str,
    pads: Mapping[Buffer, int | float],
    facts: Facts,
) -> tuple[Expr, ...]:
    """What the block adds where the iterator is beyond its extent, with this padding; nothing where
    a buffer cannot hold it."""
    (extent,) = [i.extent for i in target.iters if i.var == name]

    def visit(node: object) -> object:
        if not isinstance(node, Load):
            return node
        pairs = zip(node.indices, node.source.shape, strict=True)
        padded = any(
            isinstance(i, Index) and str(i.int_) == name and facts.equal(extent, d)
            for i, d in pairs
        )
        return literals[node.source] if padded else node

    try:
        literals = {b: const(x, b.dtype) for b, x in pads.items()}
    except ValueError:
        return ()
    return tuple(_literal(simplify(transform(v, visit))) for v in update.values)


def _literal(x: Expr) -> Expr:
    """Numbers of type i64 in one form."""
    return as_expr(int(x.value)) if isinstance(x, Const) and x.dtype is i64 else x


def _number(x: Expr) -> int | float:
    """The value of an identity, where it is a number."""
    match x:
        case Const():
            return x.value
        case Index(i) if i.is_const:
            return i.value
    return 0
