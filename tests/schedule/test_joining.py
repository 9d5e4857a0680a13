"""Two tensors joined along their last dimension are copied one after the other."""

from __future__ import annotations

from typing import Any

import torch

from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Select
from pliant.ir.node import walk
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.program import Program
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.start import start
from tests.schedule.programs import same


class Join(torch.nn.Module):
    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat(tensors, 1)


def scheduled(dynamic: Any, *args: torch.Tensor) -> tuple[Program, Program]:
    """The kernel as it is written, and by the recipe."""
    imported = import_model(Request(Join(), args, None, dynamic), OPERATORS)
    ((_, launch),) = lower_function(imported.function, OPERATORS, 4).main.launches
    return start(launch.spec), map_recipe(launch.spec, 4)


def choices(p: Program) -> int:
    """How many different choices there are in the program."""
    return sum(isinstance(n, Select) for n in walk(p.function.body))


def test_two() -> None:
    x, y = torch.zeros(5, 20), torch.zeros(5, 17)
    dynamic = ({0: "n", 1: "a"}, {0: "n", 1: "b"})
    p, q = scheduled((dynamic,), x, y)
    assert choices(p) and not choices(q)
    same(p, q, [(2, 3, 4), (1, 0, 5), (3, 5, 0), (2, 9, 1), (0, 3, 3)])
    x, y = torch.zeros(5, 200), torch.zeros(5, 170)
    p, q = scheduled(None, x, y)  # three sizes, of which nothing says that one is the sum
    assert choices(p) and not choices(q)
    same(p, q, [(370, 200, 170)])


def test_three() -> None:
    """Nothing says in which order their places come: each is looked for among the others."""
    p, q = scheduled(None, torch.zeros(2, 90), torch.zeros(2, 120), torch.zeros(2, 77))
    assert choices(p) and not choices(q)
    same(p, q, [(287, 90, 120, 77)])


def test_five_of_one_size() -> None:
    p, q = scheduled(None, *(torch.full((2, 44), float(k)) for k in range(5)))
    assert choices(p) and not choices(q)
    same(p, q, [(220, 44)])


def test_short_rows() -> None:
    """Of few channels the parts are known, and so are their ends where conditions are nested."""
    for widths in ((20, 30, 17), (24, 24, 24, 24), (64, 1, 3, 100)):
        p, q = scheduled(None, *(torch.full((2, w), float(w)) for w in widths))
        assert choices(p) and not choices(q)
        same(p, q, [()])


def test_few_of_each() -> None:
    p, q = scheduled(None, torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, 5))
    same(p, q, [()])
