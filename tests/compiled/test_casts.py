"""Floats to integers: towards zero, saturating, NaN is 0; by vectors and one by one."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant.base.dtypes import DTYPES, DType, f16, f32, f64
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var

ENDS = (0.5, 127.0, 128.0, 129.0, 254.9, 255.5, 32767.4, 32768.0, 40000.0, 65503.0, np.inf, np.nan)


CASES = [(t, x) for t in ("native", "x86-64-avx2", "x86-64") for x in (f32, f64)]


@pytest.mark.parametrize(("target", "source"), [*CASES, ("native", f16)], ids=str)
def test_short_casts(target: str, source: DType) -> None:
    kinds = [DTYPES[name] for name in ("u8", "i8", "u16", "i16")]
    b = Builder("main", OPERATORS)
    x = b.param("x", source, (var("n"),))
    f = pliant.compile(b.finish([b.call("cast", x, to=to) for to in kinds]), target=target)
    values = np.array([s * v for v in (0.0, *ENDS) for s in (1, -1)] * 3)
    values = values.astype(source.numpy)
    for n in (0, 1, 7, len(values)):
        for to, got in zip(kinds, f(values[:n]), strict=True):
            real = np.nan_to_num(values[:n].astype(np.float64), nan=0.0)
            want = np.trunc(np.clip(real, to.min, to.max)).astype(to.numpy)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("target", "source"), CASES, ids=str)
def test_long_casts(target: str, source: DType) -> None:
    """To 32 and 64 bits, whose greatest numbers f32 does not hold."""
    kinds = [DTYPES[name] for name in ("i32", "i64", "u32", "u64")]
    b = Builder("main", OPERATORS)
    x = b.param("x", source, (var("n"),))
    f = pliant.compile(b.finish([b.call("cast", x, to=to) for to in kinds]), target=target)
    ends = [2.0**k + d for k in (31, 32, 63, 64) for d in (-(2.0 ** max(k - 24, 0)), -1, 0, 1)]
    values = np.array([s * v for v in (0.0, 0.99, 3e9, 1e30, *ENDS, *ends) for s in (1, -1)])
    values = values.astype(source.numpy)
    for n in (0, 1, 7, len(values)):
        for to, got in zip(kinds, f(values[:n]), strict=True):
            want = [
                0 if np.isnan(v) else to.min if v <= to.min else min(int(min(v, 2.0**65)), to.max)
                for v in values[:n].astype(np.float64)
            ]
            assert got.tolist() == want
