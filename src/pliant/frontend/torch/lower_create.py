"""ATen operators that make tensors out of sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.base.dtypes import DType, f64, i64
from pliant.frontend.torch.context import Context, Table, constant, size_of
from pliant.frontend.torch.symbols import SizeNumber
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, ceildiv, maximum


def filled(ctx: Context, shape: Sequence[Any], value: Any, dtype: DType) -> Any:
    """A tensor of one number; of a size or a rank-0 tensor by broadcasting it."""
    sizes = tuple(size_of(d) for d in shape)
    if isinstance(value, Int) and value.is_const:
        value = value.value
    if isinstance(value, Value | Int | SizeNumber):
        return ctx.call("expand", ctx.tensor(value, dtype), shape=sizes)
    if not sizes:
        return ctx.scalar(value, dtype)
    number = bool(value) if dtype.kind == "bool" else float(value) if dtype.is_float else int(value)
    return ctx.call("full", shape=sizes, value=number, dtype=dtype)


def full(ctx: Context, shape: Sequence[Any], value: Any, *_: Any, **__: Any) -> Any:
    return filled(ctx, shape, value, ctx.out_dtype())


def fixed(value: int) -> Any:
    """zeros, ones, empty."""
    return lambda ctx, shape, *_, **__: filled(ctx, shape, value, ctx.out_dtype())


def fixed_like(value: int) -> Any:
    return lambda ctx, x, *_, **__: filled(ctx, x.shape, value, ctx.out_dtype())


def full_like(ctx: Context, x: Value, value: Any, *_: Any, **__: Any) -> Any:
    return filled(ctx, x.shape, value, ctx.out_dtype())


def new_fixed(value: int) -> Any:
    return lambda ctx, x, shape, *_, **__: filled(ctx, shape, value, ctx.out_dtype())


def new_full(ctx: Context, x: Value, shape: Sequence[Any], value: Any, *_: Any, **__: Any) -> Any:
    return filled(ctx, shape, value, ctx.out_dtype())


def scalar_tensor(ctx: Context, value: Any, *_: Any, **__: Any) -> Any:
    return filled(ctx, (), value, ctx.out_dtype())


def arange(ctx: Context, start: Any, end: Any = None, step: Any = 1, **_: Any) -> Any:
    if end is None:
        start, end = 0, start
    dtype = ctx.out_dtype()
    if all(isinstance(v, int | Int) for v in (start, end, step)):
        facts = ctx.builder.facts
        by, low, high = as_int(step), as_int(start), as_int(end)
        if not facts.le(0, by):
            by = as_int(constant(step, "a step of arange that may be negative"))
        count = ceildiv(high - low, by) if facts.le(0, by) else ceildiv(low - high, -by)
        if not facts.le(0, count):
            count = maximum(0, count)
        return ctx.call("iota", size=facts.simplify(count), start=low, step=by, dtype=dtype)
    (size,) = ctx.out_shape()
    if isinstance(start, int | float | Int) and isinstance(step, int | float):
        wide = ctx.call("iota", size=size, start=0, step=1, dtype=i64)
        scaled = ctx.call("mul", ctx.cast(wide, f64), ctx.scalar(step, f64))
        return ctx.cast(ctx.call("add", scaled, ctx.tensor(start, f64)), dtype)
    raise ctx.unsupported("arange whose start or step is a computed float")


def linspace(ctx: Context, start: Any, end: Any, steps: Any, **_: Any) -> Any:
    """From both ends, as torch does, so that the last value is exactly `end`; one is `start`."""
    dtype, count = ctx.out_dtype(), size_of(steps)
    low, high = ctx.tensor(start, dtype), ctx.tensor(end, dtype)
    if count == 1:
        return ctx.call("expand", low, shape=(count,))
    at = ctx.call("iota", size=count, start=0, step=1, dtype=i64)
    back = ctx.call("sub", ctx.tensor(count - 1, i64), at)
    span = ctx.tensor(maximum(count - 1, 1), dtype)
    step = ctx.call("div", ctx.call("sub", high, low), span)
    first = ctx.call("add", low, ctx.call("mul", step, ctx.cast(at, dtype)))
    last = ctx.call("sub", high, ctx.call("mul", step, ctx.cast(back, dtype)))
    half = ctx.call("lt", at, ctx.tensor(maximum(count // 2, 1), i64))
    return ctx.call("where", half, first, last)


def eye(ctx: Context, rows: Any, cols: Any = None, **_: Any) -> Any:
    columns = rows if cols is None or not isinstance(cols, int | Int) else cols
    return ctx.call(
        "eye", rows=size_of(rows), cols=size_of(columns), offset=0, dtype=ctx.out_dtype()
    )


def one_hot(ctx: Context, x: Value, classes: Any = -1) -> Any:
    if classes == -1:
        raise ctx.unsupported("one_hot without num_classes (data-dependent size)")
    return ctx.call("one_hot", ctx.indices(x), depth=size_of(classes), dtype=i64, axis=len(x.shape))


def random(ctx: Context, *_: Any, **__: Any) -> Any:
    raise ctx.unsupported("random numbers; pass them to the model as an input")


CREATE: Final[Table] = {
    "aten.full.default": full,
    "aten.full_like.default": full_like,
    "aten.new_full.default": new_full,
    **{f"aten.{n}.default": fixed(v) for n, v in (("zeros", 0), ("ones", 1))},
    **{
        f"aten.{n}_like.default": fixed_like(v)
        for n, v in (("zeros", 0), ("ones", 1), ("empty", 0))
    },
    **{f"aten.new_{n}.default": new_fixed(v) for n, v in (("zeros", 0), ("ones", 1), ("empty", 0))},
    "aten.empty.memory_format": fixed(0),
    "aten.empty_permuted.default": fixed(0),
    "aten.scalar_tensor.default": scalar_tensor,
    "aten.arange.default": arange,
    "aten.arange.start": arange,
    "aten.arange.start_step": arange,
    "aten.linspace.default": linspace,
    "aten.eye.default": eye,
    "aten.eye.m": eye,
    "aten.one_hot.default": one_hot,
    **dict.fromkeys(
        (f"aten.{n}.default" for n in ("rand", "randn", "rand_like", "randn_like", "bernoulli")),
        random,
    ),
}
