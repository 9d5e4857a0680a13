"""Keys' cubic convolution kernel."""

from __future__ import annotations

from pliant.ir.expr import Expr


def cubic_weights(t: Expr, a: float) -> list[tuple[int, Expr]]:
    """Offsets of the four neighbours and their weights, for a coordinate t beyond a whole number.

    Keys, "Cubic convolution interpolation" (1981), with the free coefficient a (there -1/2).
    """

    def near(s: Expr) -> Expr:  # |s| <= 1
        return ((s * (a + 2) - (a + 3)) * s) * s + 1.0

    def far(s: Expr) -> Expr:  # 1 <= |s| <= 2
        return ((s * a - 5 * a) * s + 8 * a) * s - 4 * a

    return [(-1, far(t + 1.0)), (0, near(t)), (1, near(1.0 - t)), (2, far(2.0 - t))]
