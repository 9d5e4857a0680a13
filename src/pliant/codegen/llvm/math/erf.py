"""erf: for a = |x|, erf(a) = 1 - exp(-w) with w = a (SLOPE + Q(a)), Q a minimax polynomial.

-log(erfc(a)) / a is smooth over the whole range, and 1 - exp(-w) keeps the relative accuracy of w
near 0, so one polynomial and one expm1 do, without a case distinction.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import f32
from pliant.base.errors import UnsupportedError
from pliant.codegen.llvm.math import coefficients as table
from pliant.codegen.llvm.math.builder import Builder, Value, horner
from pliant.codegen.llvm.math.exp import expm1_of_negative

SLOPE_F32: Final = float.fromhex("0x1.20dd76p+0")


def erf(b: Builder, x: Value) -> Value:
    if b.dtype is f32:
        return erf_f32(x)
    raise UnsupportedError(f"{b.symbol} is not implemented")


def erf_f32(x: Value) -> Value:
    """erf rounds to 1 from 3.92 on."""
    a = x.abs().at_most(3.95)
    w = a.mad(SLOPE_F32, a * horner(a, table.ERF_F32))
    return (-expm1_of_negative(-w)).copysign(x)
