"""What programs do for each line of a tensor, or each matrix: threads share it.

for i, j in grid(n, m): body(i, j)    ->    for line in parallel(n*m): body(line // m, line % m)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.loop.rewrite import subst
from pliant.loop.stmt import For, Stmt
from pliant.sym.expr import Int, as_int, maximum, var

WORK: Final = 1 << 16
"""Multiply-adds that are worth a thread of their own."""


def grain(work: Int) -> tuple[tuple[str, Int], ...]:
    """The note of a parallel loop whose iterations take as long as so many multiply-adds."""
    return (("grain", maximum(WORK // maximum(work, 1), 1)),)


def for_lines(outer: Sequence[tuple[str, Int]], body: Stmt, work: Int) -> Stmt:
    """The body, which takes as long as so many multiply-adds, for all values of these variables,
    which have these extents; what it needs for itself is allocated in it."""
    if not outer:
        return body
    line, count = var("line"), as_int(1)
    place: dict[str, Int] = {}
    for name, extent in reversed(outer):
        at = line // maximum(count, 1)
        place[name] = at if name == outer[0][0] else at % maximum(extent, 1)
        count = count * extent
    return For("line", count, subst(body, place), "parallel", grain(work))
