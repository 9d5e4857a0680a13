"""Tensor programs as people write them: what is short, what comes from outside, what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import no_type_check

import numpy as np
import pytest

import pliant
from pliant import language
from pliant.base.errors import InvalidModelError
from pliant.language import (
    R,
    S,
    alloc,
    block,
    boolean,
    check,
    exp,
    f32,
    grid,
    i32,
    i64,
    inf,
    init,
    reducer,
    select,
    sizes,
)
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.schedule.program import Program

n, k, m = sizes("n k m")
SCALE = 1.5
STEPS = 3
HALF = np.float32(0.5)
TABLE = [1, 2]
RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def text_of(p: Program) -> str:
    text = str(p)
    assert parse_function(text) is p.function
    return text.split("\n", 1)[1]  # without the decorator


@pliant.program
def row_sums(x: f32[n, k], y: f32[n]):
    """The sum of each row."""
    for i in grid(n):
        y[i] = sum(x[i, r] * SCALE for r in grid(k))


def test_a_reduction_is_a_block_with_an_init() -> None:
    assert (
        text_of(row_sums)
        == """\
def row_sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    for i, r in grid(n, k):
        with block("y", S(i, n), R(r, k)) as (vi, vr):
            with init():
                y[vi] = 0.0
            y[vi] = y[vi] + x[vi, vr] * 1.5"""
    )
    x = floats(5, 4)
    np.testing.assert_allclose(row_sums.run(x), 1.5 * x.sum(1), rtol=1e-5)
    assert not row_sums.run(floats(3, 0)).any()


@pliant.program
def product(a: f32["n", "k"], b: f32["k", "m"], c: f32["n", "m"]):  # noqa: UP037
    for i, j, r in grid(n, m, k):
        with block("c", S(i), S(j), R(r)):
            with init():
                c[i, j] = 0.0
            c[i, j] += a[i, r] * b[r, j]


def test_a_block_takes_names_and_extents_from_its_loops() -> None:
    assert (
        text_of(product)
        == """\
def product(a: f32["n", "k"], b: f32["k", "m"], c: f32["n", "m"], n: i64, k: i64, m: i64):
    for i, j, r in grid(n, m, k):
        with block("c", S(i, n), S(j, m), R(r, k)) as (vi, vj, vr):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] = c[vi, vj] + a[vi, vr] * b[vr, vj]"""
    )


@pliant.program
def plain_product(a: f32[n, k], b: f32[k, m], c: f32[n, m]):
    for i, j in grid(n, m):
        c[i, j] = 0
        for r in range(k):
            c[i, j] = a[i, r] * b[r, j] + c[i, j]


def test_every_store_gets_a_block() -> None:
    assert (
        text_of(plain_product)
        == """\
def plain_product(a: f32["n", "k"], b: f32["k", "m"], c: f32["n", "m"], n: i64, k: i64, m: i64):
    for i, j in grid(n, m):
        with block("c", S(i, n), S(j, m)) as (vi, vj):
            c[vi, vj] = 0.0
        for r in grid(k):
            with block("c_1", S(i, n), S(j, m), R(r, k)) as (vi_1, vj_1, vr):
                c[vi_1, vj_1] = c[vi_1, vj_1] + a[vi_1, vr] * b[vr, vj_1]"""
    )
    a, b = floats(3, 5), floats(5, 4)
    for p in (product, plain_product):
        np.testing.assert_allclose(p.run(a, b), a @ b, rtol=1e-4, atol=1e-6)


@pliant.program
def running(x: f32[n], y: f32[n], h: i32[n], at: i64[n]):
    for i in grid(n):
        y[i] = x[i] + (y[i - 1] if i > 0 else 0.0)
    for i in grid(n):
        h[i] = 0
    for t, i in grid(STEPS, n):  # noqa: B007
        h[at[i]] += 1


def test_what_must_run_in_order_does() -> None:
    text = text_of(running)
    assert '"y", O(i, n)' in text  # it reads what another iteration stores
    assert '"h_1", R(t, 3), O(i_2, n)' in text  # stores where data says
    x, at = floats(6), np.array([0, 2, 2, 5, 0, 0])
    y, h = running.run(x, at)
    np.testing.assert_allclose(y, np.cumsum(x), rtol=1e-5)
    assert h.tolist() == [9, 0, 6, 0, 0, 3]


@pliant.program
def tiled(x: f32[4 * n], y: f32[4 * n], z: f32[n]):
    for o, i in grid(n, 4):
        y[4 * o + i] = x[4 * o + i] * 2.0
    for o, i in grid(n, 4):
        z[o] = x[4 * o + i]


def test_kinds_follow_from_the_places_that_are_stored() -> None:
    text = text_of(tiled)
    assert '"y", S(o, n), S(i, 4)' in text
    assert '"z", S(o_1, n), O(i_1, 4)' in text


@pliant.program
def sugar(x: f32[n], flags: boolean[n], y: f32[n], c: i32[1]):
    total = alloc(f32[1])
    total[0] = 0.0
    c[0] = 0
    for i in grid(n):
        big = exp(x[i]) if x[i] > 0.0 and not flags[i] else HALF
        y[i] = big**2 - math.pi
        y[i] += select(flags[i] or x[i] < -1.0, 1.0, abs(x[i]))
        total[0] += y[i]
        if 1 <= i < n - 1:
            c[0] += i32(1)
    y[0] = total[0]


def test_a_start_is_made_again_in_every_iteration() -> None:
    @pliant.program
    def tops(x: f32[n, k], y: f32[n]):
        top = alloc(f32[1])
        for i in grid(n):
            top[0] = max(x[i, r] for r in grid(k))
            y[i] = top[0]

    assert '"top", O(i, n), R(r, k)' in text_of(tops)
    x = floats(4, 5)
    np.testing.assert_array_equal(tops.run(x), x.max(1))


def test_expressions_are_pythons() -> None:
    x, flags = floats(9), RNG.random(9) < 0.5
    big = np.where((x > 0) & ~flags, np.exp(x), 0.5)
    want = big**2 - math.pi + np.where(flags | (x < -1), 1, np.abs(x))
    want[0] = want.sum()
    y, c = sugar.run(x, flags)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    assert c == 7
    assert "where=(1 <= i) & (i < n - 1)" in text_of(sugar)


def scaled(factor: float, width: int, kind: object) -> Program:
    @pliant.program
    def scaled(x: kind["n", width], y: kind["n", width]):  # noqa: UP037
        for i, j in grid(n, width):
            y[i, j] = x[i, j] * factor + width

    return scaled


def test_constants_and_types_come_from_around() -> None:
    p = scaled(2.5, 3, language.f64)
    assert 'x: f64["n", 3]' in str(p)
    np.testing.assert_allclose(p.run(np.ones((2, 3))), np.full((2, 3), 5.5))


@pliant.program
@no_type_check
def through_the_module(x: language.f32[n], y: language.f32[n], n: language.i64):
    for i in language.grid(n):
        y[i] = language.tanh(x[i]) * math.e


def test_words_may_be_said_with_their_module() -> None:
    x = floats(4)
    np.testing.assert_allclose(through_the_module.run(x), np.tanh(x) * math.e, rtol=1e-6)


def test_what_is_printed_can_be_written() -> None:
    p = row_sums.split("i", 4).parallel("i_0")
    again = parse_function(str(p))
    assert function_text(again) == str(p)


def test_elements_that_nothing_is_stored_into_stand_out() -> None:
    @pliant.program
    def triangle(x: f32[n, n], y: f32[n, n]):
        for i in grid(n):
            for j in grid(i + 1):
                y[i, j] = x[i, j]

    above = ~np.tril(np.ones((4, 4), bool))
    assert np.isnan(triangle.run(floats(4, 4))[above]).all()


@pliant.program
def best(x: f32[n, k], top: f32[n], at: i64[n]):
    @reducer(-inf, 0)
    def larger(va: f32, pa: i64, vb: f32, pb: i64):
        return (va if va >= vb else vb), (pa if va >= vb else pb)

    for i in grid(n):
        top[i] = -inf
        at[i] = 0
        for r in grid(k):
            top[i], at[i] = larger(top[i], at[i], x[i, r], r)


def test_several_values_are_reduced_together() -> None:
    assert '"top_1", S(i, n), R(r, k)' in text_of(best)
    x = floats(4, 6)
    top, at = best.run(x)
    np.testing.assert_array_equal(top, x.max(1))
    np.testing.assert_array_equal(at, x.argmax(1))


def returns(x: f32[n], y: f32[n]):
    return y


def unknown_name(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] = x[i] * missing  # noqa: F821


def unknown_function(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] = math.sqrt(x[i])


def a_list(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] = TABLE[0]


def mixed_types(x: f32[n], y: f32[n], c: i32[n]):
    for i in grid(n):
        y[i] = x[i] + c[i]


def wrong_rank(x: f32[n], y: f32[n]):
    y[0, 0] = x[0]


def no_loop(x: f32[n], y: f32[n]):
    for i in enumerate(x):
        y[i] = 0.0


def list_of_statements(x: f32[n], y: f32[n]):
    import os  # noqa: F401


def no_extent(x: f32[n], y: f32[n]):
    for i in grid(n // 2):
        with block("y", S(2 * i)):
            y[i] = 0.0


def hidden(x: f32[n], y: f32[n]):
    for i in grid(n):
        for i in grid(2):
            y[i] = 0.0


def defaults(x: f32[n], y: f32[n] = None):
    y[0] = x[0]


def no_type(x, y: f32[n]):
    y[0] = x[0]


def forgotten_checks(x: f32[n], y: f32[n]):
    check(n > 0)


@pytest.mark.parametrize(
    ("fn", "line", "message"),
    [
        (returns, 1, "not a statement: a program gives nothing back"),
        (unknown_name, 2, "nothing named 'missing' is known here"),
        (unknown_function, 2, "math.sqrt is a builtin_function_or_method: a program takes"),
        (a_list, 2, "TABLE is a list: a program takes"),
        (mixed_types, 2, "add of f32 and i32: cast first"),
        (wrong_rank, 1, "store to y: wrong number of indices"),
        (no_loop, 1, "enumerate is a type: a program takes"),
        (list_of_statements, 1, "not a statement"),
        (no_extent, 2, r"S\(2 \* i\) needs an extent: 2\*i is no loop around the block"),
        (hidden, 2, "i hides a variable of the same name"),
        (defaults, 0, "parameters are plain names with types"),
        (no_type, 0, "x has no type"),
        (forgotten_checks, 1, "check takes a condition and a message"),
    ],
)
def test_what_is_not_the_language_is_refused(
    fn: Callable[..., object], line: int, message: str
) -> None:
    first = fn.__code__.co_firstlineno
    with pytest.raises(InvalidModelError, match=message) as error:
        pliant.program(fn)
    assert f"{Path(__file__).name}:{first + line}: " in str(error.value)
    source = Path(__file__).read_text().splitlines()[first + line - 1].strip()
    assert source in str(error.value)


def test_a_program_is_a_function_of_arrays() -> None:
    with pytest.raises(InvalidModelError, match="a program is made of a function"):
        pliant.program(3)  # type: ignore[call-overload]
    with pytest.raises(InvalidModelError, match="its source cannot be read"):
        pliant.program(eval("lambda x: x"))
    with pytest.raises(pliant.ShapeError, match=r"returns has no size q; its sizes are: n"):

        @pliant.program(dims={"q": pliant.Dim()})
        def returns(x: f32[n], y: f32[n]):
            y[0] = x[0]


def test_words_outside_of_programs_say_so() -> None:
    with pytest.raises(InvalidModelError, match="grid means something inside"):
        grid(3)
    with pytest.raises(InvalidModelError, match="sizes takes names"):
        sizes("3")
    assert isinstance(i64, type(f32)) and isinstance(R, type(init))


FILE = """\
import pliant
from pliant.language import exp, f32, grid, sizes

n, k = sizes("n k")


@pliant.program
def scaled_exp(x: f32[n, k], y: f32[n, k]) -> None:
    for i, j in grid(n, k):
        y[i, j] = exp(x[i, j] * 0.5)


p = scaled_exp.split("i", 8)
print(p)
"""


def test_linters_let_a_program_be(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,B", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert subprocess.run([sys.executable, str(file)], capture_output=True, check=True).stdout


def given_again(x: f32[n, m], y: f32[n]):
    for i in grid(n):
        s = 0.0
        for j in grid(m):
            s = s + x[i, j]
        y[i] = s


def typed_again(x: f32[n, m], y: f32[n]):
    for i in grid(n):
        s: f32 = 0.0
        for j in grid(m):
            s = s + x[i, j]
        y[i] = s


def added_to(x: f32[n, m], y: f32[n]):
    for i in grid(n):
        s = 0.0
        for j in grid(m):
            s += x[i, j]
        y[i] = s


def of_a_branch(x: f32[n], y: f32[n]):
    for i in grid(n):
        if x[i] > 0.0:  # noqa: SIM108
            v = 1.0
        else:
            v = 2.0
        y[i] = v


def no_element(a: f32[()], x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] = a * x[i]


def from_one_on(x: f32[n], y: f32[n]):
    for i in range(1, n):
        y[i] = x[i]


@pytest.mark.parametrize(
    ("fn", "line", "message"),
    [
        (
            given_again,
            4,
            r"s has a value here already, which it keeps; .* s = alloc\(f32",
        ),
        (typed_again, 4, "s has a value here already, which it keeps"),
        (added_to, 4, "s is a name for a value, which it keeps; what changes lies in a buffer"),
        (of_a_branch, 6, "v has no value here: it has one only where it is given one"),
        (no_element, 2, r"a is a buffer, f32\[\(\)\]: an element of it is a\[\(\)\]"),
        (from_one_on, 1, r"range takes the number of iterations alone: range\(n - 1\)"),
    ],
)
def test_names_for_values(fn: Callable[..., object], line: int, message: str) -> None:
    """A value given in a loop was gone behind it, and 0 was stored."""
    with pytest.raises(InvalidModelError, match=message) as error:
        pliant.program(fn)
    assert f":{fn.__code__.co_firstlineno + line}: " in str(error.value)
