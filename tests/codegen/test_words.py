"""Words of two bf16 that lie in memory as the instruction that adds their products takes them."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import target
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Function
from tests.schedule.native import native

SUMS = """
@loop
def sums(x: bf16["n", 2, 32], w: bf16["n", {shape}], y: f32[{lanes}], n: i64):
    t = alloc(f32[1, {lanes}], scope="register")
    for a in vectorized({lanes}):
        t[0, a] = 0.0
    for k in grid(n):
        for b in vectorized({lanes}):
            t[0, b] = t[0, b] + {more}
    for c in vectorized({lanes}):
        y[c] = t[0, c]
"""
BOTH = "sum(f32(x[k, r, b]) * f32(w[k, {at}]) for r in grid(2))"
ALONE = "f32(x[k, 1, b]) * f32(w[k, {at}])"
DIGITS = "(b//4)%2, b//8, b%4, {r}"
PAIRS = target("x86-64-avx512-bf16")


def made(more: str, at: str, shape: str = "2, 4, 4, 2", lanes: int = 32) -> Function:
    r = "r" if more is BOTH else "0"
    return parse_function(
        SUMS.format(more=more.format(at=at.format(r=r)), shape=shape, lanes=lanes)
    )


def instructions(f: Function) -> str:
    return assembly(kernel_source(f, PAIRS).text, PAIRS)


def check(f: Function, lanes: int, at: object) -> None:
    """In machine code of this machine, which may have no such instruction."""
    assert callable(at)
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (3, 2, 32)).astype(ml_dtypes.bfloat16)
    w = rng.integers(-8, 9, (3, *[d.eval({}) for d in f.buffers[1].shape[1:]]))
    w = w.astype(ml_dtypes.bfloat16)
    y = np.zeros(lanes, np.float32)
    native(f, [x, w, y], {"n": 3})
    wide = x.astype(np.float32), w.astype(np.float32)
    np.testing.assert_array_equal(y, [at(*wide, lane) for lane in range(lanes)])


def both(x: np.ndarray, w: np.ndarray, b: int) -> float:
    return float((x[:, :, b] * w[:, b // 4 % 2, b // 8, b % 4]).sum())


def alone(x: np.ndarray, w: np.ndarray, b: int) -> float:
    return float((x[:, 1, b] * w[:, b // 4 % 2, b // 8, b % 4, 0]).sum())


@pytest.mark.parametrize(("more", "want"), [(BOTH, both), (ALONE, alone)])
def test_in_the_order_of_unpacking(more: str, want: object) -> None:
    """Only what the other factor is of is unpacked; the second number of a word that is alone is
    none of the sum."""
    f = made(more, DIGITS)
    code = instructions(f)
    assert len(re.findall(r"vpunpck[lh]wd", code)) == 2
    assert not re.findall(r"gather|vpmovzxwd", code)
    assert bool(re.findall(r"vp?and", code)) == (more is ALONE)
    check(f, 32, want)


@pytest.mark.parametrize(("more", "want"), [(BOTH, both), (ALONE, alone)])
def test_a_part(more: str, want: object) -> None:
    """Sixteen lanes are in the order of memory: runs of four words are put together."""
    f = made(more, DIGITS, lanes=16)
    assert "gather" not in instructions(f)
    check(f, 16, want)


def test_what_is_no_word() -> None:
    """Neighbours that lie apart, and a number alone whose neighbour need not be there."""
    apart = made(BOTH, "{r}, (b//4)%2, b//8, b%4", "2, 2, 4, 4")
    check(apart, 32, lambda x, w, b: (x[:, :, b] * w[:, :, b // 4 % 2, b // 8, b % 4]).sum())
    odd = made(ALONE, "0, (b//4)%2, b//8, b%4, 0", "1, 2, 4, 4, 1")
    assert len(re.findall(r"vpunpck[lh]wd", instructions(odd))) >= 2
    check(odd, 32, lambda x, w, b: (x[:, 1, b] * w[:, 0, b // 4 % 2, b // 8, b % 4, 0]).sum())


LATER = """
@loop
def sums(x: bf16["n", 32], w: bf16["n", 32], p: bf16[2, 4, 4, 2], y: bf16[32], n: i64):
    t = alloc(f32[1, 32], scope="register")
    for a in vectorized(32):
        t[0, a] = 0.0
    for k in grid(n):
        for b in vectorized(32):
            t[0, b] = t[0, b] + f32(x[k, b]) * f32(w[k, b])
    for c in vectorized(32):
        y[c] = bf16(t[0, c] + f32(x[0, c]) * f32(p[(c//4)%2, c//8, c%4, 0]))
"""


def test_products_added_to_what_stays_unpacked() -> None:
    """Lanes are in another order than memory there."""
    rng = np.random.default_rng(0)
    shapes = (3, 32), (3, 32), (2, 4, 4, 2)
    x, w, p = (rng.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in shapes)
    y = np.zeros(32, ml_dtypes.bfloat16)
    native(parse_function(LATER), [x, w, p, y], {"n": 3})
    wide, more = x.astype(np.float32), p.astype(np.float32)
    want = (wide * w.astype(np.float32)).sum(0)
    want += [wide[0, c] * more[c // 4 % 2, c // 8, c % 4, 0] for c in range(32)]
    np.testing.assert_array_equal(y.astype(np.float32), want)
