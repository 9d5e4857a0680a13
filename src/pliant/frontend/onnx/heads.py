"""What operators of attention share: heads, caches, masks, rotation by place.

split      [batch, length, heads*size]  ->  [batch, heads, length, size]
attend     softmax(scale * q @ k' + bias) @ v, with what the catalogue's `attention` lacks
rotate     pairs of elements turned by angles whose cosines and sines are given
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from pliant.base.dtypes import boolean, f32, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Site
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int


def check_batches(s: Site, operands: Sequence[int], axis: int = 0) -> None:
    """These operands, where they are given, have one size along an axis: the batch."""
    sizes = [s.item(k).shape[axis] for k in operands if s.has(k) and s.item(k).rank > axis]
    for d in sizes[1:]:
        s.builder.equal(sizes[0], d, f"{s.span}: dim {axis} of its operands must be equal")


def split(s: Site, x: Value, heads: int) -> Value:
    """[batch, length, heads*size] with the heads before the length."""
    if heads < 1 or len(x.shape) != 3:
        raise InvalidModelError(f"{s.span}: {heads} heads of a tensor of rank {len(x.shape)}")
    b, t, width = x.shape
    apart = s.reshape(x, (b, t, heads, s.sizes.divide(width, as_int(heads))))
    return s.call("transpose", apart, perm=(0, 2, 1, 3))


def merged(s: Site, x: Value) -> Value:
    """[batch, heads, length, size] as [batch, length, heads*size]."""
    b, h, t, d = x.shape
    return s.reshape(s.call("transpose", x, perm=(0, 2, 1, 3)), (b, t, h * d))


def places(s: Site, size: Int, rank: int, axis: int) -> Value:
    """0, 1, … along one dim of `rank`."""
    shape = tuple(size if k == axis else as_int(1) for k in range(rank))
    return s.reshape(s.call("iota", size=size, start=0, step=1, dtype=i64), shape)


def attend(
    s: Site, q: Value, k: Value, v: Value, *, scale: float | None, seen: Value | None = None,
    bias: Value | None = None, softcap: float = 0.0, sink: Value | None = None,
) -> Value:  # fmt: skip
    """Attention of heads; a query sees the keys that are `seen` (bool), `bias` is added to scores.

    `softcap`: scores are softcap * tanh(score / softcap) before the bias. `sink`: a score without a
    value for each head, [heads].
    """
    mask = masked(s, seen, bias)
    if not softcap and sink is None:
        return s.call("attention", q, k, v, mask, scale=scale, causal=False)
    wide = f32 if q.dtype.bits == 16 else q.dtype
    heads = q.shape[1]
    k, v = (_repeated(s, t, heads) for t in (k, v))
    scores = s.call("matmul", s.cast(q, wide), s.cast(transposed(s, k), wide))
    if scale is None:
        root = s.call("sqrt", s.size(q.shape[-1], wide))
        scores = s.call("div", scores, root)
    else:
        scores = s.call("mul", scores, s.scalar(scale, wide))
    if softcap:
        bound = s.scalar(softcap, wide)
        scores = s.call("mul", s.call("tanh", s.call("div", scores, bound)), bound)
    if mask is not None and mask.dtype is boolean:
        scores = s.call("where", mask, scores, s.scalar(-inf, wide))
    elif mask is not None:
        scores = s.call("add", scores, s.cast(mask, wide))
    weights = s.call("softmax", scores, axis=3) if sink is None else _softmax(s, scores, sink)
    return s.cast(s.call("matmul", weights, s.cast(v, wide)), q.dtype)


def masked(s: Site, seen: Value | None, bias: Value | None) -> Value | None:
    """One mask: bool where there is no bias, else the bias, minus infinity where not `seen`."""
    if seen is None or bias is None:
        return seen if bias is None else bias
    return s.call("where", seen, bias, s.scalar(-inf, bias.dtype))


def _softmax(s: Site, scores: Value, sink: Value) -> Value:
    """Softmax over the keys and one more score for each head."""
    sink = s.reshape(s.cast(sink, scores.dtype), (*sink.shape, 1, 1))
    top = s.call("max", s.call("max", scores, axes=(3,), keepdims=True), sink)
    e = s.call("exp", s.call("sub", scores, top))
    total = s.call("sum", e, axes=(3,), keepdims=True)
    return s.call("div", e, s.call("add", total, s.call("exp", s.call("sub", sink, top))))


def transposed(s: Site, x: Value) -> Value:
    """The last two dims exchanged."""
    rank = len(x.shape)
    return s.call("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _repeated(s: Site, x: Value, heads: Int) -> Value:
    """Each head as often as there are query heads for it."""
    b, few, t, d = x.shape
    if few == heads:
        return x
    each = s.sizes.divide(heads, few)
    spread = s.call("expand", s.call("unsqueeze", x, axes=(2,)), shape=(b, few, each, t, d))
    return s.reshape(spread, (b, heads, t, d))


def rotate(s: Site, x: Value, cos: Value, sin: Value, *, interleaved: bool) -> Value:
    """Pairs of the first elements of the last dim turned; a pair are neighbours if `interleaved`,
    else of two halves. `cos` and `sin` have as many elements as there are pairs."""
    half = cos.shape[-1]
    last = len(x.shape) - 1
    whole = x.shape[-1] == 2 * half
    head = x if whole else s.part(x, last, 0, 2 * half)
    cos, sin = s.cast(cos, x.dtype), s.cast(sin, x.dtype)
    if interleaved:
        apart = s.reshape(head, (*x.shape[:-1], half, 2))
        pair = [s.call("squeeze", s.part(apart, last + 1, k, k + 1), axes=(last + 1,))
                for k in (0, 1)]  # fmt: skip
    else:
        pair = [s.part(head, last, k * half, (k + 1) * half) for k in (0, 1)]
    a, b = pair
    turned = (
        s.call("sub", s.call("mul", a, cos), s.call("mul", b, sin)),
        s.call("add", s.call("mul", a, sin), s.call("mul", b, cos)),
    )
    if interleaved:
        head = s.reshape(s.call("stack", turned, axis=last + 1), (*x.shape[:-1], 2 * half))
    else:
        head = s.call("concat", turned, axis=last)
    if whole:
        return head
    return s.call("concat", (head, s.part(x, last, 2 * half, x.shape[-1])), axis=last)


def turned_at(
    s: Site, x: Value, at: Value, caches: Sequence[Value], *, interleaved: bool
) -> Value:  # fmt: skip
    """[batch, heads, length, size] rotated for its places `at` [batch or 1, length], by the rows of
    `caches`: cosines and sines."""
    rows = [s.call("unsqueeze", s.call("gather", c, at, axis=0), axes=(1,)) for c in caches]
    return rotate(s, x, *rows, interleaved=interleaved)
