"""Asking for memory ahead: what may be asked for, and that the code does it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.ir.expr import Guard, Index, loads_of
from pliant.ir.node import walk
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.rows_ahead import rows_ahead
from pliant.loop.stmt import PREFETCH, For, Stmt, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import minimum, var
from pliant.text import parse_function, to_text
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
    text = kernel_source(p.function, target("x86-64-avx512")).text
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
    with pytest.raises(SchedulingError, match="level of a cache is 1 or 2, not 3"):
        vectors().prefetch("y_j_1", "x", 64, cache=3)


def test_code() -> None:
    """Each line of a vector is asked for once, also from a task, also beyond the end."""
    for p in (vectors(), vectors().parallel("y_i")):
        q = p.prefetch("y_j_1", "x", 3 * k)
        text = kernel_source(q.function, target("x86-64-avx512")).text
        assert text.count("call void @llvm.prefetch") == 2
        for rows, columns in [(0, 16), (1, 31), (3, 32), (4, 160)]:
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            y = np.full_like(x, np.nan)
            native(q.function, [x, y], {"n": rows, "k": columns})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)


def test_level_of_the_caches() -> None:
    """The instruction says how near it is to come; so does what an iteration asks for."""
    for cache, locality in ((1, 3), (2, 2)):
        asks = f"i32 0, i32 {locality}, i32 1)"
        for p in (vectors().prefetch("y_j_1", "x", k, cache=cache), chosen(cache=cache)):
            assert parse_function(to_text(p.function)) == p.function
            text = kernel_source(p.function, target("x86-64-avx512")).text
            assert text.count(asks) == text.count("call void @llvm.prefetch") == 2
        p = chain().compute_inline("a").compute_inline("b").split("y_j", 16)
        text = kernel_source(
            p.prefetch("y_j_0", "x", k, cache=cache).function, target("x86-64-avx512")
        ).text
        assert text.count(asks) == text.count("call void @llvm.prefetch") == 1


def test_code_of_other_loops() -> None:
    """An iteration asks for the lines of what it will read: so many whole ones as that fills, or
    the first."""
    for size, lines in ((16, 1), (32, 2), (80, 5), (7, 1)):
        p = chain().compute_inline("a").compute_inline("b").split("y_j", size)
        q = p.prefetch("y_j_0", "x", 2 * k)
        for r in (q, q.vectorize("y_j_1"), q.parallel("y_i"), q.prefetch("y_j_1", "x", 1)):
            text = kernel_source(r.function, target("x86-64-avx512")).text
            asked = lines + (dict(r.loop("y_j_1").notes).get("prefetch") is not None)
            assert text.count("call void @llvm.prefetch") == asked
            x = np.arange(6 * 33, dtype=np.float32).reshape(6, 33)
            y = np.full_like(x, np.nan)
            native(r.function, [x, y], {"n": 6, "k": 33})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)
    p = chain().compute_inline("a").compute_inline("b").prefetch("y_i", "x", k)
    same(chain(), p)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch") == 1


CHOSEN = """
@loop(notes={"noalias": ("y",)})
def take(x: f32["r", "k"], at: i64["n"], y: f32["n", "k"], r: i64, k: i64, n: i64):
    for i, j in grid(n, k):
        with block("y", S(i, n), S(j, k)) as (a, b):
            y[a, b] = x[guard((0 <= at[a]) & (at[a] < r), at[a], "index", "out of range"), b]
"""


def chosen(ahead: int = 2, cache: int = 1) -> Program:
    """Rows that others choose, in vectors that ask for rows to come."""
    p = program(parse_function(CHOSEN)).parallel("i").split("j", 16, tail="peel")
    for loop in p.made[1:]:
        p = p.vectorize(loop).prefetch(loop, "x", ahead, of="i", cache=cache)
    return p


def is_vector(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind == "vectorized"


def test_rows_that_are_chosen() -> None:
    """What vectors ask for is the load of a later iteration, or of the last, without its check."""
    p = chosen()
    assert parse_function(to_text(p.function)) == p.function
    plain = rows_ahead(lower_blocks(p.function))
    asked = [dict(s.notes)[PREFETCH] for s in statements(plain.body) if is_vector(s)]
    n, i = var("n"), var("i")
    for name, load, _, cache, _ in asked:
        assert (name, load.source.name, cache) == ("x", "x", 1)
        assert {x.indices for x in loads_of(load) if x.source.name == "at"} == {
            (Index(minimum(i + 2, n - 1)),)
        }
        assert not any(isinstance(x, Guard) for x in walk(load))
    assert len(asked) == 2
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch") == 2
    for rows, columns, many in [(1, 1, 1), (3, 31, 7), (40, 64, 5), (7, 33, 0), (5, 16, 300)]:
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        at = np.random.default_rng(0).integers(0, rows, many)
        y = np.full((many, columns), np.nan, np.float32)
        native(p.function, [x, at, y], {"r": rows, "k": columns, "n": many})
        np.testing.assert_array_equal(y, x[at])


def test_what_is_not_chosen_by_a_loop_around() -> None:
    plain = program(parse_function(CHOSEN)).split("j", 16).vectorize("j_1")
    with pytest.raises(SchedulingError, match="it is no vector inside of k"):
        plain.prefetch("j_1", "x", 2, of="k")
    with pytest.raises(SchedulingError, match="it is no vector inside of i"):
        plain.prefetch("j_0", "x", 2, of="i")
    with pytest.raises(SchedulingError, match="it has no y to read"):
        plain.prefetch("j_1", "y", 2, of="i")
    gone = plain.prefetch("j_1", "x", 2, of="i").split("i", 4)  # nobody knows what comes later
    text = kernel_source(gone.function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch") == 0


def test_what_depends_on_a_loop_inside_is_not_asked_for() -> None:
    """Another load of the buffer may be where that loop is not."""
    text = """
@loop
def take(x: f32["r", 32], at: i64["n"], y: f32["n", 16], r: i64, n: i64):
    for i in grid(n):
        for j in grid(16):
            with block("y", S(i, n), S(j, 16)) as (a, b):
                y[a, b] = 0.0
                for q in grid(2):
                    y[a, b] = y[a, b] + x[at[a], 16*q + b]
                y[a, b] = y[a, b] + x[at[a], b]
"""
    p = program(parse_function(text)).vectorize("j").prefetch("j", "x", 2, of="i")
    code = kernel_source(p.function, target("x86-64-avx512")).text
    assert code.count("call void @llvm.prefetch") == 0
    x, at = np.arange(96, dtype=np.float32).reshape(3, 32), np.array([2, 0, 1, 2])
    y = np.full((4, 16), np.nan, np.float32)
    native(p.function, [x, at, y], {"r": 3, "n": 4})
    np.testing.assert_array_equal(y, 2 * x[at, :16] + x[at, 16:])


def test_shared() -> None:
    """All iterations ask for a part of what they read, one piece behind the other."""
    p = chain().compute_inline("a").compute_inline("b").split("y_j", 64, tail="peel")
    q = p.prefetch("y_j_0", "x", k + 3, share=2)
    same(p, q)
    assert parse_function(to_text(q.function)) == q.function
    text = kernel_source(q.function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch") == 2
    text = kernel_source(p.prefetch("y_j_0", "x", k).function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch") == 4
    for rows, columns in [(0, 16), (1, 63), (3, 64), (4, 330)]:
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        y = np.full_like(x, np.nan)
        native(q.function, [x, y], {"n": rows, "k": columns})
        np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)
    with pytest.raises(SchedulingError, match="no serial loop share 2"):
        vectors().prefetch("y_j_1", "x", 64, share=2)


def test_runs_of_a_later_iteration() -> None:
    """A serial loop asks for what it says of the next iteration of one around it."""
    p = chain().compute_inline("a").compute_inline("b").split("y_j", 16)
    q = p.prefetch("y_j_0", "x", 16 * var("y_j_0"), of="y_i", runs=(2, k, 16))
    same(p, q)
    same(p, q.vectorize("y_j_1").parallel("y_i"))
    assert parse_function(to_text(q.function)) == q.function
    plain = rows_ahead(lower_blocks(q.function))
    (asked,) = (
        dict(s.notes)[PREFETCH] for s in statements(plain.body)
        if isinstance(s, For) and PREFETCH in dict(s.notes)
    )  # fmt: skip
    name, lines, _, cache, size = asked
    assert (name, cache, size) == ("x", 1, 16)
    start = minimum(var("y_i") + 1, var("n") - 1) * k + 16 * var("y_j_0")
    assert lines == (start, start + k)
    text = kernel_source(q.function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch") == 2
    for rows, columns in ((1, 16), (6, 33), (0, 5)):
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        y = np.full_like(x, np.nan)
        native(q.function, [x, y], {"n": rows, "k": columns})
        np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)


NAMED = """
@loop(notes={"noalias": ("y",)})
def take(x: f32["r", "k"], at: i64["n"], y: f32["n", "k"], r: i64, k: i64, n: i64):
    for i in grid(n):
        for j in grid(k, notes={"prefetch": ("x", j, "i", 1, (2, k, 16))}):
            row: i64 = at[i]
            y[i, j] = x[row, j]
"""


def test_runs_of_what_has_a_name_inside() -> None:
    """What the next iteration reads is not known before it: nothing is asked for."""
    f = parse_function(NAMED)
    plain = rows_ahead(lower_blocks(f))
    assert not [s for s in statements(plain.body) if isinstance(s, For) and s.notes]
    x, at = np.arange(15, dtype=np.float32).reshape(3, 5), np.array([2, 0, 2, 1])
    y = np.full((4, 5), np.nan, np.float32)
    native(f, [x, at, y], {"r": 3, "k": 5, "n": 4})
    np.testing.assert_array_equal(y, x[at])


def test_runs_that_are_refused() -> None:
    p = chain().compute_inline("a").compute_inline("b").split("y_j", 16)
    for loop, buffer, ahead, of, runs, why in [
        ("y_j_0", "x", 0, "", (2, k, 16), "no serial loop inside of another"),
        ("y_j_0", "x", 0, "y_j_1", (2, k, 16), "no serial loop inside of y_j_1"),
        ("y_j_0", "x", 0, "y_i", (0, k, 16), "both numbers"),
        ("y_j_0", "x", 0, "y_i", (2, k, k), "both numbers"),
        ("y_j_0", "x", 0, "y_i", (2, k), "both numbers"),
        ("y_j_0", "x", var("y_j_1"), "y_i", (2, k, 16), "told by y_j_1"),
        ("y_j_0", "x", 0, "y_i", (2, var("y_j_0"), 16), "told by y_j_0"),
        ("y_j_0", "y", 0, "y_i", (2, k, 16), "no y to read"),
    ]:
        with pytest.raises(SchedulingError, match=why):
            p.prefetch(loop, buffer, ahead, of=of, runs=runs)
    with pytest.raises(SchedulingError, match="no serial loop inside of y_i"):
        p.vectorize("y_j_1").prefetch("y_j_1", "x", 0, of="y_i", runs=(2, k, 16))
