"""Rows of numbers of any size, infinities and NaN: what exponentials of differences make of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import pliant

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2, torch.float16: 1e-2}


class Rows(nn.Module):
    """Also of what is computed before: its maximum is that of rounded products."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = x * 3.7
        by_hand = (scaled - scaled.amax(-1, keepdim=True)).exp()
        return (
            x.softmax(-1), x.softmax(0), scaled.softmax(-1), by_hand,
            x.log_softmax(-1), scaled.log_softmax(-1), x.logsumexp(-1),
        )  # fmt: skip


def changed(x: torch.Tensor) -> list[torch.Tensor]:
    """As it is, and with infinities, NaN, and equal numbers."""
    out = [x]
    for value in (math.inf, -math.inf, math.nan):
        some = x.clone()
        some[torch.rand(x.shape) < 0.3] = value
        all_of_one = x.clone()
        all_of_one[0] = value
        out += [some, all_of_one]
    return [*out, x[:1, :1].expand_as(x).contiguous()]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_as_in_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    f = pliant.compile(Rows(), (torch.randn(5, 37).to(dtype),), dynamic_shapes=({0: "n", 1: "m"},))
    for shape in ((1, 1), (3, 8), (7, 37), (2, 1000)):
        for scale in (1, 30, 1e4, 1e10, 1e30):
            for x in changed((torch.randn(shape) * scale).to(dtype)):
                for got, want in zip(f(x), Rows()(x), strict=True):
                    tol = TOLERANCE[dtype]
                    np.testing.assert_allclose(
                        got.double(), want.double(), rtol=tol * 4, atol=tol, equal_nan=True
                    )
