"""Asking for memory ahead: what may be asked for, and that the code does it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_text
from pliant.codegen.llvm.target import target
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.native import native
from tests.schedule.programs import chain, k, same


def vectors() -> Program:
    """(2*(x + 1))**2 in vectors."""
    p = chain().compute_inline("a").compute_inline("b")
    p = p.split("y_j", 32, tail="peel")
    return p.vectorize(p.made[1])


def test_prefetch() -> None:
    p = vectors()
    q = p.prefetch("y_j_1", "x", 64)
    same(p, q)
    same(p, p.prefetch("y_j_1", "x", 2 * k).parallel("y_i"))
    with pytest.raises(SchedulingError, match="asks for something already"):
        q.prefetch("y_j_1", "x", 64)
    with pytest.raises(SchedulingError, match="business of prefetch"):
        p.annotate("y_j_1", "prefetch", 0)


def test_what_is_only_stored() -> None:
    """It is asked for as what will be written."""
    p = vectors().prefetch("y_j_1", "y", 2 * k)
    same(vectors(), p)
    text, _ = kernel_text(p.function, target("x86-64-avx512"))
    assert text.count("call void @llvm.prefetch") == 2
    assert text.count("i32 1, i32 3, i32 1)") == 2


def test_refused() -> None:
    with pytest.raises(SchedulingError, match="y_i: it is parallel"):
        vectors().parallel("y_i").prefetch("y_i", "x", 64)
    with pytest.raises(SchedulingError, match="has no y to read"):
        vectors().prefetch("y_j_0", "y", 64)
    with pytest.raises(SchedulingError, match="mentions y_i, which are not sizes"):
        vectors().prefetch("y_j_1", "x", var("y_i"))
    p = chain().split("y_j", 16).vectorize("y_j_1")
    with pytest.raises(SchedulingError, match="b is no parameter"):
        p.prefetch("y_j_1", "b", 64)
    p = chain().compute_inline("a").compute_inline("b")
    p = p.split("y_i", 16).reorder("y_j", "y_i_1").vectorize("y_i_1")
    with pytest.raises(SchedulingError, match="has no x element after element"):
        p.prefetch("y_i_1", "x", 64)


def test_code() -> None:
    """Each line of a vector is asked for once, also from a task, also beyond the end."""
    for p in (vectors(), vectors().parallel("y_i")):
        q = p.prefetch("y_j_1", "x", 3 * k)
        text, _ = kernel_text(q.function, target("x86-64-avx512"))
        assert text.count("call void @llvm.prefetch") == 2
        for rows, columns in [(0, 16), (1, 31), (3, 32), (4, 160)]:
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            y = np.full_like(x, np.nan)
            native(q.function, [x, y], {"n": rows, "k": columns})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)


def test_code_of_other_loops() -> None:
    """An iteration asks for the lines of what it will read: so many whole ones as that fills, or
    the first."""
    for size, lines in ((16, 1), (32, 2), (80, 5), (7, 1)):
        p = chain().compute_inline("a").compute_inline("b").split("y_j", size)
        q = p.prefetch("y_j_0", "x", 2 * k)
        for r in (q, q.vectorize("y_j_1"), q.parallel("y_i"), q.prefetch("y_j_1", "x", 1)):
            text, _ = kernel_text(r.function, target("x86-64-avx512"))
            asked = lines + (dict(r.loop("y_j_1").notes).get("prefetch") is not None)
            assert text.count("call void @llvm.prefetch") == asked
            x = np.arange(6 * 33, dtype=np.float32).reshape(6, 33)
            y = np.full_like(x, np.nan)
            native(r.function, [x, y], {"n": 6, "k": 33})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)
    p = chain().compute_inline("a").compute_inline("b").prefetch("y_i", "x", k)
    same(chain(), p)
    text, _ = kernel_text(p.function, target("x86-64-avx512"))
    assert text.count("call void @llvm.prefetch") == 1
