"""Sampling at places that values choose: rows of channels, and what is sampled as it lies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pliant
from tests.compiled.torch_run import Apply
from tests.woven import woven

ROWS = "last1"  # of the copy of what is sampled, with its channels last


def sample(mode: str, padding: str = "zeros") -> nn.Module:
    return Apply(
        lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=False)
    )


def grids(*shape: int) -> Tensor:
    """Inside and outside of the image, on its border, and far away."""
    g = torch.rand(*shape) * 3 - 1.5
    flat = g.view(-1)
    flat[::11], flat[1::29], flat[2::31] = 1.0, 1e5, -1.0
    return g


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("channels", "padding"), woven([32, 8, 21, 3], ["zeros", "border", "reflection"])
)
def test_images(channels: int, padding: str) -> None:
    m = sample("bilinear", padding)
    dynamic = ({0: "b", 2: "h", 3: "w"}, {0: "b", 1: "u", 2: "v"})
    args = torch.randn(2, channels, 6, 7), grids(2, 5, 9, 2)
    f = pliant.compile(m, args, dynamic_shapes=(dynamic,))
    assert (ROWS in f.explain()) is (channels > 3)
    for b, h, w, u, v in [(2, 6, 7, 5, 9), (1, 1, 1, 1, 1), (3, 17, 5, 16, 33), (2, 4, 4, 0, 3)]:
        x, g = torch.randn(b, channels, h, w), grids(b, u, v, 2)
        torch.testing.assert_close(f(x, g), m(x, g), rtol=1e-4, atol=1e-5)


def test_volumes() -> None:
    m = sample("bilinear")
    x, g = torch.randn(2, 16, 4, 5, 6), grids(2, 3, 5, 7, 3)
    f = pliant.compile(m, (x, g))
    assert ROWS in f.explain()
    torch.testing.assert_close(f(x, g), m(x, g), rtol=1e-4, atol=1e-5)


def test_one_element_each_is_gathered() -> None:
    """Copies cost more than they save; so do those of large images for a few points."""
    x, g = torch.randn(2, 16, 20, 20), grids(2, 19, 20, 2)
    m = sample("nearest")
    f = pliant.compile(m, (x, g))
    assert ROWS not in f.explain()
    torch.testing.assert_close(f(x, g), m(x, g))
    m, few = sample("bilinear"), grids(2, 1, 3, 2)
    f = pliant.compile(m, (x, few))
    assert ROWS not in f.explain()
    torch.testing.assert_close(f(x, few), m(x, few), rtol=1e-4, atol=1e-5)


def test_rows_that_are_chosen_stay_rows() -> None:
    """Whatever order their reader writes in: of a table, and of four corners of each place."""

    def mixed(table: Tensor, at: Tensor, weights: Tensor) -> Tensor:
        rows = sum(table[at[k]] * weights[k, ..., None] for k in range(4))
        assert isinstance(rows, Tensor)
        return rows.movedim(-1, 1)

    args = torch.randn(50, 24), torch.randint(0, 50, (4, 3, 7, 5)), torch.rand(4, 3, 7, 5)
    f = pliant.compile(Apply(mixed), args)
    torch.testing.assert_close(f(*args), mixed(*args), rtol=1e-5, atol=1e-5)
    assert len(f.explain().split("[map]")) == 3  # one of them turns what the other has made
    looked_up = Apply(lambda table, at: table[at])
    f = pliant.compile(looked_up, (args[0], args[1]))
    assert len(f.explain().split("[map]")) == 2  # rows as they are wanted need no copy
    torch.testing.assert_close(f(args[0], args[1]), args[0][args[1]])


class Warp(nn.Module):
    """What flows into a convolution, weighted, and as a result of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, 16, 3, padding=1)
        self.after = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor, grid: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        features = self.before(x).relu()
        warped = F.grid_sample(features, grid, align_corners=True) * mask
        return self.after(warped), warped


def test_between_convolutions() -> None:
    m = Warp().eval()
    dynamic = ({2: "h", 3: "w"}, {1: "h", 2: "w"}, {2: "h", 3: "w"})
    args = torch.randn(2, 3, 8, 9), grids(2, 8, 9, 2), torch.rand(2, 1, 8, 9)
    f = pliant.compile(m, args, dynamic_shapes=dynamic)
    for h, w in [(8, 9), (1, 3), (13, 16)]:
        args = torch.randn(2, 3, h, w), grids(2, h, w, 2), torch.rand(2, 1, h, w)
        for got, want in zip(f(*args), m(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
