"""exp, exp2, expm1 and sigmoid.

exp(x) = 2^n exp(r) with n = round(x / ln 2) and r = x - n ln 2 (Cody and Waite's reduction: ln 2 is
split so that n * LN2_HIGH is exact). exp(r) is a minimax polynomial. 2^n is applied by the
instruction for it where there is one (AVX-512's vscalef), else as two factors made by integer
shifts: results overflow to infinity and underflow gradually by themselves, with the same bits.

Where a register is a table of 16 numbers (AVX-512), n counts sixteenths and 2^(n mod 1) comes from
the table (Tang, Table-driven implementation of the exponential function, 1989): r is 16 times
smaller, and a polynomial of half the degree is as accurate. The last bit of a result may differ
from that of the other way. Two registers are a table of 32 numbers, which are enough where x was
rounded before (`exp_of_difference`). A register of AVX2 is one of 8 numbers: its entries lack what
the bits of k / 8 bring with them when they are shifted to where those of n belong, so that one sum
of integers makes 2^(n + k / 8).

Elsewhere what an argument cannot be is left out: it is the number of operations that counts (with
AVX2, exp_of_difference takes 14 and exp_from_max 12 of them, exp 19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math.builder import (
    Builder,
    Value,
    bits_of_f32,
    f32_of_bits,
    horner,
    polynomial,
)

LOG2_E: Final = float.fromhex("0x1.71547652b82fep+0")
TABLE: Final = tuple(2 ** (k / 16) for k in range(16))
TABLE_OF_32: Final = tuple(2 ** (k / 32) for k in range(32))
LIFT: Final = 64
"""Times 2^LIFT, all exp(x) with x <= 0 that are no zero are normal numbers."""
LN2: Final = float.fromhex("0x1.62e42fefa39efp-1")
EIGHTH: Final = 20
"""The place of an eighth among the bits of the logarithm of an f32."""


@dataclass(frozen=True, slots=True)
class ExpData:
    """Constants of one format. ln 2 = high + low, high short enough that n * high is exact."""

    ln2_high: float
    ln2_low: float
    lowest: float
    highest: float
    exp: tuple[float, ...]
    expm1: tuple[float, ...]
    exp2: tuple[float, ...]
    expm1_lowest: float


DATA: Final[dict[DType, ExpData]] = {
    f32: ExpData(
        ln2_high=float.fromhex("0x1.62e4p-1"),
        ln2_low=float.fromhex("0x1.7f7d1cf79abcap-20"),
        lowest=-104.0,
        highest=89.0,
        exp=table.EXPM1_F32,
        expm1=table.EXPM1_F32,
        exp2=table.EXP2_F32,
        expm1_lowest=-20.0,
    ),
    f64: ExpData(
        ln2_high=float.fromhex("0x1.62e42fefap-1"),
        ln2_low=float.fromhex("0x1.cf79abc9e3b3ap-40"),
        lowest=-746.0,
        highest=710.0,
        exp=table.EXP_F64,
        expm1=table.EXPM1_F64,
        exp2=table.EXP2_F64,
        expm1_lowest=-40.0,
    ),
}


class Power(NamedTuple):
    """2^n for an integer n: as a float, and as the low bits of the float t, which hold
    n + 2 bias >= 0."""

    t: Value
    n: Value


def reduce(x: Value) -> tuple[Power, Value]:
    """(2^n, r) with x = n ln 2 + r."""
    t, n, r = _reduce(x, 2 * x.builder.format.bias)
    return Power(t, n), r


def split(x: Value, error: Value | None = None) -> tuple[Power, Value]:
    """(2^n, r) with x + error = n + r, |r| <= 1/2."""
    magic = x.builder.format.rounding + 2 * x.builder.format.bias
    t = x + magic
    n = t - magic
    r = x - n
    return Power(t, n), r if error is None else r + error


def _reduce(x: Value, offset: int) -> tuple[Value, Value, Value]:
    """(t, n, r): the low bits of the float t hold n + offset as an integer, and x = n ln 2 + r."""
    b = x.builder
    data = DATA[b.dtype]
    magic = b.format.rounding + offset
    t = x.mad(LOG2_E, magic)
    n = t - magic
    r = n.mad(-data.ln2_high, x)
    return t, n, n.mad(-data.ln2_low, r)


def _by_table(x: Value) -> Value:
    """exp(x) with one instruction to clamp: r, which is nothing sensible where n is beyond all
    powers; it must only be such that exp(r) comes out positive and finite there."""
    data = DATA[f32]
    magic = x.builder.format.rounding / len(TABLE)
    t = x.mad(LOG2_E, magic)
    n = t - magic
    r = n.fma(-data.ln2_low, n.fma(-data.ln2_high, x)).nearest_zero(1.0)
    power = t.as_int().entry_of(TABLE)  # 2^(n mod 1)
    return (power * r).mad(horner(r, (1.0, *table.EXP_SIXTEENTH_F32)), power).scalef(n)


def exp_of_difference(b: Builder, x: Value) -> Value:
    """exp(x) where x is a difference that was rounded: softmax's. That rounding is worth up to
    |x| / 2 ulp of the result; x log2(e) with log2(e) rounded to the format costs |x| / 4 more, for
    which r takes one instruction instead of two and the polynomial one less. Without a table of 16,
    what is below 2^-125 is something between 0 and 2^-125: nothing beside the 1 that softmax has
    where x is 0."""
    if b.has_tables:
        magic = b.format.rounding / len(TABLE_OF_32)
        t = x.mad(LOG2_E, magic)
        n = t - magic
        return _by_table_of_32(t, n, x.fma(LOG2_E, -n).nearest_zero(1.0))
    if b.dtype is not f32 or not b.has_fma:
        return exp(b, x)
    # 2^(n - 1) 2 2^r: the first factor is finite where n is 128, and 0 for n = -126.
    t, r = _to_round(x.at_most(DATA[f32].highest), 1)
    if b.has_table_of_8:
        return horner(r, _doubled((1.0, *table.EXP2_SIXTEENTH_F32))) * _power_of_eighths(t, 0.5)
    return polynomial(r, _doubled((1.0, *table.EXP2_ROUNDED_F32))) * power_of_two(t)


def exp_from_max(b: Builder, x: Value) -> Value:
    """The same where x <= 0 or NaN, as differences from a maximum are. Without a table of 16, what
    is below 2^-126 is something between 0 and 2^-126, and 0 from 2^-127 down."""
    if b.has_tables or b.dtype is not f32 or not b.has_fma:
        return exp_of_difference(b, x)
    return _exp2_of_parts(*_to_round(x, 0))


def _to_round(x: Value, halvings: int) -> tuple[Value, Value]:
    """(t, r) with x log2(e) = n + r for f32: of the low bits of the float t a power of two is made
    that is 2^(n - halvings), or 0 for the least n that there is."""
    b = x.builder
    least = b.format.bias - halvings  # its exponent's bits are zeros
    x = x.at_least(-least * LN2)
    magic = _magic(b, least)
    t = x.mad(LOG2_E, magic)
    return t, x.fma(LOG2_E, -(t - magic))


def _magic(b: Builder, offset: int) -> float:
    """Added to a number it leaves in the sum's low bits n + offset, or 8 n for a table of 8."""
    return b.format.rounding / 8 if b.has_table_of_8 else b.format.rounding + offset


def exp2_of_rounded(x: Value) -> Value:
    """2^x (f32) where x was rounded, for -126 < x <= 0 or NaN."""
    b = x.builder
    magic = b.format.rounding / len(TABLE_OF_32) if b.has_tables else _magic(b, b.format.bias)
    t = x + magic
    n = t - magic
    r = x - n
    return _by_table_of_32(t, n, r) if b.has_tables else _exp2_of_parts(t, r)


def _exp2_of_parts(t: Value, r: Value) -> Value:
    """2^(n + r); the low bits of the float t are those of n + bias, or of 8 n for a table of 8."""
    if not t.builder.has_table_of_8:
        return exp2_polynomial(r) * power_of_two(t)
    power = _power_of_eighths(t, 1.0)
    return (power * r).mad(horner(r, table.EXP2_SIXTEENTH_F32), power)


def _power_of_eighths(t: Value, factor: float) -> Value:
    """factor 2^n, normal numbers and, for n = -bias, 0; the low bits of the float t are those of
    8 n. Between them and 0 there is something smaller than normal numbers."""
    eighths = t.as_int()
    without_eighths = tuple(
        f32_of_bits(bits_of_f32(factor * 2 ** (k / 8)) - (k << EIGHTH)) for k in range(8)
    )
    return (eighths.entry_of(without_eighths).as_int() + (eighths << EIGHTH)).as_float()


def _doubled(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(2 * c for c in coefficients)


def _by_table_of_32(t: Value, n: Value, r: Value) -> Value:
    """2^(n + r); the low bits of the float t are those of 32 n."""
    power = t.as_int().entry_of(TABLE_OF_32)  # 2^(n mod 1)
    return (power * r).mad(horner(r, table.EXP2_THIRTY_SECOND_F32), power).scalef(n)


def exp2_polynomial(r: Value) -> Value:
    """2^r for |r| <= 1/2, wrong by 2^-23.3."""
    return polynomial(r, (1.0, *table.EXP2_ROUNDED_F32))


def power_of_two(t: Value) -> Value:
    """2^(k - bias) where the low bits of t hold k, for 0 < k < 2 bias + 1; 0 for k = 0."""
    return (t.as_int() << t.builder.format.mantissa).as_float()


def scale(p: Value, power: Power) -> Value:
    """p 2^n; rounds (or overflows) once."""
    if p.builder.has_scalef:
        return p.scalef(power.n)
    mantissa = p.builder.format.mantissa
    k = power.t.as_int()
    half = k.lshr(1)
    first = (half << mantissa).as_float()
    second = ((k - half) << mantissa).as_float()
    return p * first * second


def exp_polynomial(r: Value, c: tuple[float, ...]) -> Value:
    """exp(r) = 1 + r + r^2 P(r) for |r| <= ln 2 / 2."""
    return polynomial(r, (1.0, 1.0, *c))


def expm1_polynomial(r: Value, c: tuple[float, ...]) -> Value:
    """exp(r) - 1 = r + r^2 P(r): r is added last, so that the error is relative to r."""
    return (r * r).mad(polynomial(r, c), r)


def exp(b: Builder, x: Value) -> Value:
    if b.has_tables:
        return _by_table(x)
    data = DATA[b.dtype]
    power, r = reduce(x.at_most(data.highest).at_least(data.lowest))
    return scale(exp_polynomial(r, data.exp), power)


def exp_of_negative(x: Value) -> Value:
    """exp(x) for x <= 0 or NaN, with gradual underflow; not by a table, whose error of up to one
    ulp would be more than two in sigmoid. One factor is enough for powers on one side of 1."""
    b = x.builder
    data = DATA[b.dtype]
    x = x.at_least(data.lowest)
    if b.has_scalef:
        power, r = reduce(x)
        return scale(exp_polynomial(r, data.exp), power)
    t, _, r = _reduce(x, b.format.bias + LIFT)
    return exp_polynomial(r, data.exp) * power_of_two(t) * 2.0**-LIFT


def exp2(b: Builder, x: Value) -> Value:
    data = DATA[b.dtype]
    bias, mantissa = b.format.bias, b.format.mantissa
    x = x.at_most(float(bias + 2)).at_least(float(-bias - mantissa - 1))
    power, r = split(x)
    return scale(polynomial(r, (1.0, *data.exp2)), power)


def expm1_scaled(x: Value, offset: int) -> tuple[Value, Value]:
    """(p, s): exp(x) = 2^(bias - offset) s (1 + p) with s a power of two; x is not clamped."""
    t, _, r = _reduce(x, offset)
    return expm1_polynomial(r, DATA[x.builder.dtype].expm1), power_of_two(t)


def expm1(b: Builder, x: Value) -> Value:
    """2^n (1 + p) - 1 = 2 (s p + (s - 1/2)) with s = 2^(n - 1), which is finite for n = 128."""
    data = DATA[b.dtype]
    clamped = x.at_most(data.highest).at_least(data.expm1_lowest)
    p, s = expm1_scaled(clamped, b.format.bias - 1)
    y = s.mad(p, s - 0.5)
    tiny = x.abs() < 2.0 ** (-b.format.mantissa - 2)
    return tiny.select(x, y + y)


def expm1_of_negative(x: Value) -> Value:
    """exp(x) - 1 for expm1_lowest <= x <= 0 or NaN, accurate to an ulp near 0."""
    p, s = expm1_scaled(x, x.builder.format.bias)
    return s.mad(p, s - 1.0)


def half_expm1(x: Value) -> Value:
    """(exp(x) - 1) / 2, likewise, for 0 <= x <= highest."""
    p, s = expm1_scaled(x, x.builder.format.bias - 1)
    return s.mad(p, s - 0.5)


def sigmoid(b: Builder, x: Value) -> Value:
    """1 - r for x >= 0 and e - e r for x < 0, with e = exp(-|x|) <= 1 and r = e / (1 + e).

    The sums are dominated by their exact or nearly exact first term; a plain quotient would add up
    three roundings.
    """
    e = exp_of_negative(-x.abs())
    r = e / (e + 1.0)
    first = (x < 0.0).select(e, 1.0)
    return (-r).mad(first, first)
