"""erf and erfc.

erf: for a = |x|, erf(a) = 1 - exp(-w) with w = a (SLOPE + Q(a)), Q a minimax polynomial.
-log(erfc(a)) / a is smooth over the whole range, and 1 - exp(-w) keeps the relative accuracy of w
near 0, so one polynomial and one expm1 do, without a case distinction.

1 + erf(x), of which GELU is made, has no use for bits of erf that are small beside 1: 1 - erf(a) is
2^(a P(a)), for which a power of 2 rounded as `exp_of_difference` rounds it does.

What becomes bf16 keeps 8 bits of erf: `erf_to_round` takes half as long.

erfc: (1 + 2 a) exp(a^2) erfc(a) lies between 1 and 1.2 for all a >= 0 and is approximated by
1 + u P(u - 1), u = 2 a / (a + 4) (the form of Shepherd and Laframboise, Math. Comp. 36, 1981).
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import f32
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math import exp
from pliant.codegen.llvm.math.builder import Builder, Value, in_pairs, polynomial
from pliant.codegen.llvm.math.medium import LOG2_E, exp2_medium

SLOPE: Final = (float.fromhex("0x1.20dd750429b6dp+0"), float.fromhex("0x1.1ae3a914fed8p-56"))
"""2 / sqrt(pi) and what is missing."""


def erf(b: Builder, x: Value) -> Value:
    """erf rounds to 1 from 3.92 on (f32), 5.93 (f64)."""
    a = x.abs().at_most(3.95 if b.dtype is f32 else 5.95)
    return (-exp.expm1_of_negative(-exponent(a))).copysign(x)


def one_plus_erf(b: Builder, x: Value) -> Value:
    """1 + erf(x), wrong by 2^-22 at most (f32)."""
    if b.dtype is not f32:
        return erf(b, x) + 1.0
    a = x.abs().at_most(4.2)
    tail = exp.exp2_of_rounded(a * in_pairs(a, table.ERFC_EXPONENT))
    return (1.0 - tail).copysign(x) + 1.0


def erf_to_round(b: Builder, x: Value) -> Value:
    """erf for what keeps few bits of it: an odd polynomial, wrong by 2^-14 at most (in f32). From
    3.1 on it is above 1 and made 1, so that 1 + erf(x) is 0 where erf(x) rounds to -1 here."""
    if b.dtype is not f32:
        return erf(b, x)
    a = x.at_most(3.1).at_least(-3.1)
    return (a * polynomial(a * a, table.ERF_ROUNDED)).at_most(1.0).at_least(-1.0)


def exponent(a: Value) -> Value:
    """w = -log(erfc(a)). f64 has w = a (SLOPE + a R(a - 3)), as big powers of a would cancel."""
    if a.builder.dtype is f32:
        return a.mad(SLOPE[0], a * polynomial(a, table.ERF_F32))
    curvature = polynomial(a - 3.0, table.ERF_F64)
    return a.mad(SLOPE[0], a * a.mad(curvature, SLOPE[1]))


def erfc(b: Builder, x: Value) -> Value:
    """erfc(-a) = 2 - erfc(a)."""
    if b.dtype is f32:
        a = x.abs().at_most(10.1).widen()
        ratio = scaled_tail(a, table.ERFC_MEDIUM)
        tail = (exp2_medium(a * a * -LOG2_E) * ratio).narrow()
    else:
        tail = erfc_tail_f64(x.abs().at_most(27.3))
    return (x < 0.0).select(2.0 - tail, tail)


def scaled_tail(a: Value, coefficients: tuple[float, ...]) -> Value:
    """exp(a^2) erfc(a)."""
    u = (a + a) / (a + 4.0)
    return u.mad(polynomial(u - 1.0, coefficients), 1.0) / a.mad(2.0, 1.0)


def erfc_tail_f64(a: Value) -> Value:
    """erfc(a); the rounding error of a^2 is taken off the reduced argument of exp."""
    b = a.builder
    square = a * a
    error = a.fma(a, -square)
    power, r = exp.reduce(-square)
    e = exp.exp_polynomial(r - error, exp.DATA[b.dtype].exp)
    return exp.scale(e * scaled_tail(a, table.ERFC_F64), power)
