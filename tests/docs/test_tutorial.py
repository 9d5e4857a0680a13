"""The tutorial's blocks run, print what it says, and its programs compute a matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import pliant
from bench.tutorial import blocks, programs, run_block
from pliant.codegen.llvm.target import target
from pliant.loop.verify import verify_function
from pliant.schedule.program import Program

SIZES = [
    (1, 1, 1),
    (3, 5, 7),
    (29, 37, 71),
    (14, 32, 16),
    (13, 1, 33),
    (0, 2, 3),
    (4, 0, 5),
    (2, 3, 0),
]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the document defines; what each block prints is what stands behind it."""
    found: dict[str, Any] = {"__name__": "tutorial"}
    printed = ""
    for number, (kind, text) in enumerate(blocks()):
        if kind == "python":
            assert not printed, f"not in the document:\n{printed}"
            printed = run_block(text, number, found)
            continue
        machine = kind.removeprefix("text").strip()
        if not machine or machine == target().name:
            assert printed == text
        printed = ""
    return found


def test_every_step_is_there(names: dict[str, Any]) -> None:
    steps = ["naive", "in_order", "tiled", "packed", "tensorized", "parallel"]
    assert list(programs(names)) == steps


@pytest.mark.parametrize("step", ["naive", "in_order", "tiled", "packed", "tensorized", "parallel"])
def test_a_step_computes_the_product(names: dict[str, Any], step: str) -> None:
    p: Program = names[step]
    verify_function(p.function)
    f = pliant.compile(p)
    rng = np.random.default_rng(5)
    for n, k, m in SIZES:
        a = rng.standard_normal((n, k)).astype(np.float32)
        b = rng.standard_normal((k, m)).astype(np.float32)
        np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-4, atol=1e-4)
        if n * k * m < 200:
            np.testing.assert_allclose(p.run(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert f.stats()["compiles"] == 1
