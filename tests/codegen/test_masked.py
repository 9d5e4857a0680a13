"""Loads under masks of which a register's part is empty, whatever another condition says."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from pliant.runtime.features import missing_features
from tests.schedule.native import native

PADDED = """
@loop
def padded(x: TYPE["n", WIDTH], y: TYPE["n + 2", LANES], n: i64):
    for i in grid(n + 2):
        for j in vectorized(LANES):
            with block("y", S(i, n + 2), S(j, LANES), where=j < KEPT) as (a, b):
                y[a, b] = select(THERE, x[a - 1, b - FIRST], 0) + cast(TYPE, 1)
"""
THERE = "(1 <= a) & (a < n + 1) & ((FIRST <= b) & (b < FIRST + WIDTH))"
T = target("x86-64-avx2")


def source(dtype: str, lanes: int, kept: int, first: int, width: int) -> str:
    words = {"TYPE": dtype, "LANES": lanes, "KEPT": kept, "FIRST": first, "WIDTH": width}
    text = PADDED.replace("THERE", THERE)
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text.replace(", 0) +", ", 0.0) +" if dtype[0] == "f" else ", 0) +")


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("lanes", [4, 8, 12, 16, 32])
def test_empty_parts(dtype: str, lanes: int) -> None:
    """Rows of a few elements among zeros: in the first register, in the second, across both."""
    if missing_features(T.features):
        pytest.skip("this CPU has no AVX2")
    kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}[dtype]
    rows = ((1, lanes // 2 - 1), (0, lanes // 2), (lanes // 2, 1), (lanes // 2 - 1, 2))
    for first, width in rows:
        for kept in (lanes - 1, lanes):
            f = parse_function(source(dtype, lanes, kept, first, width))
            x = np.arange(2, 2 + 3 * width).reshape(3, width).astype(kind)
            y = np.zeros((5, lanes), kind)
            native(f, [x, y], {"n": 3}, T)
            expected = np.zeros((5, lanes), kind)
            expected[1:4, first : first + width] = x
            expected[:, :kept] += 1
            np.testing.assert_array_equal(y, expected)


def test_a_register_at_a_time() -> None:
    """LLVM 22.1 drops the mask of an empty part."""
    text = kernel_source(parse_function(source("f32", 16, 10, 1, 7)), T).text
    assert "masked.load.v8f32" in text
    assert "masked.load.v16f32" not in text
    text = kernel_source(parse_function(source("f32", 16, 10, 1, 7)), target("x86-64-avx512")).text
    assert "masked.load.v16f32" in text
