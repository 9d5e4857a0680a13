"""Primitives on reductions: decompose_reduction, rfactor, reduce_lanes, and what init means."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.loop.interpret import interpret
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.lower_init import lower_init
from pliant.loop.stmt import Block, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.sym.expr import var
from tests.schedule.programs import (
    ROW_SIZES,
    best,
    matmul,
    outline,
    rows,
    running,
    same,
    softmax,
)
from tests.schedule.test_loops import lines


def test_decompose_reduction() -> None:
    p = matmul()
    q = p.split("c_j", 4).reorder("c_i", "c_j_0", "c_r", "c_j_1").decompose_reduction("c", "c_r")
    assert q.made == ("c_init",)
    assert outline(q) == lines("""
        c_i < n
          c_j_0 < (m + 3)//4
            c_j_1_init < 4
              c_init(c_i, 4*c_j_0 + c_j_1_init) where 4*c_j_0 + c_j_1_init < m
            c_r < k
              c_j_1 < 4
                c(c_i, 4*c_j_0 + c_j_1, c_r) where 4*c_j_0 + c_j_1 < m
    """)
    same(p, q)
    same(p, q.split("c_r", 2, tail="peel"))
    same(best(), best().decompose_reduction("p", "p_i"))


def test_decompose_reduction_refuses() -> None:
    p = matmul().split("c_r", 4)
    with pytest.raises(SchedulingError, match="it reduces over c_r_0, outside of loop c_r_1"):
        p.decompose_reduction("c", "c_r_1")
    with pytest.raises(SchedulingError, match="it has no init"):
        running().decompose_reduction("y", "y_j")
    with pytest.raises(SchedulingError, match="loop m_r is not around it"):
        softmax().decompose_reduction("s", "m_r")
    q = softmax().compute_at("m", "e_i")
    with pytest.raises(SchedulingError, match="block e in loop e_i uses m too"):
        q.decompose_reduction("m", "e_i")


def test_a_reduction_over_nothing_gives_the_identity() -> None:
    for combiner, value in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
        p = rows(combiner).split("s_r", 4)
        plain = lower_blocks(p.function)
        started = lower_init(p.function)
        assert not any(isinstance(s, Block) for s in statements(plain.body))
        for f in (p.function, plain, started):
            y = np.full(3, np.nan, np.float32)
            interpret(f, [np.zeros((3, 0), np.float32), y], {"n": 3, "k": 0})
            np.testing.assert_array_equal(y, np.full(3, value, np.float32))


@pytest.mark.parametrize("combiner", ["sum", "prod", "max", "min", "fmax", "fmin"])
def test_rfactor(combiner: str) -> None:
    p = rows(combiner)
    q = p.split("s_r", 4).rfactor("s_r_1")
    assert q.made == ("s_rf", "s_rf", "s_r_1_f")
    assert outline(q) == lines("""
        scratch s_rf[n, 4]
        s_i < n
          s_r_0 < (k + 3)//4
            s_r_1 < 4
              s_rf(s_i, s_r_0, s_r_1) where 4*s_r_0 + s_r_1 < k
          s_r_1_f < 4
            s(s_i, s_r_1_f)
    """)
    same(p, q)
    lanes = q.vectorize("s_r_1").reduce_lanes("s").shrink_buffer("s_rf").parallel("s_i")
    same(p, lanes)
    same(p, p.split("s_r", 4).rfactor("s_r_0"))


def test_rfactor_in_parallel_parts() -> None:
    p = rows()
    q = p.split("s_r", var("n") + 1).reorder("s_r_0", "s_i", "s_r_1").rfactor("s_r_0")
    same(p, q.parallel("s_r_0"))
    q = p.decompose_reduction("s", "s_r").split("s_r", 4).rfactor("s_r_1")
    same(p, q)


def test_rfactor_refuses() -> None:
    with pytest.raises(SchedulingError, match="no block reduces over it"):
        rows().rfactor("s_i")
    with pytest.raises(SchedulingError, match="no block reduces over it"):
        running().rfactor("y_j")
    with pytest.raises(SchedulingError, match="no block reduces over it"):
        rows().decompose_reduction("s", "s_r").rfactor("s_i")
    with pytest.raises(SchedulingError, match="there is no such loop"):
        rows().rfactor("z")


def test_reduce_lanes() -> None:
    p = rows()
    q = p.split("s_r", 4).rfactor("s_r_1").reduce_lanes("s")
    assert outline(q).endswith("s_rf(s_i, s_r_0, s_r_1) where 4*s_r_0 + s_r_1 < k\n  s(s_i)")
    same(p, q)
    same(p, p.split("s_r", 4).reduce_lanes("s"))
    with pytest.raises(SchedulingError, match="is not a number up to 64"):
        p.reduce_lanes("s")
    with pytest.raises(SchedulingError, match="no update by a known combiner"):
        running().reduce_lanes("y")


def test_lanes_of_a_part_of_an_iterator() -> None:
    p = rows().decompose_reduction("s", "s_r")
    whole = p.split("s_r", 4, tail="peel", tail_loop="exact").reduce_lanes("s")
    assert outline(whole) == lines("""
        s_i < n
          s_init(s_i)
          s_r_0 < k//4
            s(s_i, s_r_0)
          s_r_t < k%4
            s_t(s_i, 4*(k//4) + s_r_t)
    """)
    same(p, whole)
    masked = p.split("s_r", 4).reduce_lanes("s")
    same(p, masked)
    apart = p.split("s_r", 4).split("s_r_1", 2).reorder("s_r_1_1", "s_r_1_0")
    with pytest.raises(SchedulingError, match="s_r_1_0 is not one of its reduction iterators"):
        apart.reduce_lanes("s")


def test_all_sizes_after_many_steps() -> None:
    p = softmax()
    q = p.split("s_r", 4).rfactor("s_r_1").vectorize("s_r_1").reduce_lanes("s")
    q = q.split("m_r", 4).rfactor("m_r_1").vectorize("m_r_1").reduce_lanes("m")
    same(p, q, ROW_SIZES)
    assert program(q.function).blocks == ("m_rf", "m", "e", "s_rf", "s", "y")


def test_cache_write_of_one_of_several_buffers() -> None:
    p = best()
    q = p.cache_write("p", buffer="p")
    assert q.made == ("p_store", "p_local")
    same(p, q)
    with pytest.raises(SchedulingError, match="it does not write one buffer"):
        p.cache_write("p")
    with pytest.raises(SchedulingError, match="it does not write x"):
        p.cache_write("p", buffer="x")
