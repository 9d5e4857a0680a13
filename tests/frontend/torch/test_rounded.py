"""Sizes times numbers become integers as Python computes them: by products of doubles."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import pliant
from pliant.frontend.torch.rounded import rounded_product
from pliant.sym.expr import var
from tests.compiled.torch_run import Apply

ROUNDINGS = {"floor": math.floor, "ceil": math.ceil, "round": round}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ROUNDINGS)
@settings(deadline=None)
@given(
    factor=st.fractions(Fraction(1, 100), 100, max_denominator=1000),
    times=st.lists(st.integers(0, 20_000), min_size=20),
)
@example(factor=Fraction(23, 10), times=list(range(300)))
@example(factor=Fraction(7, 10), times=list(range(300)))
@example(factor=Fraction(2, 3), times=list(range(300)))
def test_products_are_those_of_doubles(kind: str, factor: Fraction, times: list[int]) -> None:
    """Most of all where the fraction is an integer, or a half."""
    found = rounded_product(kind, var("n"), float(factor), factor)
    step = max(factor.denominator // 2, 1)
    for n in (n for k in times for n in (k, k * step)):
        if n * factor < 1 << 24:
            assert found.eval({"n": n}) == ROUNDINGS[kind](n * float(factor)), n


def test_shapes_by_factors_that_no_double_is() -> None:
    """50 * 2.3 is below 115, 90 * 0.7 below 63."""
    f = pliant.compile(
        Apply(lambda x: (F.interpolate(x[None], scale_factor=2.3), x[:, : int(x.shape[1] * 0.7)])),
        (torch.randn(2, 8),),
        dynamic_shapes=({1: "n"},),
    )
    for n in (1, 10, 49, 50, 90, 180, 1000):
        x = torch.ones(2, n)
        wide, narrow = f(x)
        assert wide.shape == F.interpolate(x[None], scale_factor=2.3).shape
        assert narrow.shape == (2, int(n * 0.7))
