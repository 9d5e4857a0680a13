"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from pliant.base.dtypes import DType, bf16, boolean, f16, f32, f64, u8
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Item, Lowering, Site
from pliant.frontend.onnx.symbolic import is_numeric
from pliant.frontend.onnx.tensors import dtype_of
from pliant.graph.function import Value

_UNARY: Final = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hardswish",
    "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "not",
    "Reciprocal": "reciprocal", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip

_BINARY: Final = {
    "Add": "add", "And": "and", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor",
    "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le",
    "Mul": "mul", "Or": "or", "PRelu": "prelu", "Sub": "sub", "Xor": "xor",
}  # fmt: skip

# ONNX operator -> catalogue operator, ((attribute, its name here, default), ...)
_WITH_FLOATS: Final[dict[str, tuple[str, tuple[tuple[str, str, float], ...]]]] = {
    "Celu": ("celu", (("alpha", "alpha", 1.0),)),
    "Elu": ("elu", (("alpha", "alpha", 1.0),)),
    "HardSigmoid": ("hardsigmoid", (("alpha", "alpha", 0.2), ("beta", "beta", 0.5))),
    "LeakyRelu": ("leaky_relu", (("alpha", "alpha", 0.01),)),
    "Selu": (
        "selu",
        (
            ("alpha", "alpha", 1.6732632423543772848170429916717),
            ("gamma", "gamma", 1.0507009873554804934193349852946),
        ),
    ),
    "ThresholdedRelu": ("thresholded_relu", (("alpha", "alpha", 1.0),)),
}


def _unary(op: str) -> Lowering:
    return lambda s: s.call(op, s.x())


def _binary(op: str) -> Lowering:
    return lambda s: s.call(op, *same_types(s, s.x(0), s.x(1)))


def _with_floats(op: str, attrs: tuple[tuple[str, str, float], ...]) -> Lowering:
    def lower(s: Site) -> Value:
        given = {ours: s.float_attr(name, default) for name, ours, default in attrs}
        return s.call(op, s.x(), **given)

    return lower


def _fold_left(op: str) -> Lowering:
    return lambda s: _folded(s, op)


def _folded(s: Site, op: str) -> Value:
    total, *rest = s.xs()
    for x in rest:
        total = s.call(op, *same_types(s, total, x))
    return total if rest else s.call("identity", total)


def same_types(s: Site, a: Value, b: Value) -> tuple[Value, Value]:
    """Both operands, which ONNX wants to have one type."""
    if a.dtype is not b.dtype:
        raise InvalidModelError(f"{s.span}: operands are {a.dtype} and {b.dtype}")
    return a, b


def lower_mean(s: Site) -> Value:
    """Mean of several tensors."""
    total = _folded(s, "add")
    return s.call("div", total, s.scalar(len(s.items), total.dtype))


def lower_div(s: Site) -> Value:
    """Integers divide towards zero."""
    a, b = same_types(s, s.x(0), s.x(1))
    return s.call("div" if a.dtype.is_float else "truncdiv", a, b)


def lower_mod(s: Site) -> Value:
    """`fmod` takes the sign of the dividend, else of the divisor."""
    a, b = same_types(s, s.x(0), s.x(1))
    return s.call("truncmod" if s.int_attr("fmod", 0) else "floormod", a, b)


def lower_pow(s: Site) -> Value:
    """The result has the base's type; a float exponent of an integer base is computed in f64."""
    base, exponent = s.x(0), s.x(1)
    if base.dtype.is_int and exponent.dtype.is_float:
        power = s.call("pow", s.cast(base, f64), s.cast(exponent, f64))
        return s.cast(power, base.dtype)
    return s.call("pow", base, s.cast(exponent, base.dtype))


def lower_bit_shift(s: Site) -> Value:
    """Shifts by the width or more leave only sign bits."""
    x, count = same_types(s, s.x(0), s.x(1))
    direction = s.str_attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise InvalidModelError(f"{s.span}: direction {direction!r}")
    known = s.item(1).known
    bits = x.dtype.bits
    shift = "shl" if direction == "LEFT" else "shr"
    if is_numeric(known) and bool(np.all((known >= 0) & (known < bits))):
        return s.call(shift, x, count)
    last = s.scalar(bits - 1, x.dtype)
    zero = s.scalar(0, x.dtype)
    inside = s.call("le", count, last)
    if x.dtype.is_signed:
        inside = s.call("and", inside, s.call("ge", count, zero))
    shifted = s.call(shift, x, s.call("where", inside, count, zero))
    fill = s.call("shr", x, last) if x.dtype.is_signed and shift == "shr" else zero
    return s.call("where", inside, shifted, fill)


def lower_relu(s: Site) -> Value:
    """Integers too."""
    x = s.x()
    if x.dtype.is_float:
        return s.call("relu", x)
    return s.call("max", x, s.scalar(0, x.dtype))


def lower_clip(s: Site) -> Value | Item:
    """Bounds are operands since opset 11."""
    x = s.x()
    if s.opset < 11:
        low = s.scalar(s.float_attr("min"), x.dtype) if s.has_attr("min") else None
        high = s.scalar(s.float_attr("max"), x.dtype) if s.has_attr("max") else None
    else:
        low, high = (s.opt(k) for k in (1, 2))
        low, high = (None if b is None else s.reshape(b, ()) for b in (low, high))
    if low is None and high is None:
        return s.item(0)
    return s.call("clamp", x, low, high)


def lower_where(s: Site) -> Value:
    """cond ? x : y."""
    return s.call("where", s.x(0), *same_types(s, s.x(1), s.x(2)))


def lower_cast(s: Site) -> Value | Item:
    """To the type that the attribute names."""
    return _cast(s, s.x(), dtype_of(s.int_attr("to"), "the result"))


def lower_cast_like(s: Site) -> Value | Item:
    """To the type of the other operand."""
    if s.item(1).small:
        raise s.unsupported("casts to integers of less than a byte and to small floats")
    return _cast(s, s.x(), s.item(1).dtype)


def lower_bitcast(s: Site) -> Value:
    """The same bits as another type of the same width."""
    x, to = s.x(), dtype_of(s.int_attr("to"), "the result")
    if boolean in (x.dtype, to) and x.dtype.bytes == to.bytes == 1:
        byte = s.cast(x, u8) if x.dtype is boolean else s.call("bitcast", x, to=u8)
        return s.cast(byte, boolean) if to is boolean else s.call("bitcast", byte, to=to)
    if to.bytes != x.dtype.bytes:
        raise InvalidModelError(f"{s.span}: {x.dtype} and {to} differ in width")
    return s.call("bitcast", x, to=to)


def _cast(s: Site, x: Value, to: DType) -> Value | Item:
    return s.item(0) if x.dtype is to else s.cast(x, to)


def lower_isinf(s: Site) -> Value:
    """Positive, negative or both infinities."""
    x = s.x()
    positive, negative = s.int_attr("detect_positive", 1), s.int_attr("detect_negative", 1)
    if positive and negative:
        return s.call("isinf", x)
    if not positive and not negative:
        return s.full(x.shape, False, boolean)
    bound = s.scalar(float("inf") if positive else float("-inf"), x.dtype)
    return s.call("eq", x, bound)


def lower_gelu(s: Site) -> Value:
    """Exact, or by tanh."""
    return s.call("gelu", s.x(), approximate=s.str_attr("approximate", "none"))


def lower_swish(s: Site) -> Value:
    """x * sigmoid(alpha * x)."""
    x = s.x()
    alpha = s.float_attr("alpha", 1.0)
    if alpha == 1.0:
        return s.call("silu", x)
    scaled = s.call("mul", x, s.scalar(alpha, x.dtype))
    return s.call("mul", x, s.call("sigmoid", scaled))


def lower_shrink(s: Site) -> Value:
    """Towards zero by `bias` outside of [-lambd, lambd], zero inside."""
    x = s.x()
    lambd, bias = s.float_attr("lambd", 0.5), s.float_attr("bias", 0.0)
    if x.dtype.is_float:
        return s.call("shrink", x, lambd=lambd, bias=bias)
    wide = s.call("shrink", s.cast(x, f32), lambd=lambd, bias=bias)
    return s.cast(wide, x.dtype)


def lower_identity(s: Site) -> Item:
    """The operand itself."""
    return s.item(0)


def lower_dropout(s: Site) -> tuple[Value | Item, ...]:
    """Inference: the operand, and a mask that keeps everything."""
    training = s.opset >= 12 and s.has(2) and bool(s.const(2, "training mode").any())
    if training and (not s.has(1) or s.const(1, "ratio").any()):
        raise s.unsupported("training mode is not supported")
    x = s.item(0)
    mask = boolean if s.opset >= 10 else x.dtype
    return (x, s.full(x.shape, True, mask)) if 1 in s.used else (x,)


def lower_einsum(s: Site) -> Value:
    """By its equation."""
    equation = s.str_attr("equation").replace(" ", "")
    return s.call("einsum", s.xs(), equation=equation)


def lower_cumulative(op: str) -> Callable[[Site], Value]:
    """CumSum and CumProd: the axis is an operand."""

    def lower(s: Site) -> Value:
        x = s.x()
        (axis,) = s.numbers(1, "axis")
        return s.call(
                op, x, axis=s.positive_axis(axis, len(x.shape)),
                exclusive=bool(s.int_attr("exclusive", 0)),
                reverse=bool(s.int_attr("reverse", 0)),
            )  # fmt: skip

    return lower


def lower_det(s: Site) -> Value:
    """The product of the pivots, as torch's `det`."""
    x = s.x()
    if len(x.shape) < 2:
        raise InvalidModelError(f"{s.span}: no square matrices: {x.shape}")
    wide = s.cast(x, f32) if x.dtype in (f16, bf16) else x
    nothing = s.full((*x.shape[:-1], 0), 0.0, wide.dtype)
    _, pivots = s.call_many("solve", wide, nothing)
    return s.cast(s.call("prod", pivots, axes=(len(x.shape) - 2,), keepdims=False), x.dtype)


MATH: Final[Mapping[str, Lowering]] = {
    **{name: _unary(op) for name, op in _UNARY.items()},
    **{name: _binary(op) for name, op in _BINARY.items()},
    **{name: _with_floats(op, attrs) for name, (op, attrs) in _WITH_FLOATS.items()},
    "BitCast": lower_bitcast,
    "BitShift": lower_bit_shift,
    "Cast": lower_cast,
    "CastLike": lower_cast_like,
    "Clip": lower_clip,
    "CumProd": lower_cumulative("cumprod"),
    "CumSum": lower_cumulative("cumsum"),
    "Det": lower_det,
    "Div": lower_div,
    "Dropout": lower_dropout,
    "Einsum": lower_einsum,
    "Gelu": lower_gelu,
    "Identity": lower_identity,
    "IsInf": lower_isinf,
    "Max": _fold_left("max"),
    "Mean": lower_mean,
    "Min": _fold_left("min"),
    "Mod": lower_mod,
    "Pow": lower_pow,
    "Relu": lower_relu,
    "Shrink": lower_shrink,
    "Sum": _fold_left("add"),
    "Swish": lower_swish,
    "Where": lower_where,
}
