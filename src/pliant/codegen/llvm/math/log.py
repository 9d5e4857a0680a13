"""log, log2, log10 and log1p.

x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), so that no cancellation happens between
e ln 2 and log(1 + f). f is exact; log(1 + f) = f + tail(f), where the tail is at most a fifth of
f. In f32 the tail is a minimax polynomial times f^2. In f64 it is made from s = f / (2 + f),
log(1 + f) = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R(s^2))), which needs a third of the coefficients.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math import exp
from pliant.codegen.llvm.math.builder import Builder, Value, polynomial

INFINITY: Final = float("inf")
NAN: Final = float("nan")
LOG_OF_MAX: Final = float.fromhex("0x1.62e42ep+6")
"""exp of no larger f32 is finite."""


@dataclass(frozen=True, slots=True)
class Base:
    """log_b(1 + f) = slope log(1 + f); log_b(2) = two_high + two_low with e * two_high exact."""

    slope_high: float
    slope_low: float
    two_high: float
    two_low: float


E: Final[dict[DType, Base]] = {
    f32: Base(1.0, 0.0, float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cf79abcap-20")),
    f64: Base(1.0, 0.0, float.fromhex("0x1.62e42fefap-1"), float.fromhex("0x1.cf79abc9e3b3ap-40")),
}
TWO: Final[dict[DType, Base]] = {
    f32: Base(float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0bf85ddf44p-26"), 1.0, 0.0),
    f64: Base(
        float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"), 1.0, 0.0
    ),
}
TEN: Final[dict[DType, Base]] = {
    f32: Base(
        float.fromhex("0x1.bcb7b2p-2"),
        float.fromhex("-0x1.5b235e39ab2a9p-27"),
        float.fromhex("0x1.344p-2"),
        float.fromhex("0x1.3509f79fef312p-18"),
    ),
    f64: Base(
        float.fromhex("0x1.bcb7b1526e50ep-2"),
        float.fromhex("0x1.95355baaafad3p-57"),
        float.fromhex("0x1.34413509fp-2"),
        float.fromhex("0x1.e7fbcc47c4acdp-40"),
    ),
}


def sqrt_half_bits(b: Builder) -> int:
    """The bits of sqrt(1/2), the lower end of the mantissa's interval."""
    if b.dtype is f32:
        return int(struct.unpack("<i", struct.pack("<f", 0.5**0.5))[0])
    return int(struct.unpack("<q", struct.pack("<d", 0.5**0.5))[0])


def split(x: Value) -> tuple[Value, Value]:
    """(e, m): x = 2^e m for positive normal x, e an integer, m in [sqrt(1/2), sqrt(2))."""
    mantissa = x.builder.format.mantissa
    bits = x.as_int()
    e = (bits - sqrt_half_bits(x.builder)).ashr(mantissa)
    return e, (bits - (e << mantissa)).as_float()


def tail(f: Value) -> Value:
    """log(1 + f) - f."""
    if f.builder.dtype is f32:
        return f * f * polynomial(f, table.LOG_F32)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    return s * z.mad(polynomial(z, table.LOG_F64), half_square) - half_square


def combine(e: Value, f: Value, base: Base) -> Value:
    """e log(2) + log(1 + f) in this base, smallest terms first."""
    t = tail(f)
    if base.slope_high == 1.0:
        return e.mad(base.two_high, f + e.mad(base.two_low, t))
    low = t.mad(base.slope_high, f * base.slope_low)
    if base.two_low == 0.0:
        return e + f.mad(base.slope_high, low)
    return e.mad(base.two_high, f.mad(base.slope_high, e.mad(base.two_low, low)))


def special(x: Value, y: Value) -> Value:
    """The logarithm of x where x is not positive and finite, else y."""
    y = (x < INFINITY).select(y, x)  # infinity and NaN are their own logarithms
    return (x <= 0.0).select(x.eq(0.0).select(-INFINITY, NAN), y)


def split_any(x: Value) -> tuple[Value, Value]:
    """(e, f): x = 2^e (1 + f) for positive x; subnormals are scaled into the normal range first."""
    b = x.builder
    places = b.format.mantissa + 1
    small = x < b.format.min_normal
    k, m = split(small.select(x * 2.0**places, x))
    return (k - small.select(k.like(places), 0)).to_float(), m - 1.0


def logarithm(x: Value, base: Base) -> Value:
    """The logarithm for every x."""
    e, f = split_any(x)
    return special(x, combine(e, f, base))


def log(b: Builder, x: Value) -> Value:
    return logarithm(x, E[b.dtype])


def log2(b: Builder, x: Value) -> Value:
    return logarithm(x, TWO[b.dtype])


def log10(b: Builder, x: Value) -> Value:
    return logarithm(x, TEN[b.dtype])


def log1p_of_exp(b: Builder, x: Value) -> Value:
    """log(1 + exp(x)) = max(x, 0) + log(1 + e) with e = exp(-|x|) <= 1 (f32), whose logarithm is
    e P(e) without any reduction; infinite where exp(x) is."""
    if b.dtype is not f32:
        return log1p(b, exp.exp(b, x))
    e = exp.exp_of_negative(-x.abs())
    y = e.mad(polynomial(e, table.LOG1P_OF_EXP_F32), x.at_least(0.0))
    return (x > LOG_OF_MAX).select(INFINITY, y)


def log1p(b: Builder, x: Value) -> Value:
    """With u = fl(1 + x) = 2^e m: 1 + x = 2^e (m + c), c = 2^-e (x - (u - 1)) the rounding error.

    log1p has the sign of its argument, which keeps -0. u is 0, negative, infinite or NaN where
    that decides the result.
    """
    u = x + 1.0
    lost = (x < 1.0).select(x - (u - 1.0), 1.0 - (u - x))
    k, m = split(u)
    exponent = k.like(b.format.bias) - k
    positive = (exponent > 0).select(exponent, 0)
    f = (positive << b.format.mantissa).as_float().mad(lost, m - 1.0)
    y = combine(k.to_float(), f, E[b.dtype])
    return special(u, y).copysign(x)
