"""Filters of small windows in bf16 that lie in pairs, as the instruction takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.lower import function
from tests.compiled.torch_run import traced

PAIRS = "x86-64-avx512-bf16"


class Windows(nn.Module):
    """A window of each channel between two products, which want channels innermost."""

    def __init__(self, channels: int, window: Any = 3, stride: int = 1) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(3, channels, 1), nn.Conv2d(channels, 3, 1)
        pads = window // 2 if isinstance(window, int) else 0
        self.own = nn.Conv2d(channels, channels, window, stride, pads, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.relu6(self.own(self.up(x))))


class Given(Windows):
    """The same by filters that are given in a call."""

    def forward(self, x: torch.Tensor, filters: Any = None) -> torch.Tensor:
        y = nn.functional.conv2d(self.up(x), filters, padding=1, groups=filters.shape[0])
        return self.down(y)


def packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, *args: Any, **how: Any
) -> str:
    """The stages after packing."""
    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path))
    options = {"precision": "bf16", "target": PAIRS, **how}
    pliant.compile(model.eval(), args, **options)
    (path,) = tmp_path.glob("000/*_packing.py")
    return path.read_text()


@pytest.mark.parametrize(("channels", "blocks"), [(32, 1), (48, 2), (64, 2), (80, 3)])
def test_a_layout(
    channels: int, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros where there are no channels and no row; read where an instruction wants them."""
    text = packed(tmp_path, monkeypatch, Windows(channels), torch.randn(1, 3, 32, 32))
    (made,) = (line for line in text.splitlines() if ".pairs" in line and "notes" in line)
    assert f"bf16[2, 3, {blocks}, 2, 4, 4, 2]" in made and '"op": "pack"' in made
    assert "2*_i0 + _i6 < 3" in made
    assert (f"< {channels})" in made) == (channels % 32 != 0)
    assert "_pairs[_r1//2, _r2, _i1//32, (_i1//4)%2, (_i1//8)%4, _i1%4, _r1%2]" in text
    # A side of an image that is as long as a block is none: blocks are known in the kernel.
    (kernels,) = tmp_path.glob("000/*_kernels.py")
    assert "//32, (" in kernels.read_text()


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (Windows(24), {}),
        (Windows(40), {}),  # of which 8 would be under a mask
        (Windows(64, 5), {}),  # rows are left out, so that pairs begin anywhere
        (Windows(64, (1, 3)), {}),
        (Windows(64), {"numerics": "strict"}),
        (Windows(64), {"precision": None}),
        (Windows(64), {"target": "x86-64-avx512"}),
    ],
)
def test_others_lie_as_they_did(
    model: nn.Module, how: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pairs" not in packed(tmp_path, monkeypatch, model, torch.randn(1, 3, 12, 20), **how)


def test_filters_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = torch.randn(1, 3, 12, 20), torch.randn(64, 1, 3, 3)
    assert "pairs" not in packed(tmp_path, monkeypatch, Given(64), *args)


def test_one_filter_of_two_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is laid out once."""

    class Both(Windows):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.own(self.up(x))
            return self.down(self.own(y.relu()))

    text = packed(tmp_path, monkeypatch, Both(64), torch.randn(1, 3, 12, 20))
    assert text.count('"op": "pack"') == text.count(".packed") + 1


@pytest.mark.sweep
@pytest.mark.parametrize("channels", [32, 48, 96])
@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), ((2, 3), 1), ((3, 2), 2)])
def test_results_are_the_same(
    channels: int, window: Any, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, at all sizes; a number that is not finite reaches whom it should."""
    torch.manual_seed(0)
    model = Windows(channels, window, stride).eval()
    x = torch.randn(2, 3, 9, 11)
    graph = traced(model, (x,), ({0: "n", 2: "h", 3: "w"},))
    f = pliant.compile(graph, precision="bf16")
    monkeypatch.setattr(function, "pair_filters", lambda *a: None)
    plain = pliant.compile(graph, precision="bf16")
    for n, h, w in ((1, 3, 3), (2, 4, 5), (1, 7, 8), (3, 32, 6), (1, 5, 33), (0, 4, 4)):
        x = torch.randn(n, 3, h, w)
        assert torch.equal(f(x), plain(x))
        with torch.no_grad():
            want = model(x)
        assert torch.linalg.vector_norm(f(x) - want) <= 0.02 * torch.linalg.vector_norm(want)
    x = torch.randn(1, 3, 9, 12)
    x[0, :, 4, 5] = float("inf")
    with torch.no_grad():
        assert torch.equal(f(x).isfinite(), model(x).isfinite())
