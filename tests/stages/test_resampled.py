"""Which of two dimensions an image is resampled along first."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant


class Resampled(nn.Module):
    """An image, or one that a product makes, in another size."""

    def __init__(self, product: bool, **how: Any) -> None:
        super().__init__()
        self.before = nn.Conv2d(6, 9, 1) if product else nn.Tanh()
        self.how = {"mode": "bilinear", "align_corners": False, **how}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(self.before(x), **self.how)


def made(f: pliant.Compiled) -> list[str]:
    """What is resampled: the value between, and the result."""
    lines = f.explain().splitlines()
    return [b.split("-> ")[1] for a, b in pairwise(lines) if "] resize" in a]


ROWS_FIRST, COLUMNS_FIRST = True, False
CASES = [
    ({"size": (40, 40)}, ROWS_FIRST),
    ({"size": (17, 40)}, ROWS_FIRST),
    ({"size": (40, 9), "align_corners": True}, ROWS_FIRST),
    ({"size": (5, 40)}, COLUMNS_FIRST),
    ({"scale_factor": 2.0}, ROWS_FIRST),
    ({"scale_factor": 0.5}, COLUMNS_FIRST),
    ({"scale_factor": 3.0, "mode": "bicubic"}, ROWS_FIRST),
]


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize(("how", "first"), CASES)
def test_rows_while_they_are_few(how: dict[str, Any], first: bool, product: bool) -> None:
    """Neighbours in memory are gathered, for as few rows as there are."""
    torch.manual_seed(0)
    model, x = Resampled(product, **how).eval(), torch.randn(2, 6, 16, 24)
    f = pliant.compile(model, (x,))
    between, result = made(f)
    rows = [int(s.split("[")[1].split(", ")[2]) for s in (between, result)]
    assert rows == [16 if first else model(x).shape[2], model(x).shape[2]]
    torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [2.0, 0.5])
def test_of_sizes_that_vary(scale: float) -> None:
    model, x = Resampled(True, scale_factor=scale).eval(), torch.randn(1, 6, 16, 24)
    f = pliant.compile(model, (x,), dynamic_shapes=({0: "n", 2: "h", 3: "w"},))
    assert "[n, 9, h, " in made(f)[0] if scale > 1 else "w]" in made(f)[0]
    for n, h, w in ((1, 16, 24), (3, 2, 2), (0, 5, 4), (2, 31, 7)):
        x = torch.randn(n, 6, h, w)
        torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


def test_channels_last_stay_in_order() -> None:
    """Rows of channels are added either way: columns come last, whose neighbours are near."""
    model = nn.Sequential(nn.Conv2d(6, 32, 1), nn.Upsample(scale_factor=2.0, mode="bilinear"),
                          nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 6, 1)).eval()  # fmt: skip
    x = torch.randn(1, 6, 16, 24)
    f = pliant.compile(model, (x,))
    assert made(f)[0].split("[")[1].startswith("1, 32, 32, 24")
    torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-4)


def test_of_three_dimensions_the_last_comes_first() -> None:
    x = torch.randn(1, 3, 4, 5, 6)
    model = Resampled(False, scale_factor=2.0, mode="trilinear").eval()
    f = pliant.compile(model, (x,), dynamic_shapes=({2: "d"},))
    assert [m.split("[")[1] for m in made(f)] == [
        "1, 3, d, 5, 12]", "1, 3, 2*d, 5, 12]", "1, 3, 2*d, 10, 12]",
    ]  # fmt: skip
    for d in (4, 1, 3):
        x = torch.randn(1, 3, d, 5, 6)
        torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)
