"""What rfactor needs, condition by condition."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import matmul, outline, rows, same
from tests.schedule.test_loops import lines

ROWS = """\
@loop
def rows(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    for i in grid(n):
        for r in grid(k):
            with block("s", S(i, n), R(r, k)) as (v, u):
                with init():
                    y[v] = 0.0
                y[v] = y[v] + x[v, u]
"""


def changed(old: str, new: str, text: str = ROWS) -> Program:
    assert old in text
    return program(parse_function(text.replace(old, new)))


@pytest.mark.parametrize("where", ["u <= v", "r <= i", "u < 3", "v < 3", "u + v < 6"])
def test_conditions_on_what_is_reduced_over(where: str) -> None:
    """A sum over the lower triangle: conditions in terms of iterators or loops, mixed ones too.
    A start heeds only what does not depend on what is reduced over."""
    p = changed("R(r, k))", f"R(r, k), where={where})")
    same(p, p.decompose_reduction("s", "r"))
    q = p.split("r", 4)
    same(p, q.rfactor("r_1"))
    same(p, q.rfactor("r_0"))
    same(p, q.rfactor("r_1").vectorize("r_1").reduce_lanes("s"))
    same(p, p.reorder("r", "i").rfactor("r"))


def test_other_blocks_in_the_reduced_loops() -> None:
    """What is computed for each iteration stays where it is."""
    q = matmul().cache_read("c", "a")
    q = q.compute_at("a_cache", "c_r").shrink_buffer("a_cache")
    same(matmul(), q.rfactor("c_r"))
    q = rows().cache_read("s", "x").split("s_r", 4).compute_at("x_cache", "s_r_0")
    r = q.rfactor("s_r_0")
    assert outline(r) == lines("""
        scratch x_cache[n, k]
        scratch s_rf[n, (k + 3)//4]
        s_i < n
          s_r_0 < (k + 3)//4
            x_cache_1 < 4
              x_cache(s_i, 4*s_r_0 + x_cache_1) where 4*s_r_0 + x_cache_1 < k
            s_r_1 < 4
              s_rf(s_i, s_r_0, s_r_1) where 4*s_r_0 + s_r_1 < k
          s_r_0_f < (k + 3)//4
            s(s_i, s_r_0_f)
    """)
    same(rows(), r)


def test_refused_with_the_reason() -> None:
    with pytest.raises(SchedulingError, match="no block reduces over it"):
        rows().rfactor("s_i")
    with pytest.raises(SchedulingError, match="its extent min"):
        rows().split("s_r", 4, tail="clip").rfactor("s_r_1")
    p = changed("S(i, n), R(r, k)", "O(i, n), R(r, k)")
    with pytest.raises(SchedulingError, match="iterator v of block s is not reduced over it"):
        p.rfactor("r")
    p = changed("+ x[v, u]", "- x[v, u]")
    with pytest.raises(SchedulingError, match="is no update by a known combiner"):
        p.rfactor("r")
    p = changed("        for r in grid(k):\n", "        for r in grid(k):\n          if r < 3:\n")
    with pytest.raises(SchedulingError, match="more than loops between r and block s: if"):
        p.rfactor("r")
    p = changed("+ x[v, u]\n", "+ x[v, u]\n            x[i, r] = y[i]\n")
    with pytest.raises(SchedulingError, match="other statements in loop r use y"):
        p.rfactor("r")
    triangle = ROWS.replace("for i in grid(n):\n        for r in grid(k)", "IN").replace(
        "IN", "for r in grid(k):\n        for i in grid(r + 1)"
    )
    p = changed("S(i, n)", "S(i, k)", triangle)
    with pytest.raises(SchedulingError, match="the extent of loop i depends on what is reduced"):
        p.rfactor("r")


def test_places_that_depend_on_data() -> None:
    """Different iterations may add to one element; after the reduction they would do so again."""
    text = """\
@loop
def buckets(x: f32["n", "k"], at: i64["n"], y: f32[2], n: i64, k: i64):
    for r in grid(k):
        for i in grid(n):
            with block("s", S(i, n), R(r, k)) as (v, u):
                y[min(max(at[v], 0), 1)] = y[min(max(at[v], 0), 1)] + x[v, u]
"""
    p = program(parse_function(text))
    with pytest.raises(SchedulingError, match="iterations of loop i may update the same element"):
        p.rfactor("r")
    nest = "for r in grid(k):\n        for i in grid(n)"
    turned = "for i in grid(n):\n        for r in grid(k)"
    q = changed(nest, turned, text)
    same(q, q.rfactor("r"))
    moving = text.replace("x[v, u]\n", "x[v, u]\n            at[i] = r\n")
    q = changed(nest, turned, moving)
    with pytest.raises(SchedulingError, match="at, on which its start or its place depends, is"):
        q.rfactor("r")


def test_computing_again_what_adds_to_what_is_there() -> None:
    """An element that a block adds to without starting it differs when computed again."""
    text = """\
@loop
def twice(x: f32["n"], y: f32["n"], n: i64):
    t = alloc(f32[n], scope="scratch")
    for i in grid(n):
        with block("zero", S(i, n)) as (a,):
            t[a] = 0.0
    for i2 in grid(n):
        with block("t", S(i2, n)) as (v,):
            t[v] = t[v] + x[v]
    for o in grid(n):
        for j in grid(n):
            with block("y", S(o, n), S(j, n)) as (b, c):
                y[c] = t[c]
"""
    p = program(parse_function(text))
    with pytest.raises(SchedulingError):
        p.compute_at("t", "o")
    alone = text.replace(
        "    for i in grid(n):\n        with block(\"zero\", S(i, n)) as (a,):\n"
        "            t[a] = 0.0\n", ""
    )  # fmt: skip
    q = program(parse_function(alone))
    with pytest.raises(SchedulingError):
        q.reverse_compute_at("y", "i2")


def test_symbolic_parts() -> None:
    p = rows()
    same(p, p.split("s_r", var("n") + 1).rfactor("s_r_1").parallel("s_i"))
    same(p, p.split("s_r", var("n") + 1).rfactor("s_r_0").parallel("s_i"))
