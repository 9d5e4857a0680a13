"""Bring a bare block to an intrinsic, whatever the operator: a schedule made of primitives.

    for n, o, p in grid(N, O, P):                    pack w in panels of 32
        for c, k in grid(C, K):                      for chunk, block:
            y[n, o, p] += x[n, c, p + k]     ->          where rows of x begin
                          * w[o, c, k]                   for panel, tile:
                                                             mm(rows of x, panel of w, local)
                                                             y = local

Which iterators run as which of the intrinsic's is for `ir.mapping` to say; here follows what that
takes: the block gets these iterators, what it writes is collected in a tile, operands are copied to
where the intrinsic wants them, or found through a table where it looks there, loops are split into
tiles, and the tile is replaced by a call. What is summed up is padded where the intrinsic takes
whole tiles of it; what zero points take away is summed apart before, and a sum of terms that are
zero but in steps (a transposed convolution) is one block for each phase. An intrinsic that becomes
part of its caller adds to registers (`in_lanes`). Outer loops are left to be scheduled. All
mappings to all intrinsics are tried, best first, until one is not refused.

Source: TensorIR (ASPLOS'23), section 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from math import gcd, prod
from typing import Final

from pliant.ir.einsum import Einsum, NoEinsum, names_in
from pliant.ir.expr import Axis, Expr, Index, Load, loads_of
from pliant.ir.mapping import Found, IteratorMap, Operand, match_iterators
from pliant.ir.node import walk
from pliant.loop.einsum import einsum_of_block, einsum_of_function, joined
from pliant.loop.stmt import Block, Store, statements
from pliant.schedule.arrange import Arranged, Rows, arrange, row_tiles, rows_by_table
from pliant.schedule.errors import SchedulingError
from pliant.schedule.in_lanes import in_lanes
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.phases_apart import check_phases_apart
from pliant.schedule.program import BlockRef, LoopRef, Program
from pliant.schedule.vector_copies import copies_in_vectors
from pliant.sym.atoms import DivAtom
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, var

SHARE: Final = 8  # tiles in a block: what they read together stays in the cache
MIN_RUN: Final = 8  # shorter runs of elements are copied into longer ones


def mappings_to(p: Program, block: str, intrinsic: str, constants: Set[str] = frozenset()) -> Found:
    """All ways in which the block's iterators can run as an intrinsic's, best first, and why there
    are no others. `constants` are buffers that hold the same in every call."""
    path = p.block_path("auto_tensorize", block)
    facts = p.inside(path)
    known = p.intrinsics.get(intrinsic)
    if known is None:
        raise _refusal(block, f"the program has no intrinsic {intrinsic!r}")
    try:
        workload = einsum_of_block(p.block(block), facts)
        form, _ = joined(einsum_of_function(known.semantics))
    except NoEinsum as error:
        return Found((), (str(error),))
    return match_iterators(workload, form, facts=facts, constants=constants)


def auto_tensorize(
    p: Program,
    block: str,
    intrinsics: Sequence[str],
    *,
    constants: Set[str] = frozenset(),
) -> Program:
    """The program with the block run by one of its `intrinsics` (by name, preferred ones first).

    Raises SchedulingError with the reasons where none can.
    """
    reasons: list[str] = []
    apart = groups_apart(p, block)
    ways = [(p, (block,))] if apart is None else [(p, (block,)), (apart, (block,))]
    for name in intrinsics:
        phases = phases_alone(p, block, name)
        for q, blocks in ways if phases is None else [phases, *ways]:
            done = _all_by(q, blocks, name, constants, reasons)
            if done is not None:
                return copies_in_vectors(done)
    raise _refusal(block, "; ".join(dict.fromkeys(reasons)) or "no intrinsic was given")


def _all_by(
    p: Program, blocks: Sequence[str], name: str, constants: Set[str], reasons: list[str]
) -> Program | None:
    """The program with all of these blocks run by an intrinsic; where one cannot, None, and why."""
    for block in blocks:
        found = mappings_to(p, block, name, constants)
        reasons += [f"{name}: {r}" for r in found.reasons if not found.maps]
        for m in found.maps:
            try:
                p = tensorized(p, block, name, m)
            except SchedulingError as error:
                reasons.append(f"{name} by {m}: {error}")
            else:
                break
        else:
            return None
    return p


def phases_alone(p: Program, block: str, intrinsic: str) -> tuple[Program, tuple[str, ...]] | None:
    """The program with a block for each phase of a sum whose terms are zero but in steps (a
    transposed convolution's), and those of them that sum up anything; None where it is no such sum.
    What each writes is collected by its own iterators. What they all read is copied once."""
    try:
        check_phases_apart(p, block)
        for m in mappings_to(p, block, intrinsic).maps[:1]:
            form, _ = joined(einsum_of_function(p.intrinsics[intrinsic].semantics))
            p, _ = _relaid(p, block, intrinsic, m, form)
        p = p.phases_apart(block)
        made = [str(b) for b in p.made]
        sums = [b for b in made if all(i.extent != 0 for i in p.block(b).iters if i.kind == "R")]
        for b in sums:
            p = p.reindex(b, _stored(p, b).buffer.name)
    except SchedulingError:
        return None
    return p, tuple(sums)


def groups_apart(p: Program, block: str) -> Program | None:
    """The program with iterators of which an operand needs only the quotient by a number (groups
    of channels) split into quotient and remainder; None where there are none, or not in whole
    groups. What the block writes is collected by the new iterators."""
    target, facts = p.block(block), p.inside(p.block_path("auto_tensorize", block))
    parts: list[Int] = []
    for d, it in enumerate(target.iters):
        at = var(f"_{d}")
        step = _quotient_step(target, it.var) if it.kind == "S" else None
        whole = step is not None and step != 1 and facts.divisible(it.extent, step)
        parts += [at // step, at % step] if step is not None and whole else [at]
    if len(parts) == len(target.iters):
        return None
    try:
        p = p.transform_block_layout(block, tuple(parts))
        return p.reindex(block, _stored(p, block).buffer.name)
    except SchedulingError:
        return None


def _quotient_step(target: Block, name: str) -> Int | None:
    """What an iterator is divided by where the block reads."""
    for node in walk(target.body):
        if isinstance(node, Index) and name in node.int_.names:
            for _, factors in node.int_.terms():
                for atom, _ in factors:
                    if isinstance(atom, DivAtom) and atom.num is var(name):
                        return atom.den
    return None


def _refusal(block: str, reason: str) -> SchedulingError:
    return SchedulingError("auto_tensorize", f"block {block}", reason)


@dataclass(frozen=True)
class _Tiles:
    """Loops of the nest by the intrinsic's iterators: over blocks of tiles, over tiles, and the
    intrinsic's own."""

    blocks: Mapping[str, LoopRef]
    tiles: Mapping[str, LoopRef]
    inner: Mapping[str, LoopRef]


def tensorized(p: Program, block: str, intrinsic: str, m: IteratorMap) -> Program:
    """The program with the block run by the intrinsic in this way. Raises SchedulingError."""
    known = p.intrinsics[intrinsic]
    form, group = joined(einsum_of_function(known.semantics))
    if any(o.zero is not None for o in m.operands):
        p = p.sum_apart(block)
        m = _same_map(p, block, intrinsic, m, "without its zero points")
    if known.inside:
        return in_lanes(p, block, intrinsic, m, form, _written_at(p, block))
    p, m, pads = _whole_sums(p, block, intrinsic, m, form)
    p, m = _relaid(p, block, intrinsic, m, form)
    p, nest = arrange(p, block, form, m.groups, m.outside, _written_at(p, block))
    store: str = nest.store
    reader = _copied_on(p, nest)
    if reader is not None:
        p, store = p.compute_inline(store), reader
    p = p.transform_block_layout(store, nest.space)
    gather = any(_gathers(p, o, m, form, nest) for o in m.operands if o.moves)
    for o in m.operands:
        if not o.moves:
            p = _in_place(p, block, o, form, nest, fused=gather and group > 1)
    p, t = _split(p, nest, known, form)
    over = [a.var for a in reversed(form.outer)]
    outer = [
        *(t.blocks[v] for v in over if v in t.blocks),
        *(t.tiles[v] for v in over if v in t.tiles),
    ]
    summed = [*nest.summed, *(t.tiles[a.var] for a in form.inner if a.var in t.tiles)]
    inner = [t.inner[v] for v in form.extents if v in t.inner]
    p = p.reorder(*nest.outside, *outer, *summed, *inner)
    around = (*nest.outside, *outer)
    if around:
        p = p.reverse_compute_at(store, around[-1]).shrink_buffer(nest.product)
    if p.block(block).where is not None:
        p = p.pad_block(block)
    reduced = [t.inner[a.var] for a in form.inner if a.var in t.inner]
    start = reduced[0] if form.begins else (*summed, *inner)[0]
    along = inner[-1]
    for o in m.operands:
        if o.moves:
            p, rows = _through_table(p, block, o, form, t, around, gather=gather)
            start, along = rows.position, rows.along
    if group > 1:
        p = p.split(along, group, tail="clip")
        start = LoopRef(p.made[0]) if start == along else start
    p = p.decompose_reduction(block, start)
    p = _called(p, inner[0], known)
    for pad in pads:
        with suppress(SchedulingError):  # the call reads it where it lies
            p = p.compute_inline(pad)
    return p


def _same_map(p: Program, block: str, intrinsic: str, m: IteratorMap, how: str) -> IteratorMap:
    """The mapping in the same groups of what the block has become."""
    for found in mappings_to(p, block, intrinsic).maps:
        if found.groups == m.groups and all(o.zero is None for o in found.operands):
            return found
    raise _refusal(block, f"{how} it does not fit {intrinsic} any more")


def _copied_on(p: Program, nest: Arranged) -> str | None:
    """The block that makes a parameter of what the store writes, if that is all that reads it."""
    written = _stored(p, nest.store).buffer
    if written in p.function.buffers:
        return None
    readers = [b for b in p.blocks if any(x.source is written for x in loads_of(p.block(b)))]
    return str(readers[0]) if len(readers) == 1 else None


def _written_at(p: Program, block: str) -> list[str]:
    """Which iterator each dimension of the output is."""
    store = _stored(p, block)
    names = [str(i.int_) if isinstance(i, Index) else "" for i in store.indices]
    if len(set(names)) < len(names) or not set(names) <= {i.var for i in p.block(block).iters}:
        raise _refusal(block, f"it does not write {store.buffer.name} at distinct iterators")
    return names


# ---- sums that are no whole tiles


def _whole_sums(
    p: Program, block: str, intrinsic: str, m: IteratorMap, form: Einsum
) -> tuple[Program, IteratorMap, tuple[BlockRef, ...]]:
    """The program in which what is summed up is whole tiles of the intrinsic's, where it takes only
    such, with copies of the operands that hold padding; the mapping to that, and the copies."""
    copies: tuple[BlockRef, ...] = ()
    for axis in form.inner:
        if m.groups[axis.var] and axis.extent.is_const:
            p, made = _padded(p, block, m.groups[axis.var], axis.extent)
            copies += made
    if not copies:
        return p, m, ()
    return p, _same_map(p, block, intrinsic, m, "padded to whole tiles"), copies


def _padded(
    p: Program, block: str, group: Sequence[str], depth: Int
) -> tuple[Program, tuple[BlockRef, ...]]:
    """The program in which these iterators together run a multiple of `depth` times: one of them is
    padded, the innermost that may be."""
    iters = p.block(block).iters
    extents = {i.var: i.extent for i in iters}
    facts = p.inside(p.block_path("auto_tensorize", block))
    if facts.divisible(prod((extents[v] for v in group), start=as_int(1)), depth):
        return p, ()
    first: SchedulingError | None = None
    for padded in reversed(group):
        rest = prod((extents[v] for v in group if v != padded), start=as_int(1))
        step = depth.value // (gcd(depth.value, rest.value) if rest.is_const else 1)
        try:
            q = p.pad_einsum(block, [step if i.var == padded else 1 for i in iters])
        except SchedulingError as error:
            first = first or error
        else:
            return q, tuple(x for x in q.made if isinstance(x, BlockRef))
    assert first is not None
    raise first


# ---- operands that must be copied


def _relaid(
    p: Program, block: str, intrinsic: str, m: IteratorMap, form: Einsum
) -> tuple[Program, IteratorMap]:
    """An operand that a window slides along, so that it is read several times, is copied such that
    its rows lie element after element; gives the mapping to that."""
    last = form.inner[-1].var if form.inner else ""
    for o in m.operands:
        dim = _summed_dim(p, block, o, m.outside) if o.moves and last not in m.runs else None
        if dim is None:
            continue
        at = tuple(var(f"_{d}") for d in range(len(o.load.indices)))
        q = p.cache_read(block, o.load.source.name, layout=(*at[:dim], *at[dim + 1 :], at[dim]))
        for found in mappings_to(q, block, intrinsic).maps:
            rows = [found.groups[a.var] == m.groups[a.var] for a in form.outer]
            if all(rows) and last in found.runs:
                return q, found
    return p, m


def _summed_dim(p: Program, block: str, o: Operand, outside: Sequence[str]) -> int | None:
    """The dimension of an operand with a window that runs along a sum's iterator, and besides those
    outside along no other, and is not short."""
    kinds = {i.var: i for i in p.block(block).iters if i.var not in outside or i.kind == "R"}
    facts = p.inside(p.block_path("auto_tensorize", block))
    windowed, dims = False, list[int]()
    for d, index in enumerate(o.load.indices):
        at = facts.simplify(_int(index))
        names = [v for v in kinds if v in at.names]
        windowed |= len({kinds[v].kind for v in names}) > 1
        if len(names) == 1 and kinds[names[0]].kind == "R":
            line, extent = at.linear(names[0]), kinds[names[0]].extent
            long = not extent.is_const or extent.value >= MIN_RUN
            if long and line is not None and line[0] == 1:
                dims.append(d)
    return dims[-1] if windowed and dims else None


def _in_place(
    p: Program, block: str, o: Operand, form: Einsum, nest: Arranged, *, fused: bool
) -> Program:
    """The operand is copied: tile after tile, each as the intrinsic wants it, with zeros where the
    last ones are not full. With `fused`, what is reduced over is one row, not several."""
    source = o.load.source.name
    whole = p.stage_operand(block, source)
    # What the intrinsic converts itself is not converted on the way.
    p = whole if whole.buffer(whole.made[1]).dtype is o.formal.dtype else p.reindex(block, source)
    copy, staged = p.made[:2]
    here = next(x for x in _loads(p, block) if x.source.name == staged)
    axis = {_name(i): var(f"_{d}") for d, i in enumerate(here.indices)}
    bindings = dict(
        zip((i.var for i in p.block(block).iters), p.block(block).bindings, strict=True)
    )
    place = {str(bindings[v]): x for v, x in axis.items()}  # by loop
    of = {name: place[loop] for name, loop in nest.loops.items() if loop in place}
    lead = [x for loop, x in place.items() if loop not in nest.loops.values()]
    total = {name: p.loop(nest.loops[name]).extent for name in of}
    if fused:
        last, row, length = form.inner[-1].var, as_int(0), as_int(1)
        for name in [a.var for a in form.inner if a.var in of]:
            row, length = row * total[name] + of.pop(name), length * total[name]
        kept = [*lead, *of.values()]
        p = p.transform_layout(staged, (*kept, row)).transform_block_layout(copy, (*kept, row))
        now = [var(f"_{d}") for d in range(len(kept) + 1)]
        lead, of = now[: len(lead)], dict(zip((*of, last), now[len(lead) :], strict=True))
        total[last] = length
    values: dict[str, IntLike] = {}
    tiles: list[Int] = []
    for name, a in form.extents.items():
        if name not in of:
            values[name] = 0
        elif a.extent.is_const:
            tiles.append(of[name] // a.extent)
            values[name] = of[name] % a.extent
        else:
            values[name] = of[name]
    for name, a in form.extents.items():  # those of iterators that run once, too
        values |= _size_of(a, total[name] if name in of else as_int(1))
    inside = [_int(i).subs(values) for i in o.formal.indices]
    layout = (*lead, *tiles, *inside)
    p = p.transform_layout(staged, layout, 0)
    # Who fills gaps runs over the new dimensions already.
    return p.transform_block_layout(copy, layout) if len(p.made) == 1 else p


def _size_of(axis: Axis, total: Int) -> dict[str, IntLike]:
    """The intrinsic's size that an extent tells, or tells in groups."""
    if len(axis.extent.names) != 1:
        return {}
    (size,) = axis.extent.names
    line = axis.extent.linear(size)
    if line is None or not line[0].is_const or line[1] != 0:
        return {}
    return {size: ceildiv(total, line[0])}


# ---- operands that are looked up


def _gathers(p: Program, o: Operand, m: IteratorMap, form: Einsum, nest: Arranged) -> bool:
    """Whether the rows are copied together: where they do not lie element after element, or only a
    few do."""
    reduced = [nest.loops[a.var] for a in form.inner if a.var in nest.loops]
    extent = p.loop(reduced[-1]).extent
    short = extent.is_const and extent.value < MIN_RUN and len(reduced) > 1
    return short or not (o.bare and form.inner[-1].var in m.runs)


def _through_table(
    p: Program,
    block: str,
    o: Operand,
    form: Einsum,
    t: _Tiles,
    around: Sequence[LoopRef],
    *,
    gather: bool,
) -> tuple[Program, Rows]:
    """The operand's rows are found through a table; with `gather`, copies of them."""
    used = names_in(o.formal)
    (row,) = [a.var for a in form.outer if a.var in used]
    reduced = [t.inner[a.var] for a in form.inner if a.var in t.inner]
    tile = t.tiles[row]
    at = around[around.index(tile) - 1] if tile in around[1:] else tile
    blocks = [x for x in around if x in t.blocks.values()]
    return rows_by_table(
        p, block, o.load.source.name, reduced, blocks[-1] if blocks else at, (tile, t.inner[row]),
        gather=gather, dtype="" if o.formal.dtype is form.term.dtype else str(o.formal.dtype),
    )  # fmt: skip


# ---- tiles


def _split(p: Program, nest: Arranged, known: Intrinsic, form: Einsum) -> tuple[Program, _Tiles]:
    """Loops of whole tiles. Where the intrinsic takes tiles of several heights, these are of about
    the same, and some of them are taken together in blocks, which share what they read."""
    blocks, tiles, inner = dict[str, LoopRef](), dict[str, LoopRef](), dict[str, LoopRef]()
    most = dict(known.most)
    outer = {a.var for a in form.outer}
    for name, axis in reversed(form.extents.items()):
        loop = nest.loops.get(name)
        limit = most.get(str(axis.extent))
        if loop is None:
            continue
        if axis.extent.is_const:
            p = p.split(loop, axis.extent)
            tiles[name], inner[name] = map(LoopRef, p.made)
            if most and name in outer:
                p = p.split(tiles[name], SHARE, tail="clip")
                blocks[name], tiles[name] = map(LoopRef, p.made)
        elif limit is None:
            inner[name] = loop
        else:
            p, rows = row_tiles(p, loop, limit, SHARE)
            blocks[name], tiles[name], inner[name] = rows.block, rows.tile, rows.row
    return p, _Tiles(blocks, tiles, inner)


def _called(p: Program, loop: str, known: Intrinsic) -> Program:
    """The tile replaced by a call: to the intrinsic, or to another one that is the same code and
    does more."""
    same = [n for n, i in p.intrinsics.items() if i.callee == known.callee and i is not known]
    first: SchedulingError | None = None
    for name in (known.name, *same):
        try:
            return p.tensorize(loop, name)
        except SchedulingError as error:
            first = first or error
    assert first is not None
    raise first


# ---- looking


def _stored(p: Program, block: str) -> Store:
    """The one store of a block."""
    (store,) = (s for s in statements(p.block(block).body) if isinstance(s, Store))
    return store


def _loads(p: Program, block: str) -> list[Load]:
    store = _stored(p, block)
    return [x for x in walk(store.value) if isinstance(x, Load)]


def _int(index: Expr) -> Int:
    assert isinstance(index, Index)
    return index.int_


def _name(index: Expr) -> str:
    return str(_int(index))
