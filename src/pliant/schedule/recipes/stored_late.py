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

The pass before the dear one can run in that loop too, for the row after the next (softmax: the
maximum): then what follows from one row's sums is waited for once, not twice, and that pass waits
for nothing that it reads (Zen 5: softmax takes 0.83 to 0.95 as long). Three rows are at work then.

Where nothing is dear and rows come from memory, the pass beside is the first one, which reads them
(layer norm: the mean of the next row); what lies between the two goes over the next row alone.

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
from pliant.loop.stmt import For, stored
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import PARALLEL_WORK, grain
from pliant.sym.expr import IntLike, as_int, maximum, minimum, var

TOGETHER: Final = 64  # rows, of which the first is computed and the last stored alone
PARTS: Final = 16  # of all rows, at least, so that threads have something to share
LEAST: Final = 8 * PARALLEL_WORK  # … but for parts of little work, which gain by having several


def store_late(
    p: Program, row: str, outputs: Container[str], last: str, beside: str, early: str,
    work: IntLike, run: int,
) -> tuple[Program, str, str, str] | None:  # fmt: skip
    """The program in which the loop `last` over blocks of columns, which stores to the outputs, of
    one row runs with `beside` of the next, `run` blocks at a time, and, if there is one, with
    `early` of the row after it; `work` is what a row takes. Gives the loops over parts of the rows,
    which threads share, over the rows of a part, and over the columns of them all; None where it
    cannot be."""
    with suppress(SchedulingError):
        rows = p.loop(row).extent
        some = minimum(TOGETHER, maximum(rows // PARTS, as_int(LEAST) // maximum(1, work)))
        p = p.name_size("together", maximum(1, some))
        p = p.split(row, var("together"), tail="clip")
        part, row = p.made
        p = p.parallel(part, grain=grain(work * var("together")))
        p = p.software_pipeline(row, *_times(p, row, outputs, beside, early))
        p = p.expand_pipeline(row)
        if run > 1:
            p = p.split(last, run, tail="clip")
            last = p.made[0]
            p = p.split(beside, run, tail="clip")
            beside = p.made[0]
        p = p.merge(last, beside)
        return p.merge(last, early) if early else p, part, row, last
    return None


def _times(
    p: Program, row: str, outputs: Container[str], beside: str, early: str
) -> tuple[list[int], list[int]]:
    """What stores to the outputs comes an iteration late, right before that loop; what comes before
    that one (but for what it adds to) an iteration early, its last loop right behind."""
    parts = pipeline_of(p.loop(row), (), ()).parts
    loops = [s.var if isinstance(s, For) else "" for s in parts]
    at, first = loops.index(beside), loops.index(early) if early else -1
    made = [{place.buffer for place in stored(x)} for x in parts]
    late = [k for k, x in enumerate(made) if any(b.name in outputs for b in x)]
    soon = [k for k in range(at) if early and k not in late and not made[k] & made[at]]
    rest = [k for k in range(len(parts)) if k not in late and k not in soon]
    order = [k for k in soon if k < first] + [k for k in rest if k < at] + late
    order += [at] + [k for k in soon if k == first]
    order += [k for k in rest if k > at] + [k for k in soon if k > first]
    stages = [2 if k in late else 0 if k in soon else 1 for k in range(len(parts))]
    return [s - min(stages) for s in stages], [order.index(k) for k in range(len(parts))]
