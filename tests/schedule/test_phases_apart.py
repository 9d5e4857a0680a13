"""Sums whose terms are zero but in steps, as one block for each phase."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import SIZES, matmul, rows, same

TEXT = """\
@loop
def f(x: f32["2*n + 9"], w: f32[WIDTH], y: f32["LONG"], z: f32["LONG"], n: i64):
    for i, r in grid(LONG, WIDTH):
        with block("y", S(i, LONG), R(r, WIDTH)) as (o, k):
            with init():
                y[o] = 0.0
            y[o] = y[o] + select((AT)%STEP == 0, x[(AT)//STEP + 4], 0.0) * w[k]
    for j in grid(LONG):
        with block("z", S(j, LONG)) as (v,):
            z[v] = y[v] + 1.0
"""


def spread(at: str, step: int, width: int, long: str, text: str = TEXT) -> Program:
    for old, new in (("AT", at), ("STEP", str(step)), ("WIDTH", str(width)), ("LONG", long)):
        text = text.replace(old, new)
    return program(parse_function(text))


@pytest.mark.parametrize(
    ("at", "step", "width", "long", "terms"),
    [
        ("o - k", 2, 3, "2*n", [2, 1]),
        ("o - k + 1", 2, 3, "2*n", [1, 2]),
        ("o - k", 2, 4, "2*n + 1", [2, 2]),
        ("o - k + 2", 3, 2, "n", [0, 1, 1]),
        ("o - 2*k", 3, 5, "n", [2, 1, 2]),
        ("o + 2*k", 4, 5, "n", [3, 0, 2, 0]),
        ("3*o - k", 2, 1, "n", [1, 0]),
        ("o - k", 5, 3, "5", [1, 1, 1, 0, 0]),
    ],
)
def test_values_are_the_same(at: str, step: int, width: int, long: str, terms: list[int]) -> None:
    p = spread(at, step, width, long)
    q = p.phases_apart("y")
    assert q.made == tuple(f"y_at_{k}" for k in range(step))
    sums = [i.extent for b in q.made for i in q.block(str(b)).iters if i.kind == "R"]
    assert sums == terms
    same(p, q, SIZES)


def test_the_window_of_a_phase_is_an_ordinary_one() -> None:
    """What a phase writes is collected, and stored by a block that moves into its loops."""
    p = spread("o - k", 2, 3, "2*n")
    q = p.phases_apart("y")
    for phase in map(str, q.made):
        q = q.reindex(phase, "y")
    q = q.split("y_at_1_0", 4).reverse_compute_at("y_store_1", "y_at_1_0_0")
    same(p, q, SIZES)


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (matmul(), "no divisibility says where its terms are zero"),
        (rows("max"), "it is no sum"),
        (spread("o - k", 2, 3, "2*n").parallel("i"), "loop i is parallel"),
        (
            spread("o - k", 2, 3, "2*n").decompose_reduction("y", "r"),
            "its sum is started elsewhere; do this before decompose_reduction",
        ),
        (
            spread("o - k", 2, 3, "2*n", TEXT.replace("y[o] = 0.0", "y[o] = 1.0")),
            "its sum does not start with 0",
        ),
        (spread("o - k", 65, 3, "2*n"), "65 phases are more than 64"),
        (spread("2*o - k", 2, 3, "n"), "no divisibility says where its terms are zero"),
        (
            spread("o - k", 2, 3, "n", TEXT.replace("y[o]", "y[n - 1 - o]")),
            "it does not write y at its iterators",
        ),
    ],
)
def test_refused(p: Program, reason: str) -> None:
    block = {"matmul": "c", "rows": "s"}.get(p.function.name, "y")
    with pytest.raises(SchedulingError, match=f"phases_apart of block {block}: .*{reason}"):
        p.phases_apart(block)
