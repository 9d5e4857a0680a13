"""Programs written by hand, of what no tensor expression becomes: integers that data name, loops as
long as data or other loops say, sums under conditions and with starts of their own, several results
of one reducer."""

from __future__ import annotations

from collections.abc import Callable

from pliant.loop.derive_blocks import derive_blocks
from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program

TEXTS = {
    # Rows of a table that data choose.
    "looked_up": """\
@loop
def looked_up(x: f32["n", "k"], idx: i64["n"], y: f32["n", "k"], n: i64, k: i64):
    for i in grid(n):
        v: i64 = max(0, min(idx[i], n - 1))
        for j in grid(k):
            y[i, j] = x[v, j] * 2.0
""",
    # Where rows go, data say; the first comes last.
    "sent": """\
@loop
def sent(x: f32["n"], idx: i64["n"], y: f32["n + k"], n: i64, k: i64):
    for j in grid(n + k):
        y[j] = 0.0
    for i in grid(n):
        v: i64 = max(0, min(idx[i], k))
        y[i + v] = x[i]
""",
    "histogram": """\
@loop
def histogram(x: f32["n"], idx: i64["n"], y: f32["k + 1"], n: i64, k: i64):
    for j in grid(k + 1):
        y[j] = 0.0
    for i in grid(n):
        v: i64 = max(0, min(idx[i], k))
        y[v] = y[v] + x[i]
""",
    # Rows of data-dependent lengths.
    "ragged": """\
@loop
def ragged(x: f32["n", "k"], idx: i64["n"], y: f32["n"], n: i64, k: i64):
    for i in grid(n):
        y[i] = 0.0
        v: i64 = max(0, min(idx[i], k))
        for r in grid(v):
            y[i] = y[i] + x[i, r]
""",
    # Sums to which the same is added wherever they are read.
    "biased": """\
@loop
def biased(x: f32["n", "k"], b: f32["n"], y: f32["n"], z: f32["n"], n: i64, k: i64):
    t = alloc(f32[n], scope="scratch")
    for i, r in grid(n, k):
        with block("t", S(i, n), R(r, k)) as (a, c):
            with init():
                t[a] = 0.0
            t[a] = t[a] + x[a, c]
    for j in grid(n):
        with block("y", S(j, n)) as (d,):
            y[d] = max(t[d] + b[d], 0.0)
    for h in grid(n):
        with block("z", S(h, n)) as (e,):
            z[e] = b[e] + t[e]
""",
    # Named integers that are no data.
    "named": """\
@loop
def named(x: f32["n", "2*k"], y: f32["n", "k"], n: i64, k: i64):
    half: i64 = k
    for i in grid(n):
        for j in grid(k):
            at: i64 = 2*j
            y[i, j] = x[i, at] + x[n - 1 - i, at + 1]
    for i in grid(n):
        for j in grid(half):
            y[i, j] = y[i, j] * 0.5
""",
    "chosen": """\
@loop
def chosen(x: f32["n", "k"], idx: i64["n"], y: f32["n"], n: i64, k: i64):
    flag = alloc(i64[n], scope="scratch")
    for j in grid(n):
        with block("flag", S(j, n)) as (b,):
            flag[b] = idx[b] + 1
    for j in grid(n):
        with block("zero", S(j, n)) as (b,):
            y[b] = 1.0
    for i in grid(n):
        for r in grid(k):
            with block("y", S(i, n), R(r, k), where=(flag[i] < n) & (r < n)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[a, c]
""",
    # Sums that go on from what is there; where k is 0 all start at one place.
    "apart": """\
@loop
def apart(x: f32["n", "k"], w: f32["n"], y: f32["n*k + 1"], n: i64, k: i64):
    for j in grid(n*k + 1):
        with block("zero", S(j, n*k + 1)) as (b,):
            y[b] = 1.0
    for i in grid(n):
        for r in grid(k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a*k] = w[a]
                y[a*k] = y[a*k] + x[a, c]
""",
    "roomy": """\
@loop
def roomy(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    t = alloc(f32[n + k + 6], scope="scratch")
    for i in grid(n):
        for r in grid(k):
            with block("t", S(i, n), R(r, k)) as (a, c):
                with init():
                    t[a] = 2.0
                t[a] = t[a] + x[a, c]
    for j in grid(n):
        y[j] = t[j] * 0.5
""",
    "triangle": """\
@loop
def triangle(x: f32["n", "n"], y: f32["n"], n: i64):
    for i in grid(n):
        y[i] = 0.0
    for i in grid(n):
        for j in grid(i + 1):
            y[i] = y[i] + x[i, j]
""",
    # What a mask hides, by place: `narrow` leaves it out.
    "causal": """\
@loop
def causal(x: f32["n", "k"], v: f32["k"], y: f32["n"], z: f32["n"], n: i64, k: i64):
    s = alloc(f32[n, k], scope="scratch")
    for i in grid(n):
        for j in grid(k):
            with block("s", S(i, n), S(j, k)) as (a, b):
                s[a, b] = select(b <= a, x[a, b], 0.0)
    for i in grid(n):
        for r in grid(k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + s[a, c] * v[c]
    for i in grid(n):
        for r in grid(k):
            with block("z", S(i, n), R(r, k)) as (a, c):
                with init():
                    z[a] = -inf
                z[a] = fmax(z[a], select((a <= c) & (c < n), x[a, c], -inf))
""",
    # The greatest and where it is; the first of equals.
    "greatest": """\
@loop
def greatest(x: f32["n", "k"], y: f32["n"], at: i64["n"], n: i64, k: i64):
    @reducer(-inf, 9223372036854775807)
    def first(a0: f32, p0: i64, a1: f32, p1: i64):
        here = (a0 > a1) | ((a0 == a1) & (p0 <= p1))
        return select(here, a0, a1), select(here, p0, p1)
    for i in grid(n):
        for r in grid(k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = -inf
                    at[a] = 9223372036854775807
                y[a], at[a] = first(y[a], at[a], x[a, c], c)
""",
    # Rows by way of memory in the loop: a pipeline.
    "staged_rows": """\
@loop
def staged_rows(x: f32["n", "k"], y: f32["n", "k"], n: i64, k: i64):
    for i in grid(n):
        t = alloc(f32[k], scope="scratch")
        u = alloc(f32[k], scope="scratch")
        for j in grid(k):
            with block("t", S(i, n), S(j, k)) as (a, b):
                t[b] = x[a, b] + 1.0
        for h in grid(k):
            with block("u", S(i, n), S(h, k)) as (a, b):
                u[b] = t[k - 1 - b] * 2.0
        for g in grid(k):
            with block("y", S(i, n), S(g, k)) as (a, b):
                y[a, b] = u[b] + 1.0
""",
}


def _made(text: str) -> Callable[[], Program]:
    return lambda: program(derive_blocks(parse_function(text)))


BY_HAND = {name: _made(text) for name, text in TEXTS.items()}
