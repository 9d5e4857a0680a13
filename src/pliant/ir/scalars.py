"""The NumPy meaning of scalar operators, reductions and scans.

f16 and bf16 are computed in f32 and rounded after every operator; functions of one argument are
computed in f64 and rounded. Sums and products of floats are accumulated in f64: no order is
promised, and this one is close to all. Integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pliant.base.dtypes import DType
from pliant.ir.expr import COMPARISONS
from pliant.ir.scalar import identity_of

Array = npt.NDArray[Any]

_ERF: Final = np.frompyfunc(math.erf, 1, 1)
_ERFC: Final = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), np.float64)


def _erfc(x: Array) -> Array:
    return np.asarray(_ERFC(x), np.float64)


_FLOAT_UNARY: Final[Mapping[str, Callable[[Array], Array]]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2,
    "exp_from_max": np.exp,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf, "erfc": _erfc, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip


def rounded(a: Any, dtype: DType) -> Array:
    """A float result in its type; f16 and bf16 by way of f32."""
    if dtype.is_float and dtype.bits == 16:
        return np.asarray(np.asarray(a).astype(np.float32).astype(dtype.numpy))
    return np.asarray(np.asarray(a).astype(dtype.numpy))


def unary(op: str, a: Array, dtype: DType) -> Array:
    """`op(a)`, for `a` of type `dtype`."""
    if op in _FLOAT_UNARY:
        return rounded(_FLOAT_UNARY[op](a.astype(np.float64)), dtype)
    if op in ("isnan", "isinf"):
        wide = a.astype(np.float64)
        return np.asarray(np.isnan(wide) if op == "isnan" else np.isinf(wide))
    if op == "not":
        return np.asarray(np.bitwise_not(a))
    wide = a.astype(np.float32) if dtype.is_float and dtype.bits == 16 else a
    if op == "neg":
        return rounded(np.negative(wide), dtype)
    return rounded(np.abs(wide) if op == "abs" else np.sign(wide), dtype)


def binary(op: str, a: Array, b: Array, dtype: DType) -> Array:
    """`op(a, b)`, for operands of type `dtype`; bool for a comparison."""
    if dtype.is_float and dtype.bits == 16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    if op in COMPARISONS:
        return np.asarray(_COMPARE[op](a, b))
    if not dtype.is_float:
        return np.asarray(_INTEGER[op](a, b, dtype), dtype.numpy)
    return rounded(_FLOAT[op](a, b), dtype)


_COMPARE: Final[Mapping[str, Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def _float_pow(a: Array, b: Array) -> Array:
    return np.asarray(np.power(a.astype(np.float64), b.astype(np.float64)))


_FLOAT: Final[Mapping[str, Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "floormod": np.remainder, "truncmod": np.fmod,
    "truncdiv": lambda a, b: np.trunc(a / b), "min": np.minimum, "max": np.maximum,
    "fmin": np.fmin, "fmax": np.fmax, "pow": _float_pow,
    "atan2": lambda a, b: np.arctan2(a.astype(np.float64), b.astype(np.float64)),
}  # fmt: skip


def _divided(a: Array, b: Array, dtype: DType) -> tuple[Array, Array]:
    """Floor quotient and remainder; x/0 is 0, and MIN/-1 wraps."""
    special = (b == 0) | (b == -1) if dtype.is_signed else b == 0
    safe = np.where(special, np.ones_like(b), b)
    quotient = np.where(special, np.where(b == 0, np.zeros_like(a), np.negative(a)), a // safe)
    return quotient, np.where(special, np.zeros_like(a), a % safe)


def _truncdiv(a: Array, b: Array, dtype: DType) -> Array:
    quotient, remainder = _divided(a, b, dtype)
    return np.where(
        (remainder != 0) & ((a < 0) != (b < 0)), quotient + dtype.numpy.type(1), quotient
    )


def _truncmod(a: Array, b: Array, dtype: DType) -> Array:
    _, remainder = _divided(a, b, dtype)
    return np.where((remainder != 0) & ((a < 0) != (b < 0)), remainder - b, remainder)


def _integer_pow(a: Array, b: Array, dtype: DType) -> Array:
    """Wraps; a negative exponent gives the reciprocal rounded towards zero (0 for base 0)."""
    if not dtype.is_signed:
        return np.asarray(np.power(a, b))
    power = np.power(a, np.where(b < 0, np.zeros_like(b), b))
    odd = np.where(b % 2 == 0, np.ones_like(a), a)
    reciprocal = np.where(np.abs(a) == 1, odd, np.zeros_like(a))
    return np.where(b < 0, reciprocal, power)


def _shift_count(b: Array, dtype: DType) -> Array:
    return np.asarray(b & b.dtype.type(dtype.bits - 1))


_INTEGER: Final[Mapping[str, Callable[[Array, Array, DType], Any]]] = {
    "add": lambda a, b, _: np.add(a, b),
    "sub": lambda a, b, _: np.subtract(a, b),
    "mul": lambda a, b, _: np.multiply(a, b),
    "floordiv": lambda a, b, t: _divided(a, b, t)[0],
    "floormod": lambda a, b, t: _divided(a, b, t)[1],
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": lambda a, b, _: np.minimum(a, b),
    "max": lambda a, b, _: np.maximum(a, b),
    "fmin": lambda a, b, _: np.minimum(a, b),
    "fmax": lambda a, b, _: np.maximum(a, b),
    "pow": _integer_pow,
    "and": lambda a, b, _: np.bitwise_and(a, b),
    "or": lambda a, b, _: np.bitwise_or(a, b),
    "xor": lambda a, b, _: np.bitwise_xor(a, b),
    "shl": lambda a, b, t: np.left_shift(a, _shift_count(b, t)),
    "shr": lambda a, b, t: np.right_shift(a, _shift_count(b, t)),
}


def converted(a: Array, source: DType, to: DType) -> Array:
    """A value conversion: float to int truncates and saturates (NaN gives 0), int to int wraps."""
    if to.kind == "bool":
        return np.asarray(a != 0)
    if source.is_float and to.is_int:
        return _saturated(a.astype(np.float64), to)
    if source.is_float or source.bits == to.bits or not to.is_float:
        return np.asarray(a.astype(to.numpy))
    return rounded(a, to)


def _saturated(a: Array, to: DType) -> Array:
    high = 2.0 ** (to.bits - (1 if to.is_signed else 0))  # the first value that does not fit
    low = float(to.min)
    inside = (a > low - 1) & (a < high) if to.bits < 64 else (a >= low) & (a < high)
    whole = np.where(inside, a, 0.0).astype(to.numpy)
    top = np.where(a >= high, to.numpy.type(to.max), whole)
    return np.where(a < low, to.numpy.type(to.min), top).astype(to.numpy)


def identity(combiner: str, dtype: DType) -> Any:
    """What a reduction over nothing gives."""
    values = {"sum": 0, "prod": 1, "max": dtype.min, "min": dtype.max, "any": 0, "all": 1}
    return values.get(combiner, 0)


def combine(combiner: str, a: Array, dims: tuple[int, ...], dtype: DType) -> Array:
    """The reduction of a non-empty array over its trailing dimensions `dims`."""
    if combiner in ("argmax", "argmin"):
        wide = a.astype(np.float64) if a.dtype.kind not in "biuf" else a
        return np.asarray(getattr(np, combiner)(wide, axis=dims[0]), np.int64)
    if combiner in ("any", "all"):
        return np.asarray(getattr(np, combiner)(a, axis=dims))
    if combiner in ("fmax", "fmin"):
        start = identity_of(combiner, dtype)
        return np.asarray(getattr(np, combiner).reduce(a, axis=dims, initial=start))
    if dtype.is_float:
        return rounded(getattr(np, combiner)(a.astype(np.float64), axis=dims), dtype)
    kept = {"dtype": dtype.numpy} if combiner in ("sum", "prod") else {}
    return np.asarray(getattr(np, combiner)(a, axis=dims, **kept))


_RUNNING: Final[Mapping[str, np.ufunc]] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def running(
    combiner: str, a: Array, axis: int, dtype: DType, *, exclusive: bool, reverse: bool
) -> Array:
    """The running reduction along `axis`."""
    if a.size == 0:
        return a
    a = np.flip(a, axis) if reverse else a
    wide = a.astype(np.float64) if dtype.is_float else a
    if exclusive:
        first = np.full_like(np.take(wide, [0], axis), identity(combiner, dtype))
        wide = np.concatenate([first, np.delete(wide, -1, axis)], axis)
    result = _RUNNING[combiner].accumulate(wide, axis, dtype=wide.dtype)
    result = np.flip(result, axis) if reverse else result
    return rounded(result, dtype) if dtype.is_float else np.asarray(result)
