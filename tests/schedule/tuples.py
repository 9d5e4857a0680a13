"""Programs that reduce several values together, written by hand."""

from __future__ import annotations

from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program

# Greatest value, and the sum of exponentials less it. -inf - -inf is avoided.
_NORMAL = """
    @reducer(-inf, 0.0)
    def normal(_a0: f32, _a1: f32, _b0: f32, _b1: f32):
        top = max(_a0, _b0)
        at = select(top == f32(-inf), f32(0.0), top)
        return top, _a1 * exp(_a0 - at) + _b1 * exp(_b0 - at)
"""
NORMAL = f"""\
@loop
def normals(x: f32["n", "k"], m: f32["n"], d: f32["n"], n: i64, k: i64):
{_NORMAL}
    for i in grid(n):
        for r in grid(k):
            with block("s", S(i, n), R(r, k)) as (v, u):
                with init():
                    m[v] = -inf
                    d[v] = 0.0
                m[v], d[v] = normal(m[v], d[v], x[v, u], 1.0)
"""
# Attention of one head of one query row: the output, and what it is normalised by.
ATTENTION = """\
@loop
def attention(x: f32["n", "k"], w: f32["k"], o: f32["n"], n: i64, k: i64):
    @reducer(0.0, -inf, 0.0)
    def weighted(o0: f32, m0: f32, d0: f32, o1: f32, m1: f32, d1: f32):
        top = max(m0, m1)
        at = select(top == f32(-inf), f32(0.0), top)
        return o0 * exp(m0 - at) + o1 * exp(m1 - at), top, d0 * exp(m0 - at) + d1 * exp(m1 - at)
    m = alloc(f32[n], scope="scratch")
    d = alloc(f32[n], scope="scratch")
    t = alloc(f32[n], scope="scratch")
    for i in grid(n):
        for r in grid(k):
            with block("s", S(i, n), R(r, k)) as (v, u):
                with init():
                    t[v] = 0.0
                    m[v] = -inf
                    d[v] = 0.0
                t[v], m[v], d[v] = weighted(t[v], m[v], d[v], w[u], x[v, u], 1.0)
    for j in grid(n):
        with block("y", S(j, n)) as (v2,):
            o[v2] = t[v2] / max(d[v2], 1.0)
"""
# Mean and sum of squared differences from it (Chan, Golub, LeVeque 1979).
WELFORD = """\
@loop
def welford(x: f32["n", "k"], mean: f32["n"], q: f32["n"], n: i64, k: i64):
    @reducer(0.0, 0.0, 0.0)
    def moments(c0: f32, m0: f32, q0: f32, c1: f32, m1: f32, q1: f32):
        c = c0 + c1
        part = c1 / max(c, 1.0)
        d = m1 - m0
        return c, m0 + d * part, q0 + q1 + d * d * c0 * part
    c = alloc(f32[n], scope="scratch")
    for i in grid(n):
        for r in grid(k):
            with block("s", S(i, n), R(r, k)) as (v, u):
                with init():
                    c[v] = 0.0
                    mean[v] = 0.0
                    q[v] = 0.0
                c[v], mean[v], q[v] = moments(c[v], mean[v], q[v], 1.0, x[v, u], 0.0)
"""
# Products of complex numbers: each part of the result needs both parts of what was there.
COMPLEX = """\
@loop
def products(x: f32["n", "k"], y: f32["n", "k"], a: f32["n"], b: f32["n"], n: i64, k: i64):
    @reducer(1.0, 0.0)
    def times(a0: f32, b0: f32, a1: f32, b1: f32):
        return a0 * a1 - b0 * b1, a0 * b1 + b0 * a1
    for i in grid(n):
        for r in grid(k):
            with block("s", S(i, n), R(r, k)) as (v, u):
                with init():
                    a[v] = 1.0
                    b[v] = 0.0
                a[v], b[v] = times(a[v], b[v], x[v, u], y[v, u])
"""


def normals() -> Program:
    return program(parse_function(NORMAL))


def attention() -> Program:
    return program(parse_function(ATTENTION))


def welford() -> Program:
    return program(parse_function(WELFORD))


def products() -> Program:
    return program(parse_function(COMPLEX))


TUPLES = {f.__name__: f for f in (normals, attention, welford, products)}
