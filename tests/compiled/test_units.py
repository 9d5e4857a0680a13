"""Reductions that keep their dimensions share kernels like those that do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.compiled.torch_run import Apply


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def standardise(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean((1, 2), keepdim=True)
    return centred / (centred.square().sum((1, 2), keepdim=True) + 1)


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "rms": (rms, 1),
    "standardise": (standardise, 1),
    "softmax by hand": (lambda x: (x - x.amax(2, keepdim=True)).exp(), 1),
    "a result too": (lambda x: (x.sum(2, keepdim=True), x - x.sum(2, keepdim=True)), 2),
    "first": (lambda x: x - x.mean(0, keepdim=True), 2),
    "all": (lambda x: x / x.abs().amax((0, 1, 2), keepdim=True), 2),
    "looked up": (lambda x: x.sum(1, keepdim=True)[:, torch.tensor([0, 0]), :] + x[:, :1], 3),
    "after a product": (lambda x: rms((x @ x.mT).relu()), 2),
}


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_unit_dimensions(case: str) -> None:
    fn, kernels = CASES[case]
    f = pliant.compile(Apply(fn), (tensor(3, 4, 6),), dynamic_shapes=(({0: "a", 1: "b", 2: "c"},),))
    assert f.stats()["launches"] <= kernels + 1
    for shape in ((3, 4, 6), (1, 1, 1), (2, 7, 33), (5, 1, 16), (1, 3, 1)):
        x = tensor(*shape)
        torch.testing.assert_close(f(x), fn(x), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_norm_is_one_kernel() -> None:
    f = pliant.compile(Apply(rms), (tensor(3, 4, 6),), dynamic_shapes=(({0: "a", 2: "c"},),))
    assert f.stats()["launches"] == 1


KEPT: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(-1, keepdim=True),
    "greatest": lambda x: x.amax(-1, keepdim=True),
    "two axes": lambda x: x.abs().sum((1, 2), keepdim=True),
    "with a reader": lambda x: (x.amax(2, keepdim=True), x - x.amax(2, keepdim=True)),
    "twice": lambda x: (x.sum(2, keepdim=True), x.sum(2, keepdim=True) + 1),
}


@pytest.mark.parametrize("case", KEPT)
def test_results_that_keep_dimensions_are_rows(case: str) -> None:
    """As the same without them, and not element by element."""
    fn = KEPT[case]
    f = pliant.compile(Apply(fn), (tensor(3, 4, 6),), dynamic_shapes=(({0: "a", 1: "b", 2: "c"},),))
    assert "[row]" in f.explain()
    assert "[reduction]" not in f.explain()
    for shape in ((3, 4, 6), (1, 1, 1), (2, 7, 33), (0, 1, 16), (1, 3, 1)):
        x = tensor(*shape)
        torch.testing.assert_close(f(x), fn(x), rtol=1e-4, atol=1e-5)


ONE: dict[str, tuple[Callable[..., Any], int]] = {
    "softmax": (lambda x: x.softmax(-1), 1),
    "rows": (lambda x: rms(x * 2), 1),
    "after a product": (lambda x: ((x @ x.mT) * 2).softmax(-1), 3),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", ONE)
def test_a_batch_of_one_is_a_dimension_like_others(case: str) -> None:
    """Its index can only be 0, which must not hide that a kernel's stages go over one space."""
    fn, kernels = ONE[case]
    f = pliant.compile(Apply(fn), (tensor(1, 4, 6),), dynamic_shapes=(({1: "b", 2: "c"},),))
    assert f.stats()["launches"] <= kernels
    for shape in ((1, 4, 6), (1, 1, 1), (1, 7, 33), (1, 0, 5)):
        x = tensor(*shape)
        torch.testing.assert_close(f(x), fn(x), rtol=1e-4, atol=1e-5, equal_nan=True)


Layer = tuple[torch.nn.Module, tuple[int, ...], list[str]]
VECTORS: dict[str, Layer] = {
    "one row": (torch.nn.Linear(20, 40), (1, 20), ["contraction"]),
    "one column": (torch.nn.Linear(20, 1, bias=False), (5, 20), ["row"]),
    "one pixel": (torch.nn.Conv2d(20, 40, 1), (1, 20, 1, 1), ["contraction"]),
    "one channel": (torch.nn.Conv2d(20, 1, 1, bias=False), (1, 20, 5, 3), ["reduction"]),
    "one of each": (torch.nn.Linear(20, 1, bias=False), (1, 20), ["row"]),
    "a view of one pixel": (
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(20, 40)),
        (1, 20, 1, 1),
        ["contraction"],
    ),
    "heads of one row": (
        torch.nn.Sequential(Apply(lambda x: x.mT.reshape(1, 1, 20)), torch.nn.Linear(20, 40)),
        (1, 5, 4),
        ["contraction"],
    ),
    "a view of one row, one column": (
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(20, 1, bias=False)),
        (1, 20, 1),
        ["row"],
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_products_with_vectors(case: str) -> None:
    """A constant matrix is packed for a row; a column would fill no panel. No kernel is left as it
    is written, which would be slow (the tests make that an error)."""
    layer, shape, kinds = VECTORS[case]
    x = tensor(*shape)
    f = pliant.compile(layer.eval(), (x,))
    assert re.findall(r"k_([a-z]+)_", f.explain()) == kinds
    with torch.no_grad():
        torch.testing.assert_close(f(x), layer(x), rtol=1e-4, atol=1e-5)
