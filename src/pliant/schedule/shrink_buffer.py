"""Keep only the part of a buffer that one iteration of the loops around its uses needs.

Inside a block the indices stay in the block's iterators, less the start of the part: bodies then
mention the loops around. So do this when blocks no longer move.

Before:

    @loop
    def two(x: f32["n"], u: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for j_0 in grid((n + 7)//8):
            for i in grid(8):
                with block("t", S(i + 8*j_0, n), where=i + 8*j_0 < n) as (a,):
                    t[a] = x[a] * x[a]
            for j_1 in grid(8):
                with block("u", S(8*j_0 + j_1, n), where=8*j_0 + j_1 < n) as (b,):
                    u[b] = t[b] + 1.0

Steps:

    p = p.shrink_buffer('t')

After:

    for j_0 in grid((n + 7)//8):
        t = alloc(f32[8])
        for i in grid(8):
            with block("t", S(i + 8*j_0, n), where=i + 8*j_0 < n) as (a,):
                t[a - 8*j_0] = x[a] * x[a]
        for j_1 in grid(8):
            with block("u", S(8*j_0 + j_1, n), where=8*j_0 + j_1 < n) as (b,):
                u[b] = t[b - 8*j_0] + 1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.ir.expr import Expr, Index
from pliant.loop.bounds import Span, declare_loops
from pliant.loop.boxes import touched_box
from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import CannotSeparateError, lower_init, reduction_loops
from pliant.loop.regions import Access, accesses, used
from pliant.loop.rewrite import path_to, replace_at, replace_buffer
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    Seq,
    Stmt,
    compact_strides,
    seq,
    statements,
)
from pliant.loop.threads import REAL_AXES, private_axes
from pliant.schedule.compute_inline import Refuse, without_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import common_loops, is_domain
from pliant.schedule.program import MemoryRef, Program, primitive
from pliant.schedule.set_scope import fits_registers
from pliant.sym.divide import divisors
from pliant.sym.expr import Int, const, maximum
from pliant.sym.facts import ContradictionError, Facts
from pliant.sym.index_map import IndexMap


@primitive
def shrink_buffer(p: Program, buffer: str, *, outside: str | None = None) -> Program:
    """Moves the allocation around the uses, as far in as it goes (but not into the loop `outside`,
    nor into loops of threads that see it), and shrinks it to what is used there. Small ones of no
    special scope, of which a number says how large they can be, become registers."""
    plan = check_shrink_buffer(p, buffer, outside)
    old, facts = plan.buffer, p.inside(plan.path)
    shape = tuple(_extent(low, high, facts) for low, high in plan.box)
    new = old.replace(shape=shape, strides=compact_strides(shape))
    most = tuple(_at_most(extent, facts) for extent in shape)
    small = new.replace(shape=most, strides=compact_strides(most), scope="register")
    own = old.scope in ("register", "scratch")  # other scopes were chosen for what sees them
    new = small if own and fits_registers(small) else new.replace(scope="scratch") if own else new

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i - Index(low) for i, (low, _) in zip(indices, plan.box, strict=True))

    nested = replace_at(plan.path, _allocated(plan.path[-1], old))
    body = replace_buffer(without_alloc(nested, old), old, new, place)
    return p.with_body(body, MemoryRef(new.name))


def _extent(low: Int, high: Int, facts: Facts) -> Int:
    """From a first place to a last one; where loops run over nothing there may be none."""
    extent = facts.simplify(high - low + 1)
    return extent if facts.nonneg(extent) else maximum(extent, 0)


def _at_most(extent: Int, facts: Facts) -> Int:
    """The greatest number that the extent can be, or itself: registers have constant extents."""
    top = facts.bounds(extent)[1]
    return extent if top is None else const(top)


@dataclass(frozen=True)
class _Plan:
    buffer: Buffer
    path: tuple[Stmt, ...]  # to the innermost statement that holds all uses
    box: tuple[Span, ...]


def check_shrink_buffer(p: Program, buffer: str, outside: str | None = None) -> _Plan:
    """The function allocates the buffer, no call gets its address, and no iteration of a loop
    that the allocation moves into reads what another one wrote."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("shrink_buffer", f"buffer {buffer}", reason)

    old, root = p.buffer(buffer), p.function.body
    outer = path_to(root, lambda s: isinstance(s, Alloc) and s.buffer is old)
    if outer is None:
        raise refuse("it is a parameter")
    if any(a.buffer is old and a.indices is None for a in accesses(root)):
        raise refuse("a call takes its address")
    path = (*outer, *_way_to_uses(outer[-1], old, outside))
    uses = [a for a in accesses(path[-1]) if a.buffer is old]
    if not uses:
        raise refuse("nothing uses it")
    crossed = [s for s in path[len(outer) : -1] if isinstance(s, For)]
    if crossed:
        _check_private(p, old, crossed, path, refuse)
    known = {s.var for s in path[:-1] if isinstance(s, For)} | p.sizes
    facts = p.inside(path[:-1])
    box = touched_box(uses, frozenset(known), facts)
    # What divides by a size that may be 0 says nothing where it is: there all is kept.
    whole = ((const(0), extent - 1) for extent in old.shape)
    spans = zip(box, whole, strict=True)
    kept = tuple(s if all(_is_defined(x, facts) for x in s) else every for s, every in spans)
    return _Plan(old, path, kept)


def _is_defined(x: Int, facts: Facts) -> bool:
    """Whether no divisor in it can be 0."""
    return all(map(facts.positive, divisors(x)))


def _way_to_uses(alloc: Stmt, buffer: Buffer, outside: str | None) -> tuple[Stmt, ...]:
    """From the allocation's body down to the innermost sequence, block or loop that is reduced over
    around all uses."""
    assert isinstance(alloc, Alloc)
    way: list[Stmt] = [alloc.body]
    while True:
        match way[-1]:
            case Seq(stmts=parts):
                uses = [s for s in parts if buffer in used(s)]
                if len(uses) != 1:
                    return tuple(way)
                way.append(uses[0])
            case For() as loop if loop.var == outside or _keeps_results(loop, buffer):
                return tuple(way)
            case For(kind=kind) if kind in REAL_AXES and kind not in private_axes(buffer.scope):
                return tuple(way)
            case For(body=body) | Alloc(body=body):
                way.append(body)
            case _:
                return tuple(way)


def _keeps_results(loop: For, buffer: Buffer) -> bool:
    """Whether a block that starts itself adds to the buffer from one iteration to the next."""
    return any(
        isinstance(s, Block) and s.init is not None and loop.var in reduction_loops(s)
        for s in statements(loop)
        if buffer in used(s)
    )


def _allocated(s: Stmt, buffer: Buffer) -> Stmt:
    """`s` with the buffer's life from its first use to its last."""
    if not isinstance(s, Seq):
        return Alloc(buffer, s)
    uses = [k for k, part in enumerate(s.stmts) if buffer in used(part)]
    first, last = uses[0], uses[-1] + 1
    alloc = Alloc(buffer, seq(*s.stmts[first:last]))
    return seq(*s.stmts[:first], alloc, *s.stmts[last:])


def _check_private(
    p: Program, buffer: Buffer, crossed: Sequence[For], path: tuple[Stmt, ...], refuse: Refuse
) -> None:
    """Every element that an iteration reads was written in the same iteration."""
    here, names = path[-1], {x.var for x in crossed}
    try:
        started = lower_init(Function("part", (), p.function.sizes, here)).body
    except CannotSeparateError as error:
        raise refuse(str(error)) from error
    blocks = {s.name: s for s in statements(started) if isinstance(s, Block)}
    uses = [a for a in accesses(started) if a.buffer is buffer]
    writes = [a for a in uses if a.write]
    outside = p.inside(tuple(s for s in path[:-1] if s not in crossed))
    facts = p.inside(path[:-1])
    found = set[tuple[object, ...]]()  # a later read of the same place finds the same
    for r in uses:
        if r.write or (r.indices, r.loops) in found:
            continue
        if any(_covers(w, r, blocks.get(w.block), facts) for w in writes):
            found.add((r.indices, r.loops))
            continue
        if not all(names <= agreed_loops(w, r, crossed, outside) for w in writes):
            reader = f"block {r.block}" if r.block else "a statement"
            reason = f"{reader} may read what another iteration of {crossed[-1].var} wrote"
            raise refuse(reason)


def _covers(w: Access, r: Access, block: Block | None, facts: Facts) -> bool:
    """Whether the store, which comes before the load, writes all that the load reads, for every
    value of the loops around both."""
    if w.position > r.position or (block is None and w.where) or _elsewhere(w, r):
        return False
    if block is not None and not all(is_domain(c, block, facts) for c in w.where):
        return False
    both = {x.var for x in common_loops(w.loops, r.loops)}
    inside = _in_bounds(r, declare_loops(facts, [x for x in w.loops if x.var in both]), both)
    if inside is None:
        return True
    own = [x for x in w.loops if x.var not in both]
    places = [w.index(d) for d in range(r.buffer.rank)]
    known = [x for x in places if x is not None]
    if len(known) < len(places) or any(not x.extent.names.isdisjoint(_vars(own)) for x in own):
        return False
    used = [x for x in own if any(x.var in i.names for i in known)]
    if not all(inside.positive(x.extent) for x in own if x not in used):
        return False
    reading = [x for x in r.loops if x.var not in both]
    outside = _names(w) | _names(r)
    have = touched_box([replace(w, loops=tuple(own))], outside - _vars(own), inside)
    need = touched_box([replace(r, loops=tuple(reading))], outside - _vars(reading), inside)
    for (low, high), (first, last) in zip(have, need, strict=True):
        if not (inside.le(low, first) and inside.le(last, high)):
            return False
    starts = tuple(i - low for i, (low, _) in zip(known, have, strict=True))
    shape = tuple(inside.simplify(high - low + 1) for low, high in have)
    filled = IndexMap(tuple(x.var for x in used), tuple(x.extent for x in used), starts)
    return filled.covers(shape, inside)


def _elsewhere(a: Access, b: Access) -> bool:
    """Whether numbers say that they are in different places: most pairs of unrolled ones are."""
    places = ((a.index(d), b.index(d)) for d in range(a.buffer.rank))
    return any(
        x is not None and y is not None and x.is_const and y.is_const and x != y for x, y in places
    )


def _in_bounds(a: Access, facts: Facts, known: set[str]) -> Facts | None:
    """The facts where the access happens, of what does not change in its other loops: it is within
    the buffer, so that an index of a dimension of one element can only be 0. None where it is in
    no place of the buffer: then it never happens."""
    inside, own = facts.copy(), {x.var for x in a.loops} - known
    for d, extent in enumerate(a.buffer.shape):
        index = a.index(d)
        if index is not None and index.names.isdisjoint(own):
            try:
                inside.assume_le(0, index)
                inside.assume_le(index, extent - 1)
            except ContradictionError:
                return None
    return inside


def _vars(loops: Sequence[For]) -> frozenset[str]:
    return frozenset(x.var for x in loops)


def _names(a: Access) -> frozenset[str]:
    """All variables in its indices, its loops' extents and its buffer's shape."""
    found = [i.int_ for i in a.indices or () if isinstance(i, Index)]
    found += [*a.buffer.shape, *(x.extent for x in a.loops)]
    return frozenset[str]().union(*(x.names for x in found))
