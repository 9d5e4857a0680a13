"""Rows stored late: while a row is computed, the one before it is stored.

    for rows:                      the first row's passes before the last
        passes but the last        for rows but one:
        last pass: stores      →       passes of the next row; in the dear one this row is stored
                                   the last row's stores

A pass that computes for long with every element (softmax: exp) leaves the units that store alone,
and a pass that only stores waits for memory: past the caches a row takes as long to leave as to
be computed. In one loop each hides the other (Zen 4: softmax takes 0.81 to 0.88 as long, in all
levels of the memory). What is stored lies in a row of its own meanwhile, of which each vector makes
room for that of the next row.

Where memory is the limit and a block of columns is less than some lines, several are stored before
as many are computed: a load waits for a store to the same place of another page, as rows of a power
of two have it, and stores past the caches go out in runs (Zen 3: softmax of rows of 4 KB takes 0.8
to 0.9 as long, of 16 KB 0.65 to 0.93; in the caches 1.04 to 1.13 times; layer norm gains nothing).
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import Final

from pliant.loop.lower_pipeline import pipeline_of
from pliant.loop.stmt import For, Stmt, stored
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import grain
from pliant.sym.expr import IntLike, maximum, minimum, var

TOGETHER: Final = 64  # rows, of which the first is computed and the last stored alone
PARTS: Final = 16  # of all rows, at least, so that threads have something to share


def store_late(
    p: Program, row: str, outputs: Container[str], last: str, dear: str, work: IntLike, run: int
) -> tuple[Program, str, str, str] | None:
    """The program in which the loop `last` over blocks of columns, which stores to the outputs, of
    one row runs with `dear` of the next, `run` blocks at a time; `work` is what a row takes. Gives
    the loops over parts of the rows, which threads share, over the rows of a part, and over the
    columns of both; None where it cannot be."""
    with suppress(SchedulingError):
        rows = p.loop(row).extent
        p = p.name_size("together", maximum(1, minimum(TOGETHER, rows // PARTS)))
        p = p.split(row, var("together"), tail="clip")
        part, row = p.made
        p = p.parallel(part, grain=grain(work * var("together")))
        p = p.software_pipeline(row, *_times(p, row, outputs, dear))
        p = p.expand_pipeline(row)
        if run > 1:
            p = p.split(last, run, tail="clip")
            last = p.made[0]
            p = p.split(dear, run, tail="clip")
            dear = p.made[0]
        return p.merge(last, dear), part, row, last
    return None


def _times(p: Program, row: str, outputs: Container[str], dear: str) -> tuple[list[int], list[int]]:
    """What stores to the outputs comes an iteration late, right before the dear loop."""
    parts = pipeline_of(p.loop(row), (), ()).parts
    late = [_stores_to(x, outputs) for x in parts]
    at = next(k for k, x in enumerate(parts) if _is_loop(x, dear))
    before = [k for k in range(at) if not late[k]]
    stores = [k for k, is_late in enumerate(late) if is_late]
    after = [k for k in range(at, len(parts)) if not late[k]]
    order = [*before, *stores, *after]
    return [int(x) for x in late], [order.index(k) for k in range(len(parts))]


def _stores_to(s: Stmt, outputs: Container[str]) -> bool:
    return any(place.buffer.name in outputs for place in stored(s))


def _is_loop(s: Stmt, name: str) -> bool:
    return isinstance(s, For) and s.var == name
