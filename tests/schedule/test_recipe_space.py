"""A recipe is a space of schedules: other decisions are refused, or keep the meaning."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from pliant.frontend.select import Request, import_model
from pliant.loop.interpret import Callee
from pliant.lower.canonical import Spec
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.errors import SchedulingError
from pliant.schedule.explore import at_random, changed, name_of
from pliant.schedule.program import Program, replay
from pliant.schedule.recipes.contraction import contraction_recipe
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.reduction import reduction_recipe
from pliant.schedule.recipes.row import row_recipe
from pliant.schedule.recipes.square import squares
from pliant.schedule.recipes.start import start
from tests.schedule.programs import same

MM = MatmulIntrinsic("mm_3x4", 3, 4, 2)
LANES = 4
CALLEES: dict[str, Callee] = {
    MM.symbol: MM.intrinsics[0].semantics, **{i.callee: i.semantics for i in squares(LANES)}
}  # fmt: skip


class Transpose(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1) + 1.0


class Columns(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)


CASES: dict[str, tuple[nn.Module, tuple[int, ...], list[str], list[tuple[int, ...]]]] = {
    "row": (nn.Softmax(-1), (4, 40), [f"columns_of_pass_{k}" for k in range(3)], [(2, 70), (3, 5)]),
    "map": (Transpose(), (80, 90), ["squares"], [(9, 11), (70, 3)]),
    "reduction": (Columns(), (40, 50), ["columns", "rows"], [(3, 40), (0, 5), (2, 1), (37, 9)]),
    "reduction of few": (Columns(), (8, 50), ["registers"], [(40,), (70,), (1,)]),
    "contraction": (
        nn.Linear(3, 9), (4, 3), ["most_rows", "block_tiles", "chunk_panels"],
        [(7, 0, 0), (1, 0, 0), (0, 0, 0)],  # rows, and no gaps after them
    ),
}  # fmt: skip


def scheduled(kind: str) -> tuple[Program, Program, list[tuple[int, ...]]]:
    """A kernel of this kind as it is written, and by its recipe."""
    module, shape, _, cases = CASES[kind]
    x = torch.ones(shape)
    free = {"contraction": (0,), "reduction of few": (1,)}.get(kind, (0, 1))
    dynamic: Any = ({d: f"d{d}" for d in free},)
    imported = import_model(Request(module.eval(), (x,), None, dynamic), OPERATORS)
    launches = lower_function(imported.function, OPERATORS, MM.columns).main.launches
    spec = next(x.spec for _, x in launches if x.spec.kind == kind.split()[0])
    intrinsics = {"contraction": MM.intrinsics, "map": squares(LANES)}.get(kind, ())
    return start(spec, intrinsics=intrinsics), _recipe(spec), cases


def _recipe(spec: Spec) -> Program:
    match spec.kind:
        case "row":
            return row_recipe(spec, LANES)
        case "map":
            return map_recipe(spec, LANES)
        case "reduction":
            return reduction_recipe(spec, LANES)
    return contraction_recipe(spec, MM)


@pytest.mark.parametrize("kind", CASES)
def test_what_a_recipe_decides_is_in_its_trace(kind: str) -> None:
    p, q, _ = scheduled(kind)
    assert [n for s in q.trace if (n := name_of(s))] == CASES[kind][2]
    assert not any("decision" in dict(s.options) for s in q.trace)
    assert replay(q.trace, p).function is q.function


@pytest.mark.sweep
@pytest.mark.parametrize("kind", CASES)
def test_other_decisions_keep_the_meaning(kind: str) -> None:
    p, q, cases = scheduled(kind)
    rng, met = Random(0), set()
    for _ in range(6):
        for explore in (lambda: replay(q.trace, at_random(p, rng)),
                        lambda: changed(q.trace, p, rng)):  # fmt: skip
            try:
                other = explore()
            except SchedulingError:
                continue
            if other.function not in met:
                met.add(other.function)
                again = replay(other.trace, p)
                assert again.function is other.function
                same(p, again, cases, CALLEES)
    assert len(met) > 2
