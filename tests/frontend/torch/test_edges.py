"""Arguments and values at the edges of what operators are defined for, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant import UnsupportedError
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([NAN, INF, -INF, 0.0, -0.5, 0.05, 1.5, -3.0])
EDGES = torch.tensor([-1.0, 0.0, 1.0])
BYTES = torch.tensor([[0, 3], [1, 2]], dtype=torch.uint8)
CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "threshold of NaN": (lambda x: F.threshold(x, 0.1, -3.0), (ODD,)),
    "hardshrink of NaN": (lambda x: F.hardshrink(x), (ODD,)),
    "softshrink of NaN": (lambda x: F.softshrink(x), (ODD,)),
    "far erfc": (torch.erfc, (torch.tensor([-3.0, 0.0, 1.0, 3.0, 4.0]),)),
    "hypot of large and small": (
        torch.hypot,
        (
            torch.tensor([1e30, 1e-30, 0.0, INF, 3.0, NAN]),
            torch.tensor([1e30, 1e-30, 0.0, NAN, -4.0, 1.0]),
        ),
    ),
    "quotients by infinity": (
        lambda a, b: torch.floor_divide(a, b),
        (
            torch.tensor([-1.5, 1.5, 1.5, -1.5, 7.0, -7.0]),
            torch.tensor([INF, -INF, INF, -INF, 2.0, 2.0]),
        ),
    ),
    "NaN among edges": (lambda x: torch.bucketize(x, EDGES), (ODD,)),
    "NaN among edges, right": (lambda x: torch.searchsorted(EDGES, x, right=True), (ODD,)),
    "any of bytes": (lambda x: (x.any(), x.all(1)), (BYTES,)),
    "around, and cut": (
        lambda x: (F.pad(x, (3, -1), "circular"), F.pad(x, (-2, 1), "circular")),
        (torch.arange(8.0).view(1, 1, 8),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str) -> None:
    fn, args = CASES[name]
    f = pliant.compile(Apply(fn), args)
    assert_same(f(*args), fn(*args), tolerance=1e-5)


@pytest.mark.parametrize("sections", [2, 3, 5])
def test_parts_of_any_size(sections: int) -> None:
    """As torch splits it at this size, not as at the example's."""
    fn: Any = lambda x: torch.tensor_split(x, sections)  # noqa: E731
    f = pliant.compile(Apply(fn), (torch.arange(7.0),), dynamic_shapes=(({0: "n"},),))
    for n in (0, 1, 4, 5, 6, 7, 23):
        x = torch.arange(float(n))
        assert_same(f(x), fn(x))


@pytest.mark.parametrize("options", [
    {"size": (5, 12), "mode": "bilinear"}, {"size": (16, 5), "mode": "bicubic"},
    {"size": (3, 5), "mode": "bicubic", "antialias": True}, {"size": (7, 4), "mode": "nearest"},
])  # fmt: skip
def test_bytes_are_resampled(options: dict[str, Any]) -> None:
    """Rounded and clamped as torch does it; its weights of 15 bits decide near halves."""
    fn: Any = lambda x: F.interpolate(x, **options)  # noqa: E731
    x = torch.randint(0, 256, (2, 3, 8, 9), generator=torch.Generator().manual_seed(0)).byte()
    x[:, :, ::2] = 255 * (x[:, :, ::2] > 127)
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=(({2: "h"},),))
    for image in (x, x[:, :, :5]):
        found, expected = f(image), fn(image)
        assert found.dtype is torch.uint8
        away = (found.int() - expected.int()).abs()
        assert away.max() <= 1 and away.float().mean() < 0.05


def test_a_slice_of_one_is_squeezed() -> None:
    fn: Any = lambda x: x[:, 1:2].squeeze(1) + 1  # noqa: E731
    f = pliant.compile(Apply(fn), (torch.randn(4, 5, 3),), dynamic_shapes=(({1: "n"},),))
    for n in (2, 3, 9):
        x = torch.randn(4, n, 3)
        assert_same(f(x), fn(x))


def test_a_mutation_that_torch_cannot_rewrite_is_refused() -> None:
    def mutates(x: torch.Tensor) -> torch.Tensor:
        y = x + 0
        y.unfold(2, 2, 1)[..., 0].abs_()
        return y

    with pytest.raises(UnsupportedError, match="in-place"):
        pliant.compile(Apply(mutates), (torch.randn(2, 3, 4),))


NARROW = [torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", NARROW)
def test_one_lane_is_stored_as_wide_as_it_is(dtype: torch.dtype) -> None:
    """Of 9 or 17 columns the last vector has one lane: it must not overwrite what lies behind."""
    fn: Any = lambda x: x.t().to(dtype)  # noqa: E731
    for n in (9, 17, 33):
        x = torch.arange(n * n).view(n, n) % 100
        assert_same(pliant.compile(Apply(fn), (x,))(x), fn(x))


def test_a_convolution_of_seven_pixels_in_bf16() -> None:
    model = torch.nn.Conv2d(8, 4, 3, padding=1).to(torch.bfloat16).eval()
    x = torch.randn(2, 8, 7, 7, dtype=torch.bfloat16)
    got = torch.as_tensor(pliant.compile(model, (x,))(x))
    torch.testing.assert_close(got, model(x).detach(), rtol=2e-2, atol=2e-2)


FIRST: dict[str, Any] = {
    "relu": torch.relu,
    "product": lambda x: x @ x.t(),
    "softmax": lambda x: x.softmax(-1),
    "concatenation": lambda x: torch.cat([x, x], 1),
}


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_first_columns_are_a_result(name: str, symbolic: bool) -> None:
    """They do not take the place of all columns."""
    fn: Any = lambda x: FIRST[name](x)[:, :3]  # noqa: E731
    x = torch.randn(6, 8)
    dims = (({0: "n"},),) if symbolic else None
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=dims)
    assert_same(f(x), fn(x), tolerance=1e-5)
