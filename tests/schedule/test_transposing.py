"""A transposition reads squares of its source as their lines lie."""

from __future__ import annotations

import pytest
import torch

from pliant.codegen.llvm.target import target
from pliant.frontend.select import Request, import_model
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.pipeline import compile_imported
from pliant.schedule.recipes.map import map_recipe


class Turn(torch.nn.Module):
    """Nothing but the transposition."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).contiguous()


def test_the_square_is_copied_first() -> None:
    """One copy, of no more than a square."""
    imported = import_model(Request(Turn(), (torch.zeros(100, 90),)), OPERATORS)
    ((_, launch),) = lower_function(imported.function, OPERATORS, 4).main.launches
    p = map_recipe(launch.spec, 4)
    (copy,) = p.allocated
    assert p.buffer(copy).room.value <= 16 * 4


@pytest.mark.parametrize("shape", [(100, 90), (64, 128), (17, 131), (131, 65), (3, 70), (1, 99)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.bool])
def test_transposed(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Whole squares and rests of both sides."""
    x = torch.arange(shape[0] * shape[1]).reshape(shape).remainder(251).to(dtype)
    module = Turn()
    f = compile_imported(import_model(Request(module, (x,)), OPERATORS), target(), OPERATORS)
    assert torch.equal(f(x), module(x))
