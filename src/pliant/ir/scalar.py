"""What scalar operators mean: one NumPy scalar in, one out, exact to the bit.

The interpreters and constant folding use these; generated code is compared with them. Choices that
the names alone leave open:

    integers      wrap; division by zero raises ZeroDivisionError
    f16, bf16     computed in f32, rounded after the operator
    float // %    as NumPy: the remainder has the divisor's sign and is exact
    truncdiv      trunc(a / b); truncmod is C's fmod
    round         half to even
    int ** -k     1 / a**k rounded towards zero (0 ** -k gives 0)
    cast          float -> int truncates and saturates, NaN -> 0; to a 16-bit float through f32
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType, boolean, f32, f64
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import COMPARISONS

Scalar = Any  # a NumPy scalar
Operation = Callable[..., Scalar]


def unary_operation(op: str, dtype: DType) -> Operation:
    """The function of one scalar of type `dtype`."""
    if op in _FLOAT_FUNCTIONS:
        return _rounded(_FLOAT_FUNCTIONS[op], dtype)
    if op in _EXACT_UNARY:
        return _typed(_EXACT_UNARY[op], dtype)
    if op in ("isnan", "isinf"):
        test = np.isnan if op == "isnan" else np.isinf
        return lambda a: np.bool_(test(a))
    if op == "not":
        return np.logical_not if dtype is boolean else np.invert
    raise InvalidModelError(f"no unary operator {op!r}")


def binary_operation(op: str, dtype: DType) -> Operation:
    """The function of two scalars of type `dtype`."""
    if op in COMPARISONS:
        compare = _COMPARE[op]
        return lambda a, b: np.bool_(compare(a, b))
    if dtype.is_int and op in _INTEGER:
        return _integer_operation(_INTEGER[op], dtype)
    if dtype.is_int and op in ("shl", "shr"):
        return _shift(op, dtype)
    if op in ("pow", "atan2"):
        return _rounded(np.power if op == "pow" else np.arctan2, dtype)
    if op in _EXACT_BINARY:
        return _typed(_EXACT_BINARY[op], dtype)
    raise InvalidModelError(f"no binary operator {op!r} of {dtype}")


def cast(value: Scalar, source: DType, to: DType) -> Scalar:
    """`value`, of type `source`, converted to `to`."""
    if to is source:
        return value
    if to is boolean:
        return np.bool_(value != 0)
    if to.is_int:
        if source.is_float:
            return to.numpy.type(_saturated(float(value), to))
        return wrap(int(value), to)
    if to.bits == 16:
        return np.asarray(value, source.numpy).astype(np.float32).astype(to.numpy)[()]
    return np.asarray(value, source.numpy).astype(to.numpy)[()]


def bitcast(value: Scalar, source: DType, to: DType) -> Scalar:
    """The same bits as another type of the same width."""
    return np.frombuffer(np.asarray(value, source.numpy).tobytes(), to.numpy)[0]


def from_bits(bits: int, dtype: DType) -> Scalar:
    """The NumPy scalar with this bit pattern."""
    return np.frombuffer(bits.to_bytes(dtype.bytes, "little"), dtype.numpy)[0]


def wrap(value: int, dtype: DType) -> Scalar:
    """A Python integer modulo 2**bits."""
    bits = dtype.bits
    value &= (1 << bits) - 1
    if dtype.kind == "int" and value >> (bits - 1):
        value -= 1 << bits
    return dtype.numpy.type(value)


def identity_value(combiner: str, dtype: DType) -> int | float:
    """What the combiner leaves unchanged, and gives when there is nothing to combine."""
    match combiner:
        case "sum" | "any":
            return 0
        case "prod" | "all":
            return 1
        case "max" | "fmax":
            return dtype.min
        case "min" | "fmin":
            return dtype.max
    raise InvalidModelError(f"{combiner} has no identity")


def identity_of(combiner: str, dtype: DType) -> Scalar:
    """The same as a scalar of the type."""
    return dtype.numpy.type(identity_value(combiner, dtype))


# The binary operator of each combiner whose accumulation is one store.
COMBINER_OPS: Final = {
    "sum": "add", "prod": "mul", "max": "max", "min": "min", "fmax": "fmax",
    "fmin": "fmin", "any": "or", "all": "and",
}  # fmt: skip


def better(combiner: str, new: Scalar, best: Scalar) -> bool:
    """Whether `new` takes the place of `best` in an argmax or argmin; NaN beats everything."""
    if best != best:
        return False
    return bool(new != new or (new > best if combiner == "argmax" else new < best))


def poison(dtype: DType) -> Scalar:
    """What uninitialised memory holds: NaN, the least integer, or (unsigned) the greatest."""
    if dtype.is_float:
        return dtype.numpy.type(float("nan"))
    return dtype.numpy.type(dtype.min if dtype.kind == "int" else dtype.max)


def _rounded(fn: Callable[..., Any], dtype: DType) -> Operation:
    # In f64, then rounded: within half an ULP and a bit for f32.
    narrow = dtype.numpy.type
    if dtype is f64:
        return lambda *xs: narrow(fn(*xs))
    if dtype is f32:
        return lambda *xs: narrow(fn(*map(np.float64, xs)))
    return lambda *xs: narrow(np.float32(fn(*map(np.float64, xs))))


def _typed(fn: Callable[..., Any], dtype: DType) -> Operation:
    narrow = dtype.numpy.type
    if dtype.is_float and dtype.bits == 16:
        return lambda *xs: narrow(fn(*map(np.float32, xs)))
    return lambda *xs: narrow(fn(*xs))


def _integer_operation(fn: Callable[[int, int], int], dtype: DType) -> Operation:
    return lambda a, b: wrap(fn(int(a), int(b)), dtype)


def _shift(op: str, dtype: DType) -> Operation:
    if op == "shl":
        return lambda a, b: wrap(int(a) << (int(b) % dtype.bits), dtype)
    return lambda a, b: wrap(int(a) >> (int(b) % dtype.bits), dtype)


def _saturated(value: float, to: DType) -> int:
    if math.isnan(value):
        return 0
    if value <= to.min:
        return int(to.min)
    return int(to.max) if value >= to.max else int(value)


def _erf(x: np.float64) -> float:
    return math.erf(x)


def _erfc(x: np.float64) -> float:
    return math.erfc(x)


def _sigmoid(x: np.float64) -> Any:
    return 1 / (1 + np.exp(-x)) if x >= 0 else np.exp(x) / (1 + np.exp(x))


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncmod(a: int, b: int) -> int:
    return a - b * _truncdiv(a, b)


def _power(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64) if abs(a) > 1 else a**b if b < 2 or a != -1 else 1 - b % 2 * 2
    return (1 if b % 2 == 0 else a) if abs(a) == 1 else 0


_FLOAT_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2,
    "exp_from_max": np.exp,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf, "erfc": _erfc, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip

_EXACT_UNARY: Final[dict[str, Callable[..., Any]]] = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign,
}  # fmt: skip

_COMPARE: Final[dict[str, Callable[..., Any]]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip

_EXACT_BINARY: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "floormod": np.mod,
    "truncdiv": lambda a, b: np.trunc(np.divide(a, b)), "truncmod": np.fmod,
    "min": np.minimum, "max": np.maximum, "fmin": np.fmin, "fmax": np.fmax,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip

_INTEGER: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b,
    "truncdiv": _truncdiv, "truncmod": _truncmod, "pow": _power,
    "min": min, "max": max, "fmin": min, "fmax": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip
