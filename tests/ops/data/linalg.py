"""Linear algebra against torch in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ops.case import Case, arg, with_types

SIZES = (
    {"b": 2, "n": 3, "m": 2}, {"b": 1, "n": 1, "m": 1}, {"b": 0, "n": 4, "m": 1},
    {"b": 3, "n": 0, "m": 2}, {"b": 2, "n": 7, "m": 0},
)  # fmt: skip


def zeros_ahead(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, _: Any) -> Any:
    """Regular matrices that need their rows swapped."""
    x = np.roll(np.eye(shape[-1]) * 3, 1, 0) + rng.normal(size=shape) * 0.2
    x[..., :1, :1] = 0
    return (x if shape[-1] > 1 else x + 1).astype(dtype.numpy)


def positive_definite(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, _: Any) -> Any:
    x = rng.normal(size=shape)
    return (x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])).astype(dtype.numpy)


def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
    """The pivots as they are: a permutation's rows, of which all but the last were swapped."""
    x = torch.linalg.solve(a.double(), b.double())
    if not a.numel():
        return x.to(a.dtype), a.new_zeros(a.shape[:-1])
    factors, rows = torch.linalg.lu_factor(a.double())
    kept = rows == torch.arange(1, a.shape[-1] + 1)
    pivots = factors.diagonal(dim1=-2, dim2=-1) * torch.where(kept, 1, -1)
    return x.to(a.dtype), pivots.to(a.dtype)


def cholesky(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.cholesky(a.double()).to(a.dtype)


CASES = [
    *with_types(
        Case("solve", (arg("f32", "b", "n", "n", fill=zeros_ahead), arg("f32", "b", "n", "m")),
             solve, {}, SIZES, 8),
        "f32", "f64",
    ),
    *with_types(
        Case("cholesky", (arg("f32", "b", "n", "n", fill=positive_definite),), cholesky, {},
             SIZES, 8),
        "f32", "f64",
    ),
]  # fmt: skip
