"""Quotients by numbers are products, but with strict numerics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.base.dtypes import DType, f16, f32, f64
from pliant.graph.builder import Builder
from pliant.graph.facts import facts_of
from pliant.ir.expr import Binary, Const
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.inline_copies import inline_copies
from pliant.lower.quotients import multiply_by_reciprocals
from pliant.lower.stages import fission
from pliant.ops.table import OPERATORS

LEAST = {f32: 2.0**-126, f64: 2.0**-1022, f16: 2.0**-14}


def quotient(number: float, dtype: DType = f32) -> Any:
    """What is left of x / number: its operator, and its number."""
    b = Builder("main", OPERATORS)
    x = b.param("x", dtype, (5,))
    number_ = b.call("full", shape=(), value=number, dtype=dtype)
    function, _ = b.finish([b.call("div", x, number_)])
    s = fission(function, OPERATORS, facts_of(function))
    inline_copies(s)
    multiply_by_reciprocals(s)
    (stage,) = s.stages.values()
    assert isinstance(stage.tensor, Compute)
    (found,) = (n for n in own_nodes(stage.tensor.body) if isinstance(n, Binary))
    assert isinstance(found.b, Const)
    return found.op, found.b.value


@pytest.mark.parametrize("dtype", [f32, f64])
def test_which(dtype: DType) -> None:
    for number in (6.0, -3.0, 0.1, 1e30, -1e-30, LEAST[dtype]):
        assert quotient(number, dtype) == ("mul", float(dtype.numpy.type(1 / number)))
    for number in (0.0, -0.0, np.inf, -np.inf, np.nan, LEAST[dtype] / 2, 2 / LEAST[dtype]):
        op, kept = quotient(number, dtype)
        assert op == "div" and (kept == number or np.isnan(number))


def test_narrow_types_stay() -> None:
    assert quotient(6.0, f16) == ("div", 6.0)


class Hard(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.hardswish(x) / 7 + torch.nn.functional.hardsigmoid(x)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("numerics", ["fast", "batch_invariant", "strict"])
def test_values(numerics: str) -> None:
    x = torch.cat([torch.linspace(-9, 9, 1000), torch.tensor([0.0, -0.0, np.inf, np.nan, 1e38])])
    f = pliant.compile(Hard(), (x,), dynamic_shapes=({0: "n"},), numerics=numerics)
    for n in (0, 1, 17, 1005):
        got, want = f(x[-n:] if n else x[:0]), Hard()(x[-n:] if n else x[:0])
        torch.testing.assert_close(got, want, rtol=4e-7, atol=1e-7, equal_nan=True)
    one = pliant.compile(Hard(), (x[:1],), numerics=numerics)
    if numerics == "batch_invariant":
        assert torch.equal(torch.cat([one(v) for v in x[:64].split(1)]), f(x)[:64])
