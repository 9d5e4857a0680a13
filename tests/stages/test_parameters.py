"""Which constants of a model are parameters of its kernels, and what kernels know of these."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from tests.compiled.torch_run import Apply, traced
from tests.frontend.torch.running import assert_same
from tests.stages.oracle import stages_of


def texts(model: nn.Module, args: tuple[Tensor, ...], name: str) -> list[str]:
    """Of the kernels that run in every call, as LLVM gets them."""
    t = target(name)
    stages = stages_of(*traced(model, args, None), t)
    return [kernel_source(stages.kernels[symbol], t).text for symbol in stages.parts[-1].kernels]


@pytest.mark.parametrize("name", ["x86-64", "x86-64-avx2", "x86-64-avx512", "aarch64"])
def test_rows_of_whole_vectors(name: str) -> None:
    """Rows of whole vectors share a kernel that has no code for what is left over; other rows share
    another."""
    lanes = target(name).lanes(32)
    widths = [lanes * 50, lanes * 52, lanes * 55, lanes * 50 + 1, lanes * 52 + 3]
    model = Apply(lambda *rows: [x.sin() for x in rows])
    found = texts(model, tuple(torch.randn(3, w) for w in widths), name)
    assert len(found) == 2
    assert sum("llvm.masked.store" in text for text in found) == 1


class Pointwise(nn.Module):
    """1 x 1 convolutions of several sides, of channels that fill the tiles of any target."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, o, 1) for c, o in ((96, 32), (64, 96), (48, 64)))

    def forward(self, *images: Tensor) -> list[Tensor]:
        return [conv(x).relu() for conv, x in zip(self.convs, images, strict=True)]


def test_small_images() -> None:
    """Products of the places of a small image are run by the kernel of large ones."""
    assert_one_product(Pointwise().eval(), (2, 96, 7, 7), (2, 64, 4, 3), (2, 48, 28, 28))


def assert_one_product(model: nn.Module, *shapes: tuple[int, ...]) -> None:
    """All of the model's products are run by one kernel, and come out right."""
    args = tuple(torch.randn(s) for s in shapes)
    found = stages_of(*traced(model, args, None), target()).parts[-1].kernels
    assert sum(spec.kind == "contraction" for spec in found.values()) == 1
    f = pliant.compile(model, args)
    for got, want in zip(f(*args), model(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_sizes_that_happen_to_be_equal() -> None:
    """As many channels in as out, and an image as wide as it has channels, make no other kernel."""
    together = [nn.Conv2d(*c, 1).requires_grad_(False) for c in ((64, 64), (96, 32), (32, 96))]
    model = Apply(lambda *images: [c(x).relu() for c, x in zip(together, images, strict=True)])
    assert_one_product(model, (2, 64, 64, 32), (3, 96, 32, 96), (3, 32, 17, 19))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sides", [(5, 7), (8, 8), (7, 14)])
def test_sides_that_are_numbers_elsewhere(sides: tuple[int, int]) -> None:
    """Of which other things are made, too: windows, steps, what is added to an index."""
    h, w = sides

    def function(x: Tensor, weight: Tensor, filters: Tensor) -> tuple[Tensor, ...]:
        y = torch.einsum("bchw,oc->bohw", x, weight)
        return (
            y,
            torch.nn.functional.conv2d(y, filters, padding=(h // 2, w // 2)),
            y.roll((1, 2), (2, 3)),
            y.flatten(1).unfold(1, w, h),
            torch.nn.functional.pixel_shuffle(y, 2),
        )

    torch.manual_seed(0)
    weight, filters = torch.randn(32, 24) / 24**0.5, torch.randn(3, 32, h, w) / (32 * h * w) ** 0.5
    args = torch.randn(2, 24, h, w), weight, filters  # sums of about 1
    f = pliant.compile(Apply(function), args)
    for got, want in zip(f(*args), function(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("heads", [(4, 2, 32), (2, 4, 48), (3, 20), (2, 3, 4, 16), (5, 2, 7)])
def test_groups_of_heads(heads: tuple[int, ...]) -> None:
    """What sums over heads, their groups and elements of them knows one size of another."""
    together = nn.Linear(math.prod(heads), 24).requires_grad_(False)
    model = Apply(lambda x, y: together((x * y).sum(1).flatten(1)))
    x, y = torch.randn(6, 9, *heads), torch.randn(6, 9, *heads)
    assert_same(pliant.compile(model, (x, y))(x, y), model(x, y), tolerance=1e-5)
    turned = Apply(lambda x, y: together(torch.einsum("bs...d,bs...->b...d", x, y).flatten(1)))
    y = torch.randn(6, 9, *heads[:-1])
    assert_same(pliant.compile(turned, (x, y))(x, y), turned(x, y), tolerance=1e-5)


def test_operands_in_any_order() -> None:
    """Sums and products of something computed and something given are the same kernel whichever
    comes first."""
    model = Apply(lambda x, y, a, b: (x.sin() + a, b + y.sin(), 2 * x.cos() * a, b * (y.cos() * 2)))
    args = tuple(torch.randn(shape) for shape in ((21, 40), (33, 40)) * 2)
    found = stages_of(*traced(model, args, None), target()).parts[-1].kernels
    assert len(found) == 2
    for got, want in zip(pliant.compile(model, args)(*args), model(*args), strict=True):
        torch.testing.assert_close(got, want)


def test_weights_of_all_sizes_are_packed_by_one_kernel() -> None:
    """How many panels there are is a size, however few: of one width, as these are with AVX-512."""
    layers = [nn.Conv2d(*c, 1).requires_grad_(False) for c in ((24, 64), (40, 96), (56, 256))]
    model = Apply(lambda *images: [c(x) for c, x in zip(layers, images, strict=True)])
    images = tuple(torch.randn(2, c, 9, 9) for c in (24, 40, 56))
    prepare, _ = stages_of(*traced(model, images, None), target("x86-64-avx512")).parts
    assert len(prepare.kernels) == 1
    f = pliant.compile(model, images)
    for got, want in zip(f(*images), model(*images), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
