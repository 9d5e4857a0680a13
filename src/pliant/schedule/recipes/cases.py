"""Maps that compute something else at each of a few places, or places of a period: the transforms
of Winograd's minimal filtering.

    loops over the outer places, a period at a time, shared between threads
        blocks of vectors
            unrolled: the places of a period, of which each knows which case it is
                a vector

What the cases have in common is read and computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from pliant.ir.expr import Binary, Index, Select
from pliant.ir.node import walk
from pliant.loop.regions import bindings_of
from pliant.schedule.nest import blocks_in
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import grain, in_parallel, vectorize_all
from pliant.sym.expr import Int, var

MOST: Final = 8  # cases along a loop
UNROLLED: Final = 64  # along all
FEWEST: Final = 3  # of a loop that has no more: a row put together of two parts has no period
PARTS: Final = 2  # of a complex number: cases where another loop has some


def cases_in(p: Program, loops: Sequence[str]) -> dict[str, int]:
    """The loops by whose place, or by whose place in a period, a value is chosen, with how many
    cases there are: where these are few, and the innermost loop is none of them."""
    if not loops:
        return {}
    extents = {x: p.loop(x).extent for x in loops}
    chosen: dict[str, set[Int]] = {}
    periods: dict[str, int] = {}
    for block in blocks_in(p.loop(loops[0])):
        at = bindings_of(block)
        for node in walk(block.body):
            match node:
                case Select(Binary("eq", Index(a), Index(b))) if b.is_const:
                    found = _period(a.subs({n: x for n, x in at.items() if n in a.names}), extents)
                    if found is not None:
                        loop, period = found
                        chosen.setdefault(loop, set()).add(b)
                        if periods.setdefault(loop, period) != period:
                            return {}
    cases = {
        x: n
        for x, n in periods.items()
        if len(chosen[x]) >= (FEWEST if extents[x] == n else min(FEWEST, n - 1))
    }
    cases |= {x: n for x, n in periods.items() if cases and extents[x] == n == PARTS}
    return cases if loops[-1] not in cases and prod(cases.values()) <= UNROLLED else {}


def _period(place: Int, extents: Mapping[str, Int]) -> tuple[str, int] | None:
    """The loop whose place, or place in a period, that is; and the period."""
    for name in place.names & extents.keys():
        extent = extents[name]
        if place is var(name) and extent.is_const and extent.value <= MOST:
            return name, extent.value
        for n in range(2, MOST + 1):
            if place is var(name) % n:
                return name, n
    return None


def by_cases(
    p: Program, loops: Sequence[str], cases: Mapping[str, int], lanes: int, work: int, large: int
) -> Program:
    """The schedule, for loops in the order of memory. `work` counts all cases, as a period does."""
    *outer, last = loops
    p, around, places = periods(p, outer, cases)
    p = p.reorder(*around, last, *places)
    extent = p.loop(last).extent
    p, blocks, lane = unrolled(p, last, places, lanes)
    if around:
        p, _ = in_parallel(p, around, grain(extent * work))
    else:
        p = p.parallel(blocks, grain=grain(lanes * work))
    return vectorize_all(p, [lane], large)


def periods(
    p: Program, loops: Sequence[str], cases: Mapping[str, int]
) -> tuple[Program, list[str], list[str]]:
    """Loops that have cases go by periods. Gives the loops around, and those over the places."""
    around: list[str] = []
    places: list[str] = []
    for loop in loops:
        extent = p.loop(loop).extent
        if loop not in cases:
            around.append(loop)
        elif extent.is_const and extent.value == cases[loop]:
            places.append(loop)
        else:
            p = p.split(loop, cases[loop])
            around.append(p.made[0])
            places.append(p.made[1])
    return p, around, places


def unrolled(p: Program, last: str, places: Sequence[str], lanes: int) -> tuple[Program, str, str]:
    """The loop in vectors, with all places of a period in each. Gives the loop over vectors and
    that over their lanes, which is still to be vectorized."""
    # Under a mask throughout: whole vectors by themselves would be as much code again.
    p = p.split(last, lanes, tail="mask")
    blocks, lane = p.made
    p = p.reorder(*places, lane)
    for loop in places:
        p = p.unroll(loop)
    return p, blocks, lane
