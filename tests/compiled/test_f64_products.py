"""Products of f64 run on a micro-kernel of their own, at any size, as exact as f64 is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from tests.compiled.torch_run import Apply

TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


def doubles(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape))


def check(
    fn: Callable[..., Any] | nn.Module, dims: Any, makes: Any, kernels: str, **o: Any
) -> None:
    module = fn.double().eval() if isinstance(fn, nn.Module) else Apply(fn)
    shapes = dims if isinstance(fn, nn.Module) else (dims,)
    f = pliant.compile(module, makes[0], dynamic_shapes=shapes, **o)
    assert kernels in f.explain(), f.explain()
    for args in makes:
        torch.testing.assert_close(f(*args), module(*args), **TOLERANCE)


@pytest.mark.parametrize("numerics", ["fast", "batch_invariant"])
def test_linear(numerics: str) -> None:
    rows = (5, 0, 1, 6, 7, 13, 64)
    check(
        nn.Linear(67, 45), ({0: "n"},), [(doubles(n, 67),) for n in rows], "[contraction",
        numerics=numerics,
    )  # fmt: skip


def test_two_values() -> None:
    sizes = ((3, 5, 7), (1, 1, 1), (2, 0, 5), (2, 5, 0), (1, 33, 64), (4, 97, 31))
    args = [(doubles(b, n, k), doubles(b, k, n)) for b, n, k in sizes]
    dims = ({0: "b", 1: "n", 2: "k"}, {0: "b", 1: "k", 2: "n"})
    check(lambda x, y: x @ y, dims, args, "[contraction")


@pytest.mark.sweep
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_convolution(stride: int, dilation: int) -> None:
    conv = nn.Conv2d(19, 37, 3, padding=1, stride=stride, dilation=dilation)
    args = [(doubles(b, 19, h, w),) for b, h, w in ((2, 9, 8), (1, 5, 5), (1, 14, 13))]
    check(nn.Sequential(conv, nn.ReLU()), ({0: "b", 2: "h", 3: "w"},), args, "[contraction")


def test_attention() -> None:
    args = [(doubles(b, 3, s, 24),) for b, s in ((2, 6), (1, 1), (0, 3), (1, 130), (2, 33))]
    fn = lambda q: F.softmax(q @ q.mT, -1) @ q  # noqa: E731
    check(fn, ({0: "b", 2: "s"},), args, "[attention")


def test_special_values() -> None:
    x, y = doubles(7, 40), doubles(40, 33)
    x[2, 3], x[3, 4], y[5, 6] = torch.inf, torch.nan, 1e308
    x[4, 5] = 1e3
    f = pliant.compile(Apply(torch.matmul), (x, y))
    torch.testing.assert_close(f(x, y), x @ y, equal_nan=True, **TOLERANCE)
