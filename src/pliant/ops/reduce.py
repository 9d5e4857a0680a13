"""Reductions along given axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pliant.base.dtypes import DType, boolean, f64
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Binary, Expr, Guard, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, reduce, select
from pliant.ops.common import (
    accumulator,
    cast_tensor,
    check_axes,
    needs_float,
    not_empty,
    product,
)
from pliant.ops.elementwise import apply_binary
from pliant.sym.expr import Int, as_int


def over_axes(
    x: Tensor,
    combiner: str,
    axes: Sequence[int],
    keepdims: bool,
    fn: Callable[[tuple[Int, ...]], Expr],
    name: str,
) -> Compute:
    """The reduction of `fn(index into x)` over `axes`; the other dims stay."""
    check_axes(axes, x.rank)
    ordered = sorted(axes)
    kept = [d for d in range(x.rank) if d not in axes]
    shape = [
        as_int(1) if d in axes else x.shape[d] for d in range(x.rank) if keepdims or d not in axes
    ]

    def place(i: tuple[Int, ...], r: tuple[Int, ...]) -> tuple[Int, ...]:
        spread = dict(zip(ordered, r, strict=True))
        spread |= zip(kept, (i[d] for d in kept) if keepdims else i, strict=True)
        return tuple(spread[d] for d in range(x.rank))

    if not axes:
        return compute(shape, lambda *i: fn(i), name)
    extents = [x.shape[d] for d in ordered]
    return compute(shape, lambda *i: reduce(combiner, extents, lambda *r: fn(place(i, r))), name)


def result_place(index: tuple[Int, ...], axes: Sequence[int], keepdims: bool) -> tuple[Int, ...]:
    """Where a result of `over_axes` is read for element `index` of its operand."""
    if keepdims:
        return tuple(as_int(0) if d in axes else i for d, i in enumerate(index))
    return tuple(i for d, i in enumerate(index) if d not in axes)


def count_of(x: Tensor, axes: Sequence[int]) -> Int:
    """How many elements each result reduces."""
    return product([x.shape[d] for d in axes])


def count_as(count: Int, dtype: DType) -> Expr:
    """A number of elements as a number of type `dtype`."""
    return as_expr(count.value, dtype) if count.is_const else as_expr(count, dtype)


def sum_of(x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Compute:
    """The sum in the accumulation type."""
    wide = accumulator(x.dtype)
    return over_axes(x, "sum", axes, keepdims, lambda p: x[p].cast(wide), "sum")


def mean_of(x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Compute:
    """The mean of floats in the accumulation type; NaN of nothing."""
    total = sum_of(x, axes, keepdims)
    count = count_as(count_of(x, axes), total.dtype)
    return compute(total.shape, lambda *i: total[i] / count, "mean")


def reduce_numbers(x: Tensor, *, axes: Sequence[int], keepdims: bool, combiner: str) -> Tensor:
    """Sum or product; 16-bit floats in f32, integers wrap."""
    if x.dtype.kind == "bool":
        raise InvalidModelError(f"{combiner} of bool: cast first")
    wide = accumulator(x.dtype)
    result = over_axes(x, combiner, axes, keepdims, lambda p: x[p].cast(wide), combiner)
    return cast_tensor(result, x.dtype)


def extreme(
    x: Tensor,
    y: Tensor | None = None,
    *,
    axes: Sequence[int] | None = None,
    keepdims: bool = False,
    combiner: str,
) -> Tensor:
    """Of one operand: the greatest or least along `axes`. Of two: elementwise. NaN wins in both."""
    if y is not None:
        if axes is not None:
            raise InvalidModelError(f"{combiner} of two operands has no axes")
        return apply_binary(x, y, op=combiner)
    if axes is None:
        raise InvalidModelError(f"{combiner} of one operand needs axes")
    return over_axes(x, combiner, axes, keepdims, lambda p: x[p], combiner)


def mean(x: Tensor, *, axes: Sequence[int], keepdims: bool) -> Tensor:
    """The sum divided by the count; integers round towards zero."""
    if x.dtype.is_float:
        return cast_tensor(mean_of(x, axes, keepdims), x.dtype)
    total = reduce_numbers(x, axes=axes, keepdims=keepdims, combiner="sum")
    count = count_as(count_of(x, axes), x.dtype)
    message = "mean: integer division by zero"
    return compute(
        total.shape,
        lambda *i: Guard(count.ne(0), Binary("truncdiv", total[i], count), "zero", message),
        "mean",
    )


def reduce_bools(x: Tensor, *, axes: Sequence[int], keepdims: bool, combiner: str) -> Tensor:
    """Whether any, or all, hold."""
    if x.dtype is not boolean:
        raise InvalidModelError(f"{combiner} of {x.dtype}: cast to bool first")
    return over_axes(x, combiner, axes, keepdims, lambda p: x[p], combiner)


def arg_reduce(
    x: Tensor, *, axis: int, keepdims: bool, last: bool = False, combiner: str
) -> Tensor:
    """i64 position of the first (or last) best element; NaN beats everything.

    Two passes, the best and then the least place where it is: both are plain reductions in vectors.
    """
    check_axes((axis,), x.rank)
    extent = x.shape[axis]
    best = over_axes(x, combiner[3:], (axis,), keepdims, lambda p: x[p], "best")

    def place(p: tuple[Int, ...]) -> Expr:
        found = is_best(x[p], best[result_place(p, (axis,), keepdims)])
        return select(found, p[axis], -1 if last else extent)

    places = over_axes(x, "max" if last else "min", (axis,), keepdims, place, combiner)
    return places.replace(requires=not_empty(extent, f"axis {axis} of {combiner}"))


def is_best(value: Expr, best: Expr) -> Expr:
    """Whether a value is the greatest, or least, of those that it is among: a NaN is, where there
    is one, though it is equal to nothing."""
    found = value.eq(best)
    return found | Unary("isnan", value) if value.dtype.is_float else found


def logsumexp(x: Tensor, *, axes: Sequence[int], keepdims: bool) -> Tensor:
    """log(sum(exp(x))), by subtracting the maximum (NaN is in the sum too) where it is finite."""
    needs_float(x)
    wide = accumulator(x.dtype)
    top = over_axes(x, "fmax", axes, keepdims, lambda p: x[p].cast(wide), "max")
    finite = compute(
        top.shape, lambda *i: select(Unary("isinf", top[i]), 0.0, top[i]), "finite_max"
    )

    def term(p: tuple[Int, ...]) -> Expr:
        return Unary("exp", x[p].cast(wide) - finite[result_place(p, axes, keepdims)])

    total = over_axes(x, "sum", axes, keepdims, term, "sum")
    return compute(
        total.shape,
        lambda *i: (Unary("log", total[i]) + finite[i]).cast(x.dtype),
        "logsumexp",
    )


def squared_deviation(x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Compute:
    """Sum over `axes` of (x - mean)**2, in the accumulation type."""
    average = mean_of(x, axes, keepdims)

    def term(p: tuple[Int, ...]) -> Expr:
        difference = x[p].cast(average.dtype) - average[result_place(p, axes, keepdims)]
        return difference * difference

    return over_axes(x, "sum", axes, keepdims, term, "squares")


def variance(x: Tensor, *, axes: Sequence[int], keepdims: bool, correction: float = 0) -> Tensor:
    """sum((x - mean)**2) / max(count - correction, 0)."""
    needs_float(x)
    squares = squared_deviation(x, axes, keepdims)
    count = count_as(count_of(x, axes), squares.dtype)
    divisor = Binary("max", count - float(correction), as_expr(0.0, squares.dtype))
    return compute(squares.shape, lambda *i: (squares[i] / divisor).cast(x.dtype), "variance")


def norm(x: Tensor, *, p: int, axes: Sequence[int], keepdims: bool) -> Tensor:
    """sum(|x|) or sqrt(sum(x*x)); the square root of integers is rounded towards zero."""
    wide = accumulator(x.dtype)
    if p == 1:
        total = over_axes(x, "sum", axes, keepdims, lambda q: Unary("abs", x[q].cast(wide)), "norm")
        return cast_tensor(total, x.dtype)
    if p != 2:
        raise InvalidModelError(f"p is 1 or 2, not {p}")
    squares = over_axes(
        x, "sum", axes, keepdims, lambda q: x[q].cast(wide) * x[q].cast(wide), "squares"
    )
    root = wide if wide.is_float else f64
    return compute(
        squares.shape, lambda *i: Unary("sqrt", squares[i].cast(root)).cast(x.dtype), "norm"
    )


REDUCE: Final[tuple[Operator, ...]] = (
    *(Operator(c, partial(reduce_numbers, combiner=c)) for c in ("sum", "prod")),
    *(Operator(c, partial(extreme, combiner=c)) for c in ("max", "min")),
    *(Operator(c, partial(reduce_bools, combiner=c)) for c in ("any", "all")),
    *(Operator(c, partial(arg_reduce, combiner=c)) for c in ("argmax", "argmin")),
    Operator("mean", mean),
    Operator("logsumexp", logsumexp),
    Operator("variance", variance),
    Operator("norm", norm),
)
