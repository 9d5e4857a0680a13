"""A product whose tile is wider than its only column: the index of that can only be 0, which a loop
over the tile does not say."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import minimum, var
from tests.schedule.programs import same

FIRST = """
@loop
def first(x: f32["n"], u: f32["n"], n: i64):
    t = alloc(f32[1], scope="scratch")
    for i in grid(n):
        with block("t", S(i, 1), where=i < 1) as (a,):
            t[a] = x[a]
        with block("u", S(i, n)) as (b,):
            u[b] = x[b] - t[0]
"""

n, k = var("n"), var("k")
SIZES = [(3, 4), (0, 2), (5, 0), (1, 1), (8, 3)]


def dots() -> Program:
    a, b = placeholder("a", (n, k), f32), placeholder("b", (1, k), f32)
    c = compute((n, 1), lambda i, j: reduce("sum", (k,), lambda r: a[i, r] * b[j, r]), "c")
    return program(unscheduled("dots", [c], [a, b], ["n", "k"]))


@pytest.mark.parametrize("width", [2, 4])
def test_a_tile_wider_than_its_column_is_private(width: int) -> None:
    p, tile = dots(), var("tile")
    q = p.cache_write("c").name_size("tile", minimum(n + 1, 5)).split("c_j", width)
    q = q.split("c_i", 2 * tile, tail="clip").split("c_i_1", tile, tail="clip")
    q = q.reorder("c_i_0", "c_j_0", "c_i_1_0", "c_i_1_1", "c_j_1", "c_r")
    q = q.reverse_compute_at("c_store", "c_i_1_0").shrink_buffer("c_local")
    assert q.buffer("c_local").shape[1] == 1
    same(p, q, SIZES)


def test_the_one_element_of_another_iteration_is_not_private() -> None:
    p = program(parse_function(FIRST))
    with pytest.raises(SchedulingError, match="block u may read what another iteration of i wrote"):
        p.shrink_buffer("t")
