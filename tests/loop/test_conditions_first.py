"""Conditions that a loop does not change are asked before it."""

from __future__ import annotations

import numpy as np

from pliant.loop.conditions_first import conditions_first
from pliant.loop.interpret import interpret
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import Function
from pliant.loop.verify import verify_function

MASKED = """
@loop
def f(y: f32["n", "m"], x: f32["n", "m"], z: f32["m"], n: i64, m: i64):
    for b in grid((m + 3)//4):
        for j in vectorized(4):
            for i in grid(n):
                with block("y", S(i, n), S(4*b + j, m), where=4*b + j < m) as (v0, v1):
                    y[v0, v1] = x[v0, v1] + z[v1]
"""
STORED = """
@loop
def f(y: f32["n", "m"], x: f32["n", "m"], z: f32["m"], n: i64, m: i64):
    for j in grid(m):
        z[j] = 0.0
        for i in grid(n):
            if z[j] < 3.0:
                z[j] = z[j] + 1.0
                y[i, j] = x[i, j]
"""


def results(f: Function, n: int, m: int) -> list[np.ndarray]:
    x = np.arange(n * m, dtype=np.float32).reshape(n, m)
    y, z = np.full((n, m), -1, np.float32), np.arange(m, dtype=np.float32)
    interpret(f, [y, x, z], (n, m))
    return [y, z]


def same(f: Function, g: Function) -> None:
    verify_function(g)
    for n, m in ((0, 3), (3, 0), (1, 1), (5, 4), (9, 7)):
        for have, want in zip(results(g, n, m), results(f, n, m), strict=True):
            np.testing.assert_array_equal(have, want)


def test_a_mask_before_the_rows() -> None:
    f = lower_blocks(parse_function(MASKED))
    g = conditions_first(f)
    lines = [line.split()[0] for line in function_text(g).splitlines()[2:]]
    assert lines == ["for", "for", "if", "for", "y[i,"]
    same(f, g)


def test_out_of_all_loops_that_do_not_change_it() -> None:
    text = MASKED.replace("vectorized(4)", "grid(4)").replace("where=4*b + j < m", "where=4*b < m")
    f = lower_blocks(parse_function(text.replace("S(4*b + j, m)", "S(min(4*b + j, m - 1), m)")))
    g = conditions_first(f)
    lines = [line.split()[0] for line in function_text(g).splitlines()[2:]]
    assert lines == ["for", "if", "for", "y[i,"]
    same(f, g)


def test_what_an_iteration_stores_is_asked_each_time() -> None:
    f = parse_function(STORED)
    assert conditions_first(f) is f
    same(f, conditions_first(f))


def test_what_changes_stays() -> None:
    f = lower_blocks(
        parse_function(
            MASKED.replace("4*b + j < m", "i < m").replace(
                "S(4*b + j, m)", "S(min(4*b + j, m - 1), m)"
            )
        )
    )
    assert conditions_first(f) is f
