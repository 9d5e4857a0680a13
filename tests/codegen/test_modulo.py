"""What is left of a division is exact, whatever the quotient, as the C library's fmod."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant.base.dtypes import DType, f32, f64
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var

COUNT = 20_000


def operands(dtype: DType) -> np.ndarray:
    """Any bits; numbers of any sizes; multiples and their neighbours; and what is special."""
    rng = np.random.default_rng(0)
    real, bits = dtype.numpy, np.dtype(f"u{dtype.bits // 8}")
    anything = rng.integers(0, np.iinfo(bits).max, (2, COUNT), bits, endpoint=True).view(real)
    near = rng.standard_normal((2, COUNT)) * 10.0 ** rng.integers(-6, 7, (2, COUNT))
    near = near.astype(real)
    times = (near[1] * rng.integers(1, 1 << 22, COUNT)).astype(real)
    multiples = np.stack([np.nextafter(times, rng.choice([-np.inf, 0, np.inf], COUNT)), near[1]])
    info = np.finfo(real)
    some = [0.0, 1.0, 0.7, 3.0, np.inf, info.tiny, info.smallest_subnormal, info.max]
    special = np.array([*some, *(-x for x in some), np.nan], real)
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    return np.concatenate([anything, near, multiples.astype(real), pairs], 1)


@pytest.mark.parametrize("target", ["native", "x86-64-avx2", "x86-64"])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_exact(dtype: DType, target: str) -> None:
    b = Builder("main", OPERATORS)
    x, y = (b.param(n, dtype, (var("n"),)) for n in "xy")
    f = pliant.compile(b.finish([b.call("truncmod", x, y)]), target=target)
    a, c = operands(dtype)
    with np.errstate(all="ignore"):
        want = np.fmod(a, c)
    for n in (0, 1, 3, len(a)):
        got = f(a[:n].copy(), c[:n].copy())
        np.testing.assert_array_equal(got, want[:n])
        real = ~np.isnan(want[:n])
        assert (np.signbit(got) == np.signbit(want[:n]))[real].all()
