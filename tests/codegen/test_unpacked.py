"""Sums in the order in which unpacking brings pairs of bf16: what is kept so, and what it saves."""

from __future__ import annotations

import re

import pytest

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import target
from pliant.codegen.llvm.unpacked import LANES, ORDER, PLACES, is_unpacked
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Alloc, statements

SUMS = """
@loop
def sums(x: bf16["n", 32], w: bf16["n", 32], y: f32[32], n: i64):
    t = alloc(f32[{rows}, 32], scope="register")
    for a in vectorized(32):
        t[0, a] = 0.0
    for k in grid(n):
        for b in vectorized({lanes}):
            t[0, {at}] = t[0, {at}] + f32(x[k, b]) * f32(w[k, b])
    for c in vectorized(32):
        y[c] = t[0, {read}]
"""
PAIRS = target("x86-64-avx512-bf16")


def source(lanes: int = 32, at: str = "b", read: str = "c", rows: int = 1) -> str:
    return SUMS.format(lanes=lanes, at=at, read=read, rows=rows)


def test_the_order() -> None:
    assert sorted(ORDER) == list(range(LANES))
    assert [ORDER[p] for p in PLACES] == list(range(LANES))
    assert ORDER[:8] == (0, 1, 2, 3, 8, 9, 10, 11)
    assert ORDER[16:20] == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("options", "unpacked"),
    [({}, True), ({"rows": 2}, True), ({"lanes": 16}, False), ({"read": "31 - c"}, False)],
)
def test_what_is_kept_so(options: dict[str, object], unpacked: bool) -> None:
    f = lower_blocks(parse_function(source(**options)))  # type: ignore[arg-type]
    (alloc,) = (s for s in statements(f.body) if isinstance(s, Alloc))
    assert is_unpacked(alloc) is unpacked


def test_one_shuffle_for_all_that_is_added() -> None:
    """In the loop pairs are unpacked, which any unit does; two sums change places after it."""
    text = kernel_source(parse_function(source()), PAIRS).text
    code = assembly(text, PAIRS)
    assert len(re.findall(r"vpunpck[lh]wd", code)) >= 2
    assert len(re.findall(r"vperm\w+", code)) == 2
    assert "vpmovzxwd" not in code
