"""Stores past the caches: what may be stored so, and that the code does it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from pliant.loop.stmt import LINE
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
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
    with pytest.raises(SchedulingError, match="2 elements of y do not fill cache lines"):
        vectors(2).stream("y_j_1")
    with pytest.raises(SchedulingError, match="at_least is a number of bytes"):
        vectors().stream("y_j_1", at_least=-1)
    p = chain().split("a_j", 16).vectorize("a_j_1")
    with pytest.raises(SchedulingError, match="a is no parameter"):
        p.stream("a_j_1")
    p = matmul().split("c_j", 16).reorder("c_r", "c_j_1").vectorize("c_j_1")
    with pytest.raises(SchedulingError, match=r"reads c|stores"):
        p.stream("c_j_1")
    p = chain().split("y_i", 16).reorder("y_j", "y_i_1").vectorize("y_i_1")
    with pytest.raises(SchedulingError, match="y is not stored element after element"):
        p.stream("y_i_1")


PARTS = """
@loop
def twice(x: TYPE["n", "k"], y: TYPE["n", "k"], n: i64, k: i64):
    for i in grid(n):
        for j in grid((k + LANES - 1)//LANES):
            for l in vectorized(LANES):
                with block("y", S(i, n), S(LANES*j + l, k), where=LANES*j + l < k) as (a, b):
                    y[a, b] = x[a, b] + x[a, b]
"""
KINDS = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}


def masked(kind: str, lanes: int) -> Program:
    return program(parse_function(PARTS.replace("TYPE", kind).replace("LANES", str(lanes))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_parts(kind: str, lanes: int) -> None:
    """Element by element, those under the mask alone; or as ever, where the buffer is small."""
    size = np.dtype(KINDS[kind]).itemsize
    p = masked(kind, lanes).stream("l", at_least=40 * size, parts=True)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert f"store i{8 * size}" in text.split("!nontemporal")[0].splitlines()[-1]
    assert "masked.store" in text
    for rows, columns in [(0, 3), (3, 0), (2, 1), (39, 1), (8, 5), (3, 17), (5, 16), (4, 163)]:
        x = np.arange(rows * columns).reshape(rows, columns).astype(KINDS[kind]) - 2
        for start in (0, 1, lanes - 1):  # elements behind the beginning of a line
            whole = np.full(rows * columns + 64, 77, KINDS[kind])
            y = whole[start : start + rows * columns].reshape(rows, columns)
            native(p.function, [x, y], {"n": rows, "k": columns})
            np.testing.assert_array_equal(y, x + x)
            assert (whole[:start] == 77).all() and (whole[start + rows * columns :] == 77).all()


def test_parts_of_short_elements() -> None:
    with pytest.raises(SchedulingError, match="an element of y is not of 4 or 8 bytes"):
        masked("bf16", 32).stream("l", parts=True)


def placed(rows: int, columns: int, byte: int) -> np.ndarray:
    """An array that begins so many bytes behind the beginning of a cache line."""
    memory = np.full(rows * columns * 4 + 128, 0xFF, np.uint8)  # NaN
    start = -memory.ctypes.data % LINE + byte
    return memory[start : start + rows * columns * 4].view(np.float32).reshape(rows, columns)


@pytest.mark.parametrize("at_least", [0, 1 << 40])
@pytest.mark.parametrize("byte", [0, 16, 4])
def test_code(at_least: int, byte: int) -> None:
    """Vectors that fill lines and others hold the values that they should, in tasks too."""
    for p in (vectors(), vectors(32), vectors(8), vectors().parallel("y_i")):
        q = p.stream("y_j_1", at_least)
        for rows, columns in [(0, 16), (1, 15), (3, 16), (5, 33), (4, 160)]:
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            y = placed(rows, columns, byte)
            native(q.function, [x, y], {"n": rows, "k": columns})
            np.testing.assert_array_equal(y, (2 * (x + 1)) ** 2)


def test_fence() -> None:
    """A task does not end before what it stored can be seen; other kernels have no fence."""
    p = vectors().parallel("y_i")
    t = target("x86-64-avx512")
    text = kernel_source(p.stream("y_j_1").function, t).text
    assert "!nontemporal !0" in text
    assert text.count("@llvm.x86.sse.sfence()\n  ret i32 0") == 1  # that of the task
    plain = kernel_source(p.function, t).text
    assert "nontemporal" not in plain and "sfence" not in plain


CHECKED = """
@loop
def twice(x: f32["n", 16], y: f32["n", 16], n: i64):
    for i in grid(n):
        for j in vectorized(16):
            with block("y", S(i, n), S(j, 16)) as (a, b):
                y[a, b] = x[a, b] * 2.0
        check(n <= 4, "n is {0}", n)
"""


def test_fence_of_a_failure() -> None:
    """Nor does one that fails: what it stored would come to what the memory is for by then."""
    p = program(parse_function(CHECKED)).stream("j")
    source = kernel_source(p.function, target("x86-64-avx512"))
    assert len(source.sites) == 1
    for code in (0, 1):
        assert source.text.count(f"@llvm.x86.sse.sfence()\n  ret i32 {code}") == 1
    assert source.text.count("ret i32") == 2
