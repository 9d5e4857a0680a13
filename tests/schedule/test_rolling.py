"""rolling_buffer: what iterations share is computed once and kept in a ring."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.loop.interpret import Traffic, interpret
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from tests.schedule.native import native
from tests.schedule.programs import outline, same, softmax, stencil
from tests.schedule.test_loops import lines
from tests.schedule.windows import blur, pooled


def test_a_window() -> None:
    p = stencil()
    q = p.compute_at("t", "u_i").rolling_buffer("t")
    assert outline(q) == lines("""
        scratch t[3]
        u_i < n
          t_i < 3
            t(t_i + u_i) where u_i < 1 or 2 <= t_i
          u(u_i)
    """)
    same(p, q)
    tiles = p.split("u_i", 4).compute_at("t", "u_i_0").rolling_buffer("t")
    assert "t[6]" in outline(tiles)
    same(p, tiles)


def test_rows_of_an_image() -> None:
    """Each row is computed once; other axes shrink to what one run of the loop needs."""
    p = blur()
    q = p.compute_at("t", "y_i")
    r = q.rolling_buffer("t")
    assert "scratch t[3, k + 2]" in outline(r)
    same(p, r)
    counts = []
    for f in (p.function, q.function, r.function):
        traffic = Traffic()
        x, y = np.zeros((12, 7), np.float32), np.zeros((10, 5), np.float32)
        interpret(f, [x, y], {"n": 10, "k": 5}, traffic=traffic)
        counts.append(traffic.stores["t"] // 4)
    assert counts == [12 * 7, 10 * 3 * 7, 12 * 7]
    x = np.random.default_rng(0).normal(size=(12, 7)).astype(np.float32)
    want, got = np.zeros((10, 5), np.float32), np.zeros((10, 5), np.float32)
    interpret(p.function, [x, want], {"n": 10, "k": 5})
    native(r.function, [x, got], {"n": 10, "k": 5})
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_tiles_of_an_image() -> None:
    """Tiles of columns, in parallel, each with a ring of rows of its own."""
    p = blur()
    q = p.split("y_j", 4).reorder("y_j_0", "y_i", "y_j_1").compute_at("t", "y_i")
    q = q.shrink_buffer("t", outside="y_i").rolling_buffer("t")
    assert "scratch t[3, 6]" in outline(q) or "register t[3, 6]" in outline(q)
    same(p, q)
    same(p, q.parallel("y_j_0"))
    q = p.split("y_i", 2).split("y_j", 4).reorder("y_j_0", "y_i_0", "y_i_1", "y_j_1")
    q = q.compute_at("t", "y_i_0").rolling_buffer("t")
    assert "scratch t[4, k + 2]" in outline(q)
    same(p, q)
    q = p.compute_at("t", "y_j").rolling_buffer("t", 1)
    assert "scratch t[n + 2, 3]" in outline(q)
    same(p, q)
    with pytest.raises(SchedulingError, match="no loop around all its uses moves along axis 0"):
        p.split("y_j", 4).reorder("y_j_0", "y_i", "y_j_1").compute_at("t", "y_j_0").rolling_buffer(
            "t", 0
        )


def test_a_reduction_is_kept_too() -> None:
    p = pooled()
    q = p.compute_at("t", "y_i").rolling_buffer("t")
    same(p, q)
    same(p, p.split("y_i", 4).compute_at("t", "y_i_0").rolling_buffer("t"))


def test_refused_with_the_reason() -> None:
    p = stencil()
    with pytest.raises(SchedulingError, match="it is a parameter"):
        p.rolling_buffer("x")
    with pytest.raises(SchedulingError, match="it has no axis 1"):
        p.rolling_buffer("t", 1)
    with pytest.raises(SchedulingError, match="no loop around all its uses moves along axis 0"):
        p.rolling_buffer("t")
    q = p.compute_at("t", "u_i")
    marked = function_text(q.function).replace("for u_i in grid", "for u_i in parallel")
    turned = program(parse_function(marked))
    with pytest.raises(SchedulingError, match="loop u_i is parallel"):
        turned.rolling_buffer("t")
    with pytest.raises(SchedulingError, match="no loop around all its uses moves"):
        q.shrink_buffer("t").rolling_buffer("t")
    with pytest.raises(SchedulingError, match="its elements may not be the same whenever they"):
        q.rolling_buffer("t").rolling_buffer("t")
    apart = softmax().compute_at("s", "y_i")
    with pytest.raises(SchedulingError, match="iterations of loop y_i are not known to overlap"):
        apart.rolling_buffer("s")
