"""Elementwise work over one space.

loops in memory order; neighbours that all accesses run through as one are fused, and rows of two,
four or eight elements with what is around them
the innermost in vectors, in parts where it chooses between sources; rows that are parts of longer
ones in a nest for those that are whole and another for the rest
the others, fused, shared between threads
transposing: in squares (`turning`); where there are too few columns or rows for one, or several
outputs, in blocks of TILE x lanes, so that each cache line that is touched is used whole
what computes something else at each place of a period: a period at once (`cases`)
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pliant.lower.canonical import Spec
from pliant.lower.row_facts import LARGE, NEAR
from pliant.schedule.errors import SchedulingError
from pliant.schedule.loop_partition import conditions_in, gap_of, inner_part
from pliant.schedule.program import Program
from pliant.schedule.recipes.cases import by_cases, cases_in
from pliant.schedule.recipes.nests import (
    ask_for_chosen,
    collapse,
    grain,
    in_memory_order,
    in_parallel,
    inline_maps,
    loads_below,
    vectorize_all,
    vectors,
    work_of,
)
from pliant.schedule.recipes.square import squares
from pliant.schedule.recipes.start import start
from pliant.schedule.recipes.turning import turned, turning
from pliant.sym.expr import Int, IntLike, as_int

TILES: Final = (4, 8, 16, 32)  # rows of a block when transposing
TILE: Final = 16  # of them without tuning
WORDS: Final = (2, 4, 8)  # elements of a row that fills no vector
PARTS: Final = 16  # of a row that is joined
WHOLE: Final = 64  # so many are one block where their number is constant


def map_recipe(spec: Spec, lanes: int, large: int = LARGE, near: int = NEAR) -> Program:
    """A schedule for a group of maps."""
    p = inline_maps(start(spec, intrinsics=squares(lanes)), spec, [n for n, _ in spec.members])
    work = work_of(p, spec.outputs)
    p, loops = in_memory_order(p, spec, spec.outputs)
    if cases := cases_in(p, loops):
        return by_cases(p, loops, cases, lanes, work, large)
    p, loops = collapse(p, loops)
    if not loops:
        return p
    p, loops = _words(p, loops, lanes)
    *outer, last = loops
    across = _across(p, loops)
    if across is not None:
        rest = [n for n in outer if n != across]
        with suppress(SchedulingError):  # then sources are read where they lie
            return turning(p, spec, (*rest, across, last), lanes, large, near)
        return _transposing(p, rest, across, last, lanes, work, large)
    if outer:
        p, nests = _filled_first(p, loops)
        for nest in nests:
            p = _by_rows(p, nest, lanes, work, large)
        return p
    p, blocks, inner = vectors(p, last, lanes)
    p = p.parallel(blocks, grain=grain(lanes * work))
    return vectorize_all(p, inner, large)


def _words(p: Program, loops: list[str], lanes: int) -> tuple[Program, list[str]]:
    """Rows of two, four or eight elements, in one loop with what is around them: a vector holds
    several (`codegen.llvm.pieces`). Panels have such, of what is multiplied at once."""
    *outer, last = loops
    few = p.loop(last).extent
    if not outer or not few.is_const or few.value not in WORDS or few.value >= lanes:
        return p, loops
    p = p.fuse(outer[-1], last)
    return p, [*outer[:-1], p.made[0]]


def _filled_first(p: Program, loops: list[str]) -> tuple[Program, list[list[str]]]:
    """The nest in two where rows are parts of longer ones, which end inside of one: those that are
    whole, and the rest. So of panels the last, which their matrix does not fill: vectors with masks
    take longer (Zen 5: a product of 1,024 x 1,024 that packs its operand 1.05 times)."""
    *outer, last = loops
    for condition in conditions_in(p.loop(loops[0])):
        gap = gap_of(p, loops[0], condition)
        for at, loop in enumerate(outer):
            if gap is None or not _goes_on(p, gap, loop, last):
                continue
            first, end = inner_part(p, loop, [condition])
            if first != 0 or end is p.loop(loop).extent:
                continue
            before = set(p.blocks)
            nest = [loop, *outer[:at], *outer[at + 1 :], last]
            with suppress(SchedulingError):
                parted = p.reorder(*nest[: at + 1]) if at else p
                parted = parted.loop_partition(loop, end)
                rest = next(b for b in parted.blocks if b not in before)
                return parted, [nest, list(parted.loops(rest)[-len(nest) :])]
    return p, [loops]


def _goes_on(p: Program, gap: Int, outer: str, last: str) -> bool:
    """Whether the gap, which shrinks along the last loop, shrinks by more than that with each
    iteration of the other: rows follow one another."""
    line, row = gap.linear(outer), p.loop(last)
    if line is None or last not in gap.names or not line[0].is_const:
        return False
    fallen = gap.subs({last: as_int(0)}) - gap.subs({last: row.extent - 1})
    return p.facts.le(fallen + 1, -line[0])


def _by_rows(p: Program, loops: list[str], lanes: int, work: int, large: int) -> Program:
    *outer, last = loops
    p, rows = in_parallel(p, outer, grain(p.loop(last).extent * work))
    p, parts = _parts(p, last)
    inner: list[str] = []
    for part in parts:
        p, _, made = vectors(p, part, lanes)
        inner += made
    return ask_for_chosen(vectorize_all(p, inner, large), rows, inner)


def _parts(p: Program, loop: str, most: int = PARTS) -> tuple[Program, list[str]]:
    """The loop in two parts, where a condition on it holds and where not, and these likewise: what
    several are joined to is copied from one, then from the next."""
    conditions = conditions_in(p.loop(loop))
    ends = [inner_part(p, loop, [c]) for c in reversed(conditions)]  # of the choice around first
    if any(first != 0 for first, _ in ends):
        return p, [loop]
    end = next((end for _, end in ends if end is not p.loop(loop).extent), None)
    if end is None or most < 2:
        return p, [loop]
    try:
        p = p.loop_partition(loop, end)
    except SchedulingError:  # it is not proved to lie in the loop
        return p, [loop]
    parts = list[str]()
    for part in (loop, p.made[0]):
        p, made = _parts(p, part, most // 2)
        parts += made
    return p, parts


def _across(p: Program, loops: list[str]) -> str | None:
    """The outer loop along which some load is contiguous while it jumps along the innermost."""
    *outer, last = loops
    for offset in loads_below(p.loop(loops[0])):
        for name in outer:
            if turned(offset, name, last):
                return name
    return None


def _transposing(
    p: Program, rest: list[str], across: str, last: str, lanes: int, work: int, large: int
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
    p = p.reorder(*rest, blocks, last, row)
    p, _ = in_parallel(p, (*rest, blocks), grain(extent * height * work))
    p, _, inner = vectors(p, last, lanes)
    return vectorize_all(p, inner, large)
