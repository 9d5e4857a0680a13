"""Parts of sums of integers, each without the factors that do not vary."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import MATRIX_SIZES, matmul, rows, same

TEXT = """\
@loop
def f(ARGUMENTS, n: i64, m: i64, k: i64):
    for i, j, r in grid(n, m, k):
        with block("y", S(i, n), S(j, m), R(r, k)) as (vi, vj, vr):
            with init():
                y[vi, vj] = 0
            y[vi, vj] = y[vi, vj] + (VALUE)
"""
ARGUMENTS = 'a: u8["n", "k"], b: i8["k", "m"], s: i32["n"], t: i32["m"], y: i32["n", "m"]'


def summed(value: str, text: str = TEXT) -> Program:
    return program(parse_function(text.replace("ARGUMENTS", ARGUMENTS).replace("VALUE", value)))


A, B = "i32(a[vi, vr])", "i32(b[vr, vj])"


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("value", "sums"),
    [
        (f"({A} - s[vi]) * ({B} - t[vj])", 3),
        (f"{A} * ({B} - 3)", 2),
        (f"({A} + s[vi]) * {B}", 2),
        (f"{A} * s[vi]", 1),
        (f"{A} - {B}", 2),
        (f"{A} * {B} - s[vi] * (t[vj] - {A})", 2),
        (f"({A} - s[vi]) * ({A} - s[vi]) * {B}", 4),
        (f"{A} + s[vi] + 1", 1),
    ],
)
def test_values_are_the_same(value: str, sums: int) -> None:
    p = summed(value)
    q = p.sum_apart("y")
    assert len([b for b in q.blocks if q.block(b).init is not None]) == sums
    same(p, q, MATRIX_SIZES)
    assert q.made[0] == "y_parts"


def test_the_rest_goes_on() -> None:
    """Parts are blocks like others: what is made of them can be made in tiles."""
    p = summed(f"({A} - s[vi]) * ({B} - t[vj])")
    q = p.sum_apart("y").split("i", 4).split("j", 2).reorder("i_0", "j_0", "i_1", "j_1", "r")
    q = q.reverse_compute_at("y_parts", "j_0").shrink_buffer("y_sum").parallel("i_0")
    same(p, q, MATRIX_SIZES)


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (matmul(), "it is no sum of integers"),
        (rows("max"), "it is no sum of integers"),
        (summed(f"{A} * {B}"), "what it adds is one product, in which all varies"),
        (summed(f"s[vi] - {A}"), "its first part is subtracted, or does not vary"),
        (
            summed(f"{A} * ({B} - 3)").decompose_reduction("y", "r"),
            "its sum is started elsewhere; do this before decompose_reduction",
        ),
        (
            summed(f"{A} * ({B} - 3)", TEXT.replace("= 0\n", "= 7\n")),
            "its sum does not start with 0",
        ),
        (
            summed(f"{A} * ({B} - 3)").add_unit_loop("j"),
            "its loops are not just its iterators",
        ),
        (summed(f"{A} * ({B} - 3)").parallel("i"), "loop i is parallel"),
    ],
)
def test_refused(p: Program, reason: str) -> None:
    block = "c" if p.function.name == "matmul" else p.blocks[-1]
    with pytest.raises(SchedulingError, match=f"sum_apart of block {block}: .*{reason}"):
        p.sum_apart(block)
