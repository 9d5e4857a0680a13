"""What `numerics` promises: "strict" sums in order, rounding every step; "batch_invariant" rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant.base.dtypes import f32
from pliant.base.errors import InvalidModelError
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var

Array = np.ndarray


def in_order(terms: Array) -> Array:
    """The sum along the last axis, one f32 addition after the other."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for k in range(terms.shape[-1]):
        total = total + terms[..., k]
    return total


def product(x: Array, w: Array) -> Array:
    return in_order(x[:, None, :] * w.T[None])


def convolution(x: Array, w: Array) -> Array:
    """3 x 3, no padding, as in the definition: over channels, then the window."""
    n, _, h, v = x.shape
    out = np.empty((n, w.shape[0], h - 2, v - 2), np.float32)
    for i in range(h - 2):
        for j in range(v - 2):
            window = x[:, None, :, i : i + 3, j : j + 3] * w[None]
            out[:, :, i, j] = in_order(window.reshape(*window.shape[:2], -1))
    return out


def strict(build: Any, *arrays: Array, target: str = "native") -> Array:
    b = Builder("main", OPERATORS)
    names = ("n", "m")
    values = [b.param(f"x{k}", f32, (var(names[k]), *a.shape[1:])) for k, a in enumerate(arrays)]
    f = pliant.compile(b.finish([build(b, *values)]), numerics="strict", target=target)
    assert f.stats()["numerics"] == "strict"
    return f(*arrays)


@pytest.fixture(params=["x86-64", "x86-64-avx2", "native"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 45)).astype(np.float32)
W = RNG.standard_normal((45, 19)).astype(np.float32)


def test_strict_products(target: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        return b.call("mul", b.call("matmul", x, b.weight("w", W)), b.scalar(3.0, f32))

    np.testing.assert_array_equal(strict(build, X, target=target), product(X, W) * np.float32(3))


@pytest.mark.parametrize("axis", [0, 1])
def test_strict_sums(axis: int, target: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        square = b.call("add", b.call("mul", x, x), x)  # two roundings
        return b.call("sum", square, axes=(axis,), keepdims=False)

    terms = X * X + X
    want = in_order(terms if axis else terms.T)
    np.testing.assert_array_equal(strict(build, X, target=target), want)


def test_strict_sum_of_everything(target: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        return b.call("sum", x, axes=(0, 1), keepdims=False)

    np.testing.assert_array_equal(strict(build, X, target=target), in_order(X.reshape(-1)))


def test_strict_convolution(target: str) -> None:
    x = RNG.standard_normal((2, 5, 6, 7)).astype(np.float32)
    w = RNG.standard_normal((4, 5, 3, 3)).astype(np.float32)

    def build(b: Builder, x: Any) -> Any:
        return b.call("conv", x, b.weight("w", w), None, strides=(1, 1), dilations=(1, 1),
                      pads=((0, 0), (0, 0)), groups=1)  # fmt: skip

    np.testing.assert_array_equal(strict(build, x, target=target), convolution(x, w))


class Block(nn.Module):
    """Products of several depths, attention, normalisations, a convolution over each row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(48, 3, 80, batch_first=True, norm_first=True)
        self.conv = nn.Conv1d(48, 20, 3, padding=1)
        self.head = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(self.inner(x).transpose(1, 2)).mean(-1)
        return self.head(nn.functional.silu(y))


@pytest.fixture(scope="module")
def block() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = Block().eval()
    f = pliant.compile(
        model, (torch.randn(3, 11, 48),), dynamic_shapes=({0: "batch", 1: "seq"},),
        numerics="batch_invariant",
    )  # fmt: skip
    return model, f


@pytest.mark.sweep
@pytest.mark.parametrize("seq", [1, 5, 11, 33])
def test_rows_do_not_depend_on_one_another(block: tuple[nn.Module, Any], seq: int) -> None:
    model, f = block
    x = torch.randn(40, seq, 48, generator=torch.Generator().manual_seed(seq))
    whole = f(x)
    with torch.no_grad():
        torch.testing.assert_close(whole, model(x), rtol=1e-4, atol=1e-5)
    for start, stop in ((0, 1), (7, 9), (3, 6), (1, 8), (0, 17), (20, 40)):
        assert torch.equal(f(x[start:stop].clone()), whole[start:stop]), (start, stop)


def test_an_unknown_contract() -> None:
    with pytest.raises(InvalidModelError, match="numerics must be one of fast, strict, batch_inv"):
        pliant.compile("model.onnx", numerics="exact")


def test_a_maximum_of_all_goes_through_memory() -> None:
    """A convolution's values lie with channels last; a maximum has no order to keep."""
    image = RNG.standard_normal((2, 6, 9)).astype(np.float32)
    filters = RNG.standard_normal((3, 6, 3)).astype(np.float32)

    def build(b: Builder, x: Any, w: Any) -> Any:
        attributes = {"strides": (1,), "pads": ((0, 0),), "dilations": (1,), "groups": 1}
        return b.call("max", b.call("conv", x, w, None, **attributes), axes=(0, 1, 2))

    want = torch.conv1d(torch.from_numpy(image), torch.from_numpy(filters)).max()
    np.testing.assert_allclose(strict(build, image, filters), want, rtol=1e-5)
