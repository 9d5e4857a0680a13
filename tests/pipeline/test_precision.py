"""precision="bf16": factors of products are rounded once, everything else stays f32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant import UnsupportedError
from pliant.codegen.llvm.target import target
from pliant.codegen.micro_kernels import multiplies
from tests.compiled.torch_run import traced
from tests.woven import woven

BF16 = 2.0**-8  # half a unit in the last place, relative


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT / 4, -1) @ v


def _compiled(module: nn.Module, x: torch.Tensor) -> pliant.Compiled:
    return pliant.compile(module, (x,), dynamic_shapes=({0: "n"},), precision="bf16")


def _depthwise(channels: int, window: int, stride: int) -> nn.Module:
    return nn.Conv2d(channels, channels, window, stride, window // 2, groups=channels)


ONE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(37, 21), (37,)),
    "conv": (lambda: nn.Conv2d(6, 9, 3, padding=1), (6, 8, 7)),
    "transposed": (lambda: nn.ConvTranspose2d(6, 5, 4, stride=2), (6, 4, 5)),
    "window of 5": (lambda: _depthwise(5, 5, 1), (5, 3, 40)),
    "window of 5, strided": (lambda: _depthwise(40, 5, 2), (40, 9, 7)),
    "window of 7": (lambda: _depthwise(19, 7, 1), (19, 11, 6)),
    "window of 4": (lambda: nn.Conv2d(33, 33, 4, padding=(3, 1), groups=33), (33, 6, 9)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ONE)
def test_one_product(kind: str) -> None:
    """Each factor is off by 2**-8 of itself, sums are f32: a bound for every output."""
    torch.manual_seed(0)
    make, shape = ONE[kind]
    module = make()
    f = _compiled(module.eval(), torch.randn(3, *shape))
    exact = module.double()
    for n in (1, 3, 13):
        x = torch.randn(n, *shape)
        with torch.no_grad():
            want = exact(x.double())
            sizes = torch.nn.utils.parameters_to_vector(exact.parameters()).clone()
            for p in exact.parameters():
                p.copy_(p.abs())
            most = exact(x.double().abs())  # the sum of magnitudes
            torch.nn.utils.vector_to_parameters(sizes, exact.parameters())
        got = f(x)
        assert got.dtype is torch.float32
        assert ((got.double() - want).abs() <= (2 * BF16 + BF16**2 + 2.0**-16) * most).all()
        assert not torch.equal(got.double(), want)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_vector_is_a_matrix_of_one_row(precision: str) -> None:
    """Times a constant matrix. Two values, and a sum of products of all elements, stay f32."""
    torch.manual_seed(0)
    w, x = torch.randn(5, 7, 33), torch.randn(5, 7)

    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.w = nn.Linear(7, 33), nn.Parameter(w)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            plane = torch.einsum("ab,abn->n", x, self.w)
            return self.layer(x[0] + 1), plane, (x * self.w[..., 0]).sum(), x[1] @ x[2]

    module = Products().eval()
    f = pliant.compile(module, (x,), precision=precision)
    assert f.explain().count("[contraction") == 2
    assert "linear stays f32" not in f.explain()
    with torch.no_grad():
        got, want = f(x), module(x)
    bound = 2 * BF16 if precision == "bf16" else 0.03
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(
            a, b, rtol=0, atol=bound * float(x.norm() * w.norm(dim=(0, 1)).max())
        )
    for a, b in zip(got[2:], want[2:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not torch.equal(got[0], want[0]) and not torch.equal(got[1], want[1])


@pytest.mark.parametrize("batch", [1, 3])
def test_a_mean_of_one_element_is_stored_as_f32(batch: int) -> None:
    """It is taken away from what it is the mean of: nothing is left, not the rounding error."""

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(1), nn.Linear(1, 40)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.norm(x.unsqueeze(0).reshape(1, batch, 4, 4, 1)))

    torch.manual_seed(0)
    module, x = Rows().eval(), torch.randn(2 * batch, 1, 8)
    with torch.no_grad():
        want = module(x)
    got = pliant.compile(module, (x,), precision="bf16")(x)
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)


class OneHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.parts = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.out = nn.Linear(32, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        q, k, v = (p(x).view(x.shape[0], -1, 1, 32).transpose(1, 2) for p in self.parts)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out(y.reshape(x.shape[0], -1, 32))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(32, 32, 4, 4), nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32, bias=False)
        self.window = nn.Conv2d(64, 64, 3, padding=1, groups=64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(self.norm(self.conv(x).flatten(2).transpose(1, 2)))
        y = self.window(y.transpose(1, 2).reshape(x.shape[0], 64, 8, 16))
        return self.down(F.gelu(y.flatten(2).transpose(1, 2)))


@pytest.mark.parametrize(
    ("make", "shape"), [(OneHead, (1, 24, 32)), (Tokens, (1, 32, 32, 64))], ids=["head", "tokens"]
)
def test_a_batch_of_one_costs_no_copies(make: Any, shape: tuple[int, ...]) -> None:
    """As many kernels as for any batch, each of which stores as little."""
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(shape)
    one = pliant.compile(module, (x,), precision="bf16")
    many = pliant.compile(
        module, (torch.cat([x, x]),), dynamic_shapes=({0: "n"},), precision="bf16"
    )
    assert one.stats()["launches"] == many.stats()["launches"]
    assert one.explain().count(" cast\n") == many.explain().count(" cast\n")
    with torch.no_grad():
        torch.testing.assert_close(one(x), module(x), rtol=0.02, atol=0.02)


def test_layers_store_halves_and_tell_their_accuracy(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 8)).eval()
    x = torch.randn(5, 32)
    f = _compiled(module, x)
    text = f.explain()
    assert "-> gelu_bf16[n, 48]" in text  # the cast is in the kernel of gelu
    assert text.count("[map]") == 1 and "input_bf16[n, 32]" in text
    stats = f.stats()
    error = (f(x).double() - module.double()(x.double())).detach()
    assert stats["max_abs[output]"] == pytest.approx(error.abs().max().item(), rel=1e-3)
    assert 0 < float(stats["relative_l2[output]"] or 0) < 2 * BF16
    f.save(tmp_path / "m.so")
    g = pliant.load(tmp_path / "m.so")
    assert g.stats()["max_abs[output]"] == stats["max_abs[output]"]
    assert torch.equal(g(x), f(x))


def test_attention_with_symbolic_sizes() -> None:
    torch.manual_seed(0)
    args = tuple(torch.randn(2, 7, 16) for _ in range(3))
    shapes = tuple({0: "b", 1: "s"} for _ in range(3))
    f = pliant.compile(Attention(), args, dynamic_shapes=shapes, precision="bf16")
    assert "[attention" in f.explain() and "softmax cast" in f.explain()
    for b, s in ((1, 1), (2, 7), (3, 17)):
        q, k, v = (torch.randn(b, s, 16) for _ in range(3))
        want = Attention()(q.double(), k.double(), v.double())
        # scores are off by e, probabilities by e**2 - 1 of themselves, then two roundings more
        e = 2.1 * BF16 * (q.double().abs() @ k.double().abs().mT / 4).amax(-1, keepdim=True)
        bound = (torch.expm1(2 * e) * 1.02 + 2.1 * BF16) * v.abs().amax(-2, keepdim=True)
        assert ((f(q, k, v).double() - want).abs() <= bound).all()


def test_what_is_no_product_stays() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 6, 6)
    module = nn.Conv2d(8, 8, (1, 3), groups=8).eval()
    f = _compiled(module, x)
    assert "conv stays f32: no matrix product" in f.explain()
    assert torch.equal(f(x), pliant.compile(module, (x,), dynamic_shapes=({0: "n"},))(x))


class Pictures(nn.Module):
    """A window between two products, which want channels innermost."""

    def __init__(self, channels: int, window: int, stride: int) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(3, channels, 1), nn.Conv2d(channels, 3, 1)
        self.depthwise = nn.Conv2d(channels, channels, window, stride, groups=channels)
        self.around = (window // 2, (window - 1) // 2) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.pad(F.relu6(self.up(x)), self.around)
        return self.down(F.hardswish(self.depthwise(y)))


@pytest.mark.parametrize("window", [(1, 3), (1, 31), (11, 1)])
def test_windows_that_are_as_fast_in_f32(window: Any) -> None:
    module = nn.Conv2d(8, 8, window, groups=8, padding="same").eval()
    f = _compiled(module, torch.randn(2, 8, 9, 40))
    assert "conv stays f32: no matrix product" in f.explain()


WINDOWS = [(2, 1), (3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (4, 1), (11, 1), (18, 2)]


@pytest.mark.sweep
@pytest.mark.parametrize(("size", "channels"), woven(WINDOWS, [8, 16, 24, 40, 48, 64, 75]))
def test_windows(size: tuple[int, int], channels: int) -> None:
    """Of pictures of all sizes, smaller than the window and not; padding costs no copy."""
    torch.manual_seed(0)
    module = Pictures(channels, *size).eval()
    graph = traced(module, (torch.randn(2, 3, 20, 21),), ({0: "n", 2: "h", 3: "w"},))
    f = pliant.compile(graph, precision="bf16")
    assert "[windowed]" in f.explain() and "conv stays f32" not in f.explain()
    assert f.explain().count("[map]") == 2  # of the picture, and of the result
    for n, h, w in ((0, 4, 4), (1, 1, 1), (1, 2, 33), (2, 3, 4), (1, 9, 8), (3, 16, 7), (1, 31, 5)):
        x = torch.randn(n, 3, h, w)
        with torch.no_grad():
            want = module(x)
        assert torch.linalg.vector_norm(f(x) - want) <= 0.02 * torch.linalg.vector_norm(want)
    x[0, :, 20, 2] = float("inf")
    with torch.no_grad():
        assert torch.equal(f(x).isfinite(), module(x).isfinite())


@pytest.mark.sweep
@pytest.mark.parametrize(("width", "each"), [(16, 16), (24, 48), (65, 31), (8, 32), (32, 8)])
def test_groups_of_channels(width: int, each: int) -> None:
    """1 x 1 convolutions of wide groups are products of pairs; panels of narrow ones are not worth
    it."""
    torch.manual_seed(0)
    conv = nn.Conv1d(3 * width, 3 * each, 1, groups=3).eval()
    x = torch.randn(2, 3 * width, 9)
    for dims in ({}, {0: "n", 2: "w"}):
        f = pliant.compile(conv, (x,), dynamic_shapes=(dims,), precision="bf16")
        assert ("conv stays f32" in f.explain()) == (min(width, each) < 16)
        for n, w in ((2, 9), (0, 3), (1, 1), (3, 40)) if dims else ((2, 9),):
            x = torch.randn(n, 3 * width, w)
            with torch.no_grad():
                want = conv(x)
            assert torch.linalg.vector_norm(f(x) - want) <= 0.01 * torch.linalg.vector_norm(want)


class OwnFilters(nn.Module):
    """A convolution in groups whose filters are made of a value (StyleGAN2: of each sample)."""

    def __init__(self, width: int, each: int, size: int) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.randn(1, each, width, size, size))

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        own = (self.filters * style[:, None, :, None, None]).flatten(0, 1)
        y = nn.functional.conv2d(x.flatten(0, 1)[None], own, padding=1, groups=len(style))
        return y.view(len(style), -1, *y.shape[2:])


@pytest.mark.sweep
@pytest.mark.parametrize(("width", "each"), [(16, 16), (40, 17), (32, 64), (8, 32), (32, 8)])
def test_groups_with_filters_of_their_own(width: int, each: int) -> None:
    torch.manual_seed(0)
    for samples, size in ((3, 3), (2, 1)):
        module = OwnFilters(width, each, size).eval()
        inputs = torch.randn(samples, width, 7, 9), torch.randn(samples, width)
        f = pliant.compile(module, inputs, precision="bf16")
        assert ("conv stays f32" in f.explain()) == (min(width, each) < 16)
        with torch.no_grad():
            want = module.double()(*(x.double() for x in inputs))
        assert (f(*inputs) - want).norm() / want.norm() < 1e-2


@pytest.mark.parametrize("word", ["int4", "fp8", ""])
def test_other_words(word: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        pliant.compile(nn.Linear(2, 2), (torch.ones(1, 2),), precision=word)
    said = (
        f"precision={word!r} is not available; there are: None (as the model says), 'bf16', 'int8'"
    )
    assert str(caught.value) == said


def test_values_that_are_multiplied_few_times_stay() -> None:
    """Scores of 6 queries are multiplied as they are, those of any number of queries are not."""

    class Scores(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return q @ k.transpose(-1, -2)

    q, k = torch.randn(2, 6, 40), torch.randn(2, 50, 40)
    want = q @ k.transpose(-1, -2)
    few = pliant.compile(Scores(), (q, k), dynamic_shapes=({}, {1: "n"}), precision="bf16")
    said = "matmul stays f32: values are multiplied 5.2 times each, too few to convert them"
    assert said in few.explain()
    assert (few(q, k) - want).norm() <= 1e-6 * want.norm()
    many = pliant.compile(Scores(), (q, k), dynamic_shapes=({1: "m"}, {1: "n"}), precision="bf16")
    assert "stays f32" not in many.explain()
    assert 1e-4 * want.norm() <= (many(q, k) - want).norm() <= 1e-2 * want.norm()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("window", "stays"), [(3, True), (7, False)])
def test_small_windows_on_few_channels_stay(window: int, stays: bool) -> None:
    """A model's first image is read where it lies, unless each element is multiplied often."""
    first = nn.Conv2d(3, 16, window, 2, window // 2)
    module = nn.Sequential(first, nn.ReLU(), nn.Conv2d(16, 8, 1)).eval()
    x = torch.randn(1, 3, 30, 34)
    f = pliant.compile(module, (x,), precision="bf16")
    said = "a window of 27 elements on few channels takes longer to copy as pairs"
    assert (said in f.explain()) == stays
    with torch.no_grad():
        torch.testing.assert_close(f(x), module(x), rtol=0.0, atol=0.02)


def test_attention_of_which_one_product_stays() -> None:
    """Values that are narrower than keys: the scores are of bf16, what they weigh is not."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 70, 16), torch.randn(2, 70, 16), torch.randn(2, 70, 4)
    shapes = tuple({0: "b", 1: "s"} for _ in range(3))
    f = pliant.compile(Attention(), (q, k, v), dynamic_shapes=shapes, precision="bf16")
    assert "the products have factors of other types, or other panels" in f.explain()
    for b, s in ((1, 1), (2, 33), (1, 130)):
        q, k, v = torch.randn(b, s, 16), torch.randn(b, s, 16), torch.randn(b, s, 4)
        want = Attention()(q.double(), k.double(), v.double())
        assert (f(q, k, v) - want).norm() <= 0.02 * want.norm()


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("name", ["x86-64", "native"])
def test_a_target_without_the_instructions_says_so(name: str, precision: str) -> None:
    f = pliant.compile(nn.Linear(3, 4), (torch.ones(2, 3),), precision=precision, target=name)
    t = target(name)
    told = f"precision={precision!r}: {t.name} has no instructions for products of" in f.explain()
    assert told == (not multiplies(t, precision))
    assert name != "x86-64" or told
