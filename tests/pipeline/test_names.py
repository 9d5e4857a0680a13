"""Whatever a model calls its inputs, weights and sizes, the code around the kernels has names of
its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant

MODULE = """
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.{weight} = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, {a}, {b}):
        h = self.{weight}(self.first({a}).relu()).softmax(-1)
        return self.first(h + {b}), h.sum(-1)
"""


def named(a: str, b: str, weight: str) -> nn.Module:
    space: dict[str, Any] = {"nn": nn}
    exec(MODULE.format(a=a, b=b, weight=weight), space)
    torch.manual_seed(0)
    module = space["Named"]().eval()
    assert isinstance(module, nn.Module)
    return module


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("a", "b", "weight", "size"),
    [
        ("memory", "tgt", "second", "n"),
        ("x", "memory", "memory_shape", "memory"),
        ("x", "x_shape", "x_shape_1", "x"),
        ("linear_2_out", "sum_out", "second", "linear_2_out"),
        ("n", "at0", "second", "at0"),
        ("x", "y", "out", "at1"),
        ("_i0", "_r0", "second", "memory_shape"),
        ("x0", "t0", "ctx", "n0"),
        ("main", "kernel", "payload", "main"),
    ],
)
def test_any_names(a: str, b: str, weight: str, size: str) -> None:
    model = named(a, b, weight)
    shapes = ({0: size}, {0: size})
    f = pliant.compile(model, (torch.zeros(9, 24), torch.zeros(9, 24)), dynamic_shapes=shapes)
    for n in (9, 1, 17):
        x, y = torch.randn(n, 24), torch.randn(n, 24)
        for got, want in zip(f(x, y), model(x, y), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_decoder() -> None:
    """Of torch, whose second input is its memory."""
    model = nn.TransformerDecoderLayer(64, 4, 128, batch_first=True).eval()
    x, y = torch.randn(1, 12, 64), torch.randn(1, 9, 64)
    torch.testing.assert_close(
        pliant.compile(model, (x, y))(x, y), model(x, y), rtol=1e-4, atol=1e-4
    )
