"""Rows stored in whole cache lines, whatever their lengths.

    for c in grid(n): y[i, c] = …    →    up to the end of the line in which the row begins
                                          whole lines, several vectors at a time
                                          what is left

Only whole lines go past the caches as vectors (`schedule.stream`); rows that fill none exactly
begin anywhere in one, and the vectors of a row would straddle all of its lines. The line in which
one row ends and the next one begins goes past element by element: through the caches it would be
read first, from where no row would be yet, and all that is stored behind it wait (Zen 4: layer norm
from memory takes 0.7 as long with 1,000 columns, 0.45 with 197).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pliant.loop.regions import Access, accesses
from pliant.loop.stmt import LINE, offset_of
from pliant.lower.row_facts import SHORT
from pliant.schedule.program import Program
from pliant.sym.expr import Int, minimum

TOGETHER: Final = 4  # vectors


def may_straddle(p: Program, loop: str) -> bool:
    """Whether the loop stores rows of a parameter that nothing reads, which are not known to begin
    with a line."""
    path, extent = p.loop_path("loop_partition", loop), p.loop(loop).extent
    row = _row(p, loop)
    if row is None or (extent.is_const and extent.value < SHORT):
        return False
    stored, start = row
    every = list(accesses(p.function.body, p.invoked))
    read = any(a.buffer is stored.buffer and not a.write for a in every)
    of_caller = any(b is stored.buffer for b in p.function.buffers)
    return of_caller and not read and not p.around(path).divisible(start, _line(stored))


def in_lines(p: Program, loop: str, lanes: int) -> tuple[Program, str, list[str]]:
    """The loop over a row's elements in three: those before a line, whole lines, the rest; to be
    vectorized. Gives the first; and the lanes of that one and of the last."""
    row = _row(p, loop)
    assert row is not None  # it may straddle
    stored, start = row
    extent = p.loop(loop).extent
    first = minimum((-start) % _line(stored), extent)
    p = p.loop_partition(loop, first)
    (rest,) = p.made
    p = p.split(loop, _line(stored))
    head, before = p.made
    p = p.split(rest, lanes)
    vector, _ = p.made
    p = p.loop_partition(vector, (extent - first) // lanes)
    ends: list[str] = [before, *p.innermost(p.made[0])]
    p = p.split(vector, TOGETHER, tail="peel", tail_loop="exact")
    return p.unroll(p.made[1]), head, ends


def ask_for_ends(p: Program, row: str, heads: Iterable[str]) -> Program:
    """Two rows share a line where one ends inside of it. Stores past the caches wait behind those
    to it, which wait for it: a row asks for that of as many rows later as a line has elements,
    which begins where it does itself. For rows that are dear to compute, which leave memory at
    rest; with others it comes at a bad time."""
    for head in heads:
        for loop in p.innermost(head):
            stored = _stored(p, loop)
            offset = None if stored is None else offset_of(stored.buffer, stored.indices or ())
            along = None if offset is None else offset.linear(row)
            if stored is not None and along is not None:
                p = p.prefetch(loop, stored.buffer.name, along[0] * _line(stored))
    return p


def _stored(p: Program, loop: str) -> Access | None:
    return next((a for a in accesses(p.loop(loop), p.invoked) if a.write), None)


def _row(p: Program, loop: str) -> tuple[Access, Int] | None:
    """What the loop stores element after element, and where that begins; None where it does not."""
    stored = _stored(p, loop)
    if stored is None or stored.indices is None:
        return None
    offset = offset_of(stored.buffer, stored.indices)
    along = None if offset is None else offset.linear(loop)
    return None if along is None or along[0] != 1 else (stored, along[1])


def _line(a: Access) -> int:
    return LINE // a.buffer.dtype.bytes
