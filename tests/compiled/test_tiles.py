"""Models for processors with AMX: their products are made in tiles and right, also where there is no
such processor, with the instructions emulated. No kernel takes or gives up tiles that it must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.codegen.amx import Machine, machine_with_tiles
from tests.targets import skipped_without

BOUND = {"bf16": 2.0**-7, "int8": 2.0**-5}  # of the largest output


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, 2, 32).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(b, n, c))


class Image(nn.Module):
    """A stem, a convolution of many channels, one in groups, one of single channels, 1 x 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 1, 1), nn.SiLU(),
            nn.Conv2d(48, 48, 3, 1, 1, groups=48), nn.Conv2d(48, 64, 1), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 2, 1, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return y


Case = tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor], tuple[int, ...]]
CASES: dict[str, Case] = {
    "layers": (
        lambda: nn.Sequential(nn.Linear(100, 130), nn.GELU(), nn.Linear(130, 77)),
        lambda n: torch.randn(n, 100),
        (1, 16, 37),
    ),
    "attention": (Attention, lambda n: torch.randn(2, n, 64), (1, 19)),
    "image": (Image, lambda n: torch.randn(n, 3, 21, 17), (2,)),
}


@pytest.fixture
def with_tiles() -> Iterator[Machine]:
    with machine_with_tiles() as found:
        yield found


@skipped_without("x86-64-avx512")  # only tiles are emulated
@pytest.mark.parametrize("precision", BOUND)
@pytest.mark.parametrize("name", CASES)
def test_models(with_tiles: Machine, name: str, precision: Any) -> None:
    make, inputs, sizes = CASES[name]
    module, axis = make().eval(), 1 if name == "attention" else 0
    f = pliant.compile(
        module, (inputs(5),), dynamic_shapes=({axis: "n"},), target=with_tiles.target,
        precision=precision, threads=1,
    )  # fmt: skip
    for n in sizes:
        before, x = with_tiles.tiles.products, inputs(n)
        with torch.no_grad():
            y, want = f(x), module(x)
        assert with_tiles.tiles.products > before
        assert not with_tiles.tiles.faults
        assert not with_tiles.tiles.rows  # given up
        assert (y - want).abs().max() <= BOUND[precision] * want.abs().max()
