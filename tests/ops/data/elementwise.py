"""Elementwise operators against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pliant.base.dtypes import DTYPES
from tests.ops.case import (
    FLOATS,
    INTS,
    Case,
    arg,
    between,
    extremes,
    numbers,
    positive,
    special,
    with_types,
)

SHAPES = ({"m": 3, "n": 7}, {"m": 1, "n": 1}, {"m": 0, "n": 5}, {"m": 64, "n": 3})


def sign(x: torch.Tensor) -> torch.Tensor:
    """NumPy's: NaN stays (torch gives 0)."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": sign, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "erfc": torch.erfc,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh,
    "acosh": torch.acosh, "atanh": torch.atanh, "floor": torch.floor, "ceil": torch.ceil,
    "trunc": torch.trunc, "round": torch.round, "isnan": torch.isnan, "isinf": torch.isinf,
    "reciprocal": torch.reciprocal, "square": torch.square, "relu": torch.relu,
    "silu": F.silu, "mish": F.mish, "softsign": F.softsign, "hardswish": F.hardswish,
    "identity": torch.clone,
}  # fmt: skip


def in_f64(fn: Any) -> Any:
    """The oracle in f64, rounded to the operand's type."""

    def oracle(x: torch.Tensor, **attrs: Any) -> torch.Tensor:
        result = fn(x.double(), **attrs)
        return result if result.dtype is torch.bool else result.to(x.dtype)

    return oracle


def unary_cases() -> list[Case]:
    """Every function of one float, in every float type, ordinary and special values."""
    cases = []
    for op, fn in UNARY.items():
        tidy = between(-0.99, 0.99) if op == "atanh" else between(-3, 3)
        for fill, note in ((tidy, ""), (special, "special")):
            if op == "tan" and note:
                continue  # f32 and f64 disagree about poles
            base = Case(
                op, (arg("f32", "m", "n", fill=fill),), in_f64(fn), sizes=SHAPES, note=note, tol=4
            )
            cases += with_types(base, *FLOATS)
    return cases


def softplus(x: torch.Tensor, **attrs: Any) -> torch.Tensor:
    return F.softplus(x.double(), **attrs).to(x.dtype)


def activation(op: str, fn: Any, **attrs: Any) -> list[Case]:
    cases: list[Case] = []
    for fill, note in ((numbers, ""), (special, "special")):
        label = "-".join(filter(None, (*(f"{v}"[:4] for v in attrs.values()), note)))
        base = Case(op, (arg("f32", "m", "n", fill=fill),), in_f64(fn), attrs, SHAPES, 4, label)
        cases += with_types(base, *FLOATS)
    return cases


def thresholded(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.where(x > alpha, x, 0.0)


def shrink(x: torch.Tensor, lambd: float, bias: float) -> torch.Tensor:
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0.0))


ACTIVATIONS = [
    *activation("softplus", F.softplus, beta=1.0, threshold=20.0),
    *activation("softplus", F.softplus, beta=2.5, threshold=3.0),
    *activation("gelu", F.gelu, approximate="none"),
    *activation("gelu", F.gelu, approximate="tanh"),
    *activation("elu", F.elu, alpha=1.3),
    *activation("selu", lambda x, alpha, gamma: F.selu(x), alpha=1.6732632423543772, gamma=1.0507009873554805),
    *activation("celu", F.celu, alpha=0.7),
    *activation("leaky_relu", lambda x, alpha: F.leaky_relu(x, alpha), alpha=0.1),
    *activation("hardsigmoid", lambda x, alpha, beta: (x * alpha + beta).clamp(0, 1), alpha=0.2, beta=0.5),
    *activation("thresholded_relu", thresholded, alpha=0.5),
    *activation("shrink", shrink, lambd=0.4, bias=0.1),
]  # fmt: skip

PAIRS = (
    (("m", "n"), ("m", "n")),
    (("m", "n"), ("n",)),
    (("m", 1), (1, "n")),
    ((), ("m", "n")),
    (("b", "m", "n"), ("c", "n")),
)
PAIR_SIZES = (
    {"m": 3, "n": 7, "b": 2, "c": 3},
    {"m": 1, "n": 4, "b": 5, "c": 1},
    {"m": 3, "n": 4, "b": 1, "c": 1},
    {"m": 1, "n": 1, "b": 2, "c": 4},
    {"m": 0, "n": 2, "b": 3, "c": 1},
    {"m": 1, "n": 2, "b": 3, "c": 0},
)

NUMBERS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "max": torch.maximum,
    "min": torch.minimum, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,
    "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip
FLOAT_ONLY = {"div": torch.div, "fmin": torch.fmin, "fmax": torch.fmax}
UNSIGNED = ("u64", "u32", "u16")  # torch lacks most operators on these


def numpy_oracle(fn: Any) -> Any:
    def oracle(*xs: np.ndarray, **attrs: Any) -> np.ndarray:
        return np.asarray(fn(*xs, **attrs))

    return oracle


NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def binary_cases() -> list[Case]:
    """Operators of two numbers: all broadcasts in f32, all types in one."""
    cases = []
    for op, fn in (NUMBERS | FLOAT_ONLY).items():
        for k, (a, b) in enumerate(PAIRS):
            args = (arg("f32", *a, fill=special), arg("f32", *b, fill=special))
            cases.append(Case(op, args, fn, sizes=PAIR_SIZES, note=f"broadcast{k}"))
        one = Case(
            op, (arg("f64", "m", "n", fill=special), arg("f64", "n", fill=special)), fn,
            sizes=SHAPES,
        )  # fmt: skip
        cases += with_types(one, "f64", "f16", "bf16")
        if op in NUMPY:
            ints = Case(
                op, (arg("i64", "m", "n", fill=extremes), arg("i64", "n", fill=extremes)),
                numpy_oracle(NUMPY[op]), sizes=SHAPES, numpy=True,
            )  # fmt: skip
            cases += with_types(ints, *INTS)
    for op in ("eq", "ne", "lt", "le", "max", "min"):
        args = (arg("bool", "m", "n"), arg("bool", "m", "n"))
        cases.append(Case(op, args, numpy_oracle(NUMPY[op]), sizes=SHAPES, numpy=True))
    return cases


def floor_division(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


def trunc_division(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


WHOLE = {
    "floordiv": floor_division, "floormod": torch.remainder, "truncdiv": trunc_division,
    "truncmod": torch.fmod,
}  # fmt: skip


def nonzero(rng: Any, shape: Any, dtype: Any, sizes: Any) -> np.ndarray:
    values = (
        extremes(rng, shape, dtype, sizes) if dtype.is_int else numbers(rng, shape, dtype, sizes)
    )
    return np.where((values == 0) | (values == -1 if dtype.is_signed else False), values + 3, values)  # fmt: skip


def exact(op: str) -> Any:
    """Python's integers, which cannot overflow, wrapped to the type."""

    def one(a: int, b: int) -> int:
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return {"floordiv": a // b, "floormod": a % b, "truncdiv": q, "truncmod": a - q * b}[op]

    def oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = np.broadcast_arrays(a, b)
        bits = a.dtype.itemsize * 8
        found = [
            one(int(x), int(y)) & ((1 << bits) - 1) for x, y in zip(a.flat, b.flat, strict=True)
        ]
        unsigned = np.array(found, np.dtype(f"u{a.dtype.itemsize}"))
        return unsigned.view(a.dtype).reshape(a.shape)

    return oracle


def with_minus_one(rng: Any, shape: Any, dtype: Any, sizes: Any) -> np.ndarray:
    return np.where(
        rng.random(shape) < 0.5, dtype.numpy.type(-1), nonzero(rng, shape, dtype, sizes)
    )


def whole_cases() -> list[Case]:
    cases = []
    for op, fn in WHOLE.items():
        base = Case(op, (arg("f32", "m", "n"), arg("f32", "n", fill=positive)), fn, sizes=SHAPES)
        cases += with_types(base, "f32", "f64")
        args = (arg("i64", "m", "n", fill=extremes), arg("i64", "n", fill=nonzero))
        ints = Case(op, args, exact(op), sizes=SHAPES, numpy=True)
        cases += with_types(ints, *INTS)
        args = (arg("i64", "m", "n", fill=extremes), arg("i64", "n", fill=with_minus_one))
        minus = Case(op, args, exact(op), sizes=SHAPES, numpy=True, note="minus-one")
        cases += with_types(minus, "i64", "i32", "i16", "i8")
    return cases


def shifted(fn: Any) -> Any:
    def oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        return np.asarray(fn(a, (b.astype(np.int64) % bits).astype(b.dtype)))

    return oracle


def bit_cases() -> list[Case]:
    cases = []
    for op, fn in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        args = (arg("i64", "m", "n", fill=special), arg("i64", "n", fill=special))
        base = Case(op, args, numpy_oracle(fn), sizes=SHAPES, numpy=True)
        cases += with_types(base, *INTS, "bool")
    for op, shift in (("shl", np.left_shift), ("shr", np.right_shift)):
        args = (arg("i64", "m", "n", fill=extremes), arg("i64", "n", fill=between(0, 100)))
        base = Case(op, args, shifted(shift), sizes=SHAPES, numpy=True)
        cases += with_types(base, *INTS)
    base = Case("not", (arg("i64", "m", "n", fill=special),), np.invert, sizes=SHAPES, numpy=True)
    cases += with_types(base, *INTS, "bool")
    for op in ("neg", "abs", "sign", "relu", "square", "identity"):
        numpy = {
            "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square,
            "relu": lambda x: np.maximum(x, x.dtype.type(0)), "identity": np.copy,
        }[op]  # fmt: skip
        base = Case(op, (arg("i64", "m", "n", fill=extremes),), numpy, sizes=SHAPES, numpy=True)
        cases += with_types(base, *INTS)
    return cases


def power(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.pow(a.double(), b.double()).to(a.dtype)


def atan2(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.atan2(a.double(), b.double()).to(a.dtype)


POWERS = [
    *with_types(Case("pow", (arg("f32", "m", "n", fill=positive), arg("f32", "n")), power, sizes=SHAPES, tol=4), *FLOATS),
    *with_types(Case("pow", (arg("f32", "m", "n", fill=special), arg("f32", "n", fill=special)), power, sizes=SHAPES, note="special"), "f32", "f64"),
    *with_types(Case("pow", (arg("i64", "m", "n", fill=extremes), arg("i64", "n", fill=between(0, 9))), torch.pow, sizes=SHAPES), "i64", "i32", "i16", "i8", "u8"),
    *with_types(Case("pow", (arg("i64", "m", "n", fill=between(-3, 4)), arg("i64", "n", fill=between(-4, 9))), lambda a, b: torch.pow(torch.where((a == 0) & (b < 0), 5, a), b), sizes=SHAPES, note="negative"), "i64", "i32"),
    *with_types(Case("atan2", (arg("f32", "m", "n", fill=special), arg("f32", "n", fill=special)), atan2, sizes=SHAPES), *FLOATS),
]  # fmt: skip


def cast_oracle(x: np.ndarray, to: Any) -> np.ndarray:
    """Saturating float to int, in Python integers."""
    if to.kind == "bool":
        return x.astype(np.float64) != 0 if x.dtype.kind not in "iub" else x != 0
    if to.is_int and x.dtype.kind not in "iub":
        clean = [0 if math.isnan(v) else v for v in x.astype(np.float64).flat]
        whole = [v if math.isinf(v) else math.trunc(v) for v in clean]
        found = [int(min(max(v, to.min), to.max)) for v in whole]
        return np.array(found, to.numpy).reshape(x.shape)
    if to.name in ("f16", "bf16"):
        return x.astype(np.float32).astype(to.numpy)
    return x.astype(to.numpy)


def cast_cases() -> list[Case]:
    cases = []
    for source in DTYPES:
        for to in DTYPES.values():
            args = (arg(source, "m", "n", fill=special),)
            cases.append(
                Case("cast", args, cast_oracle, {"to": to}, SHAPES, note=f"to-{to}", numpy=True)
            )
    for a, b in (("f32", "i32"), ("i64", "f64"), ("f16", "u16"), ("bf16", "i16"), ("u8", "i8")):
        args = (arg(a, "m", "n", fill=special),)
        cases.append(
            Case("bitcast", args, lambda x, to: x.view(to.numpy), {"to": DTYPES[b]}, SHAPES,
                 note=f"to-{b}", numpy=True)
        )  # fmt: skip
    return cases


def clamp(x: torch.Tensor, low: Any = None, high: Any = None) -> torch.Tensor:
    return torch.clamp(x, low, high)


def prelu(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, slope * x, x)


CHOICES = [
    *with_types(Case("clamp", (arg("f32", "m", "n", fill=special), arg("f32", fill=between(-1, 0)), arg("f32", fill=between(0, 1))), clamp, sizes=SHAPES), *FLOATS),
    Case("clamp", (arg("f32", "m", "n", fill=special), None, arg("f32")), clamp, sizes=SHAPES, note="high"),
    *with_types(Case("clamp", (arg("i64", "m", "n", fill=extremes), arg("i64", fill=between(0, 5))), clamp, sizes=SHAPES, note="low"), "i64", "i8", "u8"),
    Case("prelu", (arg("f32", "b", "m", "n", fill=special), arg("f32", "m", 1)), prelu, sizes=PAIR_SIZES),
    Case("prelu", (arg("f32", "m", "n"), arg("f32", 1)), prelu, sizes=SHAPES, note="one"),
    Case("where", (arg("bool", "m", "n"), arg("f32", "m", "n", fill=special), arg("f32", "n", fill=special)), torch.where, sizes=SHAPES),
    Case("where", (arg("bool", "m", 1), arg("i64", "b", 1, "n"), arg("i64")), torch.where, sizes=PAIR_SIZES, note="broadcast"),
    Case("where", (arg("bool", "c", "n"), arg("bf16", "m", "n"), arg("bf16", "n")), torch.where, sizes=PAIR_SIZES, note="broadcast"),
]  # fmt: skip

CASES = [
    *unary_cases(), *ACTIVATIONS, *binary_cases(), *whole_cases(), *bit_cases(), *POWERS,
    *cast_cases(), *CHOICES,
]  # fmt: skip
