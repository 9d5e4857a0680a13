"""Reductions over any axes of an operand, at once: of rows, of columns, and of both."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply

AXES = [c for n in (1, 2, 3, 4) for c in combinations(range(4), n)]
SIZES = ((2, 3, 5, 17), (1, 1, 1, 1), (3, 2, 33, 7), (2, 0, 3, 5), (0, 2, 3, 20), (4, 5, 1, 64))
DIMS = {0: "n", 1: "c", 2: "h", 3: "w"}


def check(fn: Callable[..., Any], make: Callable[..., torch.Tensor], sizes: Any = SIZES) -> str:
    f = pliant.compile(Apply(fn), (make(*sizes[0]),), dynamic_shapes=((DIMS,),))
    for shape in sizes:
        x = make(*shape)
        want = fn(x.double() if x.dtype is torch.float32 else x).to(fn(x).dtype)
        torch.testing.assert_close(f(x), want, rtol=1e-5, atol=1e-5, equal_nan=True)
    return f.explain()


@pytest.mark.sweep
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_sums(axes: tuple[int, ...]) -> None:
    explained = check(lambda x: x.sum(axes), tensor)
    assert "[map" not in explained  # nothing is turned around


@pytest.mark.sweep
@pytest.mark.parametrize("axes", [(0, 2, 3), (1, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("kind", ["amax", "amin", "var", "mean", "any", "norm"])
def test_of_rows_and_columns(kind: str, axes: tuple[int, ...]) -> None:
    sizes = [s for s in SIZES if 0 not in s]

    def made(*shape: int) -> torch.Tensor:
        x = tensor(*shape)
        if kind in ("amax", "amin") and x.numel() > 40:
            x.view(-1)[7], x.view(-1)[11] = torch.nan, torch.inf
        return x

    fns = {
        "any": lambda x: (x > 1.5).any(axes[-1]).any(axes[0]),
        "var": lambda x: x.var(axes, correction=0),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=axes),
    }
    fn = fns.get(kind, lambda x: getattr(x, kind)(axes))
    check(fn, made, sizes)


def test_integers_wrap() -> None:
    def big(*shape: int) -> torch.Tensor:
        return torch.full(shape, 2**62) + torch.arange(torch.Size(shape).numel()).view(shape)

    check(lambda x: x.sum((0, 3)), big)


@pytest.mark.parametrize("last", [1, 3, 15, 16, 40])
def test_rows_of_a_known_length(last: int) -> None:
    """Short ones are reduced last."""
    x = tensor(9, 4, 11, last)
    for axes in ((0, 3), (0, 2, 3), (1, 3)):
        f = pliant.compile(Apply(lambda x, a=axes: x.sum(a)), (x,))
        torch.testing.assert_close(f(x), x.sum(axes), rtol=1e-5, atol=1e-5)
        assert "[map" not in f.explain()


def test_strict_keeps_one_sum() -> None:
    x = tensor(3, 4, 5, 20)
    f = pliant.compile(Apply(lambda x: x.sum((0, 3))), (x,), numerics="strict")
    torch.testing.assert_close(f(x), x.sum((0, 3)), rtol=1e-5, atol=1e-5)
    assert ".rows" not in f.explain()


def test_batch_norm_of_a_batch() -> None:
    """Its statistics are sums over images and places."""
    norm = torch.nn.BatchNorm2d(5, affine=False, track_running_stats=False)
    f = pliant.compile(norm, (tensor(2, 5, 9, 8),), dynamic_shapes=({0: "n", 2: "h", 3: "w"},))
    for shape in ((2, 5, 9, 8), (1, 5, 13, 31), (7, 5, 2, 1)):
        x = tensor(*shape)
        torch.testing.assert_close(f(x), norm(x), rtol=1e-4, atol=1e-5)
