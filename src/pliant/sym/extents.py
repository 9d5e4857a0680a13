"""Sizes by the extents that mention them.

solve_extents([(n, 3*b), (2*k + 1, 9)])        {"n": 3*b, "k": 4}
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.sym.expr import Int


def solve_extents(pairs: Sequence[tuple[Int, Int]]) -> dict[str, Int]:
    """The names of the first of each pair, where it equals the second: from bare names first, then
    from expressions linear in one unknown name. Names that do not follow are left out."""
    found: dict[str, Int] = {}
    for bare in (True, False):
        again = True
        while again:
            again = False
            for want, have in pairs:
                unknown = want.names - found.keys()
                if len(unknown) != 1:
                    continue
                (name,) = unknown
                if (bare and str(want) != name) or not _is_solvable(want, name):
                    continue
                line = want.subs({n: v for n, v in found.items() if n in want.names}).linear(name)
                assert line is not None
                found[name] = (have - line[1]) // line[0]
                again = True
    return found


def _is_solvable(extent: Int, name: str) -> bool:
    """Whether the extent is a positive number times the name, and something without it."""
    line = extent.linear(name)
    return line is not None and line[0].is_const and line[0].value >= 1
