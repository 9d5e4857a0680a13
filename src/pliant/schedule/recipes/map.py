"""Elementwise work over one space.

loops in memory order; neighbours that all accesses run through as one are fused
the innermost in vectors; the others, fused, shared between threads
transposing: blocks of TILE x lanes, so that each cache line that is touched is used whole; of large
sources in two steps, a copy of the block as its lines lie, and the block from there. Lines that are
a power of two apart share few places in the cache: a block read across them, one element of each at
a time, would push out each line before its next element is wanted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pliant.ir.expr import loads_of
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Buffer, Store, offset_of, statements
from pliant.lower.canonical import Spec
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import (
    LARGE,
    collapse,
    grain,
    in_memory_order,
    inline_maps,
    loads_below,
    vectorize_all,
    vectors,
    work_of,
)
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, IntLike

TILES: Final = (4, 8, 16, 32)  # rows of a block when transposing
TILE: Final = 16  # of them without tuning
WHOLE: Final = 64  # so many are one block where their number is constant


def map_recipe(spec: Spec, lanes: int, large: int = LARGE) -> Program:
    """A schedule for a group of maps."""
    p = inline_maps(start(spec), spec, [n for n, _ in spec.members])
    work = work_of(p, spec.outputs)
    p, loops = in_memory_order(p, spec, spec.outputs)
    p, loops = collapse(p, loops)
    if not loops:
        return p
    *outer, last = loops
    across = _across(p, loops)
    if across is not None:
        return _transposing(p, outer, across, last, lanes, work, large)
    extent = p.loop(last).extent
    if outer:
        p = p.fuse(*outer)
        (rows,) = p.made
        p = p.parallel(rows, grain=grain(extent * work))
        p, _, inner = vectors(p, last, lanes)
    else:
        p, blocks, inner = vectors(p, last, lanes)
        p = p.parallel(blocks, grain=grain(lanes * work))
    return vectorize_all(p, inner, large)


def _across(p: Program, loops: list[str]) -> str | None:
    """The outer loop along which some load is contiguous while it jumps along the innermost."""
    *outer, last = loops
    for offset in loads_below(p.loop(loops[0])):
        for name in outer:
            if _turned(offset, name, last):
                return name
    return None


def _turned(offset: Int, across: str, last: str) -> bool:
    """Contiguous along `across`, and jumping along `last`."""
    along_last, along = offset.linear(last), offset.linear(across)
    if along_last is None or along is None:
        return False
    return along[0] == 1 and along_last[0] != 0 and along_last[0] != 1


def _transposing(
    p: Program, outer: list[str], across: str, last: str, lanes: int, work: int, large: int
) -> Program:
    extent, rows = p.loop(last).extent, p.loop(across).extent
    turned = _read_across(p, across, last)
    height: IntLike = TILE
    staging = False
    if rows.is_const and rows.value <= WHOLE:
        p = p.add_unit_loop(across)
        blocks, row = p.made[0], across
    else:
        p = p.sample_categorical("tile", TILES, default=TILE)
        (height,) = p.numbers
        p = p.split(across, height, tail="clip")
        blocks, row = p.made
        staging = True
    rest = [n for n in outer if n != across]
    p = p.reorder(*rest, blocks, last, row)
    p = p.fuse(*rest, blocks)
    (tasks,) = p.made
    copies: list[str] = []
    if staging and turned:
        p = p.split(last, lanes, tail="clip")
        square, last = p.made
        for block, source in turned:
            with suppress(SchedulingError):  # then it is read where it lies
                q, made = _staged(p, block, source, square, lanes)
                p, copies = (q, copies + made) if made else (p, copies)
    p = p.parallel(tasks, grain=grain(extent * height * work))
    p, _, inner = vectors(p, last, lanes)
    return vectorize_all(p, [*copies, *inner], large)


def _read_across(p: Program, across: str, last: str) -> list[tuple[str, str]]:
    """Blocks and what they read in one place, across the lines."""
    out = list[tuple[str, str]]()
    for name in p.blocks:
        block = p.block(name)
        at = bindings_of(block)
        stores = [subst(s, at) for s in statements(block.body) if isinstance(s, Store)]
        loads = [x for s in stores for x in loads_of(s.value)]
        sources = [x.source for x in loads]
        for load in dict.fromkeys(loads):
            offset = offset_of(load.source, load.indices)
            once = sources.count(load.source) == 1 and isinstance(load.source, Buffer)
            if once and offset is not None and _turned(offset, across, last):
                out.append((name, load.source.name))
    return out


def _staged(
    p: Program, block: str, source: str, square: str, lanes: int
) -> tuple[Program, list[str]]:
    """A copy of what one iteration of `square` reads of the source, and its loops to vectorize;
    none where the copy would be of more than that."""
    p = p.cache_read(block, source)
    copy, memory = p.made
    p = p.compute_at(copy, square)
    loops = list(p.made)
    p = p.shrink_buffer(memory)
    room = p.buffer(memory).room
    if not room.is_const or room.value > max(TILES) * lanes:
        return p, []
    offsets = [x.linear(n) for x in loads_below(p.loop(loops[0])) for n in loops[-1:]]
    if any(x is None or x[0] != 1 for x in offsets):
        return p, []
    p, _, inner = vectors(p, loops[-1], lanes)
    return p, inner
