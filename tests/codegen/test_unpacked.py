"""Sums in the order in which unpacking brings pairs of bf16: what is kept so, and what it saves."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pliant.base.dtypes import bf16, f32
from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import target
from pliant.codegen.llvm.unpacked import LANES, ORDER, PLACES, is_unpacked
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Alloc, statements
from tests.schedule.native import native

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


RESULTS = """
@loop
def sums(x: bf16["n", 32], w: bf16["n", 32], b: f32[32], z: bf16[32], y: TYPE[32], n: i64):
    t = alloc(f32[1, 32], scope="register")
    for a in vectorized(32):
        t[0, a] = 0.0
    for k in grid(n):
        for c in vectorized(32):
            t[0, c] = t[0, c] + f32(x[k, c]) * f32(w[k, c])
    for d in vectorized(32):
        y[d] = TYPE(VALUE)
"""
VALUES = {
    "max(t[0, d] + b[d], 0.0)": lambda t, b, z: np.maximum(t + b, 0),
    "select(t[0, d] < b[d], t[0, d] * b[d], f32(z[d]))": lambda t, b, z: np.where(t < b, t * b, z),
    "t[0, d] * b[3] + f32(d)": lambda t, b, z: t * b[3] + np.arange(32),
    "t[0, d] - b[31 - d]": lambda t, b, z: t - b[::-1],
}


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("value", VALUES)
def test_what_is_computed_of_the_sums(value: str, dtype: str) -> None:
    """Each lane is of what that lane reads, whatever the order in which it is computed."""
    f = parse_function(RESULTS.replace("TYPE", dtype).replace("VALUE", value))
    rng = np.random.default_rng(0)
    x, w, z = (rng.integers(-4, 5, s).astype(bf16.numpy) for s in ((3, 32), (3, 32), 32))
    b = rng.integers(-4, 5, 32).astype(np.float32)
    y = np.zeros(32, {"bf16": bf16, "f32": f32}[dtype].numpy)
    native(f, [x, w, b, z, y], {"n": 3})
    t = (x.astype(np.float32) * w.astype(np.float32)).sum(0)
    want = VALUES[value](t, b, z.astype(np.float32))
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(y.dtype).astype(np.float32))


def test_short_results_change_places() -> None:
    """Not the sums: one shuffle of what is stored, and those of what is added to all."""
    f = parse_function(RESULTS.replace("TYPE", "bf16").replace("VALUE", "max(t[0, d], 0.0)"))
    code = assembly(kernel_source(f, PAIRS).text, PAIRS)
    assert len(re.findall(r"vperm\w+|vshuf\w+", code)) == 1
