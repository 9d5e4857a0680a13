"""3 x 3 convolutions by patches: where, and that they are right there at every size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.base.dtypes import bf16, f32
from pliant.codegen.llvm.target import target
from pliant.frontend.select import Request, import_model
from pliant.ops.table import OPERATORS
from pliant.opt.winograd import steps_for, winograd
from tests.compiled.torch_run import traced


def conv(channels: int = 32, outputs: int = 32, size: int = 3, **more: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(channels, outputs, size, **{"padding": 1} | more)).eval()


def by_patches(
    model: nn.Module, *shape: int, dims: Any = None, dynamic: Any = None,
    precision: str | None = None,
) -> int:  # fmt: skip
    """How far apart patches are; 0 where there are none."""
    example = (torch.zeros(shape),)
    imported = import_model(Request(model, example, None, dynamic, dims), OPERATORS)
    steps = steps_for(precision, ())
    assert steps is not None
    function, stay = winograd(imported.function, OPERATORS, *steps)
    found = [b.op for b in function.bindings if b.op == "conv" or b.op.startswith("winograd")]
    assert ("conv" in found) != ("winograd_results" in found)
    ((weight, _), *_) = imported.function.weights
    assert len(stay) == ("conv" in found and weight.shape[-1] == 3)
    apart = [dict(b.attrs)["step"] for b in function.bindings if b.op == "winograd_patches"]
    return sum(apart)


def test_where() -> None:
    assert by_patches(conv(), 1, 32, 16, 16)
    assert by_patches(conv(padding=0), 1, 32, 18, 18)
    assert by_patches(conv(bias=False), 1, 32, 16, 16)
    assert by_patches(conv(outputs=16), 1, 32, 16, 16)
    assert by_patches(conv(channels=8, outputs=4), 1, 8, 16, 16)
    assert not by_patches(conv(channels=7), 1, 7, 16, 16)
    assert not by_patches(conv(outputs=3), 1, 32, 16, 16)
    assert by_patches(conv(channels=16, outputs=16), 1, 16, 16, 16, precision="bf16")
    assert not by_patches(conv(channels=15), 1, 15, 16, 16, precision="bf16")
    assert not by_patches(conv(outputs=15), 1, 32, 16, 16, precision="bf16")
    assert not by_patches(conv(stride=2), 1, 32, 32, 32)
    assert not by_patches(conv(dilation=2), 1, 32, 32, 32)
    assert not by_patches(conv(groups=2, channels=64), 1, 64, 32, 32)
    assert not by_patches(conv(size=1, padding=0), 1, 32, 32, 32)


def test_sizes_of_images() -> None:
    """Not of too few patches; several images have more, and smaller steps make more."""
    assert by_patches(conv(), 1, 32, 13, 13) == 4
    assert by_patches(conv(), 1, 32, 12, 12) == by_patches(conv(), 1, 32, 7, 7) == 2
    assert not by_patches(conv(channels=15), 1, 15, 12, 12)  # the transforms cost more there
    assert not by_patches(conv(), 1, 32, 6, 6)
    assert by_patches(conv(), 2, 32, 12, 12) == 4
    assert by_patches(conv(), 1, 32, 160, 160)
    assert by_patches(conv(), 1, 32, 1080, 1920)
    size = {2: "h", 3: "h"}
    assert by_patches(conv(), 1, 32, 20, 20, dynamic=(size,))
    for known, step in ({"max": 12}, 2), ({"max": 6}, 0), ({"likely": (9,)}, 2), ({}, 4):
        dims = {"h": pliant.Dim(**known)}
        assert by_patches(conv(), 1, 32, 5, 5, dynamic=(size,), dims=dims) == step
    several = {"n": pliant.Dim(min=2)}
    assert by_patches(conv(), 2, 32, 12, 12, dynamic=({0: "n"},), dims=several) == 4


def test_memory_of_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions get what there is by what they save for it: those of large images first, and
    of equal ones the first."""
    small = [layer for _ in range(3) for layer in (nn.AvgPool2d(1), conv())]
    model = nn.Sequential(*small, nn.Upsample(scale_factor=4), conv(), conv())
    imported = import_model(Request(model, (torch.zeros(1, 32, 16, 16),), None, None), OPERATORS)
    unit = 32 * 32 * 4
    for room, steps in (
        (3 * 7, [2, 0, 0, 2, 2]), (4 * 7 + 20, [2, 2, 0, 4, 2]), (5 * 7 + 20, [0, 0, 0, 4, 4]),
        (5 * 7 + 60, [4, 2, 2, 4, 4]), (5 * 27, [4] * 5), (6, [0] * 5),
    ):  # fmt: skip
        monkeypatch.setattr("pliant.opt.winograd.MORE", (room * unit, room * unit))
        function, stay = winograd(imported.function, OPERATORS)
        full = "filters of other convolutions take as much memory as they may"
        assert stay == (full,) * steps.count(0)
        found = [
            0 if b.op == "conv" else dict(b.attrs)["step"]
            for b in function.bindings
            if b.op in ("conv", "winograd_patches")
        ]
        assert found == steps, room


class Between(nn.Module):
    """Convolutions with others around them: images inside have their channels last."""

    def __init__(self, padding: Any, channels: int = 32, outputs: int = 35) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before = nn.Conv2d(3, channels, 1)
        self.first = nn.Conv2d(channels, outputs, 3, padding=padding)
        self.second = nn.Conv2d(outputs, channels, 3, padding=1, bias=False)
        self.after = nn.Conv2d(channels, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x).relu()
        z = self.second(self.first(y).relu())
        return self.after(z + y if z.shape == y.shape else z)


@pytest.mark.sweep
@pytest.mark.parametrize(("precision", "most"), [(None, 5e-6), ("bf16", 1e-2)])
@pytest.mark.parametrize("padding", [0, 1, (2, 0)])
def test_every_size(padding: Any, precision: Any, most: float) -> None:
    """One compilation; images of fewer than a patch, of part of one, and none."""
    example, dynamic = (torch.rand(2, 3, 20, 22),), ({0: "n", 2: "h", 3: "w"},)
    graph = traced(Between(padding), example, dynamic, n=pliant.Dim(min=0))
    exact = Between(padding).double().eval()
    least = 1 if padding == 1 else 3
    f = pliant.compile(graph, precision=precision)
    steps = steps_for(precision, target().features)
    assert f.explain().count("[patches, ") == (2 if steps else 0)
    for n, h, w in (
        (1, 20, 22), (3, least, least), (1, least + 1, 4), (2, 5, 7), (1, 17, 31), (0, 8, 8),
        (1, 63, 65), (2, 4, 100),
    ):  # fmt: skip
        x = torch.randn(n, 3, h, w)
        expected = exact(x.double()).detach()
        got = f(x).double()
        assert got.shape == expected.shape
        error = torch.linalg.vector_norm(got - expected)
        assert error <= most * torch.linalg.vector_norm(expected)
    assert f.stats()["compiles"] == 1


@pytest.mark.sweep
@pytest.mark.parametrize(("channels", "outputs"), [(16, 16), (32, 32), (40, 24)])
def test_small_images(channels: int, outputs: int) -> None:
    """Steps of two, at images of one size, of which everything is known, and of any."""
    model = Between(1, channels, outputs).eval()
    exact = Between(1, channels, outputs).double().eval()
    any_size = pliant.compile(
        model, (torch.rand(1, 3, 7, 7),), dynamic_shapes=({2: "h", 3: "w"},),
        dims={"h": pliant.Dim(max=12), "w": pliant.Dim(max=12)},
    )  # fmt: skip
    for h, w in ((7, 7), (8, 9), (12, 11)):
        x = torch.randn(1, 3, h, w)
        expected = exact(x.double()).detach()
        for f in (any_size, pliant.compile(model, (x,))):
            assert f.explain().count("winograd_products") == 2
            assert torch.dist(f(x).double(), expected) <= 2e-6 * torch.linalg.norm(expected)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("images", [2, 3])
def test_batches_of_images_of_known_sizes(images: int) -> None:
    """Rows of the products have three dimensions, and more of them than a block takes: whether
    blocks are apart is not seen, so that batches are shared among threads alone."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 128, 1), nn.Conv2d(128, 128, 3, padding=1), nn.Conv2d(128, 4, 1)
    )
    x = torch.randn(images, 4, 32, 32)
    f = pliant.compile(model.eval(), (x,))
    assert "[contraction, rows read in place] winograd_products" in f.explain()
    torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


def test_threads_agree() -> None:
    model, x = Between(1).eval(), torch.randn(2, 3, 40, 40)
    one, two = (pliant.compile(model, (x,), threads=n) for n in (1, 2))
    assert torch.equal(one(x), two(x))


def test_only_where_numerics_are_fast() -> None:
    """Other contracts say more of what is added to what, and of what is not finite."""
    x = torch.randn(1, 32, 16, 16)
    x[0, 3, 8, 8] = torch.inf
    for numerics in ("strict", "batch_invariant"):
        f = pliant.compile(conv(), (x,), numerics=numerics)
        assert "winograd" not in f.explain()
        assert torch.equal(f(x).isfinite(), conv()(x).isfinite())
    reduced = pliant.compile(conv(), (torch.randn(1, 32, 16, 16),), precision="int8")
    assert "winograd" not in reduced.explain()


def test_of_which_type() -> None:
    assert steps_for(None, {"avx2"}) == ((4, 2), f32)
    assert steps_for("bf16", {"avx512bf16"}) == steps_for("bf16", ()) == ((2,), bf16)
    assert steps_for("bf16", {"amx-int8", "amx-bf16"}) is None  # products take no time there
    assert steps_for("int8", {"avx512vnni"}) is None


def test_ends_are_reached_element_by_element() -> None:
    """Only what lies as the results do is turned after the patches."""
    torch.manual_seed(3)
    convs = [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 1)]
    for model, last in ((nn.Sequential(*convs), False), (nn.Sequential(*convs[:2]), True)):
        request = Request(model.eval(), (torch.zeros(1, 32, 16, 16),), None, None)
        function, _ = winograd(import_model(request, OPERATORS).function, OPERATORS)
        (results,) = (b for b in function.bindings if b.op == "winograd_results")
        assert results.attributes()["last"] == last


def test_computed_filters() -> None:
    """What follows from weights alone is a constant, too."""
    model = nn.utils.parametrizations.weight_norm(nn.Conv2d(32, 32, 3, padding=1)).eval()
    x = torch.randn(1, 32, 17, 19)
    f = pliant.compile(model, (x,))
    assert "winograd_results" in f.explain()
    torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


class Features(nn.Module):
    """What the model gives is read by another convolution, too; others read it in odd ways."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.before = nn.Conv2d(3, 32, 1)
        self.first = nn.Conv2d(32, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 16, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.before(x)
        z = self.first(y).relu()
        w = self.second(z)
        return (
            z,
            w.flatten(1),
            torch.cat([z[:, ::3], y], 1),
            self.first(z).mean((2, 3)),
            w[:, :, 1:],
        )


def test_results_that_go_on() -> None:
    model, exact = Features().eval(), Features().double().eval()
    dynamic = ({0: "n", 2: "h", 3: "w"},)
    f = pliant.compile(model, (torch.rand(2, 3, 20, 22),), dynamic_shapes=dynamic)
    assert f.explain().count("winograd_products") >= 3
    for n, h, w in ((1, 20, 22), (2, 9, 31), (3, 4, 5)):
        x = torch.randn(n, 3, h, w)
        for got, expected in zip(f(x), exact(x.double()), strict=True):
            torch.testing.assert_close(got.double(), expected.detach(), rtol=2e-5, atol=2e-5)


def test_explained() -> None:
    """Those that stay say why, a note for each reason."""
    model = nn.Sequential(conv(), conv(stride=2), conv(stride=2), conv(outputs=3), conv(3, size=1))
    said = pliant.compile(model, (torch.zeros(1, 32, 64, 64),)).explain()
    stays = "conv stays a sum of products"
    assert [line for line in said.splitlines() if stays in line] == [
        f"note: 3 x 3 filters: 2 x {stays}: it has groups, strides or dilations",
        f"note: 3 x 3 filters: 1 x {stays}: of 32 channels to 3 the transforms cost what they save",
    ]
