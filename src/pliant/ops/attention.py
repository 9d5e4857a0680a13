"""Attention, composed of contractions and a guarded softmax."""

from __future__ import annotations

import math
from typing import Final

from pliant.base.dtypes import boolean, f32
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Binary, Expr, Index, Unary, const
from pliant.ir.tensor import Tensor, compute, reduce, select
from pliant.ops.common import equal
from pliant.sym.expr import Int


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None, causal: bool
) -> Tensor:
    """softmax(q kᵀ * scale + mask) v over the last two dimensions."""
    if q.rank < 2 or k.rank != q.rank or v.rank != q.rank:
        raise InvalidModelError("attention: q, k and v must have the same rank, at least 2")
    *lead, s, d = q.shape
    t, dv = k.shape[-2], v.shape[-1]
    kd = k.shape[-1]
    if scale is None:
        if not d.is_const:
            raise InvalidModelError("attention: give scale where the head size is symbolic")
        scale = 1.0 / math.sqrt(d.value)
    requires = (*equal(d, kd, "attention: features of q and k"),
                *equal(t, v.shape[-2], "attention: lengths of k and v"))  # fmt: skip
    wide = f32 if q.dtype.bits == 16 else q.dtype

    def kv(i: tuple[Int, ...], source: Tensor) -> tuple[Int, ...]:
        """Leading indices of k or v: grouped heads share one."""
        out = []
        for at, (x, ours, theirs) in enumerate(zip(i, lead, source.shape, strict=False)):
            if at == len(lead) - 1 and ours is not theirs:
                out.append(x // (ours // theirs))
            else:
                out.append(x)
        return tuple(out)

    n = len(lead)
    scores = compute(
        (*lead, s, t),
        lambda *i: reduce("sum", (d,), lambda r: q[(*i[:n], i[n], r)].cast(wide)
                          * k[(*kv(i[:n], k), i[n + 1], r)].cast(wide)),
        "scores", requires,
    )  # fmt: skip

    def masked(*i: Int) -> Expr:
        x = scores[i] * const(scale, wide)
        if mask is not None:
            at = tuple(0 if e == 1 else j for j, e in zip(i[-mask.rank:], mask.shape, strict=True))
            m = mask[at]
            x = select(m, x, const(float("-inf"), wide)) if m.dtype is boolean else x + m.cast(wide)
        if causal:
            x = select(Index(i[n + 1]) <= Index(i[n]), x, const(float("-inf"), wide))
        return x

    logits = compute((*lead, s, t), masked, "logits")
    top = compute((*lead, s), lambda *i: reduce("max", (t,), lambda r: logits[(*i, r)]), "top")
    safe = compute(
        (*lead, s), lambda *i: select(top[i].eq(const(float("-inf"), wide)), const(0.0, wide), top[i])
    )
    e = compute((*lead, s, t), lambda *i: Unary("exp", logits[i] - safe[i[:-1]]), "e")
    total = compute((*lead, s), lambda *i: reduce("sum", (t,), lambda r: e[(*i, r)]), "total")
    p = compute(
        (*lead, s, t),
        lambda *i: e[i] / select(total[i[:-1]].eq(const(0.0, wide)), const(1.0, wide), total[i[:-1]]),
        "p",
    )
    out = compute(
        (*lead, s, dv),
        lambda *i: reduce("sum", (t,), lambda r: p[(*i[:n], i[n], r)]
                          * v[(*kv(i[:n], v), r, i[n + 1])].cast(wide)),
        "out",
    )  # fmt: skip
    if wide is q.dtype:
        return out
    return compute(out.shape, lambda *i: out[i].cast(q.dtype))


ATTENTION: Final = (Operator("attention", attention),)
assert Binary
