"""Attention of com.microsoft: with projections inside, of many heads, of grouped heads with a
cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.heads import (
    attend,
    check_batches,
    merged,
    places,
    split,
    turned_at,
)
from pliant.frontend.onnx.lower_contrib_quant import to_float
from pliant.frontend.onnx.site import Lowering, Site
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int

_FILTER: Final = -10000.0
"""What is added to the scores of keys that a mask hides, unless the node says otherwise."""


def lower_attention(s: Site) -> tuple[Value | None, ...]:
    """The projections of queries, keys and values in one product, then attention."""
    projected = s.call("matmul", s.x(0), s.x(1))
    if s.has(2):
        projected = s.call("add", projected, s.x(2))
    return _self_attention(s, projected, mask=3, past=4, bias=5, buffer=6)


def lower_quantized_attention(s: Site) -> tuple[Value | None, ...]:
    """The same with a projection of bytes."""
    projected = to_float(s, s.x(0), s.x(1), s.x(3), s.zero_point(6), 4, 7, 2)
    return _self_attention(s, projected, mask=5, past=8, bias=9, buffer=10)


def _self_attention(
    s: Site, projected: Value, *, mask: int, past: int, bias: int, buffer: int
) -> tuple[Value | None, ...]:
    if s.int_attr("do_rotary", 0) or s.int_attr("past_present_share_buffer", 0) or s.has(buffer):
        raise s.unsupported("rotation inside and shared buffers are not supported")
    heads = s.int_attr("num_heads")
    width = projected.shape[2]
    widths: tuple[Int, ...] = tuple(map(as_int, s.ints_attr("qkv_hidden_sizes", ())))
    if not widths:
        widths = (s.sizes.divide(width, as_int(3)),) * 3
    s.builder.equal(sum(widths, as_int(0)), width, f"{s.span}: widths of q, k and v")
    q, k, v = (split(s, t, heads) for t in s.call_many("split", projected, sizes=widths, axis=2))
    before = as_int(0)
    if s.has(past):
        old = s.x(past)
        before = old.shape[3]
        k, v = (
            s.call("concat", (s.call("squeeze", s.part(old, 0, n, n + 1), axes=(0,)), t), axis=2)
            for n, t in enumerate((k, v))
        )
    y = _hidden(s, q, k, v, mask=mask, bias=bias, before=before)
    present = s.call("stack", (k, v), axis=0) if 1 in s.used else None
    return merged(s, y), present


def lower_multi_head(s: Site) -> tuple[Value | None, ...]:
    """Queries, keys and values apart, or packed; keys of the past before the new ones."""
    if s.has(8) or s.has(9):
        raise s.unsupported("shared buffers and beams are not supported")
    if 3 in s.used:
        raise s.unsupported("the scores as a result are not supported")
    check_batches(s, (0, 1, 2, 6, 7))
    heads = s.int_attr("num_heads")
    q, k, v = _packed(s, heads) or _apart(s, heads)
    before = as_int(0)
    if s.has(6):
        before = s.item(6).shape[2]
        k, v = (s.call("concat", (s.x(n), t), axis=2) for n, t in ((6, k), (7, v)))
    y = _hidden(s, q, k, v, mask=4, bias=5, before=before)
    return merged(s, y), k, v


def _packed(s: Site, heads: int) -> tuple[Value, Value, Value] | None:
    """Of one tensor [batch, length, heads, 3, size], or of two, keys and values in one."""
    source = 0 if s.item(0).rank == 5 else 1
    if not s.has(source) or s.item(source).rank != 5:
        return None
    x = s.x(source)
    if s.has(3):
        raise s.unsupported("a bias of packed operands is not supported")
    count = 3 - source
    parts = [s.call("squeeze", s.part(x, 3, n, n + 1), axes=(3,)) for n in range(count)]
    k, v = (s.call("transpose", t, perm=(0, 2, 1, 3)) for t in parts[-2:])
    if source:
        return split(s, s.x(0), heads), k, v
    return s.call("transpose", parts[0], perm=(0, 2, 1, 3)), k, v


def _apart(s: Site, heads: int) -> tuple[Value, Value, Value]:
    found: list[Value] = []
    start = as_int(0)
    for n in range(3):
        x = s.x(n)
        if len(x.shape) == 3:
            width = x.shape[2]
            if s.has(3):
                x = s.call("add", x, s.part(s.x(3), 0, start, start + width))
            start = start + width
            x = split(s, x, heads)
        found.append(x)
    return found[0], found[1], found[2]


def _hidden(s: Site, q: Value, k: Value, v: Value, *, mask: int, bias: int, before: Int) -> Value:
    """Attention where a mask hides keys, and later ones do if the node says so."""
    scale = s.float_attr("scale", 0.0) or None
    rows, keys = q.shape[2], k.shape[2]
    seen = None
    if s.int_attr("unidirectional", 0):
        last = s.call("add", places(s, rows, 4, 2), s.size(before))
        seen = s.call("le", places(s, keys, 4, 3), last)
    added = s.opt(bias)
    if s.has(mask):
        kept = _kept(s, s.x(mask), keys, q.shape[0])
        hides = s.scalar(s.float_attr("mask_filter_value", _FILTER), q.dtype)
        hidden = s.call("where", kept, s.scalar(0.0, q.dtype), hides)
        added = hidden if added is None else s.call("add", added, hidden)
    return attend(s, q, k, v, scale=scale, seen=seen, bias=added)


def _kept(s: Site, mask: Value, keys: Int, batch: Int) -> Value:
    """Which keys a mask keeps, bool, to broadcast to [batch, heads, length, keys]."""
    rank = len(mask.shape)
    if rank in (2, 3):
        rows = as_int(1) if rank == 2 else mask.shape[1]
        raw = s.reshape(mask, (mask.shape[0], 1, rows, mask.shape[-1]))
        return s.call("ne", raw, s.scalar(0, mask.dtype))
    if rank != 1:
        raise s.unsupported(f"a mask of rank {rank} is not supported")
    at = places(s, keys, 4, 3)
    ends = s.cast(mask, i64)
    if mask.shape[0] == batch * 2 and batch != 0:
        starts = s.reshape(s.part(ends, 0, batch, 2 * batch), (batch, 1, 1, 1))
        ends = s.part(ends, 0, 0, batch)
        after = s.call("ge", at, starts)
        return s.call("and", after, s.call("lt", at, s.reshape(ends, (batch, 1, 1, 1))))
    message = f"{s.span}: a mask of rank 1 has the number of keys of each sequence"
    s.builder.equal(mask.shape[0], batch, message)
    return s.call("lt", at, s.reshape(ends, (batch, 1, 1, 1)))


# Grouped heads with a cache


def lower_grouped(s: Site) -> tuple[Value | None, ...]:
    """Causal attention whose new keys and values are written into a cache, each sequence's where
    it ends: `seqlens_k` is the number of keys with the new ones, less one."""
    _check_grouped(s)
    check_batches(s, (0, 1, 2, 3, 4, 5))
    check_batches(s, (0, 1, 2), axis=1)
    heads, few = s.int_attr("num_heads"), s.int_attr("kv_num_heads")
    q, k, v = _grouped_heads(s, heads, few)
    batch, _, length, _ = q.shape
    total = s.ints(6, "total_sequence_length")[0]
    ends = s.call("add", s.cast(s.reshape(s.x(5), (batch,)), i64), s.scalar(1, i64))
    first = s.call("eq", s.size(total), s.size(length))
    started = s.call("max", s.call("sub", ends, s.size(length)), s.scalar(0, i64))
    start = s.call("where", first, s.scalar(0, i64), started)  # [batch]
    at = s.call("add", s.reshape(start, (batch, 1)), places(s, length, 2, 1))
    if s.has(14):
        q, k = _normalized(s, q, 14), _normalized(s, k, 15)
    if s.int_attr("do_rotary", 0):
        where = s.cast(s.x(9), i64) if s.has(9) else at
        turned = bool(s.int_attr("rotary_interleaved", 0))
        caches = (s.x(7), s.x(8))
        q, k = (turned_at(s, t, where, caches, interleaved=turned) for t in (q, k))
    fresh = not s.has(3) and total == length
    if not fresh:
        k, v = (_written(s, t, n, at, total) for t, n in ((k, 3), (v, 4)))
    place = s.reshape(at, (batch, 1, length, 1))
    keys = places(s, k.shape[2], 4, 3)
    if s.int_attr("causal", 1):
        seen = s.call("le", keys, place)
    else:
        seen = s.call("lt", keys, s.reshape(ends, (batch, 1, 1, 1)))
    window = s.int_attr("local_window_size", -1)
    if window >= 0:
        near = s.call("gt", keys, s.call("sub", place, s.scalar(window, i64)))
        seen = s.call("and", seen, near)
    y = attend(
        s, q, k, v, scale=s.float_attr("scale", 0.0) or None, seen=seen,
        bias=_bias(s, k.shape[2]), softcap=s.float_attr("softcap", 0.0), sink=_sink(s, heads, q),
    )  # fmt: skip
    return merged(s, y), k, v


def _check_grouped(s: Site) -> None:
    if any(s.has(n) for n in (12, 13, 16)) or s.int_attr("sliding_window_cache", 0):
        raise s.unsupported(
            "quantized caches, those of a window and padded chunks are not supported"
        )
    if s.int_attr("qk_output", 0) or 3 in s.used:
        raise s.unsupported("the scores as a result are not supported")


def _grouped_heads(s: Site, heads: int, few: int) -> tuple[Value, Value, Value]:
    if s.has(1) and s.has(2):
        return split(s, s.x(0), heads), split(s, s.x(1), few), split(s, s.x(2), few)
    x = s.x(0)
    size = s.sizes.divide(x.shape[2], as_int(heads + 2 * few))
    widths = (size * heads, size * few, size * few)
    s.builder.equal(sum(widths, as_int(0)), x.shape[2], f"{s.span}: the width of q, k and v")
    q, k, v = s.call_many("split", x, sizes=widths, axis=2)
    return split(s, q, heads), split(s, k, few), split(s, v, few)


def _normalized(s: Site, x: Value, index: int) -> Value:
    name = "q_norm_epsilon" if index == 14 else "k_norm_epsilon"
    eps = s.float_attr(name, s.float_attr("qk_norm_epsilon", 1e-6))
    return s.call("rms_norm", x, s.x(index), axes_from=3, eps=eps)


def _written(s: Site, new: Value, index: int, at: Value, total: Int) -> Value:
    """The cache with the new keys or values at their places; it grows to `total` keys."""
    batch, heads, length, size = new.shape
    if s.has(index):
        old = s.x(index)
        room = s.sizes.greatest(total, old.shape[2])
        more = ((0, 0), (0, 0), (0, room - old.shape[2]), (0, 0))
        pads = tuple((as_int(a), as_int(b)) for a, b in more)
        cache = s.call("pad", old, pads=pads, mode="constant", value=0)
    else:
        cache = s.full((batch, heads, total, size), 0, new.dtype)
    where = s.call("expand", s.reshape(at, (batch, 1, length, 1)), shape=new.shape)
    return s.call("scatter_elements", cache, where, new, axis=2, reduction="none")


def _bias(s: Site, keys: Int) -> Value | None:
    """What is added to the scores; the cache may have room for more keys."""
    if not s.has(10):
        return None
    bias = s.x(10)
    more = keys - bias.shape[3]
    if more == 0:
        return bias
    pads = ((as_int(0), as_int(0)),) * 3 + ((as_int(0), more),)
    return s.call("pad", bias, pads=pads, mode="constant", value=0)


def _sink(s: Site, heads: int, q: Value) -> Value | None:
    if s.has(11):
        return s.x(11)
    return s.full((heads,), 0.0, q.dtype) if s.int_attr("smooth_softmax", 0) > 0 else None


def lower_rotary(s: Site) -> Value:
    """[batch, length, heads*size] or [batch, heads, length, size], turned for its places."""
    x, at, cos = s.x(0), s.cast(s.x(1), i64), s.x(2)
    if s.int_attr("is_packed_batching", 0) or s.float_attr("scale", 1.0) != 1.0:
        raise s.unsupported("packed batches and a scale are not supported")
    flat = len(x.shape) == 3
    if flat:
        size = 2 * cos.shape[1]
        heads = as_int(s.int_attr("num_heads", 0) or s.sizes.divide(x.shape[2], size))
        b, t, width = x.shape
        x = s.reshape(x, (b, t, heads, s.sizes.divide(width, heads)))
        x = s.call("transpose", x, perm=(0, 2, 1, 3))
    elif len(x.shape) != 4:
        raise InvalidModelError(f"{s.span}: an operand of rank {len(x.shape)}")
    if len(at.shape) == 1:  # where the first one is
        at = s.call("add", s.reshape(at, (1, 1)), places(s, x.shape[2], 2, 1))
    turned = bool(s.int_attr("interleaved", 0))
    y = turned_at(s, x, at, (cos, s.x(3)), interleaved=turned)
    return merged(s, y) if flat else y


CONTRIB_ATTENTION: Final[Mapping[str, Lowering]] = {
    "Attention": lower_attention,
    "GroupQueryAttention": lower_grouped,
    "MultiHeadAttention": lower_multi_head,
    "QAttention": lower_quantized_attention,
    "RotaryEmbedding": lower_rotary,
}
