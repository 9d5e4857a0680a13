"""Programs that go over the lines of a tensor, or over matrices, which threads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

Fn = Callable[[torch.Tensor], Any]


def _definite(x: torch.Tensor) -> torch.Tensor:
    square = x.unsqueeze(-1) * 0.1 * x.unsqueeze(-2)
    return square + 2 * torch.eye(x.shape[-1])


CASES: dict[str, Fn] = {
    "sort of the first": lambda x: x.sort(0),
    "sort of the middle": lambda x: x.sort(1, descending=True),
    "sort of the last": lambda x: x.sort(2),
    "one line": lambda x: x.flatten().sort(stable=True),
    "best": lambda x: x.topk(2, 2),
    "best of the middle": lambda x: x.topk(1, 1, largest=False),
    "inverse": lambda x: torch.linalg.inv(_definite(x)),
    "cholesky": lambda x: torch.linalg.cholesky(_definite(x)),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
}


@pytest.mark.parametrize("name", CASES)
def test_threads_share_lines(name: str) -> None:
    fn = CASES[name]
    shapes = ({0: "n", 1: "m"},)
    example = (tensor(2, 3, 5),)
    alone, several = (
        pliant.compile(Apply(fn), example, dynamic_shapes=shapes, threads=k) for k in (1, 3)
    )
    for n, m in ((2, 3), (1, 1), (7, 40), (301, 11), (3, 500)):
        x = tensor(n, m, 5)
        y = several(x)
        assert_same(y, alone(x), tolerance=0)
        assert_same(y, fn(x), tolerance=1e-4)


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("m", [0, 3])
def test_no_lines(n: int, m: int) -> None:
    fn = CASES["sort of the last"]
    f = pliant.compile(Apply(fn), (tensor(2, 3, 5),), dynamic_shapes=({0: "n", 1: "m"},))
    x = tensor(n, m, 5)
    assert_same(f(x), fn(x), tolerance=0)
