"""torch.cond: both branches are computed and one is taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant import UnsupportedError
from tests.frontend.torch.running import assert_same, check


class Experts(nn.Module):
    """One layer or another, as the sum of the input says; inside, by its first element."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        def positive(x: torch.Tensor) -> Any:
            inner = torch.cond(x[0, 0] > 1, lambda x: x.sin(), lambda x: -x, (x,))
            return self.small(inner), x.sum(0).to(torch.int32)

        def negative(x: torch.Tensor) -> Any:
            return self.large(x) * x.shape[0], torch.full((4,), 7, dtype=torch.int32)

        return torch.cond(x.sum() > 0, positive, negative, (x,))


def test_one_of_two_branches_at_every_size() -> None:
    first = torch.ones(3, 4)
    others = [(sign * torch.rand(n, 4) * 2,) for n in (1, 2, 5) for sign in (1, -1)]
    check(Experts().eval(), (first,), ({0: "n"},), others)


def test_an_exported_program_with_branches() -> None:
    model = Experts().eval()
    program = torch.export.export(model, (torch.ones(3, 4),))
    f = pliant.compile(program)
    for sign in (1.0, -1.0):
        x = sign * torch.rand(3, 4)
        assert_same(f(x), model(x))


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        step = torch.ops.higher_order.while_loop
        return step(lambda x: x.sum() < 100, lambda x: (x * 2,), (x,), ())


def test_loops_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="loops inside the model are not supported"):
        pliant.compile(Doubles(), (torch.ones(3),))
