"""Quantisation written in a graph: what torchao's `convert_pt2e` leaves, and fake quantisation.

    quantized_decomposed.quantize_per_tensor      clamp(round(x * (1 / scale)) + zero, least, most)
    quantized_decomposed.dequantize_per_tensor    (x - zero) * scale

Scales and zero points are numbers, tensors of one element, or have one for each place on an axis.
Those of tokens and groups are torch's own definitions (`decompose`).
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.base.dtypes import f32, f64, i64
from pliant.frontend.torch.context import Context, Table, axis_of, dtype_of
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def quantize(
    ctx: Context, x: Value, scale: Any, zero: Any, least: Any, most: Any, dtype: torch.dtype,
) -> Any:  # fmt: skip
    return ctx.cast(_places(ctx, x, scale, zero, least, most), dtype_of(dtype, x.dtype))


def quantize_along(
    ctx: Context, x: Value, scale: Value, zero: Value, axis: int, least: int, most: int,
    dtype: torch.dtype,
) -> Any:  # fmt: skip
    scale, zero = (_along(ctx, t, axis, x) for t in (scale, zero))
    return quantize(ctx, x, scale, zero, least, most, dtype)


def dequantize(
    ctx: Context, x: Value, scale: Any, zero: Any, least: Any, most: Any, dtype: torch.dtype, *,
    out_dtype: torch.dtype | None = None,
) -> Any:  # fmt: skip
    return ctx.cast(_numbers(ctx, x, scale, zero), dtype_of(out_dtype, f32))


def dequantize_along(
    ctx: Context, x: Value, scale: Value, zero: Value | None, axis: int, least: int, most: int,
    dtype: torch.dtype, *, out_dtype: torch.dtype | None = None,
) -> Any:  # fmt: skip
    scale = _along(ctx, scale, axis, x)
    places = 0 if zero is None else _along(ctx, zero, axis, x)
    return dequantize(ctx, x, scale, places, least, most, dtype, out_dtype=out_dtype)


def choose(
    ctx: Context, x: Value, least: int, most: int, eps: float, dtype: torch.dtype
) -> tuple[Any, Any]:
    """Scale and zero point for the range of x, widened to hold 0."""
    low, high = _range(ctx, x)
    scale = _scale(ctx, ctx.call("sub", high, low), most - least, eps)
    places = ctx.cast(ctx.call("round", ctx.call("div", low, scale)), i64)
    zero = ctx.call("sub", ctx.scalar(least, i64), places)
    zero = ctx.call("clamp", zero, ctx.scalar(least, i64), ctx.scalar(most, i64))
    return _alone(ctx, ctx.cast(scale, f64)), _alone(ctx, zero)


def choose_symmetric(
    ctx: Context, x: Value, least: int, most: int, eps: float, dtype: torch.dtype
) -> tuple[Any, Any]:
    """The same where 0 is in the middle."""
    low, high = _range(ctx, x)
    reach = ctx.call("clamp", ctx.call("neg", low), high)
    scale = _scale(ctx, reach, (most - least) / 2, eps)
    zero = ctx.scalar(128 if dtype is torch.uint8 else 0, i64)
    return _alone(ctx, ctx.cast(scale, f64)), _alone(ctx, zero)


def _range(ctx: Context, x: Value) -> tuple[Value, Value]:
    """The least and the greatest of the elements and 0."""
    value, axes, zero = ctx.cast(x, f32), tuple(range(len(x.shape))), ctx.scalar(0.0, f32)
    low = ctx.call("min", value, axes=axes, keepdims=False)
    high = ctx.call("max", value, axes=axes, keepdims=False)
    return ctx.call("clamp", low, None, zero), ctx.call("clamp", high, zero)


def _scale(ctx: Context, width: Value, steps: float, eps: float) -> Any:
    each = ctx.call("div", width, ctx.scalar(float(steps), f32))
    return ctx.call("clamp", each, ctx.scalar(eps, f32))


def _alone(ctx: Context, number: Value) -> Any:
    return ctx.call("expand", number, shape=(as_int(1),))


def convert(ctx: Context, x: Value, dtype: torch.dtype) -> Any:
    return ctx.cast(x, dtype_of(dtype, x.dtype))


def fake_quantize(ctx: Context, x: Value, scale: Any, zero: Any, least: int, most: int) -> Any:
    places = _places(ctx, x, scale, zero, least, most)
    return ctx.cast(_numbers(ctx, places, scale, zero), x.dtype)


def fake_quantize_along(
    ctx: Context, x: Value, scale: Value, zero: Value, axis: int, least: int, most: int
) -> Any:
    scale, zero = (_along(ctx, t, axis, x) for t in (scale, zero))
    return fake_quantize(ctx, x, scale, zero, least, most)


def _places(ctx: Context, x: Value, scale: Any, zero: Any, least: Any, most: Any) -> Value:
    """The whole numbers, in f32. Torch multiplies by the reciprocal, which decides ties."""
    value, by, offset, *ends = (ctx.tensor(t, f32) for t in (x, scale, zero, least, most))
    whole = ctx.call("round", ctx.call("mul", value, ctx.call("div", ctx.scalar(1.0, f32), by)))
    return ctx.call("clamp", ctx.call("add", whole, offset), *ends)  # type: ignore[no-any-return]


def _numbers(ctx: Context, places: Value, scale: Any, zero: Any) -> Value:
    """What the whole numbers stand for, in f32. A zero point may be a fraction, or lie outside of
    their type."""
    whole, by, offset = (ctx.tensor(t, f32) for t in (places, scale, zero))
    return ctx.call("mul", ctx.call("sub", whole, offset), by)  # type: ignore[no-any-return]


def _along(ctx: Context, t: Value, axis: int, x: Value) -> Value:
    """One element for each place on an axis, to broadcast."""
    axis = axis_of(axis, len(x.shape))
    shape = tuple(size if k == axis else as_int(1) for k, size in enumerate(x.shape))
    return ctx.call("reshape", t, shape=shape)  # type: ignore[no-any-return]


QUANTIZED: Final[Table] = {
    **{f"quantized_decomposed.quantize_per_tensor.{k}": quantize
       for k in ("default", "tensor", "tensor2")},
    **{f"quantized_decomposed.dequantize_per_tensor.{k}": dequantize
       for k in ("default", "tensor", "tensor2")},
    "quantized_decomposed.quantize_per_channel.default": quantize_along,
    "quantized_decomposed.dequantize_per_channel.default": dequantize_along,
    "quantized_decomposed.choose_qparams.tensor": choose,
    "quantized_decomposed.choose_qparams_symmetric.tensor": choose_symmetric,
    "quantized_decomposed.convert_element_type.no_fuse": convert,
    "aten.fake_quantize_per_tensor_affine.default": fake_quantize,
    "aten.fake_quantize_per_tensor_affine.tensor_qparams": fake_quantize,
    "aten.fake_quantize_per_channel_affine.default": fake_quantize_along,
}  # fmt: skip
