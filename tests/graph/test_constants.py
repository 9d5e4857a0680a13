"""Constants: what follows from weights."""

from __future__ import annotations

import torch
from torch import nn

from pliant.frontend.select import Request, import_model
from pliant.graph.constants import constant_values
from pliant.ops.table import OPERATORS


class Made(nn.Module):
    """Values of weights, of weights and numbers, of numbers, and of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ones = torch.full((3,), 2.0)
        return torch.exp(self.w), torch.atan2(self.w, ones), torch.sin(ones), x + self.w


def test_constants() -> None:
    request = Request(Made().eval(), (torch.rand(2, 3),), None, ({0: "n"},))
    function = import_model(request, OPERATORS).function
    known = constant_values(function)
    assert [r.name in known for r in function.results] == [True, True, False, False]
    assert {v.name for v, _ in function.weights} <= known
