"""fuse_reduction_epilogue: what follows a reduction runs once an element, after its last update."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from pliant.sym.facts import Facts
from tests.schedule.programs import MATRIX_SIZES, best, matmul_relu, outline, same, softmax
from tests.schedule.test_loops import lines
from tests.schedule.tuples import attention


def some(p: Program) -> Program:
    """The program with sizes that are at least 1."""
    facts = Facts()
    for size in p.function.sizes:
        facts.declare(size, min=1)
    return program(p.function, facts)


NOT_EMPTY = [c for c in MATRIX_SIZES if 0 not in c]
ROWS = [(3, 5), (1, 1), (5, 1), (2, 16), (7, 11)]


def test_after_the_loops_of_the_reduction() -> None:
    """A non-linear epilogue, over the same tiles as the reduction; nothing to reduce is no case
    of its own."""
    p = matmul_relu()
    q = p.split("c_j", 4).reorder("c_j_0", "c_r", "c_i", "c_j_1").vectorize("c_j_1")
    q = q.fuse_reduction_epilogue("c", "y")
    assert q.made == ("c_i_e", "c_j_1_e")
    assert outline(q) == lines("""
        scratch c[n, m]
        c_j_0 < (m + 3)//4
          c_r < k
            c_i < n
              c_j_1 < vectorized 4
                c(c_i, 4*c_j_0 + c_j_1, c_r) where 4*c_j_0 + c_j_1 < m
          c_i_e < n
            c_j_1_e < vectorized 4
              y(c_i_e, 4*c_j_0 + c_j_1_e) where 4*c_j_0 + c_j_1_e < m
    """)
    same(p, q)
    same(p, q.shrink_buffer("c").parallel("c_j_0"))
    same(p, p.fuse_reduction_epilogue("c", "y"))
    same(p, p.reorder("c_r", "c_i", "c_j").fuse_reduction_epilogue("c", "y"))


def test_at_the_last_iteration() -> None:
    p = some(matmul_relu())
    q = p.split("c_r", 4).reorder("c_r_0", "c_i", "c_r_1", "c_j")
    q = q.fuse_reduction_epilogue("c", "y", at="last")
    assert outline(q) == lines("""
        scratch c[n, m]
        c_r_0 < (k + 3)//4
          c_i < n
            c_r_1 < 4
              c_j < m
                c(c_i, c_j, 4*c_r_0 + c_r_1) where 4*c_r_0 + c_r_1 < k
                y(c_i, c_j) where (k + 3)//4 - 1 <= c_r_0 and 3 <= c_r_1
    """)
    same(p, q, NOT_EMPTY)
    clipped = p.split("c_r", 4, tail="clip").reorder("c_r_0", "c_i", "c_j", "c_r_1")
    same(p, clipped.fuse_reduction_epilogue("c", "y", at="last"), NOT_EMPTY)
    started = p.decompose_reduction("c", "c_r")
    same(p, started.fuse_reduction_epilogue("c", "y", at="last"), NOT_EMPTY)
    with pytest.raises(SchedulingError, match="loop c_r is not known to run: its extent k may be"):
        matmul_relu().fuse_reduction_epilogue("c", "y", at="last")


def test_other_iterators_and_several_results() -> None:
    """What the reduction does not index gets loops of its own; several results are one place."""
    p = softmax()
    q = p.fuse_reduction_epilogue("m", "e").fuse_reduction_epilogue("s", "y")
    same(p, q)
    assert outline(q).endswith("s_r < k\n    s(s_i, s_r)\n  y_j < k\n    y(s_i, y_j)")
    r = some(p)
    same(r, r.fuse_reduction_epilogue("s", "y", at="last"), ROWS)
    for at in ("after", "last"):
        a = some(attention())
        q = a.split("r", 4).fuse_reduction_epilogue("s", "y", at=at)
        same(a, q, ROWS)
        same(a, q.parallel("i"), ROWS)
    same(attention(), attention().fuse_reduction_epilogue("s", "y"))


def test_inside_a_loop_of_both() -> None:
    p = softmax()
    q = p.compute_at("s", "y_i").fuse_reduction_epilogue("s", "y")
    same(p, q)
    same(p, q.shrink_buffer("s").parallel("y_i"))
    q = matmul_relu().split("y_i", 2).compute_at("c", "y_i_0")
    same(matmul_relu(), q.fuse_reduction_epilogue("c", "y"))


def test_crop() -> None:
    """An epilogue that reads a part of what is reduced runs for that part."""
    text = """\
@loop
def crop(x: f32["n + 3", "k"], y: f32["n"], n: i64, k: i64):
    t = alloc(f32[n + 3], scope="scratch")
    for i in grid(n + 3):
        for r in grid(k):
            with block("t", S(i, n + 3), R(r, k)) as (v, u):
                with init():
                    t[v] = 0.0
                t[v] = t[v] + x[v, u]
    for j in grid(n):
        with block("y", S(j, n)) as (w,):
            y[w] = exp(t[w + 2] * 0.25)
"""
    p = program(parse_function(text))
    q = p.fuse_reduction_epilogue("t", "y")
    assert "y(i - 2) where -1 < i - 2 and i - 2 < n" in outline(q)
    same(p, q)
    beyond = text.replace("grid(n):", "grid(n + 3):").replace("S(j, n)", "S(j, n + 3)")
    beyond = beyond.replace('y: f32["n"]', 'y: f32["n + 3"]').replace(
        "exp(t[w + 2] * 0.25)", "select(w < n, t[w + 2], 0.0)"
    )
    with pytest.raises(SchedulingError, match="it may read outside of t"):
        program(parse_function(beyond)).fuse_reduction_epilogue("t", "y")


FRESH = """\
@loop
def fresh(x: f32["n", "k"], y: f32["n", "n"], n: i64, k: i64):
    for o in grid(n):
        t = alloc(f32[n], scope="scratch")
        for i in grid(n):
            for r in grid(k):
                with block("t", S(i, n), R(r, k)) as (v, u):
                    with init():
                        t[v] = 0.0
                    t[v] = t[v] + x[v, u] * x[o, u]
        for j in grid(n):
            with block("y", S(o, n), S(j, n)) as (a, b):
                y[a, b] = max(t[b], 0.0)
"""


def test_memory_of_one_iteration() -> None:
    """A loop around the life of the buffer stays what it is for the epilogue."""
    p = program(parse_function(FRESH))
    q = p.fuse_reduction_epilogue("t", "y")
    assert "y(o, i)" in outline(q)
    same(p, q, ROWS)
    part = FRESH.replace("grid(n):\n            with block(\"y\", S(o, n), S(j, n)) as (a, b):\n"
                         "                y[a, b] = max(t[b], 0.0)",
                         "grid(1):\n            with block(\"y\", S(o + j, n)) as (b,):\n"
                         "                y[b, b] = max(t[b], 0.0)")  # fmt: skip
    assert part != FRESH
    with pytest.raises(SchedulingError, match="it reads another part in each iteration of o"):
        program(parse_function(part)).fuse_reduction_epilogue("t", "y")


def test_refused_with_the_reason() -> None:
    p = softmax()
    for block, epilogue, reason in (
        ("s", "e", "it does not come after loop s_r, over which block s reduces"),
        ("e", "s", "block e reduces over no loop"),
        ("m", "y", "it reads nothing that block m reduces"),
        ("m", "s", "not all of its iterators are data parallel"),
    ):
        with pytest.raises(SchedulingError, match=reason):
            p.fuse_reduction_epilogue(block, epilogue)
    with pytest.raises(SchedulingError, match="there is no such block"):
        p.fuse_reduction_epilogue("m", "z")
    with pytest.raises(SchedulingError, match="there is no place 'first'"):
        p.fuse_reduction_epilogue("s", "y", at="first")
    with pytest.raises(SchedulingError, match="it reads nothing that block p reduces"):
        best().cache_write("p", buffer="p").fuse_reduction_epilogue("p", "p_store").cache_write(
            "p_store"
        ).fuse_reduction_epilogue("p", "p_store_1")


TWICE = """\
@loop
def twice(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    t = alloc(f32[n], scope="scratch")
    for i0 in grid(n):
        with block("zero", S(i0, n)) as (z,):
            t[z] = 0.0
    for o in grid(2):
        for i in grid(n):
            for r in grid(k):
                with block("t", S(i, n), R(r, k)) as (v, u):
                    t[v] = t[v] + x[v, u]
    for j in grid(n):
        with block("y", S(j, n)) as (w,):
            y[w] = t[w] * t[w]
"""


def test_elements_that_change_again() -> None:
    p = program(parse_function(TWICE))
    with pytest.raises(SchedulingError, match="an element of t may be used again in loop o"):
        p.fuse_reduction_epilogue("t", "y")
    once = program(parse_function(TWICE.replace("grid(2)", "grid(1)")))
    same(once, once.fuse_reduction_epilogue("t", "y"))
    late = TWICE.replace("grid(2)", "grid(1)").replace(
        "    for j in",
        '    for i9 in grid(n):\n        with block("more", S(i9, n)) as (q,):\n'
        "            t[q] = t[q] + 1.0\n    for j in",
    )
    with pytest.raises(SchedulingError, match="t is written by block more as well"):
        program(parse_function(late)).fuse_reduction_epilogue("t", "y")
    early = (
        TWICE.replace("grid(2)", "grid(1)")
        .replace("t[w] * t[w]", "t[w] * x[w, 0]")
        .replace(
            "    for j in",
            '    for i9 in grid(n):\n        with block("more", S(i9, n)) as (q,):\n'
            "            x[q, 0] = 1.0\n    for j in",
        )
    )
    with pytest.raises(SchedulingError, match="x, which it reads, is written after the loop"):
        program(parse_function(early)).fuse_reduction_epilogue("t", "y")


def test_a_part_of_a_partitioned_loop_takes_no_epilogue() -> None:
    """It would do the epilogue of its own elements only."""
    p = matmul_relu().split("c_i", 3, tail="mask").loop_partition("c_i_1", 1)
    with pytest.raises(SchedulingError, match="c is written by block c_t as well"):
        p.fuse_reduction_epilogue("c", "y")
    with pytest.raises(SchedulingError, match="around block c_t do not run through all"):
        p.fuse_reduction_epilogue("c_t", "y")


def test_a_size_in_what_is_reduced_over() -> None:
    """The condition on the rows stays with the epilogue: it names n, as the columns do."""
    p = matmul_relu()
    q = p.split("c_r", var("n") + 1).split("c_i", 4).fuse_reduction_epilogue("c", "y")
    same(p, q, [(3, 2, 5), (5, 6, 1), (0, 1, 2)])
