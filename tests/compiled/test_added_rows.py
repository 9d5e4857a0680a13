"""Reductions of many rows to one, at numbers of rows and columns that fill no block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pliant
from tests.compiled.torch_run import Apply, traced

SIZES = ((1, 1), (2, 5), (3, 7), (8, 16), (17, 100), (40, 512), (65, 513), (9, 1023), (64, 1100))


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("function", "batch"),
    [
        (lambda x: torch.relu(x.sum(0)), False),
        (lambda x: x.amax(0), False),
        (lambda x: x.mean(1) * 2, True),
        (lambda x: x.sum((0, 1)), True),
        (lambda x: (x * x).sum(1) + x[:, 0], True),
        (lambda x: x.double().sum(0), False),
        (lambda x: (x * 8).to(torch.int32).sum(0), False),
        (lambda x: x.argmax(0), False),
        (lambda x: x.var(1), True),
    ],
    ids=["relu", "max", "mean", "two", "squares", "f64", "i32", "place", "variance"],
)
def test_columns(function: Callable[[Tensor], Tensor], batch: bool) -> None:
    shapes = {0: "b", 1: "n", 2: "c"} if batch else {0: "n", 1: "c"}
    example = torch.randn(*([4] if batch else []), 40, 100)
    graph = traced(Apply(function), (example,), ((shapes,),))
    for f in (pliant.compile(graph, target=target) for target in ("native", "x86-64-avx2")):
        for n, c in SIZES:
            for b in (1, 3) if batch else (0,):
                x = torch.randn(*([b] if batch else []), n, c)
                want, got = function(x.double()).to(f(x).dtype), f(x)
                assert got.shape == want.shape
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
        assert f.stats()["compiles"] == 1


def test_a_constant_number_of_rows_and_nothing() -> None:
    for rows in (16, 23, 64):
        f = pliant.compile(
            Apply(lambda x: x.sum(0)), (torch.randn(rows, 70),), dynamic_shapes=(({1: "c"},),)
        )
        for c in (0, 1, 64, 130):
            x = torch.randn(rows, c)
            torch.testing.assert_close(f(x), x.sum(0), rtol=1e-4, atol=1e-4)
    f = pliant.compile(
        Apply(lambda x: x.sum(0)), (torch.randn(40, 70),), dynamic_shapes=(({0: "n"},),)
    )
    assert torch.equal(f(torch.randn(0, 70)), torch.zeros(70))


def test_threads_agree() -> None:
    x = torch.randn(300, 5000)
    one, two = (
        pliant.compile(Apply(lambda x: x.sum(0)), (x,), threads=n, dynamic_shapes=(({0: "n"},),))
        for n in (1, 2)
    )
    assert torch.equal(one(x), two(x))
