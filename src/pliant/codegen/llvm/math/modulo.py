"""What is left of a division, exactly (C's fmod): x - y trunc(x / y), with the sign of x.

f32 in f64: where the quotient is below 2^28, it lies further from the next integer than it is
rounded by, its product with y has 52 bits, and the difference is a float. f64 with one rounding of
x - q y: the rounded quotient is at most one too large, and then the rest is negative, by no more
than y. Larger quotients, which few programs have, are divided in parts, from the highest on, by y
times powers of the limit.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final

from pliant.base.dtypes import DType, f32, f64
from pliant.codegen.llvm.math.builder import Builder, Value

LIMIT: Final[dict[DType, float]] = {f32: 2.0**28, f64: 2.0**52}
"""Quotients beyond this are divided in parts."""
PARTS: Final[dict[DType, int]] = {f32: 10, f64: 41}
"""Of the largest quotient, 2^277 and 2^2098."""


def truncmod(b: Builder, x: Value, y: Value) -> Value:
    """x - y trunc(x / y); NaN where x is infinite or y is 0, x where only y is infinite."""
    a, c = x.abs(), y.abs()
    wide, by = (a.widen(), c.widen()) if b.dtype is f32 else (a, c)
    usual = _narrow(_rest(wide, by, b.dtype), b.dtype)
    (rest,) = b.rarely(wide > by * LIMIT[b.dtype], symbol(b.dtype, b.lanes), (a, c), (usual,))
    return (c.eq(inf) & (a < inf)).select(a, rest).copysign(x)


def _rest(a: Value, c: Value, dtype: DType) -> Value:
    """Of a quotient up to the limit."""
    quotient = (a / c).trunc()
    if dtype is f32:
        return a - quotient * c
    rest = (-quotient).fma(c, a)
    return (rest < 0.0).select(rest + c, rest)


def _narrow(wide: Value, dtype: DType) -> Value:
    return wide.narrow() if dtype is f32 else wide


def symbol(dtype: DType, lanes: int) -> str:
    """Name of the function {r} f(a, c) for any quotients of numbers that are not negative."""
    return f"pl_truncmod_large_{dtype}" + (f"x{lanes}" if lanes > 1 else "")


def define_large(dtype: DType, lanes: int) -> tuple[str, tuple[str, ...]]:
    """The cold function and the declarations it needs."""
    b = Builder(symbol(dtype, lanes), dtype, lanes, 2)
    a, c = (x.widen() if dtype is f32 else x for x in b.params)
    times = [c]
    for _ in range(PARTS[dtype] - 1):
        times.append(times[-1] * LIMIT[dtype])
    for t in reversed(times):  # a is less than t times the limit
        a = (t < inf).select(_rest(a, t, dtype), a)
    result = _narrow(((a < inf) & (c > 0.0)).select(a, nan), dtype)
    vector = b.type(b.format.kind)
    lines = (
        f"define internal fastcc {{ {vector} }} @{b.symbol}({vector} %x0, {vector} %x1) "
        "cold noinline nounwind {",
        "entry:",
        *b.lines,
        f"  %all = insertvalue {{ {vector} }} poison, {vector} {result.text}, 0",
        f"  ret {{ {vector} }} %all",
        "}",
        "",
    )
    return "\n".join(lines), tuple(b.declares)
