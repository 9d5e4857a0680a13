"""Loops of vectors that go past the caches ask once, where all iterations decide alike."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.native import native
from tests.schedule.programs import chain
from tests.schedule.test_stream import placed

STORE = "store <16 x float>"


def vectors(unrolled: int = 1) -> Program:
    """(2*(x + 1))**2 in vectors of 16, so many in each iteration, past the caches."""
    p = chain().compute_inline("a").compute_inline("b").split("y_j", 16 * unrolled, tail="peel")
    for loop in list(p.made[1:]):
        p = p.split(loop, 16)
        several, lanes = p.made
        p = p.unroll(several) if unrolled > 1 and p.loop(several).extent.is_const else p
        p = p.vectorize(lanes).stream(lanes)
    return p


@pytest.mark.parametrize("unrolled", [1, 4])
def test_one_loop_for_each_way(unrolled: int) -> None:
    text = kernel_source(vectors(unrolled).function, target("x86-64-avx512")).text
    stores = [line for line in text.splitlines() if STORE in line]
    assert sum("nontemporal" in line for line in stores) == unrolled
    assert len(stores) == 2 * unrolled


ASKED = """
@loop
def twice(x: f32["n", 64], y: f32["n", 64], n: i64):
    for i in grid(n):
        for k in grid(4):
            for j in vectorized(16, notes={"stream": 0, "prefetch": ("y", size("64"), "", 1, 1)}):
                with block("y", S(i, n), S(16*k + j, 64)) as (a, b):
                    y[a, b] = x[a, b] * 2.0
"""


def test_what_goes_past_asks_for_no_line() -> None:
    """Of the two loops the one whose stores go through the caches does."""
    text = kernel_source(parse_function(ASKED), target("x86-64-avx512")).text
    body = text[text.index("define i32") :].splitlines()
    lines = [x for x in body if STORE in x or "llvm.prefetch" in x]
    assert [("prefetch" in x, "nontemporal" in x) for x in lines] == [
        (False, True), (True, False), (False, False),
    ]  # fmt: skip


@pytest.mark.parametrize("byte", [0, 16, 4])
@pytest.mark.parametrize("unrolled", [1, 4])
def test_values(unrolled: int, byte: int) -> None:
    """Rows that begin with a cache line and others, one after the other."""
    for p in (vectors(unrolled), vectors(unrolled).parallel("y_i")):
        for rows, columns in [(0, 16), (3, 64), (5, 33), (9, 100), (4, 160), (3, 163)]:
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            y = placed(rows, columns, byte)
            native(p.function, [x, y], {"n": rows, "k": columns})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)


MIXED = """
@loop
def twice(x: f32["n", 40], y: f32["n", 40], z: f32["n", 40], n: i64):
    for i in grid(n):
        for k in grid(2):
            for j in vectorized(16):
                with block("y", S(i, n), S(16*k + j, 40)) as (a, b):
                    y[a, b] = x[a, b] * 2.0
            for l in vectorized(4):
                with block("z", S(i, n), S(APART*k + l, 40)) as (a, b):
                    z[a, b] = x[a, b] * 3.0
"""


@pytest.mark.parametrize("apart", [4, 5])
def test_two_outputs(apart: int) -> None:
    """Where either does not go past the caches, neither does; vectors that are not whole vectors
    apart are asked each for itself."""
    p = program(parse_function(MIXED.replace("APART", str(apart)))).stream("j").stream("l")
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert text.count(STORE) == 2
    assert text.count("icmp eq i64") == 2
    for byte in (0, 4, 16):
        x = np.arange(200, dtype=np.float32).reshape(5, 40)
        y, z = placed(5, 40, byte), placed(5, 40, 0)
        native(p.function, [x, y, z], {"n": 5})
        np.testing.assert_array_equal(y[:, :32], x[:, :32] * 2)
        at = [k * apart + j for k in range(2) for j in range(4)]
        np.testing.assert_array_equal(z[:, at], x[:, at] * 3)
