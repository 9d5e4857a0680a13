"""Elementwise work over one space.

loops in memory order; neighbours that all accesses run through as one are fused
the innermost in vectors; the others, fused, shared between threads
transposing: blocks of TILE x lanes, so that each cache line that is touched is used whole
"""

from __future__ import annotations

from typing import Final

from pliant.lower.canonical import Spec
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import (
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
from pliant.sym.expr import IntLike

TILES: Final = (4, 8, 16, 32)  # rows of a block when transposing
TILE: Final = 16  # of them without tuning
WHOLE: Final = 64  # so many are one block where their number is constant


def map_recipe(spec: Spec, lanes: int) -> Program:
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
        return _transposing(p, outer, across, last, lanes, work)
    extent = p.loop(last).extent
    if outer:
        p = p.fuse(*outer)
        (rows,) = p.made
        p = p.parallel(rows, grain=grain(extent * work))
        p, _, inner = vectors(p, last, lanes)
    else:
        p, blocks, inner = vectors(p, last, lanes)
        p = p.parallel(blocks, grain=grain(lanes * work))
    return vectorize_all(p, inner)


def _across(p: Program, loops: list[str]) -> str | None:
    """The outer loop along which some load is contiguous while it jumps along the innermost."""
    *outer, last = loops
    for offset in loads_below(p.loop(loops[0])):
        along_last = offset.linear(last)
        if along_last is None or along_last[0] == 0 or along_last[0] == 1:
            continue
        for name in outer:
            along = offset.linear(name)
            if along is not None and along[0] == 1:
                return name
    return None


def _transposing(
    p: Program, outer: list[str], across: str, last: str, lanes: int, work: int
) -> Program:
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
    rest = [n for n in outer if n != across]
    p = p.reorder(*rest, blocks, last, row)
    p = p.fuse(*rest, blocks)
    (tasks,) = p.made
    p = p.parallel(tasks, grain=grain(extent * height * work))
    p, _, inner = vectors(p, last, lanes)
    return vectorize_all(p, inner)
