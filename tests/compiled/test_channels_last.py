"""Images whose channels are last at both ends of a model: no copy is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.compiled.torch_cases import tensor
from tests.frontend.torch.running import assert_same

SIZES = ((1, 1), (3, 2), (7, 5), (16, 17))


class ChannelsLast(nn.Module):
    """Layers for images with channels first between two permutations."""

    def __init__(self, *layers: nn.Module, also: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.also = also

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layers(x.permute(0, 3, 1, 2))
        z = y.permute(0, 2, 3, 1)
        return (z, y.mean((2, 3))) if self.also else z


CASES: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: ChannelsLast(nn.Conv2d(8, 20, 3, 1, 1)),
    "conv, relu": lambda: ChannelsLast(nn.Conv2d(8, 20, 3, 1, 1), nn.ReLU()),
    "two convs": lambda: ChannelsLast(nn.Conv2d(8, 20, 3, 1, 1), nn.ReLU(), nn.Conv2d(20, 7, 1)),
    "depthwise": lambda: ChannelsLast(nn.Conv2d(8, 32, 1), nn.Conv2d(32, 32, 3, 1, 1, groups=32)),
    "pool": lambda: ChannelsLast(nn.Conv2d(8, 16, 1), nn.MaxPool2d(3, 1, 1)),
    "read again": lambda: ChannelsLast(nn.Conv2d(8, 20, 3, 1, 1), also=True),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    torch.manual_seed(0)
    module = CASES[name]().eval()
    f = pliant.compile(module, (tensor(2, 9, 8, 8),), dynamic_shapes=({0: "n", 1: "h", 2: "w"},))
    for n in (0, 1, 3):
        for size in SIZES:
            x = tensor(n, *size, 8)
            with torch.no_grad():
                assert_same(f(x), module(x), tolerance=1e-4)
    copies = [x for x in f.explain().splitlines() if x.endswith(("] permute", "] transpose"))]
    assert not copies, f.explain()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["product", "depthwise", "scaled"])
def test_what_follows_a_permutation_is_made_where_its_operand_is(name: str) -> None:
    """A bias moves behind it, say; with the dimensions in its order both are one kernel."""
    torch.manual_seed(0)
    made = {
        "product": lambda: nn.Conv2d(8, 40, 1),
        "depthwise": lambda: nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        "scaled": lambda: nn.Conv2d(8, 40, 1, bias=False),
    }

    class Scaled(ChannelsLast):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y * torch.arange(40.0) + 1 if name == "scaled" else y

    module = Scaled(made[name]()).eval()
    f = pliant.compile(module, (tensor(2, 9, 8, 8),), dynamic_shapes=({0: "n", 1: "h", 2: "w"},))
    assert f.stats()["launches"] == 1, f.explain()
    for n, size in zip((0, 1, 3, 2), SIZES, strict=True):
        x = tensor(n, *size, 8)
        with torch.no_grad():
            assert_same(f(x), module(x), tolerance=1e-4)


def test_other_orders_stay_copies() -> None:
    """Rows that lie across, and a value that is a result too."""

    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = torch.softmax(x, -1)
            z = torch.exp(x)
            return y.transpose(0, 1), z, z.transpose(0, 1)

    f = pliant.compile(Turned(), (tensor(5, 7),), dynamic_shapes=({0: "n", 1: "m"},))
    for shape in [(1, 1), (5, 7), (33, 20), (0, 3)]:
        x = tensor(*shape)
        assert_same(f(x), Turned()(x), tolerance=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_what_is_made_for_a_window_lies_along_its_rows(
    precision: str | None, transposed: bool
) -> None:
    """A map of an image with channels first, or its conversion to a narrower type."""
    torch.manual_seed(0)
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    module = nn.Sequential(nn.ReLU(), kind(24, 20, 3, 2, 1)).eval()
    dims = ({0: "n", 2: "h", 3: "w"},)
    f = pliant.compile(module, (tensor(2, 24, 9, 8),), dynamic_shapes=dims, precision=precision)
    for n in (0, 1, 3):
        for size in SIZES:
            x = tensor(n, 24, *size)
            with torch.no_grad():
                assert_same(f(x), module(x), tolerance=1e-4 if precision is None else 2e-2)
    assert "rows read in place" in f.explain(), f.explain()
