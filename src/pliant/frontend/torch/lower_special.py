"""ATen's special functions, and those that take floats apart."""

from __future__ import annotations

import math
from typing import Any, Final

from pliant.base.dtypes import f32, i16, i32, i64
from pliant.frontend.torch.context import Context, Table
from pliant.frontend.torch.lower_elementwise import float_unary
from pliant.frontend.torch.promote import common_type
from pliant.graph.function import Value

_MANTISSA: Final = {32: 23, 64: 52, 16: 10}
"""Stored bits of a float's mantissa, by its width (bf16 has 7)."""


def multivariate(ctx: Context, x: Value, p: int) -> Any:
    """log of the multivariate gamma function: a sum of p of one variable."""
    total = ctx.scalar(p * (p - 1) / 4 * math.log(math.pi), x.dtype)
    for j in range(p):
        at = ctx.call("sub", x, ctx.scalar(j / 2, x.dtype))
        total = ctx.call("add", total, ctx.call("lgamma", at))
    return total


def next_after(ctx: Context, a: Value, b: Value) -> Any:
    """The next float towards the other operand: its bits, as an integer, plus or less one."""
    dtype = common_type((a, b))
    x, y = ctx.tensor(a, dtype), ctx.tensor(b, dtype)
    whole = _INTEGERS[dtype.bits]
    zero, one = ctx.scalar(0, dtype), ctx.scalar(1, whole)
    bits = ctx.call("bitcast", x, to=whole)
    grows = ctx.call("eq", ctx.call("gt", y, x), ctx.call("gt", x, zero))
    step = ctx.call("where", grows, one, ctx.scalar(-1, whole))
    moved = ctx.call("bitcast", ctx.call("add", bits, step), to=dtype)
    least = ctx.call("bitcast", one, to=dtype)
    least = ctx.call("where", ctx.call("gt", y, zero), least, ctx.call("neg", least))
    moved = ctx.call("where", ctx.call("eq", x, zero), least, moved)
    moved = ctx.call("where", ctx.call("eq", x, y), y, moved)
    for v in (x, y):
        moved = ctx.call("where", ctx.call("isnan", v), v, moved)
    return moved


def frexp(ctx: Context, x: Value) -> Any:
    """A fraction of at least a half, and the power of two that it is to be multiplied by."""
    y = ctx.cast(x, f32) if x.dtype.bits < f32.bits else x
    dtype, whole = y.dtype, _INTEGERS[y.dtype.bits]
    width = _MANTISSA[dtype.bits]
    bias, top = dtype.bits - width - 2, (1 << (dtype.bits - width - 1)) - 1
    bias = (1 << bias) - 2
    size = ctx.call("abs", y)
    tiny = ctx.call("lt", size, ctx.scalar(2.0 ** (2 - bias), dtype))  # may have no leading bit
    scaled = ctx.call("mul", y, ctx.scalar(2.0 ** (width + 1), dtype))
    bits = ctx.call("bitcast", ctx.call("where", tiny, scaled, y), to=whole)
    field = ctx.call("and", ctx.call("shr", bits, ctx.scalar(width, whole)), ctx.scalar(top, whole))
    less = ctx.call("where", tiny, ctx.scalar(bias + width + 1, whole), ctx.scalar(bias, whole))
    power = ctx.call("sub", field, less)
    kept = ctx.call("and", bits, ctx.scalar(~(top << width), whole))
    part = ctx.call("or", kept, ctx.scalar(bias << width, whole))
    part = ctx.call("bitcast", part, to=dtype)
    plain = ctx.call("eq", y, ctx.scalar(0, dtype))
    for odd in ("isnan", "isinf"):
        plain = ctx.call("or", plain, ctx.call(odd, y))
    part = ctx.call("where", plain, y, part)
    power = ctx.call("where", plain, ctx.scalar(0, whole), power)
    return ctx.cast(part, x.dtype), ctx.cast(power, i32)


_INTEGERS: Final = {16: i16, 32: i32, 64: i64}

_NAMES: Final = {
    "lgamma": "lgamma special_gammaln",
    "digamma": "digamma special_digamma special_psi",
    "erfinv": "erfinv special_erfinv",
    "ndtri": "special_ndtri",
    "log_ndtr": "special_log_ndtr",
    "erfcx": "special_erfcx",
    "bessel_i0": "i0 special_i0 special_modified_bessel_i0",
    "bessel_i0e": "special_i0e",
    "bessel_i1": "special_i1 special_modified_bessel_i1",
    "bessel_i1e": "special_i1e",
}

SPECIAL: Final[Table] = {
    **{
        f"aten.{name}.default": float_unary(op)
        for op, names in _NAMES.items()
        for name in names.split()
    },
    "aten.mvlgamma.default": multivariate,
    "aten.special_multigammaln.default": multivariate,
    "aten.nextafter.default": next_after,
    "aten.frexp.Tensor": frexp,
}
