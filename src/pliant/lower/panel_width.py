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
BETTER: Final = 0.96  # of what panels of the usual width cost: less is not worth another kernel


def panel_width(kind: Factors, columns: int, n: int, positions: int, run: int) -> tuple[int, int]:
    """The width of panels, and how many neighbours of k lie together, for `n` columns and
    `positions` runs of so many elements of k. `columns` is the usual width, of two vectors."""
    lanes = columns // 2

    def cost(width: int, group: int) -> float:
        vectors = -(-width * group // lanes)
        shared = group // kind.group
        steps = run // group + (group if run % group else 0)  # the last is put together
        each = vectors * (positions * steps + FOLD * (shared.bit_length() - 1))
        return -(-n // width) * (each + STORE * -(-width // lanes))

    usual = cost(columns, kind.group)
    best = min(kind.fitting, key=lambda x: cost(*x), default=(columns, kind.group))
    return best if cost(*best) < BETTER * usual else (columns, kind.group)
