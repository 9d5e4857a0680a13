"""sin, cos, tan and their inverses.

|x| = n pi/2 + r with |r| <= pi/4. pi/2 is split in three parts, each a full significand, truncated:
n * PART_1 is subtracted exactly by fma (the difference fits the format, since it has no bit below
the last one of PART_1 and is at most 1), so only the last parts round, relative to r. Beyond
`reduce_huge.LIMIT` the cold function of `reduce_huge` multiplies by enough bits of 2/pi instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math import reduce_huge
from pliant.codegen.llvm.math.builder import Builder, Value, polynomial

TWO_OVER_PI: Final = float.fromhex("0x1.45f306dc9c883p-1")
ASIN_LIMIT: Final = 0.57


@dataclass(frozen=True, slots=True)
class TrigData:
    """pi/2 in three parts, pi/2 rounded to nearest with its remainder, and the polynomials."""

    parts: tuple[float, float, float]
    half_pi: tuple[float, float]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    tan: tuple[float, ...]
    atan: tuple[float, ...]
    asin: tuple[float, ...]


DATA: Final[dict[DType, TrigData]] = {
    f32: TrigData(
        parts=(
            float.fromhex("0x1.921fb4p+0"),
            float.fromhex("0x1.4442dp-24"),
            float.fromhex("0x1.846988p-48"),
        ),
        half_pi=(float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cf72cecep-25")),
        sin=table.SIN_F32,
        cos=table.COS_F32,
        tan=table.TAN_F32,
        atan=table.ATAN_F32,
        asin=table.ASIN_F32,
    ),
    f64: TrigData(
        parts=(
            float.fromhex("0x1.921fb54442d18p+0"),
            float.fromhex("0x1.1a62633145c06p-54"),
            float.fromhex("0x1.c1cd129024e08p-107"),
        ),
        half_pi=(
            float.fromhex("0x1.921fb54442d18p+0"),
            float.fromhex("0x1.1a62633145c07p-54"),
        ),
        sin=table.SIN_F64,
        cos=table.COS_F64,
        tan=table.TAN_F64,
        atan=table.ATAN_F64,
        asin=table.ASIN_F64,
    ),
}


def reduce(a: Value) -> tuple[Value, Value]:
    """(q, r): a = n pi/2 + r for a >= 0, with q = n modulo 4 in the two lowest bits of q."""
    b = a.builder
    t, n = nearest_quadrant(a)
    r = a
    for part in DATA[b.dtype].parts:
        r = n.fma(-part, r)
    q, r, _ = choose_reduction(a, (t.as_int(), r, a.like(0.0)))
    return q, r


def reduce_twofold(a: Value) -> tuple[Value, Value, Value]:
    """(q, r, l): the same with the remainder r + l, where l is what the rounding of r lost."""
    t, n = nearest_quadrant(a)
    first, second, third = DATA[a.builder.dtype].parts
    exact = n.fma(-first, a)
    product = n * second
    r = exact - product
    lost = (exact - r) - product  # Dekker's sum; where |exact| < |product|, r is exact
    low = n.fma(-third, lost - n.fma(second, -product))
    q, r, low = choose_reduction(a, (t.as_int(), r, low))
    return q, r, low


def nearest_quadrant(a: Value) -> tuple[Value, Value]:
    """(t, n): n = round(a / (pi/2)); the low bits of t hold n as an integer."""
    magic = a.builder.format.rounding
    t = a.mad(TWO_OVER_PI, magic)
    return t, t - magic


def choose_reduction(a: Value, usual: tuple[Value, ...]) -> tuple[Value, ...]:
    """(q, r, l) of the usual reduction, or of the one for huge arguments in the lanes with one."""
    b = a.builder
    huge = a > reduce_huge.LIMIT[b.dtype]
    return b.rarely(huge, reduce_huge.symbol(b.dtype, b.lanes), (a, *usual), usual)


def sin_polynomial(r: Value, z: Value) -> Value:
    """sin(r) = r + r^3 P(r^2), z = r^2."""
    return (r * z).mad(polynomial(z, DATA[r.builder.dtype].sin), r)


def cos_polynomial(z: Value) -> Value:
    """cos(r) = 1 - r^2 / 2 + r^4 P(r^2), z = r^2."""
    return polynomial(z, (1.0, -0.5, *DATA[z.builder.dtype].cos))


def quadrant_sign(q: Value) -> Value:
    """The sign bit where q & 2, else 0."""
    return (q << (q.builder.format.bits - 2)) & q.builder.format.sign_mask


def sin(b: Builder, x: Value) -> Value:
    """sin(|x|) with the sign of x, so that -0 stays -0."""
    q, r = reduce(x.abs())
    z = r * r
    y = (q & 1).eq(0).select(sin_polynomial(r, z), cos_polynomial(z))
    sign = quadrant_sign(q) ^ (x.as_int() & b.format.sign_mask)
    return (y.as_int() ^ sign).as_float()


def cos(b: Builder, x: Value) -> Value:
    q, r = reduce(x.abs())
    z = r * r
    y = (q & 1).eq(0).select(cos_polynomial(z), sin_polynomial(r, z))
    return (y.as_int() ^ quadrant_sign(q + 1)).as_float()


def tan(b: Builder, x: Value) -> Value:
    """tan(r), or -1 / tan(r) in odd quadrants, with the sign of x.

    tan magnifies the error of r most, so r has a low part l: tan(r + l) = tan(r) + l (1 + r^2 ...).
    """
    q, r, low = reduce_twofold(x.abs())
    z = r * r
    t = (r * z).mad(polynomial(z, DATA[b.dtype].tan), z.mad(low, low)) + r
    y = (q & 1).eq(0).select(t, -1.0 / t)
    return (y.as_int() ^ (x.as_int() & b.format.sign_mask)).as_float()


def atan_polynomial(t: Value) -> Value:
    """atan(t) = t + t^3 P(t^2) for |t| <= 1."""
    z = t * t
    return (t * z).mad(polynomial(z, DATA[t.builder.dtype].atan), t)


def atan(b: Builder, x: Value) -> Value:
    """atan(a) = pi/2 - atan(1/a) for a = |x| > 1."""
    a = x.abs()
    steep = a > 1.0
    t = steep.select(-1.0, a) / steep.select(a, 1.0)
    high, low = DATA[b.dtype].half_pi
    y = atan_polynomial(t)
    return steep.select((y + low) + high, y).copysign(x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (x, y): atan of the smaller over the larger, moved to its octant."""
    ax, ay = x.abs(), y.abs()
    steep = ay > ax
    small, large = steep.select(ax, ay), steep.select(ay, ax)
    # 0/0 and inf/inf are the angles 0 and pi/4 (C99); NaN in either operand stays NaN.
    ratio = small / large
    ratio = small.eq(large).select(1.0, ratio)
    ratio = large.eq(0.0).select(0.0, ratio)
    invalid = x.ne(x) | y.ne(y)
    ratio = invalid.select(float("nan"), ratio)
    # angle = base + sign * atan(ratio), base in {0, pi/2, pi}
    left = x.as_int() < 0
    flip = (steep & ~left) | (~steep & left)
    high, low = DATA[b.dtype].half_pi
    t = flip.select(-ratio, ratio)
    r = atan_polynomial(t)
    vertical_high, vertical_low = steep.select(high, 0.0), steep.select(low, 0.0)
    base_high = (~steep & left).select(2.0 * high, vertical_high)
    base_low = (~steep & left).select(2.0 * low, vertical_low)
    return ((r + base_low) + base_high).abs().copysign(y)


def asin_core(a: Value) -> tuple[Value, Value]:
    """(steep, p): asin(a) = pi/2 - 2 p where a is above a limit (steep), else p; NaN for a > 1.

    p = asin(sqrt((1 - a) / 2)) is below 1/2 then, which halves the error of 2 p.
    """
    steep = a > ASIN_LIMIT
    half = (1.0 - a) * 0.5
    z = steep.select(half, a * a)
    t = steep.select(half.sqrt(), a)
    return steep, (t * z).mad(polynomial(z, DATA[a.builder.dtype].asin), t)


def asin(b: Builder, x: Value) -> Value:
    steep, p = asin_core(x.abs())
    high, low = DATA[b.dtype].half_pi
    far = p.mad(-2.0, low) + high
    return steep.select(far, p).copysign(x)


def acos(b: Builder, x: Value) -> Value:
    """pi/2 - asin(x); 2 p and pi - 2 p near 1 and -1."""
    steep, p = asin_core(x.abs())
    high, low = DATA[b.dtype].half_pi
    signed = p.copysign(x)
    middle = (low - signed) + high
    twice = p + p
    far = (x < 0.0).select((2.0 * low - twice) + 2.0 * high, twice)
    return steep.select(far, middle)
