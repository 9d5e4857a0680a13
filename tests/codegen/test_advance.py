"""Quotients by run-time sizes advance with the loops around them: no division in an iteration."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from tests.schedule.native import native

DIGITS = """
@loop
def digits(x: f32["n", "m + 1"], y: f32["n*m + s"], n: i64, m: i64, s: i64):
    for i in KIND(n*m + s):
        with block("y", S(i, n*m + s)) as a:
            y[a] = select(s <= a, x[(a - s)//m, (a - s)%m], 7.0)
"""

INNER = """
@loop
def inner(x: f32["n", "m + 1"], y: f32["k", "n*m"], n: i64, m: i64, k: i64):
    for i in grid(k):
        for j in grid(n*m):
            with block("y", S(i, k), S(j, n*m)) as (b, a):
                y[b, a] = x[(a + b)//m%n, (a + b)%m] + x[a//m, a%m]
"""

SIZES = [(1, 1, 0), (3, 5, 2), (5, 1, 1), (1, 7, 3), (4, 4, 9), (0, 3, 2), (3, 0, 2), (0, 0, 0)]


def rows(n: int, m: int) -> np.ndarray:
    """One element more in each, so that where an element lies takes both digits."""
    return np.arange(n * (m + 1), dtype=np.float32).reshape(n, m + 1)


def divisions(text: str) -> int:
    return len(re.findall(r"= [us](?:div|rem) ", text))


@pytest.mark.parametrize("kind", ["grid", "parallel"])
def test_values(kind: str) -> None:
    """Also dividends below zero, and sizes of 0 where the loop does not run or nothing is read."""
    f = parse_function(DIGITS.replace("KIND", kind))
    for n, m, s in SIZES:
        x = rows(n, m)
        y = np.zeros(n * m + s, dtype=np.float32)
        native(f, [x, y], {"n": n, "m": m, "s": s})
        expected = np.concatenate([np.full(s, 7, np.float32), x[:, :m].ravel()])
        np.testing.assert_array_equal(y, expected)


VECTORS = """
@loop
def digits(x: f32["n", "m + 1"], y: f32["n*m + s"], n: i64, m: i64, s: i64):
    for i in grid((n*m + s + 15)//16):
        for j in vectorized(16):
            with block("y", S(16*i + j, n*m + s), where=16*i + j < n*m + s) as a:
                y[a] = select(s <= a, x[(a - s)//m, (a - s)%m], 7.0)
"""


def test_lanes() -> None:
    """The first is divided; others go on from there, past one multiple of the divisor or more."""
    f = parse_function(VECTORS)
    for n, m, s in [*SIZES, (7, 15, 3), (7, 16, 3), (7, 17, 3), (9, 40, 5), (2, 100, 1)]:
        x = rows(n, m)
        y = np.zeros(n * m + s, dtype=np.float32)
        native(f, [x, y], {"n": n, "m": m, "s": s})
        expected = np.concatenate([np.full(s, 7, np.float32), x[:, :m].ravel()])
        np.testing.assert_array_equal(y, expected)


def test_two_loops() -> None:
    f = parse_function(INNER)
    for n, m, k in [(3, 5, 2), (5, 1, 4), (1, 7, 3), (4, 4, 1), (0, 3, 2), (3, 0, 2), (2, 3, 0)]:
        x = rows(n, m)
        y = np.zeros((k, n * m), dtype=np.float32)
        native(f, [x, y], {"n": n, "m": m, "k": k})
        flat = x[:, :m].ravel()
        for b in range(k):
            np.testing.assert_array_equal(y[b], np.roll(flat, -b) + flat)


def test_divided_before_the_loop() -> None:
    """All quotients of an iteration are divided where the inner loop begins; also that by n, of a
    quotient."""
    text = kernel_source(parse_function(INNER), target("x86-64")).text
    start = text.index("phi i64", text.index("phi i64") + 1)  # the inner loop's
    assert divisions(text[:start]) >= 6
    assert divisions(text[start:]) == 0


CONSTANT = re.sub(r"\bm\b", "12", INNER.replace("m: i64, ", "").replace('"m + 1"', "13"))


def test_constant_divisors_stay() -> None:
    """LLVM multiplies there; but what is divided again advances."""
    text = kernel_source(parse_function(CONSTANT), target("x86-64")).text
    start = text.index("phi i64", text.index("phi i64") + 1)
    assert divisions(text[start:]) == 2  # a//12, a%12
    for n, k in [(3, 2), (1, 4), (4, 1), (0, 2), (2, 13)]:
        x = rows(n, 12)
        y = np.zeros((k, n * 12), dtype=np.float32)
        native(parse_function(CONSTANT), [x, y], {"n": n, "k": k})
        flat = x[:, :12].ravel()
        for b in range(k):
            np.testing.assert_array_equal(y[b], np.roll(flat, -b) + flat)


PIXELS = """
@loop
def pixels(x: f32["b", "h", "w"], y: f32["b*8*h*8*w + s"], b: i64, h: i64, w: i64, s: i64):
    for i in KIND(b*8*h*8*w + s):
        with block("y", S(i, b*8*h*8*w + s)) as a:
            y[a] = select(s <= a, x[(a - s)//(64*h*w), (a - s)//(8*w)//8%h, (a - s)//8%w], 7.0)
"""


@pytest.mark.parametrize("kind", ["grid", "parallel"])
def test_digits_of_digits(kind: str) -> None:
    """Coarse pixels of fine ones, eight times eight for each; also of places below zero."""
    f = parse_function(PIXELS.replace("KIND", kind))
    text = kernel_source(f, target("x86-64")).text
    assert divisions(text[text.rindex("phi i64") :]) == 0
    for b, h, w, s in [(1, 1, 1, 0), (2, 3, 5, 0), (1, 2, 1, 9), (3, 1, 2, 1), (0, 2, 2, 3)]:
        x = np.arange(b * h * w, dtype=np.float32).reshape(b, h, w)
        y = np.zeros(64 * b * h * w + s, dtype=np.float32)
        native(f, [x, y], {"b": b, "h": h, "w": w, "s": s})
        fine = x.repeat(8, axis=1).repeat(8, axis=2).ravel()
        np.testing.assert_array_equal(y, np.concatenate([np.full(s, 7, np.float32), fine]))


PLACES = """
@loop
def places(y: i64[5, "k*LANES"], k: i64, h: i64, w: i64, s: i64):
    for i in grid(k):
        for j in vectorized(LANES):
            with block("a", S(LANES*i + j, k*LANES)) as a:
                y[0, a] = (a - s)//w
            with block("b", S(LANES*i + j, k*LANES)) as b:
                y[1, b] = (b - s)%w
            with block("c", S(LANES*i + j, k*LANES)) as c:
                y[2, c] = ((c - s)//w + 5)//h
            with block("d", S(LANES*i + j, k*LANES)) as d:
                y[3, d] = ((d - s)//w + s)%h
            with block("e", S(LANES*i + j, k*LANES)) as e:
                y[4, e] = (e - s)//w//h//w
"""


@pytest.mark.parametrize("lanes", [2, 7, 12, 16, 24, 64])
@pytest.mark.parametrize("known", ["", "h", "w", "hw"])
def test_digits_in_lanes(lanes: int, known: str) -> None:
    """Quotients of quotients in lanes, of numbers below zero too, by divisors smaller and larger
    than there are lanes, of which some are constants."""
    rng = np.random.default_rng(lanes)
    sizes = [1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 61, 63, 64, 65, 127, 1000, 2**20]
    for _ in range(10):
        h, w = (int(x) for x in rng.choice(sizes, 2))
        k, s = 9, int(rng.integers(0, 300))
        text = PLACES.replace("LANES", str(lanes))
        for name, value in (("h", h), ("w", w)):
            if name in known:
                text = re.sub(rf"\b{name}\b", str(value), text.replace(f", {name}: i64", ""))
        y = np.zeros((5, k * lanes), dtype=np.int64)
        given = {"k": k, "h": h, "w": w, "s": s}
        native(parse_function(text), [y], {n: v for n, v in given.items() if n not in known})
        a = np.arange(k * lanes) - s
        expected = [a // w, a % w, (a // w + 5) // h, (a // w + s) % h, a // w // h // w]
        np.testing.assert_array_equal(y, expected)


def test_what_is_divided_in_lanes() -> None:
    """Only numbers: of the first lane, and 65535 by a divisor that may be less than the lanes."""
    text = PLACES.replace("LANES", "16")
    source = kernel_source(parse_function(text), target("x86-64")).text
    assert divisions(source) and not re.search(r"= [us](?:div|rem) <", source)
