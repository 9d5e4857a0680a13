"""Mean and variance of rows in one pass: where, and how exact, whatever the rows hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.frontend.select import Request, import_model
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from tests.compiled.torch_run import Apply

layer_norm = nn.functional.layer_norm


def near(function: Callable[..., Any], *args: Tensor, numerics: str = "fast") -> int:
    """How many variances are sums of differences from a value near the mean."""
    imported = import_model(Request(Apply(function), args), OPERATORS)
    main = lower_function(imported.function, OPERATORS, 32, numerics=numerics).main
    return sum(m.name.endswith(".squares_near") for g in main.groups for m in g.members)


def test_which_rows() -> None:
    """Long ones, but not so long that digits get lost; over several dimensions, too."""
    for shape, found in [((4, 512), 1), ((4, 511), 0), ((4, 4096), 1), ((4, 4097), 0)]:
        assert near(lambda x: layer_norm(x, x.shape[1:]), torch.ones(shape)) == found
    assert near(lambda x: layer_norm(x, x.shape[1:]), torch.ones(3, 4, 5, 32)) == 1
    assert near(lambda x: layer_norm(x, x.shape[1:]), torch.ones(3, 512), numerics="strict") == 0


def test_what_else_is_wanted() -> None:
    x = torch.ones(3, 600)
    assert near(lambda x: (x.var(-1), x.mean(-1)), x) == 1
    assert near(lambda x: (x.var(-1), x.sum(-1)), x) == 0  # the sum itself
    assert near(lambda x: layer_norm(x + x.cos(), (600,)), x) == 0  # it is not made twice
    assert near(lambda x: layer_norm(x * x, (600,)), x) == 1
    assert near(lambda x: layer_norm(x, (600,)) + layer_norm(x, (600,), eps=0.1), x) == 1


def rows(n: int) -> np.ndarray:
    """Rows that are hard on sums."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((16, n)).astype(np.float32)
    x[1] += 1e4
    x[2] = 1e3 + x[2] * 1e-2
    x[3, :8] = 1e6  # what is taken away is far from the mean
    x[4, 0] = 1e5
    x[5, -1] = -1e5
    x[6] = 12345.678
    x[7] = 0
    x[8] = np.arange(n)
    x[9] *= 1e-20
    x[10, n // 2 :] += 100
    x[11, :8] = 0
    return x


@pytest.mark.sweep
@pytest.mark.parametrize("n", [512, 1000, 1024, 2047, 3001, 4096])
def test_hard_rows(n: int) -> None:
    x, weight, bias = rows(n), torch.randn(n), torch.randn(n)
    f = pliant.compile(Apply(lambda x: layer_norm(x, (n,), weight, bias)), (torch.tensor(x),))
    wide = torch.tensor(x).double()
    want = layer_norm(wide, (n,), weight.double(), bias.double()).numpy()
    found, usual = f(torch.tensor(x)).numpy(), layer_norm(torch.tensor(x), (n,), weight, bias)
    err = np.abs(found - want).max(1)
    least = 3e-5 * np.abs(want).max(1)
    assert (err <= np.maximum(least, 4 * np.abs(usual.numpy() - want).max(1))).all()
    np.testing.assert_array_equal(found[7], bias)
    np.testing.assert_allclose(found[6], bias, atol=1e-3)


def test_rows_that_are_no_numbers() -> None:
    """What has no mean is not a number; squares that overflow make a row of zeros, as they did."""
    x = torch.ones(6, 640)
    x[0, 3], x[1, 300], x[2, 5], x[3, 639] = torch.inf, -torch.inf, torch.nan, torch.nan
    x[4], x[4, 0], x[5, 9] = 0, 1e30, 3e25
    f = pliant.compile(Apply(lambda x: layer_norm(x, (640,))), (x,))
    found = f(x)
    assert found[:4].isnan().all()
    assert (found[4:] == 0).all()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x + y, layer_norm(x + y, (600,))),
        lambda x, y: layer_norm(layer_norm(x, (600,)) * y, (600,)) + x,
        lambda x, y: torch.var_mean(x.bfloat16().float() - y, -1),
        lambda x, y: layer_norm((x * y).bfloat16(), (600,)),
        lambda x, y: layer_norm((x - y).double(), (600,)),
        lambda x, y: (x.view(-1, 3, 8, 25).std((2, 3)), y.view(-1, 3, 200).var(2)),
        lambda x, y: x.view(-1, 600, 1, 1).permute(0, 2, 3, 1).contiguous().var(-1, keepdim=True),
        lambda x, y: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + y.var(-1).mean()),
    ],
)
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_with_what_is_around(function: Callable[..., Any], n: int) -> None:
    x, y = torch.randn(n, 600) * 3 + 5, torch.randn(n, 600)
    f = pliant.compile(Apply(function), (x, y), dynamic_shapes=(({0: "n"}, {0: "n"}),))
    found, want = f(x, y), function(x, y)
    both = (found, want) if isinstance(want, tuple) else ((found,), (want,))
    for a, b in zip(*both, strict=True):
        loose: Sequence[float] = (2e-2, 2e-2) if b.dtype is torch.bfloat16 else (1e-5, 1e-5)
        torch.testing.assert_close(a, b, rtol=loose[0], atol=loose[1])
