"""Attention against torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tests.ops.case import FLOATS, Case, arg, with_types

SIZES = (
    {"b": 2, "h": 4, "s": 5, "t": 7, "d": 8},
    {"b": 1, "h": 2, "s": 1, "t": 1, "d": 1},
    {"b": 1, "h": 2, "s": 3, "t": 0, "d": 4},
    {"b": 0, "h": 2, "s": 3, "t": 2, "d": 4},
    {"b": 1, "h": 2, "s": 9, "t": 4, "d": 3},
)


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, *, scale: float | None = None, causal: bool = False
) -> torch.Tensor:
    """torch's, with the rows that see nothing made 0 and a causal mask beside another one."""
    wide = [x.double() for x in (q, k, v)]
    keep = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    if causal:
        keep = keep.tril()
    bias = torch.where(keep, 0.0, float("-inf")).double()
    if mask is not None:
        extra = torch.where(mask, 0.0, float("-inf")) if mask.dtype is torch.bool else mask
        bias = bias + extra.double()
    shape = torch.broadcast_shapes(bias.shape, (*q.shape[:-1], k.shape[-2]))
    bias = bias.expand(shape)
    if k.shape[-2] == 0:
        return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    found = functional.scaled_dot_product_attention(
        *wide, attn_mask=bias, scale=scale, enable_gqa=q.shape[-3] != k.shape[-3]
    )
    return torch.where((bias == float("-inf")).all(-1, keepdim=True), 0.0, found).to(q.dtype)


def cases() -> list[Case]:
    q, k = arg("f32", "b", "h", "s", "d"), arg("f32", "b", "h", "t", "d")
    v = arg("f32", "b", "h", "t", 5)
    found: list[Case] = []
    masks: tuple[Any, ...] = (
        None,
        arg("bool", "s", "t"),
        arg("f32", "b", 1, 1, "t"),
        arg("bool", "b", 1, "s", "t"),
        arg("f32", "h", "s", "t"),
    )
    for j, mask in enumerate(masks):
        for causal in (False, True):
            for scale in (None, 0.3):
                attrs = {"scale": scale, "causal": causal}
                note = f"{j}{causal:d}{scale or ''}"
                base = Case("attention", (q, k, v, mask), attention, attrs, SIZES, 4, note)
                found += with_types(base, *(FLOATS if j == 0 and scale is None else ("f32",)))
    for few in ("h", 1):
        many = arg("f32", "b", "3*h" if few == "h" else "h", "s", "d")
        k, v = arg("f32", "b", few, "t", "d"), arg("f32", "b", few, "t", "d")
        found.append(Case("attention", (many, k, v), attention, {}, SIZES, 4, f"grouped-{few}"))
    q, k, v = arg("f32", "h", "s", "d"), arg("f32", "h", "t", "d"), arg("f32", "h", "t", "d")
    found.append(Case("attention", (q, k, v), attention, {}, SIZES, 4, "unbatched"))
    heads = tuple(s | {"g": s["h"] // 2} for s in SIZES)
    k, v = arg("f32", "g", "t", "d"), arg("f32", "g", "t", "d")
    found.append(Case("attention", (q, k, v), attention, {}, heads, 4, "named-apart"))
    return found


CASES = cases()
