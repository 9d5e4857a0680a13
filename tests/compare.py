"""Comparing results: how far apart, or bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch


def distance(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """The largest relative L2 of some results; infinite where shapes or NaNs differ."""
    if len(got) != len(want):
        return float("inf")
    return max(map(_relative, got, want), default=0.0)


def _relative(got: torch.Tensor, want: torch.Tensor) -> float:
    if got.shape != want.shape or not torch.equal(got.isnan(), want.isnan()):
        return float("inf")
    got, want = got.double().nan_to_num(), want.double().nan_to_num()
    difference, size = (got - want).norm().item(), want.norm().item()
    return difference / size if size else difference


def bits(results: Sequence[torch.Tensor]) -> str:
    """A hash of results: types, shapes and all bytes."""
    found = hashlib.blake2b(digest_size=16)
    for t in results:
        found.update(f"{t.dtype}{tuple(t.shape)}".encode())
        found.update(t.contiguous().numpy())
    return found.hexdigest()
