"""Copies whose rows are parts of longer ones: those that are whole have no conditions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Select
from pliant.ir.node import walk
from pliant.loop.stmt import For, Seq, Stmt
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.program import Program
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.start import start
from tests.schedule.programs import same


class Product(torch.nn.Module):
    """Packs its second operand."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


class Upper(torch.nn.Module):
    """Each row has one element less: none but the first is whole."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.triu(x)


def scheduled(module: torch.nn.Module, dynamic: Any, *args: torch.Tensor) -> list[Program]:
    """The first kernel as it is written, and by the recipe."""
    imported = import_model(Request(module, args, None, dynamic), OPERATORS)
    (_, launch), *_ = lower_function(imported.function, OPERATORS, 8).main.launches
    return [start(launch.spec), map_recipe(launch.spec, 4)]


def nests(p: Program) -> list[bool]:
    """Of each outermost loop whether something in it is chosen."""
    body: Stmt = p.function.body
    parts = body.stmts if isinstance(body, Seq) else (body,)
    assert all(isinstance(s, For) for s in parts)
    return [any(isinstance(n, Select) for n in walk(s)) for s in parts]


@pytest.mark.parametrize("batch", [False, True])
def test_panels(batch: bool) -> None:
    lead = (2,) if batch else ()
    dims = {0: "b", 1: "k", 2: "n"} if batch else {0: "k", 1: "n"}
    args = torch.zeros(*lead, 3, 5), torch.zeros(*lead, 5, 7)
    p, q = scheduled(Product(), ({0: "b", 2: "k"} if batch else {1: "k"}, dims), *args)
    assert nests(p) == [True]
    assert nests(q) == [False, True]
    sizes = p.function.sizes
    shapes = [(5, 7), (0, 9), (3, 0), (4, 8), (2, 17), (1, 24), (6, 1)]
    cases = [((b,) if batch else ()) + (k, n, -(-n // 8)) for b in (0, 1, 3) for k, n in shapes]
    order = [str(d) for d in p.function.buffers[0].shape]
    panels = str(p.function.buffers[-1].shape[-3])
    names = [*order, panels]
    same(p, q, [tuple(dict(zip(names, c, strict=True))[s] for s in sizes) for c in cases])


def test_constant() -> None:
    """Nor are those of the last panel chosen in vectors, where it is known how many it has."""
    p, q = scheduled(Product(), None, torch.zeros(3, 5), torch.zeros(5, 30))
    assert nests(p) == [True]
    assert nests(q) == [False, False]
    same(p, q, [()])


def test_rows_that_are_no_parts_of_one() -> None:
    p, q = scheduled(Upper(), ({0: "n", 1: "m"},), torch.zeros(4, 9))
    assert nests(q) == [True]
    same(p, q, [(4, 9), (7, 3), (0, 5), (1, 1)])
