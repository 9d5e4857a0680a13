"""Tables of a model whose elements follow from their places are computed of these.

    weights: at = [[2, 3, 4],             at = compute((3, 3), lambda i, j: i + j + 2)
                   [3, 4, 5], …]    ->
             seen = [[1, 0, 0],           seen = compute((3, 3), lambda i, j: j < i + 1)
                     [1, 1, 0], …]

Where sizes are known, what is made of ranges alone (relative positions, a causal mask) comes as
numbers. Computed, it is seen where it is read: an index that moves by one needs no look-up and no
check, and of what a mask hides nothing is computed (`lower.attention`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType, boolean, i32, i64
from pliant.graph.expression import expression_binding
from pliant.graph.function import Binding, Function, Value
from pliant.ir.expr import Binary, Expr, Index, as_expr
from pliant.ir.tensor import compute
from pliant.sym.expr import Int, as_int, maximum, minimum

FEWEST: Final = 16  # elements that are worth it
LARGEST: Final = 1 << 40  # of integers, far from what would overflow here

Places = tuple[Int, ...]


def plain_tables(function: Function, weights: Mapping[str, Any]) -> Function:
    """The function with such tables made of expressions. `weights` are the arrays by key."""
    bindings: list[Binding] = []
    kept: list[tuple[Value, str]] = []
    for value, key in function.weights:
        rule = _rule(value.dtype, np.asarray(weights[key]))
        if rule is None:
            kept.append((value, key))
            continue
        made = compute(value.shape, lambda *at, rule=rule, of=value.dtype: rule(at).cast(of))
        bindings.append(expression_binding((value,), made, {}, (("op", "table"),)))
    return function.replace(bindings=(*bindings, *function.bindings), weights=tuple(kept))


class _Clipped:
    """low <= sum of steps times places + start <= high."""

    def __init__(self, steps: tuple[int, ...], start: int, low: int, high: int) -> None:
        self.steps, self.start, self.low, self.high = steps, start, low, high

    def __call__(self, at: Places) -> Expr:
        return Index(minimum(maximum(self.total(at), self.low), self.high))

    def total(self, at: Places) -> Int:
        """The sum itself."""
        return sum((x * s for x, s in zip(at, self.steps, strict=True)), start=as_int(self.start))


class _Before:
    """The last place is before where the row of the others `ends`; `hidden`: it is not."""

    def __init__(self, ends: _Clipped, hidden: bool) -> None:
        self.ends, self.hidden = ends, hidden

    def __call__(self, at: Places) -> Expr:
        *rows, last = at
        end, column = Index(self.ends.total(tuple(rows))), Index(last)
        return Binary("le", end, column) if self.hidden else Binary("lt", column, end)


class _Same:
    """The same everywhere."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __call__(self, at: Places) -> Expr:
        return as_expr(self.value, boolean)


def _rule(dtype: DType, table: np.ndarray) -> _Clipped | _Before | _Same | None:
    if table.ndim == 0 or table.size < FEWEST:
        return None
    if dtype in (i32, i64):
        near = table.min() >= -LARGEST and table.max() <= LARGEST
        return _clipped(table.astype(np.int64)) if near else None
    return _before(table.astype(bool)) if dtype is boolean else None


def _clipped(table: np.ndarray) -> _Clipped | None:
    low, high = int(table.min()), int(table.max())
    steps = tuple(_step(table, d) for d in range(table.ndim))
    moved = np.zeros(table.shape, np.int64)
    for d, step in enumerate(steps):
        places = np.arange(table.shape[d]) * step
        moved += np.expand_dims(places, [k for k in range(table.ndim) if k != d])
    between = np.argwhere((table > low) & (table < high))
    where = tuple(between[0]) if len(between) else (0,) * table.ndim
    start = int(table[where] - moved[where])
    if not np.array_equal(np.clip(moved + start, low, high), table):
        return None
    return _Clipped(steps, start, low, high)


def _step(table: np.ndarray, dim: int) -> int:
    """How far apart neighbours along a dimension mostly are that are not the same."""
    apart = np.diff(table, axis=dim)
    values, counts = np.unique(apart[apart != 0], return_counts=True)
    return int(values[counts.argmax()]) if len(values) else 0


def _before(table: np.ndarray) -> _Before | _Same | None:
    if table.all() or not table.any():
        return _Same(bool(table.flat[0]))
    columns = table.shape[-1]
    for hidden in (False, True):
        ends = (table ^ hidden).sum(-1)
        if not np.array_equal(np.arange(columns) < ends[..., None], table ^ hidden):
            continue
        found = _clipped(np.asarray(ends, np.int64))
        if found is not None and _is_whole(found, ends.shape, columns):
            return _Before(found, hidden)
    return None


def _is_whole(found: _Clipped, rows: tuple[int, ...], columns: int) -> bool:
    """Whether nothing is clipped but what is outside of a row."""
    ends = [(n - 1) * s for n, s in zip(rows, found.steps, strict=True)]
    least = found.start + sum(min(0, e) for e in ends)
    most = found.start + sum(max(0, e) for e in ends)
    return (found.low == 0 or least >= found.low) and (found.high == columns or most <= found.high)
