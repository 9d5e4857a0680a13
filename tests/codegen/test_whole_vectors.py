"""Vectors of which a condition keeps all lanes or none are stored as all others: without a mask,
past the caches where those go."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from tests.schedule.native import native

TWICE = """
@loop
def twice(x: f32["r", WIDE], y: f32["r", WIDE], r: i64, m: i64):
    for i in grid(r):
        for k in unrolled(4):
            for j in vectorized(16, notes={"stream": 0}):
                with block("y", S(i, r), S(FIRST + 16*k + j, WIDE), where=COND) as (a, b):
                    y[a, b] = x[a, b] * 2.0
"""
T = target("x86-64-avx512")


def source(wide: str, first: int, condition: str) -> str:
    text = TWICE.replace("COND", condition).replace("WIDE", f'"{wide}"')
    return text.replace("FIRST", str(first))


def counts(text: str) -> tuple[int, int]:
    """Stores past the caches, and stores under masks that are called."""
    past = sum("!nontemporal" in line and " store " in f" {line}" for line in text.splitlines())
    return past, text.count("call void @llvm.masked.store")


@pytest.mark.parametrize(("wide", "first", "condition", "past", "masked"), [
    ("1008", 960, "960 + 16*k + j < 1008", 3, 0),  # of the last vector no lane is kept
    ("1008", 960, "960 + 16*k + j <= 1007", 3, 0),
    ("40", 0, "16*k + j < 40", 2, 1),
    ("16*m", 0, "16*k + j < 16*m", 4, 0),
    ("16*m", 0, "(16*k + j < 16*m) & (16*k + j < 48)", 3, 0),
    ("8*m", 0, "16*k + j < 8*m", 0, 4),
    ("m", 0, "16*k + j < m", 0, 4),
])  # fmt: skip
def test_whole_vectors(wide: str, first: int, condition: str, past: int, masked: int) -> None:
    f = parse_function(source(wide, first, condition))
    assert counts(kernel_source(f, T).text) == (past, masked)
    for m in range(7):
        columns = eval(wide, {"m": m})
        x = np.arange(3 * columns, dtype=np.float32).reshape(3, columns) + 1
        y = np.zeros((3, columns), np.float32)
        native(f, [x, y], {"r": 3, "m": m})
        end = min(columns, first + (48 if "48" in condition else 64))
        want = np.zeros_like(x)
        want[:, first:end] = 2 * x[:, first:end]
        np.testing.assert_array_equal(y, want)
