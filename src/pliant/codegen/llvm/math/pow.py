"""pow with all special cases of C99: |x|^y = 2^(y log2 |x|), then signs and special values.

f32: computed in double precision, where the product needs no compensation.
f64: log2 |x| as an unevaluated sum of two doubles with 64 good bits, since y log2 |x| has up to ten
bits before the point.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import f32
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math.builder import Builder, Value, polynomial
from pliant.codegen.llvm.math.exp import scale, split
from pliant.codegen.llvm.math.log import split_any
from pliant.codegen.llvm.math.medium import exp2_medium, log1p_medium

INFINITY: Final = float("inf")
NAN: Final = float("nan")
LOG2_E: Final = (
    float.fromhex("0x1.71547652b82fep+0"),
    float.fromhex("0x1.777d0ffda0d24p-56"),
)
TWO_THIRDS: Final = (float.fromhex("0x1.5555555555555p-1"), float.fromhex("0x1.5555555555555p-55"))


def pow(b: Builder, x: Value, y: Value) -> Value:
    result = power_f32(x.abs(), y) if b.dtype is f32 else power_f64(x.abs(), y)
    is_integer = y.trunc().eq(y)
    negative = x.as_int() < 0
    # a negative base with an odd exponent gives a negative result, also for -0 and -inf
    flipped = (negative & is_odd(y, is_integer)).select(-result, result)
    # a finite negative base with a fraction has no real power
    no_power = (x < 0.0) & (x > -INFINITY) & ~is_integer
    result = (no_power | x.ne(x) | y.ne(y)).select(NAN, flipped)
    return (x.eq(1.0) | y.eq(0.0) | (x.eq(-1.0) & y.abs().eq(INFINITY))).select(1.0, result)


def is_odd(y: Value, is_integer: Value) -> Value:
    """An integer is odd if its half is none; infinity is even."""
    half = y * 0.5
    return is_integer & half.trunc().ne(half)


def power_f32(a: Value, y: Value) -> Value:
    """a^y for a >= 0, rounded from double precision; NaN for 1^inf."""
    e, f = split_any(a)
    log = log1p_medium(f.widen()).mad(LOG2_E[0], special_exponent(a, e).widen())
    exponent = (log * y.widen()).at_most(200.0).at_least(-200.0)
    return exp2_medium(exponent).narrow()


def special_exponent(a: Value, e: Value) -> Value:
    """log2(a) where a is 0 or infinite, else e."""
    return a.eq(0.0).select(-INFINITY, a.eq(INFINITY).select(INFINITY, e))


def power_f64(a: Value, y: Value) -> Value:
    """a^y for a >= 0, NaN for 1^inf; y (h + l) has the accuracy of two doubles."""
    h, low = log2_twofold(a)
    h = special_exponent(a, h)
    exact = y * h
    product = exact.at_most(1100.0).at_least(-1100.0)
    error = product.eq(exact).select(y.mad(low, y.fma(h, -exact)), 0.0)
    power, r = split(product, error)
    return scale(polynomial(r, (1.0, *table.EXP2_F64)), power)


def log2_twofold(a: Value) -> tuple[Value, Value]:
    """log2(a) = h + l for positive finite a.

    log(m) = 2 s + s^3 (2/3 + s^2 P(s^2)) with s = (m - 1) / (m + 1), all but P in two parts.
    """
    e, f = split_any(a)
    s, s_low = quotient(f, f + 2.0)
    z = s * s
    z_low = (s + s).mad(s_low, s.fma(s, -z))
    v = z * polynomial(z, table.LOG2_TAIL)
    w, w_low = two_sum(v.like(TWO_THIRDS[0]), v)
    p, p_low = product_of((z, z_low), (w, w_low + TWO_THIRDS[1]))
    u, u_low = two_sum(p.like(2.0), p)
    natural = product_of((s, s_low), (u, u_low + p_low))
    g, g_low = product_of(natural, (e.like(LOG2_E[0]), e.like(LOG2_E[1])))
    h, h_low = two_sum(e, g)
    # e is 0 or larger than g; the sum is normalised, since h is compared with 0 and infinity
    return two_sum(h, h_low + g_low)


def quotient(f: Value, divisor: Value) -> tuple[Value, Value]:
    """f / (2 + f) = q + l, where divisor = fl(2 + f)."""
    q = f / divisor
    lost = f - (divisor - 2.0)
    rest = q.fma(-divisor, f) - q * lost
    return q, rest / divisor


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b = s + error exactly, for |a| >= |b| or a = 0 (Dekker)."""
    s = a + b
    return s, b - (s - a)


def product_of(a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """The product of two unevaluated sums, to twice the precision."""
    p = a[0] * b[0]
    error = a[0].fma(b[0], -p)
    return p, a[0].mad(b[1], a[1].mad(b[0], error))
