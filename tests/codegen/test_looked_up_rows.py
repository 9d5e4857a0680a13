"""Rows that are looked up are read and written along as any others: no gathers, no scatters."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.native import native

READ = """
@loop
def rows(x: f32["n", "k"], at: i64["m"], y: f32["m", "k"], n: i64, m: i64, k: i64):
    for i in grid(m):
        for j in grid(k):
            with block("y", S(i, m), S(j, k)) as (a, b):
                y[a, b] = x[at[a], b] * 2.0
"""

ACROSS = """
@loop
def columns(x: f32["n", "k"], at: i64["m"], y: f32["n", "m"], n: i64, m: i64, k: i64):
    for i in grid(n):
        for j in grid(m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[a, at[b]] * 2.0
"""

SIZES = [(1, 1, 1), (5, 3, 16), (7, 20, 33), (3, 0, 5), (4, 9, 0)]


def vectors(source: str, tail: str) -> Program:
    p = program(parse_function(source)).split("j", 16, tail=tail)
    return p.vectorize(p.made[1])


@pytest.mark.parametrize("tail", ["peel", "mask"])
def test_rows(tail: str) -> None:
    p = vectors(READ, tail)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert "masked.gather" not in text
    for n, m, k in SIZES:
        x = np.arange(n * k, dtype=np.float32).reshape(n, k)
        at = np.arange(m)[::-1] * 7 % n
        y = np.zeros((m, k), np.float32)
        native(p.function, [x, at, y], {"n": n, "m": m, "k": k})
        np.testing.assert_array_equal(y, 2 * x[at])


@pytest.mark.parametrize("tail", ["peel", "mask"])
def test_columns(tail: str) -> None:
    """Each lane looks up its own."""
    p = vectors(ACROSS, tail)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert "masked.gather" in text
    for n, m, k in [s for s in SIZES if s[2]]:
        x = np.arange(n * k, dtype=np.float32).reshape(n, k)
        at = np.arange(m)[::-1] * 7 % k
        y = np.zeros((n, m), np.float32)
        native(p.function, [x, at, y], {"n": n, "m": m, "k": k})
        np.testing.assert_array_equal(y, 2 * x[:, at])
