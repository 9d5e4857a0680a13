"""Keys' cubic convolution kernel."""

from __future__ import annotations

from pliant.ir.expr import Expr, Unary
from pliant.ir.tensor import select


def cubic_weights(t: Expr, a: float) -> list[tuple[int, Expr]]:
    """Offsets of the four neighbours and their weights, for a coordinate t beyond a whole number.

    Keys, "Cubic convolution interpolation" (1981), with the free coefficient a (there -1/2).
    """
    return [
        (-1, _far(t + 1.0, a)), (0, _near(t, a)), (1, _near(1.0 - t, a)), (2, _far(2.0 - t, a)),
    ]  # fmt: skip


def cubic_kernel(t: Expr, a: float) -> Expr:
    """The weight of what is t away."""
    s = Unary("abs", t)
    return select(s <= 1.0, _near(s, a), select(s < 2.0, _far(s, a), 0.0))


def _near(s: Expr, a: float) -> Expr:
    """0 <= s <= 1."""
    return ((s * (a + 2) - (a + 3)) * s) * s + 1.0


def _far(s: Expr, a: float) -> Expr:
    """1 <= s <= 2."""
    return ((s * a - 5 * a) * s + 8 * a) * s - 4 * a
