"""What a size times a number is, rounded to an integer: as Python computes it, in doubles.

int(n * 0.7)     (7*n)//10, and one less where n * 0.7 lies below 7*n/10: 62 at n = 90

The number is nearly always the double next to a short fraction p / q. Only where n * p / q is just
what the rounding turns at does it matter that it is not that fraction: the product may then come to
lie on the other side. It does so from some place on between two powers of two, up to the next of
them, as doubles lie twice as far apart after each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from pliant.sym.expr import Int, IntLike, as_int, ceildiv, maximum, minimum

LARGEST: Final = 1 << 24
"""Sizes up to it are rounded as doubles are; larger ones as fractions."""

_FAR: Final = 1 << 40  # more than any of them

Bounds = tuple[int, int]


def rounded(kind: str, over: Int, under: int | Int) -> Int:
    """A fraction as an integer, rounded down ("floor"), up ("ceil") or to the nearest ("round",
    halves to even)."""
    match kind:
        case "floor":
            return over // under
        case "ceil":
            return ceildiv(over, under)
    if as_int(under) == 1:
        return over
    twice = 2 * over + under
    up = twice // (2 * under)  # up from a half, and one back where that made it odd
    half = 1 - minimum(1, twice % (2 * under))
    return up - half * (up % 2)


def rounded_product(kind: str, n: Int, factor: float, meant: Fraction) -> Int:
    """`n * factor`, a product of doubles, as an integer; `factor` is the double next to `meant`."""
    over, under = n * meant.numerator, meant.denominator
    exact = rounded(kind, over, under)
    step = _toward(kind, Fraction(factor), meant)
    if step == 0 or meant <= 0:
        return exact
    period, first = _turning(kind, meant, step)
    if first is None:
        return exact
    elsewhere = ((n - first) % period) * _FAR
    found: Int = as_int(0)
    for low, high in _missed(factor, meant, period, first):
        found += _at_least(n - elsewhere, low) - _at_least(n - elsewhere, high + 1)
    if found == 0:
        return exact
    # What is known to be 0 or 1, said so that it is known of sizes, too.
    return maximum(exact + step * minimum(1, maximum(0, found)), 0)


def _toward(kind: str, factor: Fraction, meant: Fraction) -> int:
    """Whether a product can be rounded to one less (-1) or one more (1) than the fraction is."""
    if factor < meant:
        return 0 if kind == "ceil" else -1
    return 1 if factor > meant and kind != "floor" else 0


def _turning(kind: str, meant: Fraction, step: int) -> tuple[int, int | None]:
    """The sizes at whose products a rounding turns, as (period, first); None: there are none.
    Of halves, those where the even neighbour is not the one that the product goes to."""
    p, q = meant.numerator, meant.denominator
    if kind != "round":
        return q, 0
    if q % 2:
        return 1, None
    k = next(k for k in (1, 3) if (k * p) % 4 == (3 if step < 0 else 1))
    return 2 * q, k * q // 2


def _missed(factor: float, meant: Fraction, period: int, first: int) -> Iterator[Bounds]:
    """Ranges of sizes; of those at which the rounding turns, just these lie on another side."""

    def misses(k: int) -> bool:
        n = first + k * period
        return Fraction(float(n) * factor) != n * meant

    edge = Fraction(1, 2)
    while edge / meant < LARGEST:
        # Between the powers of two; at one itself the doubles below lie closer.
        low = max(int((edge / meant - first) // period) + 1, 0)
        high = -int((first - 2 * edge / meant) // period) - 1
        exactly = edge / meant - first
        edge *= 2
        if exactly >= 0 and exactly % period == 0 and misses(int(exactly // period)):
            at = first + int(exactly)
            yield at, at
        if low <= high and misses(high):
            begin = bisect_left(range(low, high + 1), True, key=misses) + low
            yield first + begin * period, first + high * period


def _at_least(n: Int, least: IntLike) -> Int:
    """1 where n is at least so much, else 0."""
    return minimum(maximum(n - least + 1, 0), 1)
