"""Scaled dot product attention, out of contractions and a softmax."""

from __future__ import annotations

import math
from typing import Final

from pliant.base.dtypes import DType, boolean
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, Unary, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, reduce, select
from pliant.ops.common import (
    Requirement,
    accumulator,
    aligned,
    broadcast,
    broadcast_to,
    cast_tensor,
    check_rank,
    equal,
    needs_float,
    positive,
    same_type,
)
from pliant.ops.reduce import count_as, over_axes
from pliant.sym.expr import Int


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """softmax(scale * q @ k' + mask) @ v.

    q [..., H, S, D], k [..., Hkv, T, D], v [..., Hkv, T, Dv]; query head h reads head
    h // (H/Hkv). `scale` None is 1/sqrt(D). A bool mask says what to keep, a float one is added;
    both broadcast to [..., H, S, T]. Causal: query i sees keys j <= i. A query that sees no key
    gives 0.
    """
    needs_float(q)
    scores = _masked(_scores(q, k, v), q, mask, scale, causal)
    weights = _probabilities(scores)
    heads = _Heads(q, v)
    shape = (*weights.shape[:-1], v.shape[-1])

    def body(*i: Int) -> Expr:
        *batch, head, row, column = i

        def term(t: Int) -> Expr:
            value = v[(*heads.batch_of(v, tuple(batch)), heads.of(head), t, column)]
            return weights[(*batch, head, row, t)] * value.cast(weights.dtype)

        return reduce("sum", [v.shape[-2]], term)

    return cast_tensor(compute(shape, body, "attention"), q.dtype)


class _Heads:
    """Which head of keys and values a query head reads, and how batches broadcast."""

    def __init__(self, q: Tensor, other: Tensor) -> None:
        if q.rank < 3:
            raise InvalidModelError(f"needs [..., heads, length, dim], not rank {q.rank}")
        check_rank(other, q.rank, "keys or values")
        self.many, self.few = q.shape[-3], other.shape[-3]
        self.batch, self.requires = broadcast((q.shape[:-3], other.shape[:-3]))
        if self.many != self.few:
            message = f"the {self.many} query heads must be a multiple of the {self.few} others"
            group = self.many // positive(self.few)
            self.requires += equal(group * self.few, self.many, message)

    def of(self, head: Int) -> Int:
        if self.many == self.few:
            return head
        return head // positive(self.many // positive(self.few))

    def batch_of(self, t: Tensor, batch: tuple[Int, ...]) -> tuple[Int, ...]:
        return aligned(batch, t.shape[:-3], self.batch)


def _scores(q: Tensor, k: Tensor, v: Tensor) -> Compute:
    """q @ k', for every query head, in the accumulation type."""
    wide = accumulator(same_type(q, k, v))
    heads, others = _Heads(q, k), _Heads(q, v)
    requires: list[Requirement] = [*heads.requires, *others.requires]
    for a, b, what in (
        (q.shape[-1], k.shape[-1], "dims of queries and keys"),
        (k.shape[-2], v.shape[-2], "lengths of keys and values"),
        (k.shape[-3], v.shape[-3], "numbers of heads of keys and values"),
    ):
        requires += equal(a, b, f"{what} must be equal: {a} and {b}")

    def body(*i: Int) -> Expr:
        *batch, head, row, column = i

        def term(d: Int) -> Expr:
            left = q[(*heads.batch_of(q, tuple(batch)), head, row, d)]
            right = k[(*heads.batch_of(k, tuple(batch)), heads.of(head), column, d)]
            return left.cast(wide) * right.cast(wide)

        return reduce("sum", [q.shape[-1]], term)

    shape = (*heads.batch, q.shape[-3], q.shape[-2], k.shape[-2])
    return compute(shape, body, "scores", requires)


def _scale(dim: Int, scale: float | None, dtype: DType) -> Expr:
    if scale is not None:
        return as_expr(float(scale), dtype)
    if dim.is_const:
        return as_expr(1 / math.sqrt(dim.value) if dim.value else 1.0, dtype)
    return Unary("rsqrt", count_as(dim, dtype))


def _masked(
    scores: Compute, q: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Compute:
    """Scaled scores, -inf where a key is not seen."""
    factor = _scale(q.shape[-1], scale, scores.dtype)
    requires: tuple[Requirement, ...] = ()
    if mask is not None:
        requires = broadcast_to(mask.shape, scores.shape)
        if mask.dtype is not boolean:
            needs_float(mask)

    def body(*i: Int) -> Expr:
        value = scores[i] * factor
        if mask is not None:
            at = mask[aligned(i, mask.shape, scores.shape)]
            if mask.dtype is boolean:
                value = select(at, value, -math.inf)
            else:
                value = value + at.cast(value.dtype)
        if causal:
            value = select(as_expr(i[-1]) <= as_expr(i[-2]), value, -math.inf)
        return value

    return compute(scores.shape, body, "masked_scores", requires)


def _probabilities(scores: Compute) -> Compute:
    """Softmax over the keys; 0 where all are -inf. The maximum passes over NaN: the sum has it."""
    last = (scores.rank - 1,)
    top = over_axes(scores, "fmax", last, False, lambda p: scores[p], "scores_max")

    def exponential(*i: Int) -> Expr:
        largest = top[i[:-1]]
        return Unary("exp_from_max", scores[i] - select(largest.eq(-math.inf), 0.0, largest))

    e = compute(scores.shape, exponential, "scores_exp")
    total = over_axes(e, "sum", last, False, lambda p: e[p], "scores_sum")
    # One division a row: but for 0 the sum is at least 1, so its reciprocal cannot overflow.
    part = compute(
        total.shape, lambda *i: select(total[i].eq(0.0), 0.0, 1.0 / total[i]), "scores_part"
    )
    return compute(scores.shape, lambda *i: e[i] * part[i[:-1]], "probabilities")


ATTENTION: Final[tuple[Operator, ...]] = (Operator("attention", attention),)
