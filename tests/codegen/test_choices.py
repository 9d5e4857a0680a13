"""A vector of elements or of a number, by a condition that is the same in all lanes: no branch."""

from __future__ import annotations

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.compile import optimise
from pliant.codegen.llvm.target import machine, target
from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.native import native

PADDED = """
@loop
def padded(x: {t}["n", "k"], y: {t}["n + 2", "k"], n: i64, k: i64):
    for i in grid(n + 2):
        for j in grid(k):
            with block("y", S(i, n + 2), S(j, k)) as (a, b):
                y[a, b] = select((0 <= a - 1) & (a - 1 < n), x[a - 1, b], {other})
"""

DTYPES = {
    "f32": (np.float32, "-inf"), "f64": (np.float64, "0.5"), "i8": (np.int8, "-7"),
    "u8": (np.uint8, "200"), "i64": (np.int64, "9223372036854775807"),
    "bf16": (ml_dtypes.bfloat16, "1.5"), "f16": (np.float16, "2.5"), "bool": (np.bool_, "True"),
}  # fmt: skip


def vectors(t: str, other: str, tail: str) -> Program:
    p = program(parse_function(PADDED.format(t=t, other=other))).split("j", 16, tail=tail)
    return p.vectorize(p.made[1])


@pytest.mark.parametrize("tail", ["peel", "mask"])
@pytest.mark.parametrize("t", DTYPES)
def test_padded_rows(t: str, tail: str) -> None:
    dtype, other = DTYPES[t]
    p = vectors(t, other, tail)
    for n, k in ((0, 3), (1, 1), (3, 16), (2, 37), (5, 0)):
        x = (np.arange(n * k) % 5).reshape(n, k).astype(dtype)
        y = np.zeros((n + 2, k), dtype)
        native(p.function, [x, y], {"n": n, "k": k})
        number = True if t == "bool" else int(other) if t in ("i8", "u8", "i64") else float(other)
        edge = np.full((1, k), number, dtype)
        np.testing.assert_array_equal(y, np.concatenate([edge, x, edge]))


def test_there_is_no_branch() -> None:
    """Unrolled, each would be one: neighbours had nothing in common any more."""
    p = vectors("f32", "0.0", "mask")
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert "select i1" in text and "@every_float_0_16" in text
    assert "then" not in text


def test_a_choice_that_data_make_stays_a_branch() -> None:
    """What says where to read is itself there only under the condition."""
    p = program(
        parse_function(
            "@loop\n"
            'def rows(x: f32["n", 16], at: i64["m"], y: f32["m + 1", 16], n: i64, m: i64):\n'
            "    for i in grid(m + 1):\n"
            "        for j in vectorized(16):\n"
            '            with block("y", S(i, m + 1), S(j, 16)) as (a, b):\n'
            "                y[a, b] = select(a < m, x[at[a], b], 3.0)\n"
        )
    )
    x, at = np.arange(64, dtype=np.float32).reshape(4, 16), np.array([3, 0, 2])
    y = np.zeros((4, 16), np.float32)
    native(p.function, [x, at, y], {"n": 4, "m": 3})
    np.testing.assert_array_equal(y, np.concatenate([x[at], np.full((1, 16), 3, np.float32)]))


LANES = 16
TILES = """
@loop
def tiles(x: f32["n", {columns}], y: f32["n + 1", {columns}], n: i64):
    for i in grid(n + 1):
        for j in grid({columns}):
            with block("y", S(i, n + 1), S(j, {columns})) as (a, b):
                y[a, b] = select(a < n, x[a, b], 0.5) * 2.0
"""


def tiles(columns: int) -> Program:
    """Four rows and two vectors of sums at once; rows that are not there are not stored."""
    p = program(parse_function(TILES.format(columns=columns))).cache_write("y")
    p = p.split("y_store_0", 4, tail="mask").split("y_store_1", 2 * LANES, tail="mask")
    p = p.reorder("y_store_0_0", "y_store_1_0", "y_store_0_1", "y_store_1_1")
    p = p.compute_at("y", "y_store_1_0").shrink_buffer("y_local")
    p = p.pad_block("y", along="y_store_0_0")
    for name in ("y", "y_store"):
        *_, row, column = p.loops(name)
        p = p.split(column, LANES)
        p = p.vectorize(p.made[1]).unroll(p.made[0]).unroll(row)
    return p


@pytest.mark.parametrize("columns", [32, 48, 80, 33])
def test_tiles_without_branches(columns: int) -> None:
    """Vectors beside one another share a choice, wherever they begin; what is stored nowhere
    changes nothing."""
    p = tiles(columns)
    for n in (0, 1, 2, 3, 7, 13):
        x = np.random.default_rng(n).standard_normal((n, columns)).astype(np.float32)
        y = np.full((n + 1 + 8, columns), 77, np.float32)
        native(p.function, [x, y[: n + 1]], {"n": n})
        edge = np.full((1, columns), 0.5, np.float32)
        np.testing.assert_array_equal(y[: n + 1], 2 * np.concatenate([x, edge]))
        assert (y[n + 1 :] == 77).all()


def test_one_choice_for_vectors_beside_one_another() -> None:
    here = target("x86-64-avx512")
    text = kernel_source(tiles(32).function, here).text
    assert "br i1" in text and "then" not in text
    module = llvm.parse_assembly(text)
    optimise(module, machine(here))
    lines = str(module).splitlines()
    assert len([x for x in lines if "load <16 x float>" in x]) == 8
    assert len([x for x in lines if "select i1" in x and "@every_" in x]) == 4


@pytest.mark.parametrize(("value", "branch"), [("t[b] * 2.0", False), ("erf(exp(t[b]))", True)])
def test_what_is_dear_is_not_computed_in_vain(value: str, branch: bool) -> None:
    p = program(parse_function(ROWS.format(value=value))).split("i", 4, tail="mask")
    text = kernel_source(p.unroll("i_1").vectorize("j").function, target("x86-64-avx512")).text
    assert ("then" in text) is branch


ROWS = """
@loop
def rows(t: f32[16], y: f32["n", 16], n: i64):
    for i in grid(n):
        for j in grid(16):
            with block("y", S(i, n), S(j, 16)) as (a, b):
                y[a, b] = {value}
"""
