"""Programs with windows: each iteration needs part of what the one before has computed."""

from __future__ import annotations

from pliant.base.dtypes import f32
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import exp, k, n, stencil


def blur() -> Program:
    """A 3 x 3 window of the exponentials of an image, in two steps."""
    x = placeholder("x", (n + 2, k + 2), f32)
    t = compute((n + 2, k + 2), lambda i, j: exp(x[i, j] * 0.25), "t")
    y = compute((n, k), lambda i, j: reduce("sum", (3, 3), lambda r, s: t[i + r, j + s]), "y")
    return program(unscheduled("blur", [y], [x], ["n", "k"]))


def pooled() -> Program:
    """Row sums, then a window of three of them."""
    x = placeholder("x", (n + 2, k), f32)
    t = compute((n + 2,), lambda i: reduce("sum", (k,), lambda r: x[i, r]), "t")
    y = compute((n,), lambda i: t[i] * t[i + 1] + t[i + 2], "y")
    return program(unscheduled("pooled", [y], [x], ["n", "k"]))


def window() -> Program:
    """What one iteration needs, before it."""
    return stencil().compute_at("t", "u_i")


def ring() -> Program:
    """Rows of an image in a ring, by tiles of columns."""
    p = blur().split("y_j", 4).reorder("y_j_0", "y_i", "y_j_1").compute_at("t", "y_i")
    return p.shrink_buffer("t", outside="y_i").rolling_buffer("t")
