"""pow with all special cases of C99.

f32: |x|^y = 2^(y log2 |x|) computed in double precision, where the product needs no compensation:
log2 is good to 2^-38, so that even y log2|x| = 150 has 30 bits behind the point.
"""

from __future__ import annotations

from pliant.base.dtypes import f32
from pliant.base.errors import UnsupportedError
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math.builder import Builder, Value, horner

F64_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
F64_ROUNDING = 1.5 * 2.0**52
LOG2_E = float.fromhex("0x1.71547652b82fep+0")


def log2_medium(x: Value) -> Value:
    """log2 of normal positive doubles with relative error 2^-38 (0 at exactly 1)."""
    bits = x.as_int()
    e = (bits - F64_SQRT_HALF_BITS).ashr(52)
    m = (bits - (e << 52)).as_float()
    f = m - 1.0
    natural = (f * f).mad(horner(f, table.LOG_MEDIUM), f)
    return natural.mad(LOG2_E, e.to_float())


def exp2_medium(x: Value) -> Value:
    """2^x for doubles |x| < 1000 with relative error 2^-28."""
    t = x + (F64_ROUNDING + 1023.0)
    r = x - (t - (F64_ROUNDING + 1023.0))
    p = horner(r, (1.0, *table.EXP2_MEDIUM))
    return p * (t.as_int() << 52).as_float()


def power_f32(a: Value, y: Value) -> Value:
    """a^y for a >= 0; NaN only where a or y is."""
    log = log2_medium(a.widen())
    log = a.eq(0.0).select(log.like(float("-inf")), log)
    log = a.eq(float("inf")).select(log.like(float("inf")), log)
    exponent = log * y.widen()
    exponent = log.eq(0.0).select(exponent.like(0.0), exponent)  # 1^inf = 1
    return exp2_medium(exponent.at_most(200.0).at_least(-200.0)).narrow()


def is_odd(y: Value, is_integer: Value) -> Value:
    half = y * 0.5
    return is_integer & half.trunc().ne(half)


def pow(b: Builder, x: Value, y: Value) -> Value:  # noqa: A001 (the function's name)
    if b.dtype is not f32:
        raise UnsupportedError(f"{b.symbol} is not implemented")
    result = power_f32(x.abs(), y)
    is_integer = y.trunc().eq(y)
    negative = x.as_int() < 0
    # a negative base with an odd integer gives a negative result, also for -0 and -inf
    flipped = (negative & is_odd(y, is_integer)).select(-result, result)
    # a finite negative base with a fraction has no real power
    no_power = ((x < 0.0) & (x > float("-inf"))) & ~is_integer
    result = no_power.select(float("nan"), flipped)
    result = (x.ne(x) | y.ne(y)).select(float("nan"), result)
    return (x.eq(1.0) | y.eq(0.0)).select(1.0, result)
