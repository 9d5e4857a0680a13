"""What is taken apart and put together again is read as it lies; digits are one run in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pliant
from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Select
from pliant.ir.tensor import own_nodes
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.sym.expr import as_int
from tests.compiled.torch_run import Apply


def main_of(function: Callable[..., Any], *args: Tensor) -> Any:
    imported = import_model(Request(Apply(function), args), OPERATORS)
    return lower_function(imported.function, OPERATORS, 32).main


@pytest.mark.parametrize(
    ("function", "chosen"),
    [
        (lambda x: torch.stack((x[:, 0], x[:, 1]), 1) * 2, False),
        (lambda x: torch.stack((x[:, 3], x[:, 4]), 2) * 2, False),
        (lambda x: torch.stack((x[:, 4], x[:, 3]), 0) * 2, False),  # backwards
        (lambda x: torch.stack((x[:, 0], x[:, 5]), 1) * 2, False),  # with a step
        (lambda x: torch.stack((x[:, 0], x[:, 1], x[:, 2]), 1) * 2, True),
        (lambda x: torch.stack((x[:, 0], x.cos()[:, 1]), 1) * 2, True),
        (lambda x: torch.stack((x[:, 0, :5], x[:, 1, 1:]), 1) * 2, True),
    ],
)
def test_parts_put_together(function: Callable[[Tensor], Tensor], chosen: bool) -> None:
    x = torch.randn(3, 7, 6)
    bodies = [m.tensor.body for g in main_of(function, x).groups for m in g.members]
    assert any(isinstance(n, Select) for b in bodies for n in own_nodes(b)) == chosen
    f = pliant.compile(Apply(function), (x,))
    torch.testing.assert_close(f(x), function(x))


def test_digits() -> None:
    """An axis through three dimensions keeps its extent, one through two has parameters."""
    for shape, kept in [((8, 4, 20), True), ((32, 20), False)]:
        x = torch.randn(*shape, 50)
        turned = Apply(lambda x: x.reshape(640, 50).t().contiguous())
        (_, launch), *_ = main_of(turned, x).launches
        assert (as_int(640) in launch.spec.space) == kept
        assert (pliant.compile(turned, (x,))(x) == turned(x)).all()
