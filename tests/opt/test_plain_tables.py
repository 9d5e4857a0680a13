"""Tables that become expressions of their places."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.frontend.select import Request, import_model
from pliant.graph.interpret import interpret
from pliant.ops.table import OPERATORS
from pliant.opt.plain_tables import plain_tables

ROW, COLUMN = np.arange(5)[:, None], np.arange(7)


class Table(nn.Module):
    """What is added to a table."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("table", torch.from_numpy(table))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


PLAIN = {
    "a range": np.arange(16),
    "backwards, from below": -3 * np.arange(20) - 5,
    "of 32 bits": (4 * np.arange(18) + 1).astype(np.int32),
    "relative": ROW - COLUMN + 9,
    "with ones": (ROW - COLUMN)[None, :, None],
    "along one": np.broadcast_to(2 * COLUMN, (3, 5, 7)).copy(),
    "the same": np.full((4, 5), -7),
    "clipped": np.clip(3 * ROW - 2 * COLUMN, -4, 6),
    "clipped to a side": np.maximum(np.arange(30) - 20, 0),
    "causal": COLUMN <= ROW,
    "hidden": COLUMN > ROW + 1,
    "all after some": np.maximum(3 - ROW, 0) <= COLUMN,
    "upper left": ROW + COLUMN < 6,
    "of a batch": np.broadcast_to(COLUMN <= ROW, (2, 1, 5, 7)).copy(),
    "as many in each row": np.broadcast_to(COLUMN < 4, (5, 7)).copy(),
    "all": np.ones((4, 4), bool),
    "none": np.zeros((2, 9), bool),
}
OTHERS = {
    "few": np.arange(15),
    "no number": np.asarray(3),
    "products": ROW * COLUMN,
    "squares": np.arange(20) ** 2,
    "all but one": np.where(np.arange(30) == 17, 0, np.arange(30)),
    "clipped in the middle": np.where(np.arange(30) > 9, np.arange(30) - 3, np.arange(30)),
    "huge": np.arange(16) + (1 << 50),
    "least": np.full(16, np.iinfo(np.int64).min),
    "a band": abs(ROW - COLUMN) < 2,
    "rows that end anywhere": np.asarray([3, 0, 5, 1])[:, None] > COLUMN,
    "rows that end sooner than they may": np.clip(2 * ROW, 1, 5) > COLUMN,
    "a hole": (COLUMN <= ROW + 4) & (COLUMN != 2),
    "bytes": np.arange(32, dtype=np.uint8),
    "floats": np.arange(32, dtype=np.float32),
}


def tables_left(table: np.ndarray) -> int:
    x = torch.zeros(table.shape, dtype=torch.float32)
    imported = import_model(Request(Table(table), (x,), None, None), OPERATORS)
    function = plain_tables(imported.function, imported.weights)
    zeros = {function.params[0].name: np.zeros(table.shape, np.float32)}
    (found,) = interpret(function, imported.weights, zeros, OPERATORS)
    np.testing.assert_array_equal(found, table.astype(np.float32))
    return len(function.weights)


@pytest.mark.parametrize("name", PLAIN)
def test_of_places(name: str) -> None:
    assert tables_left(PLAIN[name]) == 0


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert tables_left(OTHERS[name]) == 1


class Relative(nn.Module):
    """Scores by how far apart tokens are, none for those that follow."""

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        n = x.shape[1]
        at = torch.arange(n)
        apart = (at[:, None] - at).clamp(-5, 5) + 5
        scores = torch.gather(by, 2, apart.expand(by.shape[0], n, n))
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ x


def test_relative_positions_of_known_sizes() -> None:
    """Neither positions nor mask are looked up."""
    x, by = torch.randn(2, 20, 8), torch.randn(2, 20, 11)
    f = pliant.compile(Relative(), (x, by))
    torch.testing.assert_close(f(x, by), Relative()(x, by))
    imported = import_model(Request(Relative(), (x, by), None, None), OPERATORS)
    assert any(len(v.shape) > 1 for v, _ in imported.function.weights)
    kept = plain_tables(imported.function, imported.weights).weights
    assert not [v for v, _ in kept if len(v.shape) > 1]
