"""log and exp2 of doubles to about 38 and 28 bits, for f32 functions computed in double precision.

Where an f32 function would need compensated arithmetic, twice the width is simpler and no slower.
"""

from __future__ import annotations

from typing import Final

from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math.builder import Value, polynomial

SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD
ROUNDING: Final = 1.5 * 2.0**52
LOG2_E: Final = float.fromhex("0x1.71547652b82fep+0")
LN_2: Final = float.fromhex("0x1.62e42fefa39efp-1")


def log1p_medium(f: Value) -> Value:
    """log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)) with relative error 2^-38."""
    return (f * f).mad(polynomial(f, table.LOG_MEDIUM), f)


def log_medium(x: Value) -> Value:
    """The logarithm of positive normal doubles, likewise."""
    bits = x.as_int()
    e = (bits - SQRT_HALF_BITS).ashr(52)
    f = (bits - (e << 52)).as_float() - 1.0
    return e.to_float().mad(LN_2, log1p_medium(f))


def exp2_medium(x: Value) -> Value:
    """2^x for doubles |x| < 1000 (or NaN) with relative error 2^-28."""
    magic = ROUNDING + 1023.0
    t = x + magic
    p = polynomial(x - (t - magic), (1.0, *table.EXP2_MEDIUM))
    return p * (t.as_int() << 52).as_float()
