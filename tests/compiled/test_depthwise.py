"""Depthwise convolutions with channels innermost, against torch at every size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.compiled.torch_cases import tensor
from tests.frontend.torch.running import assert_same
from tests.woven import woven

SIZES = ((1, 1), (3, 2), (5, 7), (8, 16), (17, 33))


def model(channels: int, outputs: int, **options: Any) -> nn.Module:
    """One between two products: these want channels innermost."""
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, outputs, groups=channels, **options)
    return nn.Sequential(nn.Conv2d(3, channels, 1), conv, nn.ReLU6(), nn.Conv2d(outputs, 3, 1))


def test_the_recipe_is_named() -> None:
    layers = model(64, 64, kernel_size=3, padding=1).eval()
    f = pliant.compile(layers, (tensor(2, 3, 20, 21),), dynamic_shapes=({2: "h", 3: "w"},))
    assert "[windowed] conv" in f.explain(), f.explain()


def check(module: nn.Module, sizes: Any = SIZES, precision: str | None = None) -> None:
    """The same as torch at all sizes, from one compilation."""
    dims = {0: "n", 2: "h", 3: "w"}
    module.eval()
    x = tensor(2, 3, 20, 21)
    f = pliant.compile(module, (x,), dynamic_shapes=(dims,), precision=precision)
    for n in (0, 1, 3):
        for size in sizes:
            x = tensor(n, 3, *size)
            with torch.no_grad():
                assert_same(f(x), module(x), tolerance=1e-4 if precision is None else 0.03)
    assert f.stats()["compiles"] == 1


OPTIONS = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1, "stride": 2},
    {"kernel_size": 5, "padding": 2, "stride": (1, 2)},
    {"kernel_size": 7, "padding": 3},
    {"kernel_size": 3, "padding": (2, 3), "dilation": (2, 3)},
    {"kernel_size": (1, 3), "padding": (0, 5), "bias": False},
    {"kernel_size": (3, 1), "padding": (1, 0)},
    {"kernel_size": (17, 1), "padding": (8, 0), "stride": (2, 1)},
    {"kernel_size": 9, "padding": 4},
    {"kernel_size": (3, 31), "padding": (1, 15)},
    {"kernel_size": (19, 17), "padding": (9, 8), "stride": (1, 2)},
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("options", "channels"), woven(OPTIONS, [16, 24, 33, 64], each=2), ids=str)
def test_sizes(options: dict[str, Any], channels: int) -> None:
    check(model(channels, channels, **options))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("options", "channels"), woven(OPTIONS, [2, 5, 8, 12, 16, 24, 40, 48, 144], each=2), ids=str
)
def test_pairs_of_bf16(options: dict[str, Any], channels: int) -> None:
    check(model(channels, channels, **options), precision="bf16")


@pytest.mark.parametrize("channels", [1, 2, 7, 8, 12])
def test_few_channels(channels: int) -> None:
    """Fewer than a vector has lanes."""
    check(model(channels, channels, kernel_size=3, padding=1))


def test_without_padding() -> None:
    module = model(48, 48, kernel_size=3, stride=2)
    check(module, [s for s in SIZES if min(s) >= 3])


def test_several_outputs_a_channel() -> None:
    check(model(40, 80, kernel_size=3, padding=1))


@pytest.mark.sweep
@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padded", [False, True])
def test_several_results(window: int, stride: int, padded: bool) -> None:
    """Two products read what is made of a convolution: one kernel stores both."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depthwise = model(
                40, 40, kernel_size=window, stride=stride, padding=padded * (window // 2)
            )[:3]  # type: ignore[index]
            self.a, self.b = nn.Conv2d(40, 3, 1), nn.Conv2d(40, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.depthwise(x)
            return self.a(y) + self.b(torch.tanh(y))

    check(Two(), [s for s in SIZES if padded or min(s) >= window])


@pytest.mark.sweep
@pytest.mark.parametrize("width", [4, 7, 14, 30])
def test_constant_rows(width: int) -> None:
    module = model(64, 64, kernel_size=3, padding=1).eval()
    f = pliant.compile(module, (tensor(2, 3, 9, width),), dynamic_shapes=({0: "n"},))
    for n in (0, 1, 2):
        x = tensor(n, 3, 9, width)
        with torch.no_grad():
            assert_same(f(x), module(x), tolerance=1e-4)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("precision", [None, "bf16"])
def test_along_the_rows_of_heads(precision: str | None) -> None:
    """A window of one column over a few heads, which lie side by side: tiles are of rows."""
    torch.manual_seed(0)
    joint, out = nn.Linear(96, 96), nn.Linear(96, 8)
    window = nn.Conv2d(6, 6, (11, 1), padding=(5, 0), groups=6, bias=False)

    class Heads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values = joint(x).unflatten(-1, (6, 16)).transpose(1, 2)
            return out((window(values) + values).transpose(1, 2).flatten(2))

    dims = {0: "n", 1: "s"}
    f = pliant.compile(Heads(), (tensor(2, 9, 96),), dynamic_shapes=(dims,), precision=precision)
    assert "[windowed] conv" in f.explain(), f.explain()
    for n, s in ((2, 9), (0, 3), (1, 1), (3, 40)):
        x = tensor(n, s, 96)
        with torch.no_grad():
            assert_same(f(x), Heads()(x), tolerance=1e-4 if precision is None else 0.02)


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_what_is_not_a_number_stays_where_it_is(precision: str | None) -> None:
    module = nn.Sequential(nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 3, 1, 1, groups=64), nn.Tanh())
    x, dims = tensor(1, 64, 11, 13), {2: "h", 3: "w"}
    f = pliant.compile(module.eval(), (x,), dynamic_shapes=(dims,), precision=precision)
    x[0, :, 5, 6] = float("nan")
    with torch.no_grad():
        assert torch.equal(f(x).isnan(), module(x).isnan())


def test_volumes_without_padding() -> None:
    """Extents of results such as n - 4 are parameters of kernels, which do not know n."""
    torch.manual_seed(0)
    window = nn.Conv3d(8, 8, (5, 1, 2), groups=8)
    module = nn.Sequential(window, nn.ReLU(), nn.Conv3d(8, 8, 1)).eval()
    dims = {0: "n", 2: "d", 3: "h", 4: "w"}
    f = pliant.compile(module, (tensor(2, 8, 9, 10, 8),), dynamic_shapes=(dims,))
    for size in ((1, 5, 1, 2), (2, 7, 3, 5), (0, 6, 2, 9), (1, 12, 17, 16)):
        x = tensor(size[0], 8, *size[1:])
        with torch.no_grad():
            assert_same(f(x), module(x), tolerance=1e-4)
