"""Resampling of tensors on regular grids.

Source coordinates are exact fractions (num // den) of symbolic integers, never floats: a scale is
the ratio of the sizes, or the given number as a fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

from pliant.base.dtypes import DType, f32
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, Unary, as_expr
from pliant.ir.tensor import Tensor, compute, reduce, select, within
from pliant.ops.activation import maximum_of
from pliant.ops.common import (
    accumulator,
    cast_tensor,
    not_empty,
    positive,
    replaced,
    shape_of,
)
from pliant.ops.cubic import cubic_kernel, cubic_weights
from pliant.ops.grid_sample import grid_sample
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, const, maximum, minimum

COORDINATES: Final = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric",
    "tf_half_pixel_for_nn",
)  # fmt: skip
MODES: Final = ("nearest", "linear", "cubic")
LARGEST_DENOMINATOR: Final = 1 << 16
"""Of a scale as a fraction: far below the spacing of f32 for real scales, small enough for i64."""


@dataclass(frozen=True)
class Axis:
    """One resized dimension: n elements become m."""

    n: Int
    m: Int
    scale: Fraction | None
    coordinate: str

    def source(self, i: Int) -> tuple[Int, Int]:
        """The coordinate in the operand that belongs to element i of the result: num / den."""
        n, m = self.n, positive(self.m)
        # i / scale = i * up / down
        up, down = (n, m) if self.scale is None else _ratio(self.scale)
        match self.coordinate:
            case "asymmetric":
                return i * up, down
            case "align_corners":
                if self.scale is None:
                    return i * (n - 1), _at_least_one(m - 1)
                # ONNX: the resized length is scale * n, not rounded
                return i * (n - 1) * up, _at_least_one(n * down - up)
            case "tf_half_pixel_for_nn":
                return (2 * i + 1) * up, 2 * down
            case "half_pixel_symmetric" if self.scale is not None:
                # offset (n/2)(1 - m/(scale*n)) centres the result on the operand
                return (2 * i + 1 - m) * up + (n - 1) * down, 2 * down
            case "pytorch_half_pixel":
                many = minimum(m - 1, 1)  # 0 if there is one element only
                return ((2 * i + 1) * up - down) * many, 2 * down
        return (2 * i + 1) * up - down, 2 * down

    def step(self) -> tuple[Int, Int]:
        """How far apart the coordinates of neighbours are: num / den."""
        return (self.n, positive(self.m)) if self.scale is None else _ratio(self.scale)


def _ratio(scale: Fraction) -> tuple[Int, Int]:
    return const(scale.denominator), const(scale.numerator)


def _at_least_one(x: Int) -> Int:
    return maximum(x, 1)


def resize(
    x: Tensor,
    *,
    sizes: Sequence[IntLike],
    scales: Sequence[float | None] | None = None,
    mode: str = "nearest",
    coordinate: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    cubic_coeff: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
) -> Tensor:
    """x resampled to `sizes`, one dimension after the other (ONNX Resize, torch interpolate).

    A scale of None is the ratio of the sizes. Elements beyond the edge are those of the edge, or
    with `exclude_outside` left out of the weighted mean. With `antialias` a mean where elements
    become fewer is over all that lie between: its weights are spread by the ratio.
    """
    if mode not in MODES or coordinate not in COORDINATES or nearest not in ROUNDINGS:
        raise InvalidModelError(f"no resize {mode!r}, {coordinate!r}, {nearest!r}")
    out = shape_of(sizes)
    given = [None] * x.rank if scales is None else list(scales)
    if len(out) != x.rank or len(given) != x.rank:
        raise InvalidModelError(f"sizes and scales need {x.rank} entries, one a dim")
    axes = {
        d: Axis(n, m, _exact(s, n, m), coordinate)
        for d, (n, m, s) in enumerate(zip(x.shape, out, given, strict=True))
        if not (n == m and s in (None, 1))
    }
    if mode == "nearest":
        return _nearest(x, out, axes, ROUNDINGS[nearest])
    taps: Taps = _linear_taps if mode == "linear" else partial(cubic_weights, a=cubic_coeff)
    wide = accumulator(x.dtype) if x.dtype.is_float else f32
    result: Tensor = cast_tensor(x, wide)
    for d, axis in axes.items():
        if antialias:
            kernel: Kernel = (
                _TENT if mode == "linear" else (2, partial(cubic_kernel, a=cubic_coeff))
            )
            result = _spread(result, d, axis, kernel, exclude_outside)
        else:
            result = _interpolated(result, d, axis, taps, exclude_outside)
    return cast_tensor(result, x.dtype)


def _exact(scale: float | None, n: Int, m: Int) -> Fraction | None:
    """The scale as a fraction; None where it is the ratio of the sizes."""
    if scale is None:
        return None
    fraction = Fraction(scale).limit_denominator(LARGEST_DENOMINATOR)
    if fraction <= 0:
        raise InvalidModelError(f"the scale {scale} of a resize")
    if n * fraction.numerator - m * fraction.denominator == 0:
        return None if n.is_const else fraction
    return fraction


Rounding = Callable[[Int, Int], Int]

ROUNDINGS: Final[dict[str, Rounding]] = {
    "floor": lambda num, den: num // den,
    "ceil": ceildiv,
    "round_prefer_floor": lambda num, den: ceildiv(2 * num - den, 2 * den),
    "round_prefer_ceil": lambda num, den: (2 * num + den) // (2 * den),
}


def _clamped(i: Int, n: Int) -> Int:
    return minimum(maximum(i, 0), n - 1)


def _nearest(x: Tensor, out: Sequence[Int], axes: dict[int, Axis], rounding: Rounding) -> Tensor:
    requires = [r for d in axes for r in not_empty(x.shape[d], f"resized dim {d}")]

    def body(*i: Int) -> Expr:
        place = list(i)
        for d, axis in axes.items():
            place[d] = _clamped(rounding(*axis.source(i[d])), axis.n)
        return x[tuple(place)]

    return compute(out, body, "resize", requires)


Taps = Callable[[Expr], list[tuple[int, Expr]]]
"""From the fraction by which a coordinate exceeds a whole number: offsets from it and weights."""


def _linear_taps(t: Expr) -> list[tuple[int, Expr]]:
    return [(0, 1.0 - t), (1, t)]


def _interpolated(x: Tensor, d: int, axis: Axis, taps: Taps, exclude: bool) -> Tensor:
    """One dimension resampled; every element is a weighted mean of a few neighbours."""
    dtype = x.dtype

    def body(*i: Int) -> Expr:
        num, den = axis.source(i[d])
        weights = taps(_fraction(num, den, dtype))
        if exclude:
            weights = [(k, select(within(num // den + k, axis.n), w, 0.0)) for k, w in weights]
        terms = [x[replaced(i, d, _clamped(num // den + k, axis.n))] * w for k, w in weights]
        total = _total(terms)
        return total / _total([w for _, w in weights]) if exclude else total

    requires = not_empty(axis.n, f"resized dim {d}")
    return compute(replaced(x.shape, d, axis.m), body, "resize", requires)


Kernel = tuple[int, Callable[[Expr], Expr]]
"""How far from a coordinate elements count, and the weight of what is so far away."""

_TENT: Final[Kernel] = (1, lambda t: maximum_of(1.0 - Unary("abs", t), 0.0))


def _spread(x: Tensor, d: int, axis: Axis, kernel: Kernel, exclude: bool) -> Tensor:
    """One dimension resampled, with the kernel as wide as the coordinates are apart."""
    dtype, (radius, weight_of) = x.dtype, kernel
    up, down = axis.step()
    wide = maximum(up, down)  # over down: the kernel's width
    count = 2 * radius * wide // down + 1

    def first(i: Int) -> Int:
        num, den = axis.source(i)
        return ceildiv(num * down - radius * wide * den, den * down)

    def weight(i: Int, k: Int) -> Expr:
        num, den = axis.source(i)
        at = first(i) + k
        away = as_expr((at * den - num) * down, dtype) / as_expr(as_int(den * wide), dtype)
        value = weight_of(away)
        return select(within(at, axis.n), value, 0.0) if exclude else value

    weights = compute((axis.m, count), weight, "weights")
    totals = compute((axis.m,), lambda i: reduce("sum", [count], lambda k: weights[i, k]), "total")
    parts = compute((axis.m, count), lambda i, k: weights[i, k] / totals[i], "parts")

    def body(*i: Int) -> Expr:
        def term(k: Int) -> Expr:
            return x[replaced(i, d, _clamped(first(i[d]) + k, axis.n))] * parts[i[d], k]

        return reduce("sum", [count], term)

    requires = not_empty(axis.n, f"resized dim {d}")
    return compute(replaced(x.shape, d, axis.m), body, "resize", requires)


def _fraction(num: Int, den: Int, dtype: DType) -> Expr:
    return as_expr(num % den, dtype) / as_expr(as_int(den), dtype)


def _total(terms: Sequence[Expr]) -> Expr:
    result = terms[0]
    for t in terms[1:]:
        result = result + t
    return result


RESIZE: Final[tuple[Operator, ...]] = (
    Operator("resize", resize),
    Operator("grid_sample", grid_sample),
)
