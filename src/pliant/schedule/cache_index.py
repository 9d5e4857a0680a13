"""Compute where rows of a buffer begin once, into a table, and read them from there.

A row is what the buffer holds along one loop, next to each other in memory. What its first element
is, and under which condition there is one, depends on the other loops: a matter of divisions and
comparisons, which are done once for all that reads the row.

Before:

    @loop
    def shift(x: f32["n", "m"], y: f32["n", "m"], n: i64, m: i64):
        for i_0, i_1, j in grid((n + 7)//8, 8, m):
            with block("y", S(8*i_0 + i_1, n), S(j, m), where=8*i_0 + i_1 < n) as (a, b):
                y[a, b] = select(1 <= a, x[a - 1, b], 0.0)

Steps:

    p = p.cache_index('y', 'x', 'i_0', 'j', ('i_1',))

After:

    for i_0 in grid((n + 7)//8):
        x_at = alloc(i64[8], scope="scratch")
        for x_at_0 in grid(8):
            with block("x_at", S(x_at_0, 8)) as (x_at_v0,):
                x_at[x_at_v0] = select(1 <= 8*i_0 + x_at_v0, 8*i_0*m + m*x_at_v0 - m, -2)
        x_else = alloc(f32[m], scope="scratch")
        for x_else_0 in grid(m):
            with block("x_else", S(x_else_0, m)) as (x_else_v0,):
                x_else[x_else_v0] = 0.0
        for i_1, j in grid(8, m):
            with block("y", S(8*i_0 + i_1, n), S(j, m), where=8*i_0 + i_1 < n) as (a, b):
                y[8*i_0 + i_1, j] = select(0 <= x_at[i_1], x.flat[x_at[i_1] + j], x_else[j])
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from pliant.base.dtypes import i64
from pliant.ir.expr import Const, Expr, Index, Load, Select, as_expr, loads_of
from pliant.ir.node import transform, walk
from pliant.loop.bounds import span
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import Names, int_names, replace_at, subst
from pliant.loop.stmt import (
    ABSENT,
    ZEROS,
    Alloc,
    Block,
    Buffer,
    For,
    Iter,
    Let,
    Stmt,
    Store,
    buffer,
    for_,
    offset_of,
    seq,
)
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import is_leaf
from pliant.schedule.program import BlockRef, MemoryRef, Program, primitive
from pliant.sym.atoms import MinAtom
from pliant.sym.expr import Int, IntLike, const, var
from pliant.sym.facts import Facts


@primitive
def cache_index(
    p: Program,
    block: str,
    source: str,
    loop: str,
    along: str,
    table: Sequence[str],
    shared: Sequence[str] = (),
) -> Program:
    """Makes the blocks that fill the table and, where a condition says whether there is a row, the
    row that is read where there is none; both at the beginning of `loop`'s body. The entry for a
    row that is not there is negative; it is `ZEROS` where what is read instead are zeros.

    `along` is the loop over a row's elements; `table` those which the row's place depends on, the
    table's dimensions from outermost to innermost. The table has no gaps for loops whose extent
    varies with those before it. Iterations of the loops `shared` share it: their rows begin the
    same step after one another everywhere.
    """
    plan = check_cache_index(p, block, source, loop, along, tuple(table), tuple(shared))
    names, row = p.names(), plan.row
    index = buffer(names.buffer(f"{source}_at"), (plan.size,), i64, scope="scratch")
    entry: Expr = Load(index, (Index(plan.slot),))
    value: Expr = Load(row.load.source.flat, (entry + Index(var(along) + plan.step),))
    first: Expr = Index(row.first)
    made: list[tuple[Buffer, Stmt]] = []
    if isinstance(row.whole, Select):
        shape = (row.along.extent,)
        other = buffer(names.buffer(f"{source}_else"), shape, row.load.dtype, scope="scratch")
        here = (Index(var(along)),)
        what = row.whole.b
        absent = ZEROS if isinstance(what, Const) and what.value == 0 else ABSENT
        first = Select(row.whole.cond, first, as_expr(absent))
        value = Select(as_expr(0) <= entry, value, Load(other, here))
        made.append((other, _nest([row.along], Store(other, here, row.whole.b), names)))
    made.append((index, _nest(plan.dims, Store(index, (Index(plan.slot),), first), names)))
    reader = transform(row.body, lambda x: value if x is row.whole else x)
    at = plan.path.index(plan.loop)
    inner = replace_at(plan.path[at + 1 :], plan.path[-1].replace(body=reader))
    for memory, nest in made:
        inner = Alloc(memory, seq(nest, inner))
    body = replace_at(plan.path[: at + 1], plan.loop.replace(body=inner))
    refs = [r for b, _ in reversed(made) for r in (BlockRef(b.name), MemoryRef(b.name))]
    return p.with_body(body, *refs)


@dataclass(frozen=True)
class _Row:
    """What the block reads along a loop. All in terms of loops."""

    body: Stmt  # of the block
    load: Load
    whole: Expr  # the load, or the choice between it and what stands for it
    along: For
    first: Int  # the offset of the first element


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]  # to the block
    loop: For
    row: _Row
    dims: tuple[For, ...]  # the table's loops, in the order of the program
    slot: Int  # the place in the table
    size: Int
    step: Int  # how much further the rows of these iterations of the shared loops are


def _nest(loops: Sequence[For], store: Store, names: Names) -> Stmt:
    """Loops like `loops` around a block that does the store."""
    label = names.block(store.buffer.name)
    fresh = [names.variable(f"{label}_{d}") for d in range(len(loops))]
    iters = [names.variable(f"{label}_v{d}") for d in range(len(loops))]
    moved: dict[str, IntLike] = {x.var: var(n) for x, n in zip(loops, fresh, strict=True)}
    own: dict[str, IntLike] = {x.var: var(n) for x, n in zip(loops, iters, strict=True)}
    extents = [x.extent.subs(moved) for x in loops]
    block = Block(
        label,
        tuple(Iter(i, e, "S") for i, e in zip(iters, extents, strict=True)),
        tuple(map(var, fresh)),
        subst(store, own),
    )
    return for_(list(zip(fresh, extents, strict=True)), block)


def check_cache_index(
    p: Program,
    block: str,
    source: str,
    loop: str,
    along: str,
    table: tuple[str, ...],
    shared: tuple[str, ...] = (),
) -> _Plan:
    """The block reads the buffer once, element after element along one loop; where under a
    condition, that does not depend on the loop, nor on data that are stored in that of the table,
    and what stands for the element otherwise on no data. The place and the condition depend on the
    table's loops, those around the table, and sizes; the extents of the table's loops on those
    before them. Each iteration of the shared loops moves the place by what no loop below changes,
    and changes nothing else."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("cache_index", f"block {block}", reason)

    path, around = p.block_path("cache_index", block), p.loop_path("cache_index", loop)
    target, outer = path[-1], around[-1]
    assert isinstance(target, Block) and isinstance(outer, For)
    if around != path[: len(around)]:
        raise refuse(f"it is not under loop {loop}")
    if not is_leaf(target) or any(isinstance(s, Block) for s in path[:-1]):
        raise refuse("it holds loops or blocks, or is inside one")
    inside = {s.var: s for s in path[len(around) :] if isinstance(s, For)}
    chosen = (along, *table, *shared)
    if not set(chosen) <= inside.keys() or len(set(chosen)) < len(chosen):
        raise refuse(f"its loops under {loop} are {', '.join(inside)}; name each at most once")
    facts = p.inside(path)
    changed = {x.buffer.name for x in walk(outer) if isinstance(x, Store)}
    row = _row(target, p.buffer(source), inside[along], changed, facts, refuse)
    row, step = _without(row, shared, set(inside), refuse)
    used, fixed = row.first.names, row.along.extent.names
    if isinstance(row.whole, Select):
        used, fixed = used | int_names(row.whole.cond), fixed | int_names(row.whole.b)
    # Not only loops below may be unknown there: an expression has axes of its own.
    known = p.sizes | {s.var for s in around if isinstance(s, For)}
    known |= {s.var.name for s in around if isinstance(s, Let)}
    late = used - known - set(table)
    if late:
        raise refuse(f"where a row of {source} begins depends on {', '.join(sorted(late))} too")
    if fixed - known - {along}:
        raise refuse(f"what stands for a row of {source} varies")
    dims = tuple(x for v, x in inside.items() if v in table)
    before: set[str] = set()
    for x in dims:
        if not x.extent.names & inside.keys() <= before:
            raise refuse(f"the extent of {x.var} depends on loops that are not in the table")
        before.add(x.var)
    slot, size = _places([inside[v] for v in table], facts, refuse)
    return _Plan(path, outer, row, dims, slot, size, step)


def _without(
    row: _Row, shared: Sequence[str], inside: Set[str], refuse: Refuse
) -> tuple[_Row, Int]:
    """The row of the first iteration of the shared loops, and how far from it another one is."""
    step: Int = const(0)
    for name in shared:
        line = row.first.linear(name)
        if line is None or not line[0].names.isdisjoint(inside):
            raise refuse(f"{name} does not move all rows by the same step")
        step, row = step + line[0] * var(name), replace(row, first=line[1])
    return row, step


def _row(
    target: Block, memory: Buffer, along: For, changed: Set[str], facts: Facts, refuse: Refuse
) -> _Row:
    body = subst(target.body, bindings_of(target))
    if not isinstance(body, Store):
        raise refuse("it is more than one store")
    loads = [x for x in loads_of(body) if x.source is memory]
    if len(loads) != 1:
        raise refuse(f"it does not read {memory.name} at one place")
    (load,) = loads
    choices = [
        x for x in walk(body.value)
        if isinstance(x, Select) and any(y is load for y in walk(x) if y is not x)
    ]  # fmt: skip
    whole: Expr = choices[0] if choices else load
    if isinstance(whole, Select):
        if len(choices) > 1 or whole.a is not load:
            raise refuse(f"what it reads of {memory.name} is not the first branch of one choice")
        asked = {x.source.name for x in loads_of(whole.cond)}
        if asked & changed or list(loads_of(whole.b)):
            raise refuse(f"whether it reads {memory.name} depends on data that change")
        if along.var in int_names(whole.cond):
            raise refuse(f"whether it reads {memory.name} depends on {along.var}")
        if not all(facts.nonneg(step) for step in memory.strides):
            raise refuse(f"{memory.name} may lie backwards in memory")
    first = offset_of(memory, load.indices)
    if first is None:
        raise refuse(f"where it reads {memory.name} depends on data")
    line = facts.simplify(first).linear(along.var)
    if line is None or (line[0] != 1 and along.extent != 1):  # one element is next to itself
        raise refuse(f"{memory.name} does not lie element after element along {along.var}")
    return _Row(body, load, whole, along, line[1])


def _places(table: Sequence[For], facts: Facts, refuse: Refuse) -> tuple[Int, Int]:
    """The place for these loops' values, and how many there are: row-major. The step of a loop is
    what the later ones need in this iteration of those before, at most where it varies with its
    own."""
    slot: Int = const(0)
    for d, x in enumerate(table):
        slot = slot + _room(table[d + 1 :], table[d:], facts, refuse) * var(x.var)
    return slot, _room(table, table, facts, refuse)


def _room(loops: Sequence[For], over: Sequence[For], facts: Facts, refuse: Refuse) -> Int:
    """How many iterations `loops` have, at most, whatever the iteration of `over` is."""
    ranges = {x.var: x.extent for x in over}
    room: Int = const(1)
    for extent in (x.extent for x in loops):
        atom = extent.sole_atom
        ends = atom.args if isinstance(atom, MinAtom) else ()
        fixed = sorted((a for a in (extent, *ends) if a.names.isdisjoint(ranges)), key=_length)
        within = None if fixed else span(extent, ranges, facts)
        if within is not None:
            fixed = [within[1]]
        if not fixed:
            raise refuse(f"no bound of {extent} is known")
        room = room * (extent if extent in fixed else fixed[0])
    return room


def _length(x: Int) -> int:
    return len(str(x))
