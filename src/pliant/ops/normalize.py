"""Normalisation: statistics along some dimensions, then an elementwise use of them.

16-bit floats are computed in f32 throughout and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Binary, Expr, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, reduce, select, within
from pliant.ops.common import (
    Requirement,
    accumulator,
    aligned,
    broadcast_to,
    cast_tensor,
    check_axis,
    check_rank,
    equal,
    needs_float,
    positive,
    product,
)
from pliant.ops.reduce import (
    count_as,
    count_of,
    mean_of,
    norm,
    over_axes,
    result_place,
    squared_deviation,
)
from pliant.sym.expr import Int, as_int, maximum, minimum

WIDE_WINDOW: Final = 32  # channels; of wider ones it is asked how many there are


def softmax(x: Tensor, *, axis: int) -> Tensor:
    """exp(x - max x) / sum(exp(x - max x)) along `axis`."""
    shifted = _shifted_by_max(x, axis)
    e = compute(x.shape, lambda *i: Unary("exp_from_max", shifted(i)), "softmax_exp")
    s = over_axes(e, "sum", (axis,), False, lambda p: e[p], "softmax_sum")
    # One division a row: the sum is at least 1 (or NaN), so its reciprocal is exact to half an ULP.
    part = compute(s.shape, lambda *i: 1.0 / s[i], "softmax_part")
    return compute(
        x.shape, lambda *i: (e[i] * part[result_place(i, (axis,), False)]).cast(x.dtype), "softmax"
    )


def log_softmax(x: Tensor, *, axis: int) -> Tensor:
    """x - max x - log(sum(exp(x - max x))) along `axis`."""
    shifted = _shifted_by_max(x, axis)
    s = over_axes(
        x, "sum", (axis,), False, lambda p: Unary("exp_from_max", shifted(p)), "softmax_sum"
    )
    log = compute(s.shape, lambda *i: Unary("log", s[i]), "softmax_log")
    return compute(
        x.shape,
        lambda *i: (shifted(i) - log[result_place(i, (axis,), False)]).cast(x.dtype),
        "log_softmax",
    )


def _shifted_by_max(x: Tensor, axis: int) -> Callable[[tuple[Int, ...]], Expr]:
    """x - max x along an axis, as an expression.

    The maximum passes over NaN, which costs less: the NaN is in the sum of the exponentials too.
    """
    needs_float(x)
    wide = accumulator(x.dtype)
    top = over_axes(x, "fmax", (axis,), False, lambda p: x[p].cast(wide), "softmax_max")
    return lambda i: x[i].cast(wide) - top[result_place(i, (axis,), False)]


class _Affine:
    """Optional weight and bias that broadcast to the trailing dims of x."""

    def __init__(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        self.x, self.weight, self.bias = x, weight, bias
        self.requires: tuple[Requirement, ...] = ()
        for t in (weight, bias):
            if t is not None:
                needs_float(t)
                self.requires += broadcast_to(t.shape, x.shape)

    def __call__(self, value: Expr, i: tuple[Int, ...]) -> Expr:
        if self.weight is not None:
            value = value * self._at(self.weight, i).cast(value.dtype)
        if self.bias is not None:
            value = value + self._at(self.bias, i).cast(value.dtype)
        return value.cast(self.x.dtype)

    def _at(self, t: Tensor, i: tuple[Int, ...]) -> Expr:
        return t[aligned(i, t.shape, self.x.shape)]


def inverse_deviation(x: Tensor, axes: Sequence[int], eps: float) -> Compute:
    """1 / sqrt(variance + eps) over `axes`, the variance in two passes."""
    squares = squared_deviation(x, axes)
    count = count_as(count_of(x, axes), squares.dtype)
    return compute(
        squares.shape, lambda *i: Unary("rsqrt", squares[i] / count + eps), "inverse_deviation"
    )


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, axes_from: int,
    eps: float,
) -> Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias over the dims from `axes_from` on."""
    needs_float(x)
    check_axis(axes_from, x.rank)
    axes = tuple(range(axes_from, x.rank))
    average, inverse = mean_of(x, axes), inverse_deviation(x, axes, eps)
    affine = _Affine(x, weight, bias)

    def body(*i: Int) -> Expr:
        at = result_place(i, axes, False)
        return affine((x[i].cast(average.dtype) - average[at]) * inverse[at], i)

    return compute(x.shape, body, "layer_norm", affine.requires)


def rms_norm(x: Tensor, weight: Tensor | None = None, *, axes_from: int, eps: float) -> Tensor:
    """x / sqrt(mean(x*x) + eps) * weight over the dims from `axes_from` on."""
    needs_float(x)
    check_axis(axes_from, x.rank)
    axes = tuple(range(axes_from, x.rank))
    wide = accumulator(x.dtype)
    squares = over_axes(
        x, "sum", axes, False, lambda p: x[p].cast(wide) * x[p].cast(wide), "squares"
    )
    count = count_as(count_of(x, axes), wide)
    inverse = compute(
        squares.shape, lambda *i: Unary("rsqrt", squares[i] / count + eps), "inverse_rms"
    )
    affine = _Affine(x, weight, None)

    def body(*i: Int) -> Expr:
        return affine(x[i].cast(wide) * inverse[result_place(i, axes, False)], i)

    return compute(x.shape, body, "rms_norm", affine.requires)


def batch_norm(
    x: Tensor, scale: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, *, eps: float
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * scale + bias, one of each a channel (dim 1), written as
    x * slope + offset."""
    needs_float(x)
    check_axis(1, x.rank)
    wide = accumulator(x.dtype)
    requires = _one_a_channel(x, scale, bias, mean, var)

    def slope_body(c: Int) -> Expr:
        inverse = Unary("rsqrt", var[c].cast(wide) + eps)
        return inverse if scale is None else inverse * scale[c].cast(wide)

    slope = compute(mean.shape, slope_body, "slope")

    def offset_body(c: Int) -> Expr:
        shift = mean[c].cast(wide) * slope[c]
        return -shift if bias is None else bias[c].cast(wide) - shift

    offset = compute(mean.shape, offset_body, "offset")
    return compute(
        x.shape,
        lambda *i: (x[i].cast(wide) * slope[i[1]] + offset[i[1]]).cast(x.dtype),
        "batch_norm",
        requires,
    )


def _one_a_channel(x: Tensor, *vectors: Tensor | None) -> tuple[Requirement, ...]:
    requires: list[Requirement] = []
    for v in vectors:
        if v is not None:
            check_rank(v, 1, "per-channel operand")
            needs_float(v)
            n, channels = v.shape[0], x.shape[1]
            message = f"a per-channel operand has {n} elements, the input {channels} channels"
            requires += equal(n, channels, message)
    return tuple(requires)


def group_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, groups: int, eps: float
) -> Tensor:
    """Normalised over groups of channels (dim 1) and all spatial dims; weight, bias a channel.

    What a channel adds up to is summed first, then the channels of a group: sums along whole rows
    of an image, or along whole pixels, in whichever order it lies. Applied as x * slope + offset,
    both of a channel.
    """
    needs_float(x)
    check_axis(1, x.rank)
    n, channels, *spatial = x.shape
    size = channels // groups
    message = f"the {channels} channels must be a multiple of {groups} groups"
    requires = equal(size * groups, channels, message) + _one_a_channel(x, weight, bias)
    wide = accumulator(x.dtype)
    count = count_as(product((size, *spatial)), wide)

    def mean_over_groups(of_channel: Tensor, label: str) -> Tensor:
        def total(b: Int, g: Int) -> Expr:
            return reduce("sum", (size,), lambda r: of_channel[b, g * size + r])

        sums = compute((n, groups), total, f"{label}_sum")
        return compute((n, groups), lambda b, g: sums[b, g] / count, label)

    axes = tuple(range(2, x.rank))
    sums = over_axes(x, "sum", axes, False, lambda p: x[p].cast(wide), "sum")
    average = mean_over_groups(sums, "mean")

    def square(p: tuple[Int, ...]) -> Expr:
        difference = x[p].cast(wide) - average[p[0], p[1] // positive(size)]
        return difference * difference

    squares = over_axes(x, "sum", axes, False, square, "squares")
    variance = mean_over_groups(squares, "variance")

    def slope_body(b: Int, c: Int) -> Expr:
        inverse = Unary("rsqrt", variance[b, c // positive(size)] + eps)
        return inverse if weight is None else inverse * weight[c].cast(wide)

    slope = compute((n, channels), slope_body, "slope")

    def offset_body(b: Int, c: Int) -> Expr:
        shift = average[b, c // positive(size)] * slope[b, c]
        return -shift if bias is None else bias[c].cast(wide) - shift

    offset = compute((n, channels), offset_body, "offset")
    return compute(
        x.shape,
        lambda *i: (x[i].cast(wide) * slope[i[0], i[1]] + offset[i[0], i[1]]).cast(x.dtype),
        "group_norm",
        requires,
    )


def _per_channel(value: Expr, weight: Tensor | None, bias: Tensor | None, channel: Int) -> Expr:
    if weight is not None:
        value = value * weight[channel].cast(value.dtype)
    return value if bias is None else value + bias[channel].cast(value.dtype)


def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float
) -> Tensor:
    """Normalised over the spatial dims of every channel; weight, bias a channel."""
    needs_float(x)
    check_axis(1, x.rank)
    axes = tuple(range(2, x.rank))
    average, inverse = mean_of(x, axes), inverse_deviation(x, axes, eps)

    def body(*i: Int) -> Expr:
        at = result_place(i, axes, False)
        value = (x[i].cast(average.dtype) - average[at]) * inverse[at]
        return _per_channel(value, weight, bias, i[1]).cast(x.dtype)

    return compute(x.shape, body, "instance_norm", _one_a_channel(x, weight, bias))


def lrn(x: Tensor, *, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    """x / (bias + alpha/size * sum of x*x over `size` channels around)**beta (ONNX LRN).

    Raises InvalidModelError where `size` is less than 1.
    """
    needs_float(x)
    check_axis(1, x.rank)
    if size < 1:
        raise InvalidModelError(
            f"the size of a window over channels must be at least 1, got {size}"
        )
    wide = accumulator(x.dtype)
    before, first, count = (size - 1) // 2, as_int(0), as_int(size)
    if size > WIDE_WINDOW:  # most of it may lie beside all channels
        first = maximum(0, before + 1 - x.shape[1])
        count = maximum(0, minimum(size, before + x.shape[1]) - first)

    def squares_body(*i: Int) -> Expr:
        def term(r: Int) -> Expr:
            channel = i[1] + first + r - before
            value = x[(i[0], channel, *i[2:])].cast(wide)
            return select(within(channel, x.shape[1]), value * value, 0.0)

        return reduce("sum", [count], term)

    squares = compute(x.shape, squares_body, "squares")

    def body(*i: Int) -> Expr:
        base = squares[i] * (alpha / size) + bias
        return (x[i].cast(wide) / Binary("pow", base, as_expr(beta, wide))).cast(x.dtype)

    return compute(x.shape, body, "lrn")


def lp_normalize(x: Tensor, *, axis: int, p: int) -> Tensor:
    """x divided by its norm along `axis`; 0 where the norm is 0."""
    needs_float(x)
    size = norm(cast_tensor(x, accumulator(x.dtype)), p=p, axes=(axis,), keepdims=False)

    def body(*i: Int) -> Expr:
        length = size[result_place(i, (axis,), False)]
        value = x[i].cast(length.dtype)
        return select(length.eq(0.0), 0.0, value / length).cast(x.dtype)

    return compute(x.shape, body, "lp_normalize")


def mean_variance_normalize(x: Tensor, *, axes: Sequence[int], eps: float) -> Tensor:
    """(x - mean) / (sqrt(variance) + eps) over `axes` (ONNX)."""
    needs_float(x)
    average, squares = mean_of(x, axes), squared_deviation(x, axes)
    count = count_as(count_of(x, axes), squares.dtype)
    deviation = compute(
        squares.shape, lambda *i: Unary("sqrt", squares[i] / count) + eps, "deviation"
    )

    def body(*i: Int) -> Expr:
        at = result_place(i, axes, False)
        return ((x[i].cast(average.dtype) - average[at]) / deviation[at]).cast(x.dtype)

    return compute(x.shape, body, "mean_variance_normalize")


NORMALIZE: Final[tuple[Operator, ...]] = (
    Operator("softmax", softmax),
    Operator("log_softmax", log_softmax),
    Operator("layer_norm", layer_norm),
    Operator("rms_norm", rms_norm),
    Operator("batch_norm", batch_norm),
    Operator("group_norm", group_norm),
    Operator("instance_norm", instance_norm),
    Operator("lrn", lrn),
    Operator("lp_normalize", lp_normalize),
    Operator("mean_variance_normalize", mean_variance_normalize),
)
