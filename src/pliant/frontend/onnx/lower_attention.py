"""Scaled dot-product attention and rotary embedding.

The common cases map to the catalogue; anything else goes through ONNX's own definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.base.dtypes import boolean
from pliant.frontend.onnx.site import Lowering, Results, Site
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int


def lower_attention(s: Site) -> Results:
    """Attention of 4-D or 3-D operands, without window, cap or partial results."""
    if not _is_plain(s):
        return s.definition()
    q, k, v = (_heads(s, i) for i in range(3))
    past = s.has(4) and s.has(5)
    if past:
        k = s.call("concat", (s.x(4), k), axis=2)
        v = s.call("concat", (s.x(5), v), axis=2)
    scale = s.float_attr("scale") if s.has_attr("scale") else None
    y = s.call("attention", q, k, v, s.opt(3), scale=scale, causal=bool(s.int_attr("is_causal", 0)))
    if s.item(0).rank == 3:
        b, h, t, d = y.shape
        y = s.reshape(s.call("transpose", y, perm=(0, 2, 1, 3)), (b, t, h * d))
    return y, k, v


def _is_plain(s: Site) -> bool:
    causal, masked = s.int_attr("is_causal", 0), s.has(3)
    offset = s.has(4) or s.has(6)
    if causal and (masked or offset):
        return False
    if masked and (s.item(3).rank < 2 or s.item(3).dtype not in (boolean, s.item(0).dtype)):
        return False
    windows = (s.int_attr("left_window_size", -1), s.int_attr("right_window_size", -1))
    plain = windows == (-1, -1) and not s.float_attr("softcap", 0.0)
    same = s.item(0).dtype is s.item(1).dtype is s.item(2).dtype
    covers = not masked or _covers(s)
    scaled = s.has_attr("scale") or _head_size(s).is_const
    return plain and same and covers and scaled and 3 not in s.used and not s.has(6)


def _head_size(s: Site) -> Int:
    q = s.item(0)
    if q.rank != 3:
        return q.shape[-1]
    return s.sizes.divide(q.shape[2], as_int(s.int_attr("q_num_heads")))


def _covers(s: Site) -> bool:
    """Whether the mask has an entry for every key: a shorter one is padded by the definition."""
    keys = s.item(1).shape[-2]
    if s.has(4):
        keys = keys + s.item(4).shape[2]
    last = s.item(3).shape[-1]
    return last == 1 or last == keys


def _heads(s: Site, index: int) -> Value:
    x = s.x(index)
    if len(x.shape) != 3:
        return x
    heads = s.int_attr("q_num_heads" if index == 0 else "kv_num_heads")
    b, t, width = x.shape
    apart = s.reshape(x, (b, t, heads, s.sizes.divide(width, as_int(heads))))
    return s.call("transpose", apart, perm=(0, 2, 1, 3))


ATTENTION: Final[Mapping[str, Lowering]] = {"Attention": lower_attention}
