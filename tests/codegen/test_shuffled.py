"""Vectors whose elements lie within one vector of memory: loaded whole and shuffled, where it is
known that all of it is there; else gathered."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.native import native

SOURCE = """
@loop
def picks(x: TYPE["n", EXTENT], y: TYPE["n", 48], n: i64):
    for i in grid(n):
        for j in grid(48):
            with block("y", S(i, n), S(j, 48)) as (a, b):
                y[a, b] = x[a, INDEX]
"""

PLACES = {
    "4*(b//4) + 1": lambda b: b // 4 * 4 + 1,
    "2*(b//2) - b%2 + 1": lambda b: b // 2 * 2 + 1 - b % 2,
    "b//8": lambda b: b // 8,
    "b//2*2 + 3": lambda b: b // 2 * 2 + 3,
}


def vectors(index: str, extent: int, dtype: str, lanes: int) -> Program:
    text = SOURCE.replace("INDEX", index).replace("EXTENT", str(extent)).replace("TYPE", dtype)
    p = program(parse_function(text)).split("j", lanes)
    return p.vectorize(p.made[1])


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", ["f32", "i8", "i64"])
@pytest.mark.parametrize("index", PLACES)
def test_shuffled(index: str, dtype: str, lanes: int) -> None:
    p = vectors(index, 64, dtype, lanes)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert "masked.gather" not in text
    kind = {"f32": np.float32, "i8": np.int8, "i64": np.int64}[dtype]
    x = np.arange(3 * 64).reshape(3, 64).astype(kind)
    y = np.zeros((3, 48), kind)
    native(p.function, [x, y], {"n": 3})
    np.testing.assert_array_equal(y, x[:, PLACES[index](np.arange(48))])


def test_what_may_not_be_there() -> None:
    """The last vector would end behind the last row."""
    index = "4*(b//4) + 1"
    p = vectors(index, 46, "f32", 16)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert "masked.gather" in text
    x = np.arange(2 * 46, dtype=np.float32).reshape(2, 46)
    y = np.zeros((2, 48), np.float32)
    native(p.function, [x, y], {"n": 2})
    np.testing.assert_array_equal(y, x[:, PLACES[index](np.arange(48))])
