"""f16 and bf16 against torch: what it computes in f32 neither overflows nor is rounded between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from tests.compiled.torch_run import Apply

SPREAD = torch.Generator().manual_seed(5)
NEAR = torch.randn(3, 8, 40, generator=SPREAD)
FAR = NEAR * 10 ** (torch.rand(3, 8, 40, generator=SPREAD) * 9 - 4.4)


def exact(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """Elementwise: the same to the last bit."""
    return (
        x * 0.1, x / 1.7, x * torch.tensor(0.3), torch.div(x, 0.3, rounding_mode="floor"),
        torch.add(x, y, alpha=0.1), torch.sub(x, y, alpha=2.5), torch.rsub(x, y, alpha=3),
        torch.addcmul(x, y, z), torch.addcmul(x, y, z, value=0.3), torch.addcdiv(x, y, z),
        torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.7), torch.lerp(x, y, z.clamp(0, 1)),
        torch.round(x, decimals=1), torch.round(x, decimals=-2), torch.hypot(x, y),
        F.glu(x.clamp(-9, 9)),
    )  # fmt: skip


def sums(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """Of up to 320 terms in f32, in any order, rounded once."""
    x, y, z = x * 500, y * 500, z * 500
    m, rows = y @ y.mT * 1e-4, torch.zeros_like(x, dtype=torch.long)
    return (
        x.std(1), x.std(), *torch.std_mean(x, 0), torch.linalg.vector_norm(x, 3, 1), x.norm(),
        torch.dist(x, y), F.normalize(x, 3.0, 1),
        torch.addmm(m, x, y.T, beta=0.3, alpha=0.001), torch.addmm(m * float("nan"), y, y.T, beta=0,
                                                                   alpha=0.001),
        torch.addmv(m[0], x, y[0], alpha=0.01),
        torch.baddbmm(m[None], x[None], y.T[None], beta=0.3, alpha=0.001),
        torch.addbmm(m, x[None], y.T[None], alpha=0.001),
        z.scatter_add(0, rows, x), z.scatter_reduce(0, rows, x * 20, "mean"),
        F.embedding_bag(rows[:2, :8] + torch.arange(8), x), (x * 0.01) ** 4,
    )  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("values", ["near", "far"])
def test_elementwise(dtype: torch.dtype, values: str) -> None:
    args = tuple((NEAR if values == "near" else FAR).to(dtype))
    f = pliant.compile(Apply(exact), args)
    for k, (found, expected) in enumerate(zip(f(*args), exact(*args), strict=True)):
        assert found.dtype is dtype
        wrong = ~((found == expected) | (found.isnan() & expected.isnan()))
        assert not wrong.any(), f"{k}: {found[wrong][:4]} for {expected[wrong][:4]}"


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums(dtype: torch.dtype) -> None:
    args = tuple(NEAR.to(dtype))
    f = pliant.compile(Apply(sums), args)
    eps = torch.finfo(dtype).eps
    for k, (found, expected) in enumerate(zip(f(*args), sums(*args), strict=True)):
        assert found.dtype is dtype
        near = (found - expected).abs() <= 2 * eps * expected.abs().amax()
        wrong = ~(near | (found == expected))
        assert not wrong.any(), f"{k}: {found[wrong][:4]} for {expected[wrong][:4]}"
