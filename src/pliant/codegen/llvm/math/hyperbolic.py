"""tanh, sinh, cosh and their inverses."""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math import exp
from pliant.codegen.llvm.math.builder import Builder, Value, polynomial
from pliant.codegen.llvm.math.log import log1p
from pliant.codegen.llvm.math.medium import LN_2, log_medium

INFINITY: Final = float("inf")
NAN: Final = float("nan")
SINH: Final[dict[DType, tuple[float, ...]]] = {f32: table.SINH_F32, f64: table.SINH_F64}
OVERFLOW: Final[dict[DType, float]] = {f32: 90.0, f64: 711.0}
"""sinh and cosh of this are infinite."""
SERIES: Final = 2.0**-8
"""Below this, two terms of the power series give 34 bits."""
LARGE: Final = 2.0**60
"""Above this, log1p(x) is log(x) and sqrt(x^2 + 1) is x in f64."""


def tanh(b: Builder, x: Value) -> Value:
    """With h = (exp(2|x|) - 1) / 2: tanh(|x|) = h / (1 + h) = y - y^2 / (1 + h), y = 1 or y = h.

    y = h below h = 1, y = 1 above: the sum is dominated by its accurate first term in both.
    """
    largest = 10.0 if b.dtype is f32 else 20.0
    h = exp.half_expm1(x.abs().at_most(largest) * 2.0)
    y = (h > 1.0).select(1.0, h)
    return (-(y / (h + 1.0))).mad(y, y).copysign(x)


def one_plus_tanh(b: Builder, x: Value) -> Value:
    """1 + tanh(x) = 2 / (1 + exp(-2x)), wrong by 2^-22 at most (f32): without the cases that keep
    bits of tanh that are small beside 1."""
    if b.dtype is not f32:
        return tanh(b, x) + 1.0
    return 2.0 / (exp.exp_of_difference(b, x * -2.0) + 1.0)


def half_exp(a: Value) -> Value:
    """exp(a) / 2 for a >= 0, which overflows where sinh and cosh do."""
    b = a.builder
    power, r = exp.reduce(a.at_most(OVERFLOW[b.dtype]))
    half = exp.exp_polynomial(r, exp.DATA[b.dtype].exp) * 0.5
    return exp.scale(half, power)


def sinh(b: Builder, x: Value) -> Value:
    """e/2 - 1/(2 e); below 1, where that cancels, x + x^3 P(x^2)."""
    a = x.abs()
    half = half_exp(a)
    z = a * a
    near = (a * z).mad(polynomial(z, SINH[b.dtype]), a)
    return (a < 1.0).select(near, half - 0.25 / half).copysign(x)


def cosh(b: Builder, x: Value) -> Value:
    half = half_exp(x.abs())
    return half + 0.25 / half


def asinh(b: Builder, x: Value) -> Value:
    a = x.abs()
    if b.dtype is f32:
        w = a.widen()
        y = log_medium(w + w.mad(w, 1.0).sqrt()).narrow()
        y = (a < INFINITY).select(y, a)
        return (a < SERIES).select((a * a * a).mad(-1.0 / 6.0, a), y).copysign(x)
    # log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1)))
    square = a * a
    return log1p_or_double(a, a + square / ((square + 1.0).sqrt() + 1.0)).copysign(x)


def acosh(b: Builder, x: Value) -> Value:
    if b.dtype is f32:
        w = x.widen()
        y = log_medium(w + (w.mad(w, -1.0)).sqrt()).narrow()
        y = (x < INFINITY).select(y, x)
        return (x < 1.0).select(NAN, y)
    # log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t (t + 2))) with t = x - 1
    t = x - 1.0
    y = log1p_or_double(x, t + (t * (t + 2.0)).sqrt())
    return (x < 1.0).select(NAN, y)


def log1p_or_double(a: Value, w: Value) -> Value:
    """log1p(w), or log(2 a) where a is so large that w may have overflowed."""
    large = a > LARGE
    y = log1p(a.builder, large.select(a, w))
    return y + large.select(a.like(LN_2), 0.0)


def atanh(b: Builder, x: Value) -> Value:
    """log((1 + a) / (1 - a)) / 2 for a = |x|; NaN beyond 1."""
    a = x.abs()
    if b.dtype is f32:
        w = a.widen()
        y = (log_medium((w + 1.0) / (1.0 - w)) * 0.5).narrow()
        y = (a < 1.0).select(y, a.eq(1.0).select(INFINITY, NAN))
        return (a < SERIES).select((a * a * a).mad(1.0 / 3.0, a), y).copysign(x)
    return (log1p(b, (a + a) / (1.0 - a)) * 0.5).copysign(x)
