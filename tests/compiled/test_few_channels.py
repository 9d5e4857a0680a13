"""Convolutions of images of few channels, a network's first one, against torch at every size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.compiled.torch_cases import tensor
from tests.frontend.torch.running import assert_same
from tests.woven import woven

SIZES = ((1, 1), (3, 2), (5, 7), (8, 16), (17, 33), (31, 70))


def check(module: nn.Module, channels: int, sizes: Any = SIZES) -> pliant.Compiled:
    """The same as torch at all sizes, from one compilation."""
    torch.manual_seed(0)
    module.eval()
    rank = len(sizes[0])
    dims = {0: "n"} | {2 + d: f"d{d}" for d in range(rank)}
    example = tensor(2, channels, *(20, 21, 22)[:rank])
    f = pliant.compile(module, (example,), dynamic_shapes=(dims,))
    for n in (0, 1, 3):
        for size in sizes:
            x = tensor(n, channels, *size)
            with torch.no_grad():
                assert_same(f(x), module(x), tolerance=1e-4)
    assert f.stats()["compiles"] == 1
    return f


def recipes(f: pliant.Compiled) -> str:
    return " ".join(line for line in f.explain().splitlines() if "[" in line and "]" in line)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("filters", "channels"), woven([8, 16, 20, 24, 31, 33, 64], [1, 3, 4], each=2)
)
def test_filters(filters: int, channels: int) -> None:
    conv = nn.Conv2d(channels, filters, 3, 2, 1)
    f = check(nn.Sequential(conv, nn.ReLU6(), nn.Conv2d(filters, 5, 1)), channels)
    assert "[windowed] conv" in recipes(f)


@pytest.mark.sweep
@pytest.mark.parametrize("options", [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 7, "padding": 3, "stride": 2},
    {"kernel_size": 7, "padding": 3, "stride": 4, "bias": False},
    {"kernel_size": 5, "padding": (2, 4), "stride": (1, 3)},
    {"kernel_size": (1, 5), "padding": (0, 2)},
    {"kernel_size": 3, "padding": (2, 3), "dilation": (2, 3)},
    {"kernel_size": 3, "padding": 1, "padding_mode": "reflect", "stride": 2},
], ids=str)  # fmt: skip
def test_windows(options: dict[str, Any]) -> None:
    sizes = [s for s in SIZES if min(s) > 1]
    check(nn.Sequential(nn.Conv2d(3, 32, **options), nn.Hardswish()), 3, sizes)


def test_long_runs_with_padding() -> None:
    """A window as wide as its step, of which a part is outside: a product whose rows are copied,
    by a loop of an extent that is not known to be more than 0."""
    f = check(nn.Conv2d(3, 20, 16, 16, 8), 3, [s for s in SIZES if min(s) >= 3])
    assert "[contraction" in recipes(f)


def test_without_padding() -> None:
    check(nn.Conv2d(3, 16, 3, 2), 3, [s for s in SIZES if min(s) >= 3])


def test_asymmetric_padding() -> None:
    check(nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 16, 3, 2), nn.SiLU()), 3,
          [s for s in SIZES if min(s) >= 2])  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("rank", [1, 3])
def test_ranks(rank: int) -> None:
    conv = nn.Conv1d if rank == 1 else nn.Conv3d
    sizes = [(n, 7, 5)[:rank] for n in (1, 2, 7, 33)]
    check(nn.Sequential(conv(2, 40, 3, padding=1), nn.GELU()), 2, sizes)


def test_what_is_subtracted_before() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 3, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv((x - 0.5) / 0.25)

    check(Scaled(), 3)


@pytest.mark.parametrize("size", [(2, 3), (7, 9), (30, 34)])
def test_constant_sizes(size: tuple[int, int]) -> None:
    module = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 8, 1)).eval()
    x = tensor(2, 3, *size)
    with torch.no_grad():
        assert_same(pliant.compile(module, (x,))(x), module(x), tolerance=1e-4)


def test_weights_that_are_given() -> None:
    class Functional(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.conv2d(x, w, stride=2, padding=1)

    x, w = tensor(2, 3, 15, 17), tensor(16, 3, 3, 3)
    assert_same(pliant.compile(Functional(), (x, w))(x, w), Functional()(x, w), tolerance=1e-4)


def test_what_is_not_a_number_stays_where_it_is() -> None:
    module = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Tanh()).eval()
    f = pliant.compile(module, (tensor(1, 3, 11, 13),), dynamic_shapes=({2: "h", 3: "w"},))
    for place in ((0, 0), (5, 6), (10, 12)):
        x = tensor(1, 3, 11, 13)
        x[0, 1, place[0], place[1]] = float("nan")
        with torch.no_grad():
            assert torch.equal(f(x).isnan(), module(x).isnan())


@pytest.mark.sweep(3)
@pytest.mark.parametrize("module", [
    nn.Conv2d(3, 4, 3),  # few filters
    nn.Conv2d(3, 32, 16, 16),  # long runs
    nn.Conv2d(8, 32, 3, 2),  # many channels
], ids=str)  # fmt: skip
def test_others_stay_products(module: nn.Module) -> None:
    f = pliant.compile(module.eval(), (tensor(1, module.in_channels, 32, 32),))
    assert "[contraction" in recipes(f)


@pytest.mark.parametrize(("module", "turned"), [
    (nn.Conv2d(8, 20, 3, 2, 1), True), (nn.Conv2d(12, 12, 5, 1, 2), True),
    (nn.Conv2d(8, 20, 4, 4), False), (nn.Conv2d(10, 20, 5, 6), False),
    (nn.Conv2d(8, 20, (2, 3), (2, 2)), True), (nn.Conv2d(7, 20, 5, 2), False),
])  # fmt: skip
def test_images_that_windows_read_again_are_turned(module: nn.Module, turned: bool) -> None:
    """From 8 channels on where windows overlap; others are gathered where they are read once."""
    f = check(module, module.in_channels, ((12, 15), (31, 24)))
    assert ("rows read in place" in f.explain()) is turned, f.explain()
    assert ("[map] copy" in f.explain()) is turned, f.explain()
