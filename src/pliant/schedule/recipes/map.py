"""Elementwise work over one space.

loops in memory order; neighbours that all accesses run through as one are fused
the innermost in vectors; the others, fused, shared between threads
transposing: squares of the sources are turned in registers, so that whole lines are read and whole
lines are written; blocks of them are tasks

    for rest, block of rows, block of columns in parallel:
        for column of squares, square:              along the lines that are written
            t[16, 16] = x[…, …] turned
            for c in unrolled(16): for r in vectorized(16): y[…] = f(t[c, r])
    likewise, element by element: what is left of columns, of rows

Where there are too few columns or rows for a square, or more than one output: blocks of TILE x
lanes, so that each cache line that is touched is used whole.
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
from pliant.schedule.recipes.square import square_name, square_of, squares
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, IntLike, as_int, var

TILES: Final = (4, 8, 16, 32)  # rows of a block when transposing
TILE: Final = 16  # of them without tuning
WHOLE: Final = 64  # so many are one block where their number is constant
BLOCKS: Final = (1, 2, 4, 8, 16)  # squares along a side of a block
BLOCK: Final = 8  # of them without tuning


def map_recipe(spec: Spec, lanes: int, large: int = LARGE) -> Program:
    """A schedule for a group of maps."""
    p = inline_maps(start(spec, intrinsics=squares(lanes)), spec, [n for n, _ in spec.members])
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
    rest = [n for n in outer if n != across]
    turned = _read_across(p, across, last)
    if turned and len(p.blocks) == 1:
        (block,) = p.blocks
        with suppress(SchedulingError):  # then it is read where it lies
            return _in_squares(p, block, turned, rest, across, last, lanes, work, large)
    extent, rows = p.loop(last).extent, p.loop(across).extent
    height: IntLike = TILE
    if rows.is_const and rows.value <= WHOLE:
        p = p.add_unit_loop(across)
        blocks, row = p.made[0], across
    else:
        p = p.sample_categorical("tile", TILES, default=TILE)
        (height,) = p.numbers
        p = p.split(across, height, tail="clip")
        blocks, row = p.made
    p = p.reorder(*rest, blocks, last, row)
    p = p.fuse(*rest, blocks)
    (tasks,) = p.made
    p = p.parallel(tasks, grain=grain(extent * height * work))
    p, _, inner = vectors(p, last, lanes)
    return vectorize_all(p, inner, large)


def _read_across(p: Program, across: str, last: str) -> list[str]:
    """What is read in one place, across the lines."""
    out = list[str]()
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
                out.append(load.source.name)
    return out


def _in_squares(
    p: Program,
    block: str,
    sources: list[str],
    rest: list[str],
    across: str,
    last: str,
    lanes: int,
    work: int,
    large: int,
) -> Program:
    """The block, with squares of these sources turned in registers. Refused where some dimension
    is too short for one, or a source lies otherwise than in lines."""
    types = {p.buffer(s).dtype for s in sources}
    side = min(square_of(t, lanes) for t in types)
    for loop in (across, last):
        extent = p.loop(loop).extent
        if len(types) > 1 or side < 2 or (extent.is_const and extent.value < side):
            raise SchedulingError("squares", f"loop {loop}", "no square fits")
    p, (*rest, across, last) = _as_loops(p, block, [*rest, across, last])
    p = p.sample_categorical("squares", BLOCKS, default=BLOCK)
    (many,) = p.numbers
    p = p.reorder(last, across, *rest)
    p = p.split(last, side, tail="peel")
    squares_, line, *few_rows = p.made
    p = p.reorder(across, squares_, line, *rest)
    p = p.split(across, side, tail="peel", tail_loop="exact")
    columns, column, *few_columns = p.made
    left = p.blocks[1:]

    # Blocks of squares.
    p = p.split(squares_, many, tail="clip")
    high, square = p.made
    p = p.split(columns, many, tail="clip")
    wide, columns = p.made
    p = p.reorder(*rest, high, wide, columns, square, column, line)
    for source in sources:
        dims = [as_int(var(f"_{d}")) for d in range(len(p.block(block).iters))]
        p = p.reindex_cache_read(block, source, tuple(dims))
        copy, memory = p.made
        p = p.compute_at(copy, square)
        loops = p.made
        p = p.shrink_buffer(memory)
        p = p.reorder(loops[-1], loops[-2])
        p = p.tensorize(loops[-1], square_name(p.buffer(source).dtype, side))
    p = p.fuse(*rest, high, wide)
    p = p.parallel(p.made[0], grain=grain(side * side * many * many * work))
    p = p.unroll(column)
    lines: list[str] = [line]

    # What is left: of columns, then of rows.
    for name, short in zip(left, filter(None, (few_columns, few_rows)), strict=True):
        loops = p.loops(name)
        end = loops.index(short[-1]) + 1
        own, (whole, *around) = list(loops[:end]), loops[end:]
        if short is few_columns:
            own, around = [*own, around[0]], around[1:]
        around = [*around, whole]
        p = p.reorder(*around, *own)
        p = p.fuse(*around)
        p = p.parallel(p.made[0], grain=grain(side * side * work))
        lines.append(own[-1])
    return vectorize_all(p, lines, large)


def _as_loops(p: Program, block: str, loops: list[str]) -> tuple[Program, list[str]]:
    """The block with an iterator for each of these loops, that some of its own were fused to."""
    own = p.block(block)
    if len(own.iters) == len(loops):
        return p, loops
    entries = list[Int]()
    for loop in loops:
        entry = as_int(0)
        for d, (i, b) in enumerate(zip(own.iters, own.bindings, strict=True)):
            if loop in b.names:
                entry = entry * i.extent + var(f"_{d}")
        entries.append(entry)
    p = p.transform_block_layout(block, tuple(entries))
    return p, list(p.made)
