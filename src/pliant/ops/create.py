"""Tensors out of sizes and numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.base.dtypes import DType, f64, i64
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, Index, as_expr
from pliant.ir.tensor import Tensor, compute, select
from pliant.ops.common import check_axis, without
from pliant.sym.expr import Int, IntLike, as_int


def full(*, shape: Sequence[IntLike], value: float, dtype: DType) -> Tensor:
    """One number everywhere."""
    return compute(shape, lambda *_: as_expr(value, dtype), "full")


def iota(
    *, size: IntLike, start: IntLike | float = 0, step: IntLike | float = 1, dtype: DType
) -> Tensor:
    """start + i*step, in i64 if both are whole numbers, else in f64; then converted."""

    def body(i: Int) -> Expr:
        if isinstance(start, float) or isinstance(step, float):
            return (as_expr(i, f64) * as_expr(step, f64) + as_expr(start, f64)).cast(dtype)
        return Index(i * step + start).cast(dtype)

    return compute((size,), body, "iota")


def eye(*, rows: IntLike, cols: IntLike, offset: IntLike = 0, dtype: DType) -> Tensor:
    """One where col - row == offset, else zero."""

    def body(i: Int, j: Int) -> Expr:
        on = as_expr(j - i).eq(as_expr(as_int(offset)))
        return select(on, as_expr(1, dtype), as_expr(0, dtype))

    return compute((rows, cols), body, "eye")


def one_hot(indices: Tensor, *, depth: IntLike, dtype: DType, axis: int) -> Tensor:
    """One where the position on the new dimension `axis` is the index, else zero.

    Negative indices count from the end; one out of range gives zeros (ONNX OneHot).
    """
    rank = indices.rank + 1
    check_axis(axis, rank)
    shape = [*indices.shape[:axis], depth, *indices.shape[axis:]]

    def body(*i: Int) -> Expr:
        at = indices[without(i, axis)].cast(i64)
        place = select(at < 0, at + as_expr(as_int(depth)), at)
        return select(place.eq(as_expr(i[axis])), as_expr(1, dtype), as_expr(0, dtype))

    return compute(shape, body, "one_hot")


def size_value(*, value: IntLike) -> Tensor:
    """A symbolic integer as a rank-0 i64 tensor."""
    return compute((), lambda: Index(as_int(value)), "size")


def size_vector(*, values: Sequence[IntLike]) -> Tensor:
    """Symbolic integers as a rank-1 i64 tensor."""

    def pick(i: Int, low: int, high: int) -> Expr:
        if high - low <= 1:
            return Index(as_int(values[low])) if values else as_expr(0, i64)
        middle = (low + high) // 2
        return select(as_expr(i) < middle, pick(i, low, middle), pick(i, middle, high))

    return compute((len(values),), lambda i: pick(i, 0, len(values)), "sizes")


CREATE: Final[tuple[Operator, ...]] = (
    Operator("full", full),
    Operator("iota", iota),
    Operator("eye", eye),
    Operator("one_hot", one_hot),
    Operator("size_value", size_value),
    Operator("size_vector", size_vector),
)
