"""Products of rows with a matrix that each chooses, as mixtures of experts have them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.base.dtypes import f32, i64
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var
from tests.compiled.torch_cases import tensor
from tests.woven import woven

SHAPES = [(3, 24, 40), (8, 33, 31), (2, 64, 130), (40, 16, 8)]  # matrices, depth, columns
KINDS = [(None, "native"), ("bf16", "native"), (None, "x86-64-avx2"), ("bf16", "x86-64")]


def experts(weight: np.ndarray, **options: Any) -> pliant.Compiled:
    """Any number of rows, with the matrix that each chooses; doubled."""
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (var("n"), weight.shape[1]))
    group = b.param("group", i64, (var("n"),))
    y = b.call("matmul_of_groups", x, b.weight("weight", weight), group)
    function, weights = b.finish([b.call("add", y, y)])
    return pliant.compile((function, weights), **options)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("shape", "kind"), woven(SHAPES, KINDS), ids=str)
def test_groups_of_rows(shape: tuple[int, int, int], kind: tuple[str | None, str]) -> None:
    rng = np.random.default_rng(0)
    precision, target = kind
    count, depth, columns = shape
    weight = rng.standard_normal(shape, np.float32)
    f = experts(weight, precision=precision, target=target)
    assert re.search(r"\[contraction.*\] matmul_of_groups", f.explain()), f.explain()
    close = 1e-6 if precision is None else 0.01
    for rows in (0, 1, 13, 14, 15, 70):
        x = rng.standard_normal((rows, depth), np.float32)
        chosen = rng.integers(0, count, rows)
        for group in (np.sort(chosen), chosen, np.full(rows, count - 1)):
            want = 2 * np.einsum("ik,ikj->ij", x, weight[group])
            found = f(x, group)
            assert found.shape == (rows, columns)
            assert np.linalg.norm(found - want) <= close * np.linalg.norm(want), rows
    assert f.stats()["compiles"] == 1


def test_a_matrix_that_there_is_not() -> None:
    f = experts(np.ones((4, 8, 16), np.float32))
    for at in (4, -1, 2**40):
        with pytest.raises(pliant.ShapeError, match="index is out of range of size 4"):
            f(np.ones((3, 8), np.float32), np.array([0, at, 1]))


def test_what_is_not_a_number_stays_in_its_row() -> None:
    f = experts(np.ones((4, 16, 32), np.float32))
    x, group = np.ones((20, 16), np.float32), np.arange(20) // 5
    x[7, 3] = np.nan
    want = np.full((20, 32), 32.0, np.float32)
    want[7] = np.nan
    np.testing.assert_array_equal(f(x, group), want)


TABLE = tensor(50, 16)
ROWS = {
    "a sum for each row": lambda x, at: (x * TABLE[at]).sum(-1),
    "sums of some rows": lambda x, at: torch.einsum("ik,ikj->ij", x[:, :3], TABLE[at.view(-1, 3)]),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_a_table_are_no_matrices(case: str) -> None:
    x, at = tensor(30, 16), torch.arange(30) % 50
    if case == "sums of some rows":
        x = x[:10]
    f = pliant.compile(ROWS[case], (x, at))
    torch.testing.assert_close(f(x, at), ROWS[case](x, at))
    assert "[contraction" not in f.explain()
