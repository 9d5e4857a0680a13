"""What recipes do about memory: large outputs go past the caches, rows to come are asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pliant.frontend.select import Request, import_model
from pliant.loop.stmt import PREFETCH, STREAM, For
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.program import Program
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.row import row_recipe
from pliant.sym.expr import maximum

LANES = 16


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


def scheduled(module: nn.Module, rows: int = 0) -> Program:
    """The kernel of a module on rows of 100, any number of them or so many."""
    dynamic: Any = None if rows else ({0: "rows"},)
    args = (torch.ones(rows or 4, 100),)
    imported = import_model(Request(module.eval(), args, None, dynamic), OPERATORS)
    ((_, launch),) = lower_function(imported.function, OPERATORS, 32).main.launches
    recipe = {"row": row_recipe, "map": map_recipe}[launch.spec.kind]
    return recipe(launch.spec, LANES, 1000)


def noted(p: Program, note: str) -> list[Any]:
    """What loops have as this note, in program order."""
    loops = [s for s in p.statements() if isinstance(s, For)]
    return [dict(s.notes)[note] for s in loops if note in dict(s.notes)]


def test_what_is_written_once_streams() -> None:
    """Whole vectors and the rest of a row alike; the size is decided when the kernel runs."""
    for p in map(scheduled, (Twice(), nn.LayerNorm(100), nn.LogSoftmax(-1))):
        assert set(noted(p, STREAM)) == {1000}


def test_what_is_read_again_does_not() -> None:
    """Softmax keeps the row of its exponentials in its output."""
    assert not noted(scheduled(nn.Softmax(-1)), STREAM)


def test_one_pass_asks_for_rows_to_come() -> None:
    """The second one, for what the first will read; a single pass leaves it to the processor.
    Softmax asks for its output too, where it keeps the row of its exponentials."""
    for module, outputs in ((nn.Softmax(-1), 1), (nn.LogSoftmax(-1), 0), (nn.LayerNorm(100), 0)):
        p = scheduled(module)
        asked = noted(p, PREFETCH)
        x, *_, y = p.function.buffers
        assert [name for name, _ in asked] == [x.name, y.name][: 1 + outputs]
        assert all(ahead is maximum(x.strides[0], 2048) for _, ahead in asked)
    assert not noted(scheduled(Twice()), PREFETCH)


def test_rows_that_are_kept() -> None:
    """In the rows of an output; by themselves where it is known to go past the caches."""
    for rows, streams in [(0, False), (1000, False), (50_000, True)]:
        p = scheduled(nn.Softmax(-1), rows)
        assert bool(noted(p, STREAM)) is streams
