"""Sum the parts of what is reduced apart, each without the factors that do not vary.

A product of numbers less their zero points becomes a product of the numbers, which instructions
know, and sums of each operand alone. Only for integers: they wrap, so the equation is exact.

Before:

    @loop
    def product(x: u8["n", "k"], z: i32[()], w: i8["k"], y: i32["n"], n: i64, k: i64):
        for i, r in grid(n, k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = 0
                y[a] = y[a] + (i32(x[a, c]) - z[()]) * i32(w[c])

Steps:

    p = p.sum_apart('y')

After:

    y_sum = alloc(i32[n], scope="scratch")
    y_sum_1 = alloc(i32[()], scope="scratch")
    for y_sum_1_0 in grid(k):
        with block("y_sum_1", R(y_sum_1_0, k)) as (y_sum_1_v0,):
            with init():
                y_sum_1[()] = 0
            y_sum_1[()] = y_sum_1[()] + i32(w[y_sum_1_v0])
    for i, r in grid(n, k):
        with block("y", S(i, n), R(r, k)) as (a, c):
            with init():
                y_sum[a] = 0
            y_sum[a] = y_sum[a] + i32(x[a, c]) * i32(w[c])
    for y_parts_0 in grid(n):
        with block("y_parts", S(y_parts_0, n)) as (y_parts_v0,):
            y[y_parts_v0] = y_sum[y_parts_v0] - z[()] * y_sum_1[()]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from pliant.ir.einsum import names_in
from pliant.ir.expr import Binary, Expr, Index, Load, as_expr, const
from pliant.loop.reduction import Update, identity
from pliant.loop.rewrite import Names, replace_at, subst
from pliant.loop.stmt import Block, Buffer, BufferRef, Iter, Stmt, Store, for_, seq
from pliant.loop.stmt import buffer as make_buffer
from pliant.schedule.copies import check_shared, varies, with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import stores_everywhere
from pliant.schedule.nest import own_sum
from pliant.schedule.program import BlockRef, MemoryRef, Program, Ref, primitive
from pliant.sym.expr import Int, as_int, var


@primitive
def sum_apart(p: Program, block: str) -> Program:
    """The block keeps the first part, in a buffer of its own; each other part that varies along
    what is reduced over gets a block. Makes the block that puts them together, those blocks, and
    all the buffers."""
    plan = check_sum_apart(p, block)
    names, target = p.names(), plan.block
    place = plan.update.places[0]
    own = tuple(str(i) for i in map(_int, place.indices))
    name = f"{place.buffer.name}_sum"
    first = make_buffer(names.buffer(name), place.buffer.shape, place.buffer.dtype, scope="scratch")
    kept = plan.update.at([BufferRef(first, place.indices)], [_product(plan.parts[0].summed)])
    start = plan.update.start([BufferRef(first, place.indices)])
    nests: list[Stmt] = []
    buffers, blocks = [first], list[str]()
    result = plan.parts[0].times(Load(first, place.indices))
    for part in plan.parts[1:]:
        value: Expr = const(1, place.buffer.dtype)
        if part.summed:
            nest, made, label, at = _sum_nest(names, plan, part, own, name)
            nests.append(nest)
            buffers.append(made)
            blocks.append(label)
            value = Load(made, at)
        value = part.times(value)
        result = Binary("sub" if part.negative else "add", result, value)
    # What reads a tile of the first part, wherever it is moved to, finds the other sums made.
    nests.append(replace_at(plan.path[plan.at :], target.replace(body=kept, init=start)))
    label = names.block(f"{place.buffer.name}_parts")
    iters = {i.var: i for i in target.iters if i.kind == "S"}
    loops = [names.variable(f"{label}_{d}") for d in range(len(own))]
    fresh = {v: var(names.variable(f"{label}_v{d}")) for d, v in enumerate(own)}
    together = Block(
        label,
        tuple(Iter(str(fresh[v]), iters[v].extent, "S") for v in own),
        tuple(map(var, loops)),
        subst(Store(place.buffer, place.indices, result), fresh),
    )
    extents = [iters[v].extent for v in own]
    nests.append(for_(list(zip(loops, extents, strict=True)), together))
    body = replace_at(plan.path[: plan.at + 1], seq(*nests))
    for b in buffers:
        body = with_alloc(body, b)
    made_refs: list[Ref] = [BlockRef(x) for x in (label, *blocks)]
    q = p.with_body(body, *made_refs, *(MemoryRef(b.name) for b in buffers))
    check_shared(q, "sum_apart", block, plan.path, plan.at)
    return q


@dataclass(frozen=True)
class _Part:
    """A product that is added or, if `negative`, subtracted: what does not vary along the sum, and
    what is summed up, of nothing if that is 1; `count` times, for what neither depends on."""

    negative: bool
    fixed: tuple[Expr, ...]
    summed: tuple[Expr, ...]
    count: Int

    def times(self, total: Expr) -> Expr:
        """The part, of the sum of what varies."""
        number = () if self.count == 1 else (as_expr(self.count).cast(total.dtype),)
        factors = (*self.fixed, *number, total)
        return _product([x for x in factors if not _is_one(x)] or factors)


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]
    at: int  # of the outermost of the block's loops
    block: Block
    update: Update
    parts: tuple[_Part, ...]


def check_sum_apart(p: Program, block: str) -> _Plan:
    """The block is a sum of integers that starts itself, under no condition; its loops are its
    iterators, in serial. It writes all of a buffer at its data parallel iterators. What it adds has
    several parts, or factors that do not vary. Shapes are known where the program begins."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("sum_apart", f"block {block}", reason)

    path = p.block_path("sum_apart", block)
    target = path[-1]
    assert isinstance(target, Block)
    update, at = own_sum(p, path, refuse, " of integers")
    (place,) = update.places
    if not place.buffer.dtype.is_int:
        raise refuse("it is no sum of integers")
    spatial = {i.var for i in target.iters if i.kind == "S"}
    indices = [str(i.int_) if isinstance(i, Index) else "" for i in place.indices]
    if not stores_everywhere(target, place.buffer, p.around(path)) or set(indices) != spatial:
        raise refuse(f"it does not write all of {place.buffer.name} at its iterators")
    parts = tuple(_part(target, sign, found) for sign, found in _expanded(update.values[0]))
    if len(parts) == 1 and not parts[0].fixed:
        raise refuse("what it adds is one product, in which all varies")
    if varies((i.extent for i in target.iters), p):
        raise refuse("how much it sums up varies")
    if parts[0].negative or not parts[0].summed:
        raise refuse("its first part is subtracted, or does not vary")
    # The block's own loops run through all iterators.
    return _Plan(path, at, target, update, (replace(parts[0], count=as_int(1)), *parts[1:]))


def _expanded(x: Expr) -> list[tuple[bool, tuple[Expr, ...]]]:
    """The products that an expression is a sum of: whether subtracted, and factors."""
    match x:
        case Binary("add" | "sub", a, b):
            rest = _expanded(b)
            turned = x.op == "sub"
            return [*_expanded(a), *((sign != turned, found) for sign, found in rest)]
        case Binary("mul", a, b):
            return [
                (one != other, (*left, *right))
                for one, left in _expanded(a)
                for other, right in _expanded(b)
            ]
    return [(False, (x,))]


def _part(target: Block, negative: bool, factors: Sequence[Expr]) -> _Part:
    reduced = {i.var: i.extent for i in target.iters if i.kind == "R"}
    fixed = tuple(x for x in factors if names_in(x).isdisjoint(reduced))
    summed = tuple(x for x in factors if not names_in(x).isdisjoint(reduced))
    used = frozenset[str]().union(*map(names_in, summed))
    count = prod((e for v, e in reduced.items() if v not in used), start=as_int(1))
    return _Part(negative, fixed, summed, count)


def _sum_nest(
    names: Names, plan: _Plan, part: _Part, own: Sequence[str], name: str
) -> tuple[Stmt, Buffer, str, tuple[Expr, ...]]:
    """The sum of what varies of a part, along the iterators that it depends on: its nest, buffer
    and block, and where in the buffer the element for the block's own iterators is."""
    value = _product(part.summed)
    used = names_in(value)
    by_name = {i.var: i for i in plan.block.iters}
    kept = [v for v in own if v in used]
    iters = [by_name[v] for v in kept]
    iters += [i for i in plan.block.iters if i.kind == "R" and i.var in used]
    shape = tuple(by_name[v].extent for v in kept)
    made = make_buffer(names.buffer(name), shape, value.dtype, scope="scratch")
    label = names.block(made.name)
    loops = [names.variable(f"{label}_{d}") for d in range(len(iters))]
    fresh = {i.var: var(names.variable(f"{label}_v{d}")) for d, i in enumerate(iters)}
    place = BufferRef(made, tuple(Index(fresh[v]) for v in kept))
    block = Block(
        label,
        tuple(Iter(str(fresh[i.var]), i.extent, i.kind) for i in iters),
        tuple(map(var, loops)),
        plan.update.at([place], [subst(value, fresh)]),
        init=Store(made, place.indices, identity("sum", value.dtype)),
    )
    nest = for_([(x, i.extent) for x, i in zip(loops, iters, strict=True)], block)
    return nest, made, label, tuple(Index(var(v)) for v in kept)


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: Binary("mul", a, b), factors)


def _is_one(x: Expr) -> bool:
    return x is const(1, x.dtype)


def _int(index: Expr) -> Int:
    assert isinstance(index, Index)
    return index.int_
