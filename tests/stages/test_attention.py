"""Attention is found by its accesses; its stages and its kernel mean the same, interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant.base.dtypes import f32
from pliant.codegen.llvm.target import target
from pliant.graph.builder import Builder
from pliant.graph.function import Function, Module
from pliant.graph.inline import inline
from pliant.loop.verify import verify_function
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var
from pliant.text import parse_module, to_text
from tests.stages.oracle import Stages, run_graph, run_programs, stages_of

T = target()
SIZES = ((1, 1, 1), (2, 3, 5), (1, 17, 34), (2, 0, 3), (1, 2, 0), (0, 2, 2), (1, 30, 7))


def written_out(keys: int = 6, values: int = 5) -> tuple[Function, dict[str, np.ndarray]]:
    """Attention by products, a division by the square root, a mask and softmax."""
    b = Builder("main", OPERATORS)
    n, s, t = var("n"), var("s"), var("t")
    q = b.param("q", f32, (n, 2, s, keys))
    k = b.param("k", f32, (n, 2, t, keys))
    v = b.param("v", f32, (n, 2, t, values))
    mask = b.param("mask", f32, (s, t))
    turned = b.call("transpose", k, perm=(0, 1, 3, 2))
    scores = b.call("add", b.call("matmul", q, turned), mask)
    return b.finish([b.call("matmul", b.call("softmax", scores, axis=3), v)])


def inputs(function: Function, n: int, s: int, t: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n + s + t)
    sizes = {"n": n, "s": s, "t": t}
    return {
        p.name: rng.standard_normal([d.subs(sizes).value for d in p.shape]).astype(np.float32)
        for p in function.params
    }


@pytest.fixture(scope="module")
def stages() -> Stages:
    return stages_of(*written_out(), T)


def test_one_kernel(stages: Stages) -> None:
    kinds = [g.kind for part in stages.parts for g in part.groups]
    assert kinds == ["map", "map", "attention"]
    (group,) = (g for part in stages.parts for g in part.groups if g.kind == "attention")
    assert len(group.outputs) == 1


def test_text(stages: Stages) -> None:
    programs = {f.name: f for f in (*stages.kernels.values(), *(p.host for p in stages.parts))}
    for name, module in (*stages.graph.items(), ("programs", Module(programs))):
        again = parse_module(to_text(module), module.weights)
        for f in module.functions.values():
            assert again.functions[f.name] is f, f"{name}\n{to_text(module)}"
    for f in programs.values():
        verify_function(f)


@pytest.mark.parametrize("sizes", SIZES)
def test_meaning(stages: Stages, sizes: tuple[int, int, int]) -> None:
    given = inputs(stages.function, *sizes)
    with np.errstate(all="ignore"):
        (want,) = run_graph(stages.function, {}, given)
        found: dict[str, Any] = {
            stage: run_graph(inline(module, "main"), {}, given)
            for stage, module in stages.graph.items()
        }
        found["programs"] = run_programs(stages, given, T)
    for name, (have,) in found.items():
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5, err_msg=name)
