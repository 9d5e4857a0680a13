"""The order in which values lie, and which operand of a product is packed."""

from __future__ import annotations

import torch

import pliant
from pliant.base.dtypes import f32
from pliant.codegen.llvm.target import target
from pliant.graph.builder import Builder
from pliant.graph.function import Dim
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var
from tests.models.efficientvit import LiteMLA
from tests.stages.oracle import Stages, stages_of

T = target()


def packed(stages: Stages) -> list[str]:
    """What packing stages copy."""
    return [m.inputs[0] for part in stages.parts for g in part.groups for m in g.members
            if m.op == "pack"]  # fmt: skip


def test_most_is_read() -> None:
    """A value of columns and tokens: a sum over one column is read along tokens, the rest along
    columns. So it lies, and so its product has tokens for rows."""
    b = Builder("main", OPERATORS)
    b.dim("t", Dim(min=1, likely=(196,)))
    q, kv = b.param("q", f32, (16, var("t"))), b.param("kv", f32, (17, 16))
    q = b.call("relu", q)
    out = b.call("matmul", kv, q)
    last = b.call("slice", out, starts=(16, 0), stops=(17, var("t")), steps=(1, 1))
    rest = b.call("slice", out, starts=(0, 0), stops=(16, var("t")), steps=(1, 1))
    y = b.call("div", rest, b.call("add", last, b.scalar(1e-5, f32)))
    z = b.call("matmul", b.call("transpose", y, perm=(1, 0)), b.param("w", f32, (16, 8)))
    function, weights = b.finish([z])
    assert "kv" in packed(stages_of(function, weights, T, programs=False))


def test_linear_attention() -> None:
    """What keys and values are multiplied to is small: it is packed, not the queries."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 128, 1), LiteMLA(128, 16)).eval()
    x = torch.randn(1, 8, 14, 14)
    f = pliant.compile(model, (x,))
    assert "matmul_1.packed[1, 16, 1, 16, " in f.explain()
    torch.testing.assert_close(f(x), model(x), rtol=1e-3, atol=1e-5)
