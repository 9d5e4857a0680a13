"""Stores past the caches: what may be stored so, and that the code does it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_text
from pliant.codegen.llvm.target import target
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from tests.schedule.native import native
from tests.schedule.programs import chain, matmul, same


def vectors(lanes: int = 16, *, keep: bool = False) -> Program:
    """(2*(x + 1))**2 in vectors."""
    p = chain() if keep else chain().compute_inline("a").compute_inline("b")
    p = p.split("y_j", lanes, tail="peel")
    return p.vectorize(p.made[1])


def test_stream() -> None:
    p = vectors()
    q = p.stream("y_j_1")
    same(p, q)
    same(p, q.parallel("y_i"))
    wide = vectors(32)
    same(wide, wide.stream("y_j_1", at_least=1 << 20))
    with pytest.raises(SchedulingError, match="streams already"):
        q.stream("y_j_1")
    with pytest.raises(SchedulingError, match="business of stream"):
        p.annotate("y_j_1", "stream", 0)


def test_refused() -> None:
    with pytest.raises(SchedulingError, match="y_j_0: it is serial, not vectorized"):
        vectors().stream("y_j_0")
    with pytest.raises(SchedulingError, match="8 elements of y are no whole cache lines"):
        vectors(8).stream("y_j_1")
    with pytest.raises(SchedulingError, match="at_least is a number of bytes"):
        vectors().stream("y_j_1", at_least=-1)
    p = chain().split("a_j", 16).vectorize("a_j_1")
    with pytest.raises(SchedulingError, match="a is no parameter"):
        p.stream("a_j_1")
    p = matmul().split("c_j", 16).reorder("c_r", "c_j_1").vectorize("c_j_1")
    with pytest.raises(SchedulingError, match="reads c|stores"):
        p.stream("c_j_1")
    p = chain().split("y_i", 16).reorder("y_j", "y_i_1").vectorize("y_i_1")
    with pytest.raises(SchedulingError, match="y is not stored element after element"):
        p.stream("y_i_1")


@pytest.mark.parametrize("at_least", [0, 1 << 40])
def test_code(at_least: int) -> None:
    """Whole lines and others, in tasks and without, have the values that they should."""
    for p in (vectors(), vectors(32), vectors().parallel("y_i")):
        q = p.stream("y_j_1", at_least)
        for rows, columns in [(0, 16), (1, 15), (3, 16), (5, 33), (4, 160)]:
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            y = np.full_like(x, np.nan)
            native(q.function, [x, y], {"n": rows, "k": columns})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)


def test_fence() -> None:
    """A task does not end before what it stored can be seen; other kernels have no fence."""
    p = vectors().parallel("y_i")
    t = target("x86-64-avx512")
    text, _ = kernel_text(p.stream("y_j_1").function, t)
    assert "!nontemporal !0" in text
    assert "call void @llvm.x86.sse.sfence()\n  ret i32 0" in text
    plain, _ = kernel_text(p.function, t)
    assert "nontemporal" not in plain and "sfence" not in plain
