"""Sorting and running reductions along an axis."""

from __future__ import annotations

from functools import partial
from typing import Final

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.tensor import Opaque, OpaqueOutput, Tensor, scan
from pliant.ops.common import (
    accumulator,
    at_least,
    cast_tensor,
    check_axis,
    needs_float,
    replaced,
)
from pliant.ops.log_cum_sum_exp import log_cum_sum_exp
from pliant.ops.merge_sort import merge_sort
from pliant.ops.top_k import top_k
from pliant.sym.expr import IntLike, as_int


def sort(x: Tensor, *, axis: int, descending: bool, stable: bool = True) -> tuple[Tensor, Tensor]:
    """Values in order along `axis`, and the i64 positions that they had. Always stable; NaN counts
    as the largest."""
    check_axis(axis, x.rank)
    results = ((x.dtype, x.shape), (i64, x.shape))
    program = merge_sort(x.rank, x.dtype, axis, descending)
    both = Opaque("sort", (x,), results, program)
    return OpaqueOutput(both, 0), OpaqueOutput(both, 1)


def topk(
    x: Tensor, *, k: IntLike, axis: int, largest: bool, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) along `axis`, in order, and their positions; of equal ones those
    with lower positions."""
    check_axis(axis, x.rank)
    requires = at_least(x.shape[axis], k, f"axis {axis} has fewer elements than k")
    shape = replaced(x.shape, axis, as_int(k))
    program = top_k(x.rank, x.dtype, axis, largest)
    both = Opaque("topk", (x,), ((x.dtype, shape), (i64, shape)), program, requires)
    return OpaqueOutput(both, 0), OpaqueOutput(both, 1)


def running(
    x: Tensor, *, axis: int, exclusive: bool = False, reverse: bool = False, combiner: str
) -> Tensor:
    """The running reduction along `axis`, 16-bit floats in f32; see `Scan`."""
    check_axis(axis, x.rank)
    if x.dtype.kind == "bool":
        raise InvalidModelError("a running reduction of bool: cast first")
    wide = accumulator(x.dtype)
    result = scan(
        x.shape, axis, combiner, lambda *i: x[i].cast(wide), exclusive=exclusive, reverse=reverse
    )
    return cast_tensor(result, x.dtype)


def logcumsumexp(x: Tensor, *, axis: int) -> Tensor:
    """log(cumsum(exp(x))) along `axis`, without overflow; 16-bit floats in f32."""
    check_axis(axis, x.rank)
    needs_float(x)
    program = log_cum_sum_exp(x.rank, x.dtype, axis)
    return OpaqueOutput(Opaque("logcumsumexp", (x,), ((x.dtype, x.shape),), program), 0)


SORT: Final[tuple[Operator, ...]] = (
    Operator("sort", sort),
    Operator("topk", topk),
    Operator("cumsum", partial(running, combiner="sum")),
    Operator("cumprod", partial(running, combiner="prod")),
    Operator("cummax", partial(running, combiner="max")),
    Operator("cummin", partial(running, combiner="min")),
    Operator("logcumsumexp", logcumsumexp),
)
