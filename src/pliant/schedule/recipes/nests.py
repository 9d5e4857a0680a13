"""Steps that several recipes take: inlining, order, fusing what lies together, vectors."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import Final

from pliant.ir.expr import Index, Load, loads_of
from pliant.ir.node import Node
from pliant.ir.tensor import Compute
from pliant.loop.reducer import Reducer
from pliant.loop.regions import Access, bindings_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import (
    Block,
    Buffer,
    BufferRef,
    Combine,
    For,
    Stmt,
    Store,
    offset_of,
    statements,
)
from pliant.lower.access import cost_of
from pliant.lower.canonical import Spec
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, IntLike, as_int, maximum
from pliant.sym.facts import Facts

PARALLEL_WORK: Final = 32768  # elementary operations worth a thread of their own
CHOSEN: Final = 8 << 10  # bytes of rows between what is read and what is asked for
MANY: Final = 64  # rows that are not in the first cache anyway


def inline_maps(p: Program, spec: Spec, maps: Iterable[str]) -> Program:
    """Each map's value is computed again by every reader; those that are outputs stay too."""
    for name in maps:
        p = p.compute_inline(name, keep=True) if name in spec.outputs else p.compute_inline(name)
    return p


def localize(p: Program, block: str) -> tuple[Program, str]:
    """A block that writes an output writes a buffer of the program's own instead, which all its
    readers read. Gives the block that stores the output (or the block itself)."""
    outputs = [b.name for b in p.function.buffers if b.name in p.written(block)]
    if not outputs:
        return p, block
    p = p.cache_write(block, buffer=outputs[0])
    stored = str(p.made[0])
    return p.compute_inline(stored, keep=True), stored


def in_memory_order(p: Program, spec: Spec, blocks: Sequence[str]) -> tuple[Program, list[str]]:
    """One nest of loops over the space, in the order in which it lies in memory, around all
    blocks (which write tensors of the space); those that run once are outside. Gives the loops,
    outermost first."""
    nests: list[list[str]] = []
    order = sorted(spec.order, key=lambda d: spec.space[d] != 1)
    for block in sorted(blocks, key=p.blocks.index):  # outputs may be named in any order
        loops = p.loops(block)[: len(spec.space)]
        nests.append([loops[d] for d in order])
        if len(loops) > 1:
            p = p.reorder(*nests[-1])
    first, *others = nests
    for other in others:
        for a, b in zip(first, other, strict=True):
            p = p.merge(a, b)
    return p, first


def reduced_nest(spec: Spec) -> tuple[Program, list[str], Int]:
    """Where recipes of a reduction and the maps that follow it start: its sums are stored in a
    buffer of the program's own, the maps are computed where they are wanted. Gives the loops over
    what the outputs have, outermost first, and the operations for an element of it."""
    anchor, tensor = spec.members[0]
    assert isinstance(tensor, Compute)
    p, stored = localize(start(spec), anchor)
    p = inline_maps(p, spec, [name for name, _ in spec.members[1:]])
    work = as_int(work_of(p, [anchor]))
    for axis in tensor.reduce_axes:
        work = work * axis.extent
    p, loops = in_memory_order(p, spec, [stored if o == anchor else o for o in spec.outputs])
    return p, loops, work


def collapse(p: Program, loops: Sequence[str]) -> tuple[Program, list[str]]:
    """Fuse neighbours (outer a, inner b) where every access moves `extent of b` times as far along
    a as along b."""
    kept = list(loops)
    at = len(kept) - 1
    while at > 0:
        outer, inner = kept[at - 1], kept[at]
        if _one_run(p, outer, inner):
            p = p.fuse(outer, inner)
            kept[at - 1 : at + 1] = [p.made[0]]
        at -= 1
    return p, kept


def _one_run(p: Program, outer: str, inner: str) -> bool:
    a, b = p.loop(outer), p.loop(inner)
    if 1 in (a.extent, b.extent):
        return True
    if b.extent.is_const and b.extent.value == 0:
        return False
    facts = p.inside(p.loop_path("collapse", outer)[:-1])
    return all(_runs_on(x, a, b, facts) for x in positions(a))


def _runs_on(x: Int, a: For, b: For, facts: Facts) -> bool:
    if a.var not in x.names and b.var not in x.names:
        return True
    along_a, along_b = x.linear(a.var), x.linear(b.var)
    if along_a is None or along_b is None:
        return False
    return facts.equal(along_a[0], along_b[0] * b.extent)


def positions(root: Stmt) -> list[Int]:
    """Every element offset of a load or store below, and every integer used as a number, in terms
    of loops. (What a data-dependent offset depends on is among the integers.)"""
    found: dict[Int, None] = {}
    for block in (s for s in statements(root) if isinstance(s, Block)):
        at = bindings_of(block)
        for s in statements(block.body):
            if isinstance(s, Store | Combine):
                _note(subst(s, at), found)
        if block.where is not None:
            _note(subst(block.where, at), found)
    return list(found)


def _note(root: Node, found: dict[Int, None]) -> None:
    stack: list[Node] = [root]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node, Buffer | Reducer):
            continue
        seen.add(node)
        match node:
            case Index(x):
                found[x] = None
                continue
            case (
                Load(source=b, indices=indices)
                | Store(buffer=b, indices=indices)
                | BufferRef(buffer=b, indices=indices)
            ):
                offset = offset_of(b, indices)
                if offset is not None:
                    found[offset] = None
                    if isinstance(node, Store):
                        stack.append(node.value)
                    continue
        stack += node.children()


def loads_below(root: Stmt) -> list[Int]:
    """The offsets of all loads below, in terms of loops; not those that depend on data."""
    out: dict[Int, None] = {}
    for block in (s for s in statements(root) if isinstance(s, Block)):
        at = bindings_of(block)
        for s in statements(block.body):
            if isinstance(s, Store | Combine):
                for load in _loaded(subst(s, at)):
                    offset = offset_of(load.source, load.indices)
                    if offset is not None:
                        out[offset] = None
    return list(out)


def read_apart(a: Access, loop: str) -> Int | None:
    """How far apart two iterations of a loop read, where that is always the same; None where it is
    not, or nothing."""
    offset = None if a.write or a.indices is None else offset_of(a.buffer, a.indices)
    along = None if offset is None else offset.linear(loop)
    return None if along is None or along[0] == 0 else along[0]


def _loaded(s: Store | Combine) -> list[Load]:
    if isinstance(s, Store):
        return list(loads_of(s.value))
    return [*(t.load for t in s.targets), *(x for v in s.values for x in loads_of(v))]


def work_of(p: Program, blocks: Iterable[str]) -> int:
    """Elementary operations that the blocks do once each."""
    total = 0
    for name in blocks:
        for s in statements(p.block(name).body):
            match s:
                case Store(value=value):
                    total += cost_of(value)
                case Combine(reducer, _, values):
                    total += sum(map(cost_of, (*reducer.results, *values)))
    return total


def grain(work: IntLike) -> Int:
    """How many iterations, of about `work` operations each, are worth a thread of their own."""
    return maximum(1, as_int(PARALLEL_WORK) // maximum(1, work))


def in_parallel(p: Program, loops: Sequence[str], least: IntLike) -> tuple[Program, str]:
    """One parallel loop of these, from the outermost inwards, `least` iterations of it worth a
    thread. Each is made parallel before: fused, a number that was split is in parts of quotients
    and remainders, and it is not always seen any more that iterations are apart."""
    *outer, last = loops
    for loop in outer:
        p = p.parallel(loop)
    p = p.parallel(last, grain=least)
    if not outer:
        return p, last
    p = p.fuse(*loops)
    return p, p.made[0]


def vectors(p: Program, loop: str, lanes: int) -> tuple[Program, str, list[str]]:
    """The loop in vectors of `lanes`: whole ones, then one with a mask for the rest. One short
    vector where it is known to be short. Gives the loop over vectors, and those to `vectorize`."""
    extent = p.loop(loop).extent
    if extent.is_const and extent.value < lanes:
        width = 1
        while width < extent.value:
            width *= 2
        p = p.split(loop, width)
        outer, inner = p.made
        return p, outer, [inner]
    p = p.split(loop, lanes, tail="peel")
    return p, p.made[0], list(p.made[1:])


def ask_for_chosen(p: Program, row: str, loops: Iterable[str]) -> Program:
    """Vectors that read rows which other values choose ask for what they will read of rows to come:
    of those no processor fetches anything ahead by itself."""
    for loop in loops:
        chosen = (x for x in loads_of(p.loop(loop)) if _chooses(x))
        source = next((x.source for x in chosen), None)
        if isinstance(source, Buffer):
            ahead = maximum(1, as_int(CHOSEN // source.dtype.bytes) // maximum(1, source.shape[-1]))
            with suppress(SchedulingError):  # it has another wish, or the buffer is our own
                p = p.prefetch(loop, source.name, ahead, row)
    return p


def _chooses(x: Load) -> bool:
    """Whether values choose of many rows one that is read."""
    chosen = [not isinstance(i, Index) for i in x.indices]
    many = any(not d.is_const or d.value >= MANY for d in x.source.shape[:-1])
    return many and any(chosen) and not chosen[-1]


def in_vectors(
    p: Program, loops: Iterable[str], lanes: int, large: int, ends: Container[str] = ()
) -> Program:
    """Each of these loops, of constant extent, as vectors one after the other. `ends` are those of
    parts of lines that others complete."""
    for loop in loops:
        parts = loop in ends
        if p.loop(loop).extent.value > lanes:
            p = p.split(loop, lanes)
            several, loop = p.made
            p = p.unroll(several)
        p = vectorize_all(p, [loop], large, parts=parts)
    return p


def vectorize_all(p: Program, loops: Iterable[str], large: int, *, parts: bool = False) -> Program:
    """Each loop as a vector. What outputs of `large` bytes and more get goes past the caches: there
    whoever reads them would find it no longer."""
    for loop in loops:
        p = p.vectorize(loop)
        with suppress(SchedulingError):  # then it is not for an output, or read again here
            p = p.stream(loop, large, parts=parts)
    return p
