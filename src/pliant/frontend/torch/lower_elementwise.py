"""Elementwise ATen operators: arithmetic, comparisons, logic, activations, casts."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch

from pliant.base.dtypes import DType, boolean
from pliant.frontend.torch.as_vectors import as_vectors
from pliant.frontend.torch.context import Context, Lowering, Table, dtype_of
from pliant.frontend.torch.in_f32 import all_in_f32
from pliant.frontend.torch.promote import common_type, floating, from_torch, in_sums
from pliant.graph.function import Value


def same(op: str) -> Lowering:
    """A function that keeps the type."""
    return lambda ctx, x: ctx.call(op, x)


def float_unary(op: str) -> Lowering:
    """A float function; integers and booleans are converted first."""
    return lambda ctx, x: ctx.call(op, ctx.cast(x, floating(x.dtype)))


def rounding(op: str) -> Lowering:
    """floor, ceil, trunc, round: nothing to do for integers."""
    return lambda ctx, x, **_: ctx.call(op, x) if x.dtype.is_float else x


def binary(op: str) -> Lowering:
    """A function of two operands in their common type."""
    return lambda ctx, a, b: ctx.call(op, *ctx.promoted(a, b))


def bitwise(op: str) -> Lowering:
    return lambda ctx, a, b: ctx.call(op, *ctx.promoted(a, b))


def shift(op: str) -> Lowering:
    """Counts that are negative, or not below the width, leave nothing but the sign."""

    def lower(ctx: Context, a: Any, b: Any) -> Any:
        x, by = ctx.promoted(a, b)
        if isinstance(b, int) and 0 <= b < x.dtype.bits:
            return ctx.call(op, x, by)
        zero, last = ctx.scalar(0, x.dtype), ctx.scalar(x.dtype.bits - 1, x.dtype)
        beyond = ctx.call("or", ctx.call("lt", by, zero), ctx.call("gt", by, last))
        if op == "shl" or not x.dtype.is_signed:
            return ctx.call("where", beyond, zero, ctx.call(op, x, by))
        return ctx.call(op, x, ctx.call("where", beyond, last, by))

    return lower


def logical(op: str) -> Lowering:
    return lambda ctx, a, b: ctx.call(op, ctx.truth(a), ctx.truth(b))


def scaled(op: str) -> Lowering:
    """add, sub: the second operand is multiplied by `alpha`."""

    def lower(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
        dtype = common_type((a, b))
        left, right = ctx.tensor(a, dtype), ctx.tensor(b, dtype)
        if dtype is boolean:  # True + True is True
            op_ = "or" if op == "add" else "xor"
            return ctx.call(op_, left, right)  # type: ignore[no-any-return]
        if alpha == 1:
            return ctx.call(op, left, right)  # type: ignore[no-any-return]
        left, right, factor = (
            ctx.cast(v, in_sums(dtype)) for v in (left, right, ctx.tensor(alpha, dtype))
        )
        return ctx.cast(ctx.call(op, left, ctx.call("mul", right, factor)), dtype)

    return lower


def reverse_sub(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> Any:
    return scaled("sub")(ctx, b, a, alpha)


def multiply(ctx: Context, a: Any, b: Any) -> Any:
    dtype = common_type((a, b))
    op, wide = "and" if dtype is boolean else "mul", with_numbers(dtype, a, b)
    return ctx.cast(ctx.call(op, ctx.tensor(a, wide), ctx.tensor(b, wide)), dtype)


def divide(ctx: Context, a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    dtype = common_type((a, b))
    if rounding_mode is None:
        dtype = floating(dtype)
    op = {"floor": "floordiv", "trunc": "truncdiv", None: "div"}[rounding_mode]
    wide = with_numbers(dtype, b)
    return ctx.cast(ctx.call(op, ctx.tensor(a, wide), ctx.tensor(b, wide)), dtype)


def with_numbers(dtype: DType, *operands: Any) -> DType:
    """The type of products and quotients whose result is of type `dtype`: torch rounds a number,
    or a tensor without dimensions, to f32 and not to 16 bits."""
    return in_sums(dtype) if any(_is_rounded(x, dtype) for x in operands) else dtype


def _is_rounded(x: Any, dtype: DType) -> bool:
    """Whether a number would be another one in that type."""
    if isinstance(x, Value):
        return not x.shape and x.dtype is not dtype
    if not isinstance(x, int | float):
        return True
    with np.errstate(all="ignore"):
        return float(np.asarray(x).astype(dtype.numpy)) != float(x)


_POWERS: Final = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


def power(ctx: Context, a: Any, b: Any) -> Any:
    dtype = common_type((a, b))
    base = ctx.tensor(a, dtype)
    if not isinstance(b, Value) and isinstance(b, int | float):
        name = _POWERS.get(b)
        if name is not None and dtype.is_float:
            return ctx.call(name, base)
        if dtype.is_int and b < 0:
            raise ctx.unsupported("integers to negative powers are not allowed")
    return ctx.call("pow", base, ctx.tensor(b, dtype))


def clamp(ctx: Context, x: Value, low: Any = None, high: Any = None) -> Any:
    dtype = common_type((x, low, high))
    value = ctx.cast(x, dtype)
    ends = [None if e is None else ctx.tensor(e, dtype) for e in (low, high)]
    if all(e is None or not e.shape for e in ends):
        return ctx.call("clamp", value, *ends)
    value = value if ends[0] is None else ctx.call("max", value, ends[0])
    return value if ends[1] is None else ctx.call("min", value, ends[1])


def where(ctx: Context, cond: Value, a: Any, b: Any) -> Any:
    return ctx.call("where", ctx.truth(cond), *ctx.promoted(a, b))


def masked_fill(ctx: Context, x: Value, mask: Value, value: Any) -> Any:
    if len(mask.shape) > len(x.shape):
        return ctx.call("where", mask, ctx.tensor(value, x.dtype), x)
    return ctx.call("masked_fill", x, mask, ctx.tensor(value, x.dtype))


def logical_not(ctx: Context, x: Value) -> Any:
    return ctx.call("not", ctx.truth(x))


def is_nan(ctx: Context, x: Value) -> Any:
    return ctx.call("isnan", x) if x.dtype.is_float else _false(ctx, x)


def is_inf(ctx: Context, x: Value) -> Any:
    return ctx.call("isinf", x) if x.dtype.is_float else _false(ctx, x)


def is_finite(ctx: Context, x: Value) -> Any:
    if not x.dtype.is_float:
        return ctx.call("not", _false(ctx, x))
    return ctx.call("not", ctx.call("or", ctx.call("isnan", x), ctx.call("isinf", x)))


def _false(ctx: Context, x: Value) -> Any:
    return ctx.call("ne", x, x)


def angle(ctx: Context, x: Value) -> Any:
    """Of real numbers: pi where they are negative."""
    dtype = floating(x.dtype)
    y = ctx.cast(x, dtype)
    turned = ctx.call("lt", y, ctx.scalar(0, dtype))
    found = ctx.call("where", turned, ctx.scalar(math.pi, dtype), ctx.scalar(0, dtype))
    return ctx.call("where", ctx.call("isnan", y), y, found)


def nan_to_num(
    ctx: Context, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Any:
    if not x.dtype.is_float:
        return x
    info = torch.finfo(ctx.meta().dtype)
    inf, low = ctx.scalar(math.inf, x.dtype), ctx.scalar(-math.inf, x.dtype)
    top = ctx.scalar(info.max if posinf is None else posinf, x.dtype)
    bottom = ctx.scalar(info.min if neginf is None else neginf, x.dtype)
    y = ctx.call("where", ctx.call("isnan", x), ctx.scalar(nan or 0.0, x.dtype), x)
    y = ctx.call("where", ctx.call("eq", x, inf), top, y)
    return ctx.call("where", ctx.call("eq", x, low), bottom, y)


def gelu(ctx: Context, x: Value, approximate: str = "none") -> Any:
    return ctx.call("gelu", x, approximate=approximate)


def elu(ctx: Context, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    alpha, scale = float(alpha), float(scale)
    if input_scale != 1:
        raise ctx.unsupported("elu with input_scale")
    if scale != 1:
        return ctx.call("selu", x, alpha=alpha, gamma=scale)
    return ctx.call("elu", x, alpha=alpha)


def selu(ctx: Context, x: Value) -> Any:
    return ctx.call("selu", x, alpha=1.6732632423543772, gamma=1.0507009873554805)


def hardtanh(ctx: Context, x: Value, low: Any = -1, high: Any = 1) -> Any:
    return ctx.call("clamp", x, ctx.scalar(low, x.dtype), ctx.scalar(high, x.dtype))


def threshold(ctx: Context, x: Value, limit: Any, value: Any) -> Any:
    below = ctx.call("le", x, ctx.scalar(limit, x.dtype))  # NaN is not
    return ctx.call("where", below, ctx.scalar(value, x.dtype), x)


def prelu(ctx: Context, x: Value, slope: Value) -> Any:
    if len(slope.shape) == 1 and len(x.shape) > 1:
        shape = (1, slope.shape[0], *([1] * (len(x.shape) - 2)))
        slope = ctx.call("reshape", slope, shape=shape)
    return ctx.call("prelu", x, ctx.cast(slope, x.dtype))


def glu(ctx: Context, x: Value, dim: int = -1) -> Any:
    axis = dim % len(x.shape)
    half = x.shape[axis] // 2
    a, b = ctx.call("split", x, sizes=(half, half), axis=axis)
    return ctx.call("mul", a, ctx.call("sigmoid", b))


def log_sigmoid(ctx: Context, x: Value) -> Any:
    low = ctx.call("min", x, ctx.scalar(0, x.dtype))  # min(x, 0) - log1p(exp(-|x|))
    tail = ctx.call("log1p", ctx.call("exp", ctx.call("neg", ctx.call("abs", x))))
    return ctx.call("sub", low, tail)


def addc(op: str) -> Lowering:
    """addcmul, addcdiv: x + value * (a op b)."""

    def lower(ctx: Context, x: Value, a: Value, b: Value, value: Any = 1) -> Any:
        base, left, right = ctx.promoted(x, a, b)
        term = ctx.call(op, left, right)
        if value != 1:
            term = ctx.call("mul", term, ctx.tensor(value, term.dtype))
        return ctx.call("add", base, term)

    return lower


def lerp(ctx: Context, a: Value, b: Value, weight: Any) -> Any:
    """a + w (b - a), computed from the nearer end as torch does."""
    w = ctx.tensor(weight, a.dtype)
    step, one = ctx.call("sub", b, a), ctx.scalar(1, a.dtype)
    if not isinstance(weight, Value):
        if abs(weight) < 0.5:
            return ctx.call("add", a, ctx.call("mul", w, step))
        return ctx.call("sub", b, ctx.call("mul", step, ctx.call("sub", one, w)))
    near = ctx.call("add", a, ctx.call("mul", w, step))
    far = ctx.call("sub", b, ctx.call("mul", step, ctx.call("sub", one, w)))
    low = ctx.call("lt", ctx.call("abs", w), ctx.scalar(0.5, a.dtype))
    return ctx.call("where", low, near, far)


def identity(ctx: Context, x: Value, *_: Any, **__: Any) -> Any:
    return x


def dropout(ctx: Context, x: Value, p: float = 0.5, train: Any = False, *_: Any) -> Any:
    if train and p:
        raise ctx.unsupported("dropout in training mode; call model.eval() before exporting")
    return x


def to_dtype(ctx: Context, x: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    if dtype is not None and isinstance(x, int | float):  # a number, as vmap writes it
        return ctx.tensor(x, from_torch(dtype))
    return convert(ctx, x, dtype_of(dtype, x.dtype))


def to_device(ctx: Context, x: Value, device: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    return convert(ctx, x, dtype_of(dtype, x.dtype))


def to_other(ctx: Context, x: Value, other: Value, *_: Any, **__: Any) -> Any:
    return convert(ctx, x, other.dtype)


def convert(ctx: Context, x: Value, dtype: Any) -> Any:
    """A value conversion; to bool it is `x != 0`."""
    return ctx.truth(x) if dtype is boolean else ctx.cast(x, dtype)


def view_dtype(ctx: Context, x: Value, dtype: torch.dtype) -> Any:
    to = from_torch(dtype)
    if to.bytes != x.dtype.bytes:
        raise ctx.unsupported("a view as a type of another width")
    return x if to is x.dtype else ctx.call("bitcast", x, to=to)


def copy(ctx: Context, x: Value, source: Value, *_: Any) -> Any:
    """The values of `source` with the type and shape of `x`."""
    source = convert(ctx, source, x.dtype)
    return source if source.shape == x.shape else ctx.call("expand", source, shape=x.shape)


def fill(ctx: Context, x: Value, value: Any) -> Any:
    return ctx.call("expand", ctx.tensor(value, x.dtype), shape=x.shape)


def fill_zero(ctx: Context, x: Value) -> Any:
    return fill(ctx, x, 0)


def signbit(ctx: Context, x: Value) -> Any:
    zero = ctx.scalar(0, x.dtype)
    below = ctx.call("lt", x, zero)
    if not x.dtype.is_float:
        return below
    return ctx.call("or", below, ctx.call("lt", ctx.call("reciprocal", x), zero))  # -0.0


def copysign(ctx: Context, a: Any, b: Any) -> Any:
    dtype = floating(common_type((a, b)))
    size, sign = ctx.call("abs", ctx.tensor(a, dtype)), ctx.tensor(b, dtype)
    return ctx.call("where", signbit(ctx, sign), ctx.call("neg", size), size)


def round_decimals(ctx: Context, x: Value, decimals: int) -> Any:
    factor = ctx.scalar(10.0 ** abs(decimals), x.dtype)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return ctx.call(back, ctx.call("round", ctx.call(there, x, factor)), factor)


def softplus(ctx: Context, x: Value, beta: Any = 1, threshold: Any = 20) -> Any:
    return ctx.call("softplus", x, beta=float(beta), threshold=float(threshold))


def leaky_relu(ctx: Context, x: Value, slope: float = 0.01) -> Any:
    return ctx.call("leaky_relu", x, alpha=float(slope))


def rrelu(
    ctx: Context, x: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Any:
    """With the mean of its random slopes, which they have outside of training."""
    if training:
        raise ctx.unsupported("rrelu in training draws random slopes; call .eval() first")
    return leaky_relu(ctx, x, (lower + upper) / 2)


def sign(ctx: Context, x: Value) -> Any:
    if x.dtype is boolean:
        return x
    found = ctx.call("sign", x)
    if x.dtype.is_float:  # torch gives 0 for NaN, NumPy and ONNX give NaN
        return ctx.call("where", ctx.call("isnan", x), ctx.scalar(0, x.dtype), found)
    return found


def hypot(ctx: Context, a: Value, b: Value) -> Any:
    """By the quotient of the lesser and the greater, whose square overflows nowhere."""
    left, right = (ctx.call("abs", x) for x in ctx.promoted(a, b))
    most, least = ctx.call("max", left, right), ctx.call("min", left, right)
    ratio = ctx.call("div", least, most)
    one = ctx.scalar(1, most.dtype)
    root = ctx.call("sqrt", ctx.call("add", one, ctx.call("square", ratio)))
    plain = ctx.call("eq", most, ctx.scalar(0, most.dtype))
    for x in (left, right):  # infinite, whatever the other is
        endless = ctx.call("isinf", x)
        plain = ctx.call("or", plain, endless)
        most = ctx.call("where", endless, x, most)
    return ctx.call("where", plain, most, ctx.call("mul", most, root))


def logit(ctx: Context, x: Value, eps: float | None = None) -> Any:
    x = ctx.cast(x, floating(x.dtype))
    if eps is not None:
        x = ctx.call("clamp", x, ctx.scalar(eps, x.dtype), ctx.scalar(1 - eps, x.dtype))
    return ctx.call("log", ctx.call("div", x, ctx.call("sub", ctx.scalar(1, x.dtype), x)))


def float_binary(op: str) -> Lowering:
    """atan2 and the like: in the common float type."""

    def lower(ctx: Context, a: Any, b: Any) -> Any:
        dtype = floating(common_type((a, b)))
        return ctx.call(op, ctx.tensor(a, dtype), ctx.tensor(b, dtype))

    return lower


def hardshrink(ctx: Context, x: Value, lambd: Any = 0.5) -> Any:
    return _shrunk(ctx, x, float(lambd), 0.0)


def softshrink(ctx: Context, x: Value, lambd: Any = 0.5) -> Any:
    return _shrunk(ctx, x, float(lambd), float(lambd))


def _shrunk(ctx: Context, x: Value, lambd: float, bias: float) -> Any:
    """ONNX's Shrink makes 0 of NaN, torch keeps it."""
    return ctx.call("where", ctx.call("isnan", x), x, ctx.call("shrink", x, lambd=lambd, bias=bias))


def celu(ctx: Context, x: Value, alpha: Any = 1.0) -> Any:
    return ctx.call("celu", x, alpha=float(alpha))


_FLOAT_UNARY: Final = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p tanh sigmoid erf erfc sin cos tan asin acos"
    " atan sinh cosh asinh acosh atanh reciprocal"
)
_COMPARE: Final = "eq ne lt le gt ge"


def _unary_rows() -> dict[str, Lowering]:
    rows: dict[str, Lowering] = {
        f"aten.{op}.default": float_unary(op) for op in _FLOAT_UNARY.split()
    }
    rows["aten.special_expit.default"] = float_unary("sigmoid")
    for op in ("erf", "erfc"):
        rows[f"aten.special_{op}.default"] = float_unary(op)
    for op in ("neg", "abs", "relu", "silu", "mish", "hardswish", "square"):
        rows[f"aten.{op}.default"] = same(op)
    for op in ("floor", "ceil", "trunc", "round"):
        rows[f"aten.{op}.default"] = rounding(op)
    rows["aten.fix.default"] = rounding("trunc")
    rows["aten.bitwise_not.default"] = same("not")
    return rows


def _binary_rows() -> dict[str, Lowering]:
    rows: dict[str, Lowering] = {}
    for op in _COMPARE.split():
        for overload in ("Tensor", "Scalar"):
            rows[f"aten.{op}.{overload}"] = binary(op)
    for name, op in (("maximum", "max"), ("minimum", "min"), ("fmax", "fmax"), ("fmin", "fmin")):
        rows[f"aten.{name}.default"] = binary(op)
    rows["aten.max.other"] = binary("max")
    rows["aten.min.other"] = binary("min")
    for name in ("and", "or", "xor"):
        for overload in ("Tensor", "Scalar"):
            rows[f"aten.bitwise_{name}.{overload}"] = bitwise(name)
            rows[f"aten.__{name}__.{overload}"] = bitwise(name)
        rows[f"aten.logical_{name}.default"] = logical(name)
    for name, op in (("left_shift", "shl"), ("right_shift", "shr")):
        rows[f"aten.bitwise_{name}.Tensor"] = shift(op)
        rows[f"aten.bitwise_{name}.Tensor_Scalar"] = shift(op)
    for dunder, op in (("__lshift__", "shl"), ("__rshift__", "shr")):
        for overload in ("Tensor", "Scalar"):
            rows[f"aten.{dunder}.{overload}"] = shift(op)
    for overload in ("Tensor", "Scalar"):
        rows |= {
            f"aten.add.{overload}": scaled("add"),
            f"aten.sub.{overload}": scaled("sub"),
            f"aten.rsub.{overload}": reverse_sub,
            f"aten.mul.{overload}": multiply,
            f"aten.div.{overload}": divide,
            f"aten.div.{overload}_mode": divide,
            f"aten.true_divide.{overload}": divide,
            f"aten.remainder.{overload}": binary("floormod"),
            f"aten.fmod.{overload}": binary("truncmod"),
        }
    rows["aten.remainder.Scalar_Tensor"] = binary("floormod")
    for overload in ("Tensor_Tensor", "Tensor_Scalar", "Scalar"):
        rows[f"aten.pow.{overload}"] = power
    return rows


def _cast_rows() -> dict[str, Lowering]:
    rows: dict[str, Lowering] = {
        "aten.to.dtype": to_dtype,
        "aten.to.dtype_layout": to_dtype,
        "aten._to_copy.default": to_dtype,
        "aten.to.device": to_device,
        "aten.to.other": to_other,
        "aten.type_as.default": to_other,
        "aten.view.dtype": view_dtype,
        "aten.copy.default": copy,
        "aten.fill.Scalar": fill,
        "aten.fill.Tensor": fill,
        "aten.zero.default": fill_zero,
    }
    for name in (
        "lift_fresh_copy lift_fresh detach detach_ clone contiguous alias positive"
        " resolve_conj resolve_neg requires_grad_ real conj cpu"
    ).split():
        rows[f"aten.{name}.default"] = identity
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        rows[f"aten.{name}.default"] = dropout
    return rows


_COMPOSED: Final[Table] = {
    "aten.round.decimals": round_decimals,
    "aten.hypot.default": hypot,
    "aten.glu.default": glu,
    "aten.log_sigmoid.default": log_sigmoid,
    "aten.addcmul.default": addc("mul"),
    "aten.addcdiv.default": addc("div"),
    "aten.lerp.Scalar": lerp,
    "aten.lerp.Tensor": lerp,
}

ELEMENTWISE: Final[Table] = {
    **_unary_rows(),
    **_binary_rows(),
    **_cast_rows(),
    "aten.floor_divide.default": lambda ctx, a, b: divide(ctx, a, b, "floor"),
    "aten.floor_divide.Scalar": lambda ctx, a, b: divide(ctx, a, b, "floor"),
    "aten.sign.default": sign,
    "aten.sgn.default": sign,
    "aten.signbit.default": signbit,
    "aten.copysign.Tensor": copysign,
    "aten.copysign.Scalar": copysign,
    "aten.atan2.default": float_binary("atan2"),
    "aten.arctan2.default": float_binary("atan2"),
    "aten.clamp.default": clamp,
    "aten.clamp.Tensor": clamp,
    "aten.clip.default": clamp,
    "aten.clip.Tensor": clamp,
    "aten.clamp_min.default": lambda ctx, x, low: clamp(ctx, x, low),
    "aten.clamp_min.Tensor": lambda ctx, x, low: clamp(ctx, x, low),
    "aten.clamp_max.default": lambda ctx, x, high: clamp(ctx, x, None, high),
    "aten.clamp_max.Tensor": lambda ctx, x, high: clamp(ctx, x, None, high),
    "aten.where.self": where,
    "aten.where.ScalarSelf": where,
    "aten.where.ScalarOther": where,
    "aten.where.Scalar": where,
    "aten.masked_fill.Scalar": masked_fill,
    "aten.masked_fill.Tensor": masked_fill,
    "aten.logical_not.default": logical_not,
    "aten.isnan.default": is_nan,
    "aten.isinf.default": is_inf,
    "aten.isfinite.default": is_finite,
    "aten.nan_to_num.default": nan_to_num,
    "aten.angle.default": angle,
    "aten.gelu.default": gelu,
    "aten.elu.default": elu,
    "aten.selu.default": selu,
    "aten.celu.default": celu,
    "aten.relu6.default": lambda ctx, x: hardtanh(ctx, x, 0, 6),
    "aten.hardtanh.default": hardtanh,
    "aten.hardsigmoid.default": lambda ctx, x: ctx.call("hardsigmoid", x, alpha=1 / 6, beta=0.5),
    "aten.leaky_relu.default": leaky_relu,
    "aten.rrelu.default": rrelu,
    "aten.prelu.default": as_vectors(prelu),
    "aten._prelu_kernel.default": lambda ctx, x, slope: ctx.call("prelu", x, slope),
    "aten.softplus.default": softplus,
    "aten.threshold.default": threshold,
    "aten.logit.default": logit,
    "aten.special_logit.default": logit,
    "aten.hardshrink.default": hardshrink,
    "aten.softshrink.default": softshrink,
    **all_in_f32(_COMPOSED),
}
