"""How wide the panels of a weight are: what is added to them to fill the last one is work for
nothing.

    24 columns:   panels of 32, one element of k a step          32 lanes for 24 columns
                  panels of 24, k in pairs: 48 lanes             48 lanes for 2 x 24 columns

A width costs, in products of one vector for each row of the first operand, its vectors times the
steps along k, and for each panel what adds up the parts of its sums and what stores them.
"""

from __future__ import annotations

from typing import Final

from pliant.lower.contraction import Factors

FOLD: Final = 1.5  # products that halving the lanes of a vector takes as long as
STORE: Final = 3.0  # and storing one
LOOK_UP: Final = 6.0  # and finding where a row begins at a position
NARROWER: Final = 0.9  # of what groups in wider panels cost
BETTER: Final = 0.96  # of what panels of the usual width cost: less is not worth another kernel


def panel_width(kind: Factors, columns: int, n: int, positions: int, run: int) -> tuple[int, int]:
    """The width of panels, and how many neighbours of k lie together, for `n` columns and
    `positions` runs of so many elements of k. `columns` is the usual width, of two vectors."""

    def cost(width: int, group: int) -> float:
        return _cost(kind, columns // 2, (width, group), n, positions, run)

    usual = (columns, kind.group)
    best = min(kind.fitting, key=lambda x: cost(*x), default=usual)
    return best if cost(*best) < BETTER * cost(*usual) else usual


def sharing(
    kind: Factors, columns: int, each: int, members: int, groups: int, positions: int
) -> tuple[int, int]:
    """How many groups of `each` columns share a panel, and its width. They sum over `members`
    channels of their own at so many `positions`: the more share one, the more of it are zeros, the
    fewer, the more often the places of the rows are looked up. They leave no rest."""

    def panel(together: int) -> tuple[int, int]:
        return panel_width(kind, columns, together * each, positions, together * members)

    def cost(together: int) -> float:
        n, run = together * each, together * members
        whole = _cost(kind, columns // 2, panel(together), n, positions, run)
        return (whole + LOOK_UP * positions) / n

    most = max(columns // each, 1)
    best, *fewer = [u for u in range(most, 0, -1) if groups % u == 0]
    for u in fewer:
        if cost(u) < NARROWER * cost(best):
            best = u
    return best, panel(best)[0]


def _cost(
    kind: Factors, lanes: int, panel: tuple[int, int], n: int, positions: int, run: int
) -> float:
    """Of a row of all panels, in products of one vector."""
    width, group = panel
    vectors = -(-width * group // lanes)
    shared = group // kind.group
    steps = run // group + (group if run % group else 0)  # the last is put together
    each = vectors * (positions * steps + FOLD * (shared.bit_length() - 1))
    return -(-n // width) * (each + STORE * -(-width // lanes))
