"""What several steps of an unrolled loop compute is computed once, and nothing that may change."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from tests.schedule.native import native

SHARED = """
@loop(notes={"noalias": ("y",)})
def shared(x: f32[2, "8*n"], y: f32[4, "8*n"], n: i64):
    for i in grid(n):
        for j in unrolled(4):
            for k in vectorized(8):
                with block("y", S(j, 4), S(8*i + k, 8*n)) as (a, b):
                    y[a, b] = (x[0, b] * 2.0 + x[1, b]) * cast(f32, index(a))
"""

IN_PLACE = """
@loop(notes={"noalias": ("y",)})
def in_place(x: f32["8*n"], y: f32["8*n"], n: i64):
    for i in grid(n):
        for j in unrolled(3):
            for k in vectorized(8):
                with block("y", S(j, 3), S(8*i + k, 8*n)) as (a, b):
                    y[b] = y[b] * 2.0 + x[b]
"""

ALIASED = IN_PLACE.replace('@loop(notes={"noalias": ("y",)})', "@loop").replace(
    "y[b] * 2.0 + x[b]", "x[b] * 2.0 + 1.0"
)

BRANCHES = """
@loop(notes={"noalias": ("y",)})
def branches(x: f32["8*n"], z: f32["8*n"], y: f32[3, "8*n"], n: i64, m: i64):
    for i in grid(n):
        for j in unrolled(3):
            for k in vectorized(8):
                with block("y", S(j, 3), S(8*i + k, 8*n), where=m + j < 3) as (a, b):
                    y[a, b] = x[b] / z[b] + 1.0
"""

DEAR = BRANCHES.replace("x[b] / z[b]", "exp(tanh(x[b] / z[b]))")  # too dear to compute in vain
FOURTHS = DEAR.replace('x: f32["8*n"]', 'x: f32[1, "8*n"]').replace("x[b]", "x[a//4, b]")
OWN = DEAR.replace('z: f32["8*n"]', 'z: f32[3, "8*n"]').replace("z[b]", "z[a, b]")


def loads(text: str) -> int:
    return len(re.findall(r"= load <8 x float>", text))


def text_of(source: str) -> str:
    return kernel_source(parse_function(source), target("x86-64-avx2")).text


def test_computed_once() -> None:
    """Two loads for four rows that are made of them."""
    f = parse_function(SHARED)
    assert loads(text_of(SHARED)) == 2
    x = np.arange(48, dtype=np.float32).reshape(2, 24)
    y = np.zeros((4, 24), np.float32)
    native(f, [x, y], {"n": 3})
    np.testing.assert_array_equal(y, (x[0] * 2 + x[1]) * np.arange(4, dtype=np.float32)[:, None])


def test_what_is_written_is_read_again() -> None:
    f = parse_function(IN_PLACE)
    x = np.arange(16, dtype=np.float32)
    y = np.ones(16, np.float32)
    native(f, [x, y], {"n": 2})
    np.testing.assert_array_equal(y, 8 + x * 7)


def test_what_may_be_written_is_read_again() -> None:
    """Both may be the same memory."""
    assert loads(text_of(ALIASED)) == 3
    x = np.ones(16, np.float32)
    native(parse_function(ALIASED), [x, x], {"n": 2})
    np.testing.assert_array_equal(x, np.full(16, 15, np.float32))


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_branches(m: int) -> None:
    """What they have in common is computed before the first; what one of them computed is not there
    where it was not taken."""
    rng = np.random.default_rng(m)
    x, z = (rng.standard_normal(16).astype(np.float32) for _ in range(2))
    y = np.zeros((3, 16), np.float32)
    native(parse_function(BRANCHES), [x, z, y], {"n": 2, "m": m})
    expected = np.where(np.arange(3)[:, None] + m < 3, x / z + np.float32(1), np.float32(0))
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("source", "total", "before"), [(DEAR, 2, 2), (FOURTHS, 2, 2), (OWN, 4, 1)]
)
def test_before_branches(source: str, total: int, before: int) -> None:
    """What is the same in every step: x by the fourth part of a step, too; not what is a step's."""
    text = text_of(source)
    assert loads(text) == total
    assert loads(re.split(r"br i1 [^,]*, label %then", text)[0]) == before


def test_what_is_wanted_often_is_asked_for_once() -> None:
    """Each of 60 values is wanted twice by the next: 2^60 ways down to the first."""
    lines = ["_e0 = z[a, b] + 1.0", *(f"_e{k} = _e{k - 1} * _e{k - 1}" for k in range(1, 60))]
    indent = " " * 20
    value = "".join(f"{line}\n{indent}" for line in lines) + "y[a, b] = _e59 * x[b]"
    text = text_of(OWN.replace("y[a, b] = exp(tanh(x[b] / z[a, b])) + 1.0", value))
    assert loads(text) == 4
    assert text.count("fmul <8 x float>") == 3 * 60
