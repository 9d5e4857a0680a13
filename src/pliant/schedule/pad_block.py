"""Let a block run over whole tiles, beyond its domain, into memory that is there for it.

What it computes there is never read. So the inner loops of a kernel need no masks: only its loads
from padded copies and its last stores know where the tensor ends. Memory of the function's own that
is too small for whole tiles grows.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        p = alloc(f32[(n + 7)//8, 8], scope="scratch")
        for o, i in grid((n + 7)//8, 8):
            with block("p", S(o, (n + 7)//8), S(i, 8)) as (a, b):
                p[a, b] = select(8*a + b < n, x[8*a + b], 0.0)
        for u in grid((n + 7)//8):
            t = alloc(f32[8])
            for v in grid(8):
                with block("t", S(8*u + v, n), where=8*u + v < n) as (c,):
                    t[c - 8*u] = p[c//8, c%8] * 2.0
            for w in grid(8):
                with block("y", S(8*u + w, n), where=8*u + w < n) as (d,):
                    y[d] = t[d - 8*u]

Steps:

    p = p.pad_block('t')

After:

    p = alloc(f32[(n + 7)//8, 8], scope="scratch")
    for o, i in grid((n + 7)//8, 8):
        with block("p", S(o, (n + 7)//8), S(i, 8)) as (a, b):
            p[a, b] = select(8*a + b < n, x[8*a + b], 0.0)
    for u in grid((n + 7)//8):
        t = alloc(f32[8])
        for v in grid(8):
            with block("t", S(8*u + v, 8*((n + 7)//8))) as (c,):
                t[c - 8*u] = p[c//8, c%8] * 2.0
        for w in grid(8):
            with block("y", S(8*u + w, n), where=8*u + w < n) as (d,):
                y[d] = t[d - 8*u]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pliant.ir.expr import Expr
from pliant.loop.bounds import span
from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import Access
from pliant.loop.rewrite import (
    conjoin,
    conjuncts,
    int_names,
    path_to,
    replace_at,
    replace_buffer,
)
from pliant.loop.stmt import Alloc, Block, Buffer, For, compact_strides, stored
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, bound_ends, invert_store, is_leaf, where_all
from pliant.schedule.program import Program, primitive
from pliant.schedule.set_scope import fits_registers
from pliant.sym.expr import Int, const
from pliant.sym.facts import Facts


@primitive
def pad_block(p: Program, *blocks: str, along: str = "") -> Program:
    """The blocks' data parallel iterators get extents that their loops fill; conditions that they
    be less than their old extents go away. `along` a loop, only iterators that it runs. Blocks that
    write the same buffer, as a reduction and its start, are padded together."""
    for plan in [check_pad_block(p, b, blocks, along) for b in blocks]:
        path = p.block_path("pad_block", plan.block.name)
        iters = [i.replace(extent=plan.extents.get(i.var, i.extent)) for i in plan.block.iters]
        made = plan.block.replace(iters=tuple(iters), where=conjoin(plan.kept))
        p = p.with_body(replace_at(path, made))
        for old, new in plan.grown.items():
            p = p.with_body(replace_buffer(p.function.body, old, new, lambda at: at))
    return p


@dataclass(frozen=True)
class _Plan:
    block: Block
    extents: dict[str, Int]
    kept: list[Expr]
    grown: dict[Buffer, Buffer]


def check_pad_block(
    p: Program, block: str, together: tuple[str, ...] = (), along: str = ""
) -> _Plan:
    """The block has conditions on its domain to lose (`along` a loop around it); without them every
    load is in bounds, and every store goes to memory of the function's own, to an element that is
    not another one's. Other blocks that write there are padded `together` with it, and write the
    same elements."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("pad_block", f"block {block}", reason)

    path = p.block_path("pad_block", block)
    target, facts = path[-1], p.inside(path)
    assert isinstance(target, Block)
    at_start = p.around(path)  # it starts also where the loops that it reduces over do not run
    if not is_leaf(target) or any(isinstance(s, Block) for s in path[:-1]):
        raise refuse("it holds loops or blocks, or is inside one")
    loops = [s for s in path if isinstance(s, For)]
    if along and along not in [x.var for x in loops]:
        raise refuse(f"{along} is no loop around it")
    ranges = {x.var: x.extent for x in loops}
    extents: dict[str, Int] = {}
    kept, dropped = [], []
    for cond in conjuncts(target.where):
        name = _upper_bound_of(cond, target, facts)
        if name is not None and along and along not in target.bindings[name].names:
            name = None
        ends = span(target.bindings[name], ranges, p.facts) if name is not None else None
        if name is None or ends is None:
            kept.append(cond)
            continue
        extents[target.iters[name].var] = p.facts.simplify(ends[1] + 1)
        dropped.append(cond)
    if not dropped:
        raise refuse("it has no condition on its data parallel iterators")
    flow, grown = Flow(p), dict[Buffer, Buffer]()
    own = {a.buffer for a in flow.of_block(block) if a.write} & flow.allocated
    for a in flow.of_block(block):
        inside = at_start if a.before else facts
        if _is_unchanged(a, dropped, inside, loops):
            continue
        if not _in_bounds(a, dropped, ranges, p.facts, inside):
            larger = _grown(a, ranges, p.facts) if a.buffer in own else None
            if larger is None or grown.setdefault(a.buffer, larger) is not larger:
                verb = "store to" if a.write else "load from"
                raise refuse(f"its {verb} {a.buffer.name} may be out of bounds then")
            if larger.strides != a.buffer.strides and any(
                x.indices is None for x in flow.all if x.buffer is a.buffer
            ):
                raise refuse(f"{a.buffer.name} is used by address, and its rows would move apart")
        if a.write:
            _check_own(p, flow, target, a, loops, together, refuse)
    return _Plan(target, extents, kept, grown)


def _grown(a: Access, ranges: dict[str, Int], facts: Facts) -> Buffer | None:
    """The buffer with room for all that the access reaches; None if that is not known."""
    shape = []
    for d, extent in enumerate(a.buffer.shape):
        index = a.index(d)
        ends = None if index is None else span(index, ranges, facts)
        if ends is None or not facts.nonneg(ends[0]):
            return None
        need = facts.simplify(ends[1] + 1)
        shape.append(extent if facts.le(need, extent) else need)
    larger = a.buffer.replace(shape=tuple(shape), strides=compact_strides(tuple(shape)))
    return larger if a.buffer.scope != "register" or fits_registers(larger) else None


def _upper_bound_of(cond: Expr, block: Block, facts: Facts) -> int | None:
    """The data parallel iterator that the condition keeps below its extent."""
    ends = bound_ends(cond)
    if ends is None:
        return None
    for k, (it, binding) in enumerate(zip(block.iters, block.bindings, strict=True)):
        same = facts.equal(ends[1], it.extent) and facts.equal(ends[0], binding + 1)
        if it.kind == "S" and same:
            return k
    return None


def _is_unchanged(a: Access, dropped: list[Expr], inside: Facts, loops: list[For]) -> bool:
    """Whether the load, of what does not depend on the loops to be filled, happens anyway: where
    these are 0, the conditions hold."""
    if a.write or a.indices is None:
        return False
    used = frozenset[str]().union(*(int_names(i) for i in a.indices))
    used = used.union(*(int_names(c) for c in a.where if c not in dropped))
    gaps = [high - low for low, high in (bound_ends(c) or (const(1), const(0)) for c in dropped)]
    filled = {x.var: 0 for x in loops if all(_is_last(x.var, g, inside) for g in gaps)}
    return used.isdisjoint(filled) and all(inside.nonneg(g.subs(filled)) for g in gaps)


def _is_last(name: str, gap: Int, facts: Facts) -> bool:
    """Whether `gap` shrinks by 1 along the loop."""
    line = gap.linear(name)
    return line is not None and line[0] == -1


def _in_bounds(
    a: Access, dropped: list[Expr], ranges: dict[str, Int], outside: Facts, inside: Facts
) -> bool:
    facts = where_all(inside, (c for c in a.where if c not in dropped))
    if facts is None:
        return True
    for d, extent in enumerate(a.buffer.shape):
        index = a.index(d)
        if index is None:
            return False
        ends = span(index, ranges | {x.var: x.extent for x in a.loops}, outside)
        low_ok = facts.nonneg(index) or (ends is not None and outside.nonneg(ends[0]))
        high_ok = facts.lt(index, extent) or (ends is not None and outside.lt(ends[1], extent))
        if not (low_ok and high_ok):
            return False
    return True


def _check_own(
    p: Program,
    flow: Flow,
    target: Block,
    a: Access,
    loops: list[For],
    together: tuple[str, ...],
    refuse: Refuse,
) -> None:
    home = path_to(p.function.body, lambda s: isinstance(s, Alloc) and s.buffer is a.buffer)
    if home is None:
        raise refuse(f"it writes {a.buffer.name}, which is a parameter")
    inner = [x for x in loops if x not in home]
    kinds = zip(target.iters, target.bindings, strict=True)
    spatial = {n for i, b in kinds if i.kind != "R" for n in b.names}
    access = replace(a, loops=tuple(x for x in a.loops if x not in home))
    agreed = agreed_loops(access, access, inner, p.inside(home))
    if not {x.var for x in inner if x.var in spatial} <= agreed:
        raise refuse(f"it may write an element of {a.buffer.name} twice")
    mine = _places(target, a.buffer)
    for other in {w.block for w in flow.writers(a.buffer)} - {target.name}:
        if other not in together or _places(p.block(other), a.buffer) != mine:
            where = f"block {other}" if other else "a statement"
            raise refuse(f"{where}, not padded with it, writes {a.buffer.name} too")


def _places(block: Block, buffer: Buffer) -> frozenset[tuple[int, Int, Int]] | None:
    """For each indexed dimension the offset and the iterator's extent."""
    place = next((x for x in stored(block.body) if x.buffer is buffer), None)
    found = None if place is None else invert_store(block, place)
    if found is None:
        return None
    extents = {i.var: i.extent for i in block.iters}
    return frozenset((d, offset, extents[name]) for name, (d, offset) in found.items())
