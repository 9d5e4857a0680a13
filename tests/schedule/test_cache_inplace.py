"""Updates in a copy: cache_inplace."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import best, chain, matmul, outline, reversing, rows, running, same
from tests.schedule.test_loops import lines

UPDATE = """
@loop
def f(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    for a, b in grid(n, k):
        with block("t", S(a, n), R(b, k)) as (i, r):
            y[i] = y[i] + x[i, r]
"""


def test_cache_inplace() -> None:
    p = program(parse_function(UPDATE))
    q = p.cache_inplace("t", "y")
    assert q.made == ("y_local", "y_store", "y_local")
    assert outline(q) == lines("""
        scratch y_local[n]
        y_local_0 < n
          y_local(y_local_0)
        a < n
          b < k
            t(a, b)
        y_store_0 < n
          y_store(y_store_0)
    """)
    same(p, q)
    same(p, q.split("a", 4).parallel("a_0"))


@pytest.mark.parametrize(
    ("p", "block", "buffer"),
    [
        (running(), "y", "y"),
        (matmul(), "c", "c"),
        (rows().decompose_reduction("s", "s_r"), "s", "s"),
        (rows().decompose_reduction("s", "s_i"), "s", "s"),
        (rows("max"), "s", "s"),
        (best(), "p", "p_best"),
    ],
)
def test_what_was_there_is_kept(p: Program, block: str, buffer: str) -> None:
    same(p, p.cache_inplace(block, buffer))


def test_a_part_of_the_buffer() -> None:
    """What the block leaves alone comes back as it was; others use the buffer in the same loop."""
    p = program(
        parse_function("""
@loop
def f(y: f32["n + 3", "k"], z: f32["n + 3", "k"], n: i64, k: i64):
    for a in grid(n):
        for b in grid(k):
            with block("t", S(a, n), S(b, k)) as (i, j):
                y[i + 2, j] = y[i, j] * 2.0
        for b2 in grid(k):
            with block("u", S(a, n), S(b2, k)) as (i, j):
                z[i, j] = y[i + 1, j]
""")
    )
    q = p.cache_inplace("t", "y")
    assert "y_local_0 < n + 3" in outline(q.loop("a"))
    same(p, q)


def test_cache_inplace_refuses() -> None:
    def refused(p: Program, block: str, buffer: str, reason: str) -> None:
        with pytest.raises(SchedulingError, match=reason):
            p.cache_inplace(block, buffer)

    refused(chain(), "b", "b", "it does not both read and write b")
    refused(chain(), "b", "a", "it does not both read and write a")
    refused(reversing(), "y", "x", "it does not both read and write x")
    refused(chain(), "b", "z", "there is no such buffer")
    tile = rows().cache_write("s").split("s_i", 4, tail="clip")
    tile = tile.reverse_compute_at("s_store", "s_i_0").set_scope("s_local", "scratch")
    shared = tile.parallel("s_i_0")
    same(rows(), tile.cache_inplace("s", "s_local"))
    refused(shared, "s", "s_local", "iterations of the parallel loop s_i_0 would meet")
