"""Rows that a kernel keeps begin amid a page: arrays begin where pages do, and a load from the
place in a page that was stored to just before waits."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pliant.codegen.llvm.emitter import KEPT as LEAST
from pliant.codegen.llvm.emitter import emit_kernel
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Function
from pliant.runtime import abi
from tests.schedule.native import native

KEPT = """
@loop
def twice(x: f32[4, {n}], y: f32[4, {n}]):
    for i in grid(4):
        t = alloc(f32[{n}])
        for k in grid({n}):
            with block("t", S(i, 4), S(k, {n})) as (a, b):
                t[b] = x[a, b] + 1.0
        for k in grid({n}):
            with block("y", S(i, 4), S(k, {n})) as (a, b):
                y[a, b] = t[b] * t[{last} - b]
"""


def kept(n: int) -> Function:
    return parse_function(KEPT.format(n=n, last=n - 1))


@pytest.mark.parametrize("n", [255, 256, 1031])
def test_rows_begin_amid_a_page(n: int) -> None:
    text, _ = emit_kernel(lower_blocks(kept(n)))
    found = re.search(r"(%\S+) = alloca \[(\d+) x i8\], align 4096\b", text)
    assert (found is not None) == (4 * n >= LEAST)
    if found:
        assert int(found[2]) == abi.AMID + 4 * n
        assert f"getelementptr i8, ptr {found[1]}, i64 {abi.AMID}\n" in text


def test_others_lie_behind() -> None:
    """As far as pages go: not at the same place of another."""
    two = KEPT.format(n=512, last=511).replace(
        "t = alloc", "u = alloc(f32[512])\n        t = alloc"
    )
    text, _ = emit_kernel(lower_blocks(parse_function(two.replace("t[b] =", "u[b] ="))))
    assert f"i64 {abi.AMID}\n" in text and f"[{4 * 512} x i8], align 4096" in text


@pytest.mark.parametrize("n", [255, 256, 1031])
def test_what_they_hold_is_right(n: int) -> None:
    x = np.arange(4 * n, dtype=np.float32).reshape(4, n) / (4 * n)
    y = np.empty_like(x)
    native(kept(n), [x, y], {})
    assert np.array_equal(y, (x + 1) * (x[:, ::-1] + 1))
