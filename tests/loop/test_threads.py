"""Programs for threads: their text, their rules, how they run, and what makes them wrong."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.errors import InvalidModelError
from pliant.loop.interpret import interpret
from pliant.loop.interpret_threads import interpret_threads
from pliant.loop.launch import Limits
from pliant.loop.lower_threads import lower_threads
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.verify import verify_function
from tests.schedule.threads import shuffled

# Rows of 8 are reversed through shared memory.
REVERSE = """\
@device
def reverse(x: f32["n", 8], y: f32["n", 8], n: i64):
    for b in blockIdx.x(n):
        s = alloc(f32[8], scope="shared")
        for t in threadIdx.x(8):
            with block("load", S(b, n), S(t, 8)) as (i, j):
                s[j] = x[i, j]
            barrier()
            with block("store", S(b, n), S(t, 8)) as (i, j):
                y[i, j] = s[-j + 7]"""

# A tile goes through shared memory whose rows are one element longer: its columns lie in
# different banks then.
TRANSPOSE = """\
@loop
def transpose(x: f32["n", "m"], y: f32["m", "n"], n: i64, m: i64):
    for i in blockIdx.y((n + 3)//4):
        for j in blockIdx.x((m + 3)//4):
            s = alloc(f32[4, 4], scope="shared", strides=(5, 1))
            for a in threadIdx.y(4):
                for b in threadIdx.x(4):
                    with block("s", S(a + 4*i, n), S(b + 4*j, m), where=(a + 4*i < n) & (b + 4*j < m)) as (v, w):
                        s[a, b] = x[v, w]
            for c in threadIdx.y(4):
                for d in threadIdx.x(4):
                    with block("y", S(c + 4*j, m), S(d + 4*i, n), where=(c + 4*j < m) & (d + 4*i < n)) as (v, w):
                        y[v, w] = s[d, c]"""  # noqa: E501

# A row of 4 threads exchanges what it has in memory of its warp.
ROTATE = """\
@loop
def rotate(x: f32["n", 4], y: f32["n", 4], n: i64):
    for b in blockIdx.x((n + 1)//2):
        w = alloc(f32[2, 4], scope="warp")
        for r in threadIdx.y(2):
            for t in threadIdx.x(4):
                with block("w", S(2*b + r, n), S(t, 4), where=2*b + r < n) as (i, j):
                    w[r, t] = x[i, j]
            for u in threadIdx.x(4):
                with block("y", S(2*b + r, n), S(u, 4), where=2*b + r < n) as (i, j):
                    y[i, j] = w[r, (u + 1)%4]"""


def run(text: str, rows: int, columns: int = 8, *, seed: int = 0) -> np.ndarray:
    """What the device program makes of rows of numbers."""
    f = parse_function(text)
    verify_function(f)
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    y = np.full_like(x, -1)
    interpret_threads(f, [x, y], [rows], order=shuffled(seed))
    return y


def message(text: str, rows: int = 2) -> str:
    """What is wrong with it, in the order in which things stand."""
    f = parse_function(text)
    x = np.zeros((rows, 8), np.float32)
    verify_function(f)
    with pytest.raises(InvalidModelError) as caught:
        interpret_threads(f, [x, x.copy()], [rows])
    return str(caught.value).splitlines()[0]


def test_text_of_threads_is_stable() -> None:
    for text in (REVERSE, TRANSPOSE, ROTATE):
        assert function_text(parse_function(text)) == text


@pytest.mark.parametrize("seed", range(5))
def test_threads_run_in_any_order(seed: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(run(REVERSE, 3, seed=seed), x[:, ::-1])
    assert run(REVERSE, 0).size == 0


FENCE = "            barrier()\n"
OWN = REVERSE.replace("s[-j + 7]", "s[j]")  # nobody reads what another wrote
ROWS = REVERSE.replace("barrier()", 'barrier("warp")').replace(
    "for t in threadIdx.x(8):", "for z in threadIdx.y(2):\n         for t in threadIdx.x(4):"
).replace("S(t, 8)", "S(4*z + t, 8)")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REVERSE.replace(FENCE, ""),  # a missing barrier
         "in thread block (blockIdx.x = 0) thread (threadIdx.x = 3) reads s[4] in block store and "
         "(threadIdx.x = 4) writes it in block load, with no barrier between"),
        (REVERSE.replace(FENCE, "").replace("s[-j + 7]", "s[j//2]"),  # right, by luck
         "in thread block (blockIdx.x = 0) thread (threadIdx.x = 0) writes s[0] in block load and "
         "(threadIdx.x = 1) reads it in block store, with no barrier between"),
        (REVERSE.replace("s[j] = x", "s[j//2] = x"),
         "in thread block (blockIdx.x = 0) thread (threadIdx.x = 0) writes s[0] in block load and "
         "(threadIdx.x = 1) writes it in block load, with no barrier between"),
        (REVERSE.replace("y[i, j] =", "y[0, j] ="),
         "thread block (blockIdx.x = 0) writes y[0, 0] in block store and another "
         "(blockIdx.x = 1) writes it in block store: nothing orders blocks"),
        (OWN.replace(FENCE, "            if t < 3:\n                barrier()\n"),
         "in thread block (blockIdx.x = 0) threads do not come to the same barrier: "
         "(threadIdx.x = 0) waits at the barrier 2, where a condition holds, "
         "(threadIdx.x = 3) has ended"),
        (OWN.replace(FENCE, "            for k in grid(t):\n                barrier()\n"),
         "in thread block (blockIdx.x = 0) threads do not come to the same barrier: "
         "(threadIdx.x = 0) has ended, (threadIdx.x = 1) waits at the barrier 2, k = 0"),
        (ROWS,  # the other row need not have come
         "in thread block (blockIdx.x = 0) thread (threadIdx.y = 1, threadIdx.x = 3) writes s[7] "
         "in block load and (threadIdx.y = 0, threadIdx.x = 0) reads it in block store, with no "
         "barrier between"),
    ],
)  # fmt: skip
def test_wrong_programs_are_caught_as_they_run(text: str, expected: str) -> None:
    assert message(text) == f"reverse: {expected}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("barrier()", 'barrier("grid")', "there is no barrier 'grid'"),
        ("@device", "@loop", "a barrier is only in programs in device form (@device)"),
        (
            "        for t in",
            "        for u in threadIdx.x(8):\n            s[u] = 0.0\n        for t in",
            "loop u, bound to threadIdx.x, is not the only thing in the loops of the launch around",
        ),
        ("threadIdx.x(8)", "vthread(8)", "loop t, bound to vthread, is no thread of the device"),
        ("threadIdx.x(8)", "threadIdx.x(b)", "the extent b of loop t, bound to threadIdx.x, depends"
         " on b in its launch"),
        ("threadIdx.x(8)", "threadIdx.x(0)", "loop t, bound to threadIdx.x, has no threads"),
        ("threadIdx.x(8)", "parallel(8)", "the parallel loop t is inside a loop bound to blockIdx"),
        ("blockIdx.x(n)", "threadIdx.y(n)", "s, in shared memory, is allocated inside a loop of "
         "threadIdx.y, whose threads share it"),
    ],
)  # fmt: skip
def test_rules(old: str, new: str, expected: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        verify_function(parse_function(REVERSE.replace(old, new)))
    assert expected in str(caught.value)


TWO = """\
@loop
def two(x: f32["n"], y: f32["n"], n: i64):
    for b in blockIdx.x((n + 7)//8):
        s = alloc(f32[8], scope="shared")
        for t in threadIdx.x(8):
            with block("s", S(8*b + t, n), where=8*b + t < n) as (i,):
                s[t] = x[i]
        for u in threadIdx.x(8):
            with block("y", S(8*b + u, n), where=8*b + u < n) as i:
                y[i] = s[u] * 2.0"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("u in threadIdx.x(8)", "u in threadIdx.x(4)",
         "loop u, bound to threadIdx.x, has the extent 4, and another loop of that axis 8"),
        ("u in threadIdx.x(8)", "u in blockIdx.x(8)",
         "loop u, bound to blockIdx.x, is inside another loop of that axis"),
        ("u in threadIdx.x(8)", "u in blockIdx.y(8)",
         "loop u, bound to blockIdx.y, is not the only thing in the loops of the launch around"),
    ],
)  # fmt: skip
def test_rules_of_one_launch(old: str, new: str, expected: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        verify_function(parse_function(TWO.replace(old, new)))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # a race that no barrier can help: threads of one loop meet in one statement
        ("s[t] = x[i]", "s[0] = x[i]", "two: several threads may write an element of s in block s, "
         "with no place between"),
        ("y[i] = s[u] * 2.0", "s[u] = s[7 - u]", "two: a thread reads s in block y and another "
         "writes perhaps the same element in block y, with no place between"),
        ("y[i] =", "y[0] =", "two: block y and block y use perhaps the same element of y in blocks "
         "of threads that differ in blockIdx.x, and nothing orders blocks"),
        # memory that is not where it should be
        ('scope="shared"', 'scope="global"', "two: s, in global memory, is allocated inside"),
        ('scope="shared"', 'scope="local"', ""),
    ],
)  # fmt: skip
def test_lowering_refuses_what_threads_cannot_do(old: str, new: str, expected: str) -> None:
    f = parse_function(TWO.replace(old, new))
    if not expected:
        verify_function(lower_threads(f))
        return
    with pytest.raises(InvalidModelError) as caught:
        lower_threads(f)
    assert str(caught.value).startswith(expected)


def test_shared_memory_that_is_not_filled() -> None:
    text = TWO.replace("f32[8]", "f32[16]").replace(", where=8*b + u < n) as i", ") as i")
    with pytest.raises(InvalidModelError) as caught:
        lower_threads(parse_function(text.replace("s[u]", "s[u + 8]")))
    assert str(caught.value) == (
        "two: the threads of a block write s from 0 to 7 and read it from 8 to 15 in block y"
    )


def test_own_memory_hands_nothing_to_other_threads() -> None:
    text = TWO.replace('scope="shared"', 'scope="local"').replace("s[u] * 2.0", "s[7 - u]")
    with pytest.raises(InvalidModelError) as caught:
        lower_threads(parse_function(text))
    assert str(caught.value) == (
        "two: block y reads s, in local memory, where perhaps another thread of threadIdx.x wrote "
        "it, block s"
    )


def test_limits() -> None:
    f = parse_function(TWO)
    assert lower_threads(f, limits=Limits(shared_bytes=32, threads=8))
    with pytest.raises(InvalidModelError, match="has 31 bytes of shared memory, and uses s 32"):
        lower_threads(f, limits=Limits(shared_bytes=31))
    with pytest.raises(InvalidModelError, match="a block has 8 threads, more than 4"):
        lower_threads(f, limits=Limits(threads=4))
    with pytest.raises(InvalidModelError, match="two: no loop is bound to a thread axis"):
        lower_threads(
            parse_function(TWO.replace("blockIdx.x", "grid").replace("threadIdx.x", "grid"))
        )


def test_no_barrier_where_each_thread_uses_its_own() -> None:
    assert "barrier" not in function_text(lower_threads(parse_function(TWO)))


def test_a_barrier_in_a_loop_also_for_the_next_iteration() -> None:
    nested = """\
@loop
def nested(x: f32["n"], y: f32["n"], n: i64):
    for b in blockIdx.x((n + 7)//8):
        s = alloc(f32[8], scope="shared")
        for k in grid(3):
            for t in threadIdx.x(8):
                s[t] = x[0]
            for u in threadIdx.x(8):
                with block("y", S(8*b + u, n), where=8*b + u < n) as i:
                    y[i] = s[7 - u]"""
    assert function_text(lower_threads(parse_function(nested))).splitlines()[3:] == [
        '        s = alloc(f32[8], scope="shared")',
        "        for tx in threadIdx.x(8):",
        "            for k in grid(3):",
        "                s[tx] = x[0]",
        "                barrier()",
        '                with block("y", S(8*b + tx, n), where=8*b + tx < n) as (i,):',
        "                    y[i] = s[-tx + 7]",
        "                barrier()",
    ]


def test_a_barrier_is_not_put_where_some_threads_only_come() -> None:
    text = """\
@loop
def bad(x: f32[8], y: f32[8]):
    for b in blockIdx.x(1):
        s = alloc(f32[2, 8], scope="shared")
        for t in threadIdx.y(2):
            for k in grid(t + 1):
                for u in threadIdx.x(8):
                    s[t, u] = x[u]
                for w in threadIdx.x(8):
                    y[w] = s[t, 7 - w]"""
    with pytest.raises(InvalidModelError) as caught:
        lower_threads(parse_function(text))
    assert "a barrier would be needed inside loop k that depends on ty" in str(caught.value)


def test_transposition_through_padded_shared_memory() -> None:
    f = parse_function(TRANSPOSE)
    lowered = lower_threads(f)
    text = function_text(lowered)
    assert text.count("barrier()") == 1
    assert 'alloc(f32[4, 4], scope="shared", strides=(5, 1))' in text
    for n, m in [(0, 3), (1, 1), (4, 8), (7, 5), (9, 13)]:
        x = np.random.default_rng(n).random((n, m), np.float32)
        for seed in range(3):
            y = np.zeros((m, n), np.float32)
            interpret_threads(lowered, [x, y], [n, m], order=shuffled(seed))
            np.testing.assert_array_equal(y, x.T)
        interpret(f, [x, y], [n, m])
        np.testing.assert_array_equal(y, x.T)


def test_a_warp_meets_by_itself() -> None:
    lowered = lower_threads(parse_function(ROTATE))
    text = function_text(lowered)
    assert text.count('barrier("warp")') == 1
    assert text.count("barrier(") == 1
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    y = np.zeros_like(x)
    interpret_threads(lowered, [x, y], [5], order=shuffled(3))
    np.testing.assert_array_equal(y, np.roll(x, -1, axis=1))
    wide = ROTATE.replace("4", "5")
    with pytest.raises(
        InvalidModelError, match=r"5 threads of threadIdx\.x are not a part of a warp"
    ):
        lower_threads(parse_function(wide))


def test_the_first_thread_does_what_is_outside_of_loops_of_threads() -> None:
    text = TWO.replace(
        "        for u in",
        "        s[0] = s[7] + 1.0\n        for u in",
    )
    lowered = lower_threads(parse_function(text))
    x = np.arange(8, dtype=np.float32)
    for seed in range(3):
        y = np.zeros_like(x)
        interpret_threads(lowered, [x, y], [8], order=shuffled(seed))
        np.testing.assert_array_equal(y, [16, 2, 4, 6, 8, 10, 12, 14])
