"""Rows of two, four and eight elements from where they lie in pieces: panels, stacks, splits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import pliant
from tests.compiled.torch_run import Apply

DTYPES = (torch.float32, torch.int8, torch.bfloat16, torch.bool, torch.int64, torch.float64)
SIZES = ((0, 3), (1, 1), (2, 7), (3, 8), (1, 16), (2, 33), (3, 129))


def runs(x: Tensor, few: int) -> Tensor:
    """y[b, k, n, e] = x[b, n, k, e]: runs of `few`, any way apart."""
    return x.reshape(*x.shape[:2], 6, few).permute(0, 2, 1, 3).contiguous()


def turns(x: Tensor, few: int) -> Tensor:
    """y[b, k, n, e] = x[b, k, e, n]: `few` rows by turns."""
    return x.reshape(x.shape[0], 6, few, x.shape[2]).permute(0, 1, 3, 2).contiguous()


def check(module: nn.Module, make: Callable[[int, int], Tensor], free: int) -> None:
    f = pliant.compile(module, (make(2, 5),), dynamic_shapes=(({0: "b", free: "n"},),))
    for b, n in SIZES:
        x = make(b, n)
        torch.testing.assert_close(f(x), module(x), rtol=0, atol=0)
    assert f.stats()["compiles"] == 1


def some(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randint(-120, 120, shape).to(dtype)


@pytest.mark.sweep
@pytest.mark.parametrize("few", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_runs(dtype: torch.dtype, few: int) -> None:
    check(Apply(lambda x: runs(x, few)), lambda b, n: some(dtype, b, n, 6 * few), 1)


@pytest.mark.sweep
@pytest.mark.parametrize("few", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_turns(dtype: torch.dtype, few: int) -> None:
    check(Apply(lambda x: turns(x, few)), lambda b, n: some(dtype, b, 6 * few, n), 2)


@pytest.mark.parametrize("few", [2, 4])
def test_with_more_around(few: int) -> None:
    """Values computed on the way, beyond an edge that is filled, and a factor for each row."""

    def made(x: Tensor) -> Tensor:
        padded = nn.functional.pad(torch.exp(x) + 1, (0, 1, 0, few - 1))
        whole = padded[:, : padded.shape[1] // few * few]
        pairs = whole.unflatten(1, (-1, few)).permute(0, 1, 3, 2)
        return pairs * torch.arange(few)

    x = torch.randn(2, 4 * few, 5)
    f = pliant.compile(Apply(made), (x,), dynamic_shapes=(({0: "b", 1: "k", 2: "n"},),))
    for b, k, n in ((0, 2, 3), (1, 1, 1), (2, 3, 7), (1, few, 16), (2, 4 * few, 31), (1, 9, 64)):
        x = torch.randn(b, k, n)
        torch.testing.assert_close(f(x), made(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_panels_of_values(precision: str, turned: bool) -> None:
    """Both factors are known only when they are multiplied."""

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x @ (y.transpose(-1, -2) if turned else y)

    def args(b: int, m: int, n: int, k: int) -> tuple[Tensor, Tensor]:
        shape = (b, n, k) if turned else (b, k, n)
        return torch.randn(b, m, k), torch.randn(shape)

    n_and_k = {1: "n", 2: "k"} if turned else {1: "k", 2: "n"}
    shapes = ({0: "b", 1: "m", 2: "k"}, {0: "b", **n_and_k})
    f = pliant.compile(
        Apply(product), args(2, 40, 50, 60), dynamic_shapes=(shapes,), precision=precision
    )
    for b, m, n, k in (
        (1, 1, 1, 1),
        (2, 3, 33, 7),
        (1, 40, 31, 32),
        (3, 17, 64, 129),
        (2, 5, 96, 64),
    ):
        x, y = args(b, m, n, k)
        want = product(x.double(), y.double())
        limit = {"bf16": 0.006, "int8": 0.03}[precision]
        assert (f(x, y).double() - want).norm() <= limit * want.norm() + 1e-6 + 0.02 * (k == 1)
