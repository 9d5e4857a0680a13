"""Other iterators for a block: transform_block_layout."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import best, chain, matmul, outline, rows, running, same
from tests.schedule.test_loops import lines

m, k = var("m"), var("k")

CASES = [
    (chain, "b", layout(lambda i, j: (i * k + j,)), "b_0 < k*n\n  b(b_0)"),
    (chain, "b", layout(lambda i, j: (j // 4, i, j % 4)), "b_0 < (k + 3)//4"),
    (chain, "b", layout(lambda i, j: (i, k - 1 - j)), "b_0 < n"),
    (matmul, "c", layout(lambda i, j, r: (r, j, 0, i)), "c_2 < 1"),
    (matmul, "c", layout(lambda i, j, r: (i * m + j, r)), "c_0 < m*n\n  c_1 < k"),
    (rows, "s", layout(lambda i, r: (i, r // 4, r % 4)), "s(s_0, s_1, s_2) where 4*s_1 + s_2 < k"),
    (rows, "s", layout(lambda i, r: (r, i // 8, i % 8)), "s(s_0, s_1, s_2) where 8*s_1 + s_2 < n"),
    (best, "p", layout(lambda i, r: (i // 2, i % 2, r)), "p_0 < (n + 1)//2"),
    (running, "y", layout(lambda i, j: (j, i)), "y_0 < k"),
    (running, "y", layout(lambda i, j: (i // 2, j, i % 2)), "where 2*y_0 + y_2 < n"),
]


@pytest.mark.parametrize(("make", "block", "how", "text"), CASES)
def test_transform_block_layout(make: object, block: str, how: tuple, text: str) -> None:
    p = make()
    q = p.transform_block_layout(block, how)
    assert text in outline(q)
    assert q.made == q.loops(block)
    same(p, q)


def test_loops_are_made_anew() -> None:
    p = rows()
    q = p.split("s_i", 4).split("s_r", 3).reorder("s_r_0", "s_i_0", "s_r_1", "s_i_1")
    q = q.transform_block_layout("s", layout(lambda i, r: (i, r)))
    assert outline(q) == lines("""
        s_0 < n
          s_1 < k
            s(s_0, s_1)
    """)
    same(p, q)
    p = chain()
    q = p.fuse("b_i", "b_j").transform_block_layout("b", layout(lambda i, j: (j, i)))
    assert "b_0 < k\n  b_1 < n" in outline(q)
    same(p, q)


def test_a_reduction_in_pieces_can_be_scheduled_on() -> None:
    p = rows()
    q = p.transform_block_layout("s", layout(lambda i, r: (i, r // 4, r % 4)))
    same(p, q.decompose_reduction("s", "s_1"))
    same(p, q.rfactor("s_2"))
    same(p, q.reorder("s_2", "s_1").split("s_0", 2).parallel("s_0_0"))


def test_conditions_in_iterators_that_are_reduced_over() -> None:
    text = """
@loop
def f(x: f32["n", "k"], s: f32["n"], n: i64, k: i64):
    for a in grid(n):
        for b in grid(k):
            with block("s", S(a, n), R(b, k), where=r < 3) as (i, r):
                with init():
                    s[i] = 0.0
                s[i] = s[i] + x[i, r]
"""
    p = program(parse_function(text))
    same(p, p.decompose_reduction("s", "b"))
    with pytest.raises(SchedulingError, match="a condition depends on r, which it reduces over"):
        p.transform_block_layout("s", layout(lambda i, r: (r, i)))


def test_transform_block_layout_refuses() -> None:
    def refused(p: Program, block: str, how: tuple, reason: str) -> None:
        with pytest.raises(SchedulingError, match=reason):
            p.transform_block_layout(block, how)

    plain = layout(lambda i, r: (i, r))
    refused(rows(), "s", layout(lambda i, r: (i * k + r,)), "mixes iterators of different kinds")
    refused(running(), "y", layout(lambda i, j: (i * k + j,)), "must run in order")
    refused(running(), "y", layout(lambda i, j: (i, j // 2, j % 2)), "must run in order")
    refused(rows(), "s", layout(lambda i, r: (i, 0)), "the layout has no inverse")
    refused(rows(), "s", (var("_0"), var("_1"), var("z")), "the layout is not one of 2 iterators")
    refused(rows().parallel("s_i"), "s", plain, "loop s_i is parallel")
    clipped = rows().split("s_i", 4, tail="clip")
    refused(clipped, "s", plain, "of loop s_i_1 depends on another")
    peeled = chain().split("b_i", 4, tail="peel")
    refused(peeled, "b", plain, "its loops do not run through all of its iterators")
    refused(chain().split("y_i", 4).compute_at("b", "y_i_0"), "b", plain, "its loops do not run")
    twice = program(
        parse_function("""
@loop
def f(x: f32["n"], n: i64):
    for a, b in grid(n, 2):
        with block("t", S(a, n)) as i:
            x[i] = 1.0
""")
    )
    refused(twice, "t", layout(lambda i: (i,)), "its loops are not just its iterators")
    parted = rows().add_unit_loop("s_r").split("s_i", 4).decompose_reduction("s", "s_r")
    refused(parted, "s", plain, "its loops do not run through all")


def test_order_of_dependent_iterations_is_kept() -> None:
    p = program(
        parse_function("""
@loop
def f(x: f32["n + 1", "m"], n: i64, m: i64):
    for a, b in grid(n, m):
        with block("step", S(a, n), S(b, m)) as (i, j):
            x[i + 1, j] = x[i, j] * 2.0
""")
    )
    same(p, p.transform_block_layout("step", layout(lambda i, j: (j, i))))
    same(p, p.transform_block_layout("step", layout(lambda i, j: (i, j // 2, j % 2))))
    for how in (
        layout(lambda i, j: (var("n") - 1 - i, j)),
        layout(lambda i, j: (i % 2, j, i // 2)),
    ):
        with pytest.raises(SchedulingError, match="in another order"):
            p.transform_block_layout("step", how)
