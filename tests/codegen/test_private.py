"""Buffers that each lane of a vectorized loop has for itself: memory holds vectors of them."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.loop.interpret import interpret
from pliant.loop.parser import parse_function
from tests.schedule.native import native

THREE_LANES = """
            t = alloc(f32[2])
            for k in grid(2):
                with block("t", S(i, 4), S(l, 3), S(k, 2)) as (a, b, c):
                    t[c] = x[a, b] + 1.0
            with block("y", S(i, 4), S(l, 3)) as (a, b):
                y[a, b] = t[0] * t[1]
"""  # no power of two

OTHER_ELEMENTS = """
            t = alloc(f32[4])
            for k in grid(4):
                with block("t", S(i, 4), S(l, 4), S(k, 4)) as (a, b, c):
                    t[c] = x[a, c] + 1.0
            with block("y", S(i, 4), S(l, 4)) as (a, b):
                y[a, b] = t[3 - b] * t[b] + t[(b + 1)%4]
"""

OTHER_PLACES = """
            t = alloc(bool[4])
            for k in grid(4):
                with block("t", S(i, 4), S(l, 4), S(k, 4), where=a + c < 6) as (a, b, c):
                    t[(c + b)%4] = x[a, c] < 0.0
            with block("y", S(i, 4), S(l, 4)) as (a, b):
                y[a, b] = select(a + 3 < 6, select(t[b], 2.0, 3.0), 4.0)
"""

LOOKED_UP = """
            t = alloc(f32[4])
            for k in grid(4):
                with block("t", S(i, 4), S(l, 4), S(k, 4)) as (a, b, c):
                    t[c] = x[a, c] + x[a, b]
            with block("y", S(i, 4), S(l, 4)) as (a, b):
                y[a, b] = t[at[b]] + t[at[a]] + select((b < 3) & (at[a + 4] < 4), t[at[a + 4]], 0.0)
"""

IN_SCRATCH = """
            t = alloc(f32[2, l + 1], scope="scratch")
            for k, h in grid(3, 2):
                with block("t", S(i, 4), S(l, 3), S(k, 3), S(h, 2), where=c <= b) as (a, b, c, d):
                    t[d, b - c] = x[a, c] + 2.0
            with block("y", S(i, 4), S(l, 3)) as (a, b):
                y[a, b] = t[0, 0] * t[1, b]
"""  # one lane has more than another


@pytest.mark.parametrize(
    ("lanes", "body"),
    [
        (3, THREE_LANES),
        (4, OTHER_ELEMENTS),
        (4, OTHER_PLACES),
        (4, LOOKED_UP),
        (3, IN_SCRATCH),
    ],
)  # fmt: skip
def test_private(lanes: int, body: str) -> None:
    f = parse_function(
        "@loop\n"
        f"def f(x: f32[4, {lanes}], at: i64[8], y: f32[4, {lanes}]):\n"
        f"    for i in grid(4):\n        for l in vectorized({lanes}):{body}"
    )
    x = np.arange(-5, 4 * lanes - 5, dtype=np.float32).reshape(4, lanes)
    at = np.array([3, 0, 2, 2, 1 << 40, 1, 1 << 40, 0])  # half of the last ones must not be read
    got, wanted = np.empty((2, 4, lanes), np.float32)
    interpret(f, [x, at, wanted], {})
    native(f, [x, at, got], {})
    np.testing.assert_array_equal(got, wanted)
