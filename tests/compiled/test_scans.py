"""Running reductions along any dimension: rows side by side, columns in vectors, what is left."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pliant
from pliant.base.dtypes import DType, f32, i64
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var

SIZES = [(0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (2, 3, 7), (3, 9, 4), (5, 17, 70), (1, 130, 3)]
NUMPY = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


def expected(name: str, x: np.ndarray, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    ufunc = NUMPY[name]
    turned = np.flip(x, axis) if reverse else x
    out = ufunc.accumulate(turned, axis=axis, dtype=x.dtype)
    if exclusive:
        start = {"cumsum": 0, "cumprod": 1}[name]
        moved = np.moveaxis(out, axis, 0)
        moved = np.concatenate([np.full_like(moved[:1], start), moved])[: len(moved)]
        out = np.moveaxis(moved, 0, axis)
    return np.flip(out, axis) if reverse else out


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [f32, i64], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scans(axis: int, dtype: DType) -> None:
    b = Builder("main", OPERATORS)
    x = b.param("x", dtype, (var("n"), var("m"), var("k")))
    kinds = [(n, e, r) for n in NUMPY for e, r in itertools.product((False, True), repeat=2)]
    kinds = [(n, e, r) for n, e, r in kinds if not e or n in ("cumsum", "cumprod")]
    results = [b.call(n, x, axis=axis, exclusive=e, reverse=r) for n, e, r in kinds]
    f = pliant.compile(b.finish(results), threads=2)
    assert "[scan]" in f.explain()
    assert "[serial]" not in f.explain()
    for shape in SIZES:
        values = np.random.default_rng(0).integers(-2, 3, shape).astype(dtype.numpy)
        if dtype.is_float and values.size:
            values.reshape(-1)[values.size // 2] = np.nan
        for (name, exclusive, reverse), got in zip(kinds, f(values), strict=True):
            want = expected(name, values, axis, exclusive, reverse)
            np.testing.assert_array_equal(got, want, err_msg=f"{name} {shape}")


def test_one_dimension_and_another_order() -> None:
    """Nothing side by side; and what lies in another order than its dimensions."""
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (var("n"),))
    f = pliant.compile(b.finish([b.call("cumsum", x, axis=0)]))
    for n in (0, 1, 9, 1000):
        values = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        np.testing.assert_allclose(f(values), np.cumsum(values), rtol=1e-5, atol=1e-5)
    b = Builder("main", OPERATORS)
    y = b.param("y", f32, (var("n"), var("m"), 20))
    turned = b.call("transpose", y, perm=(2, 0, 1))
    f = pliant.compile(b.finish([b.call("cumsum", turned, axis=k) for k in range(3)]))
    values = np.random.default_rng(0).standard_normal((3, 11, 20)).astype(np.float32)
    for k, got in enumerate(f(values)):
        want = np.cumsum(values.transpose(2, 0, 1), axis=k)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "shape", [("n", 3, 2, 7), ("n", 3, 2, 40), (2, 3, 5, "n"), ("n", "m", 4, 3, 5), (4, 0, 6)]
)
def test_several_dimensions_side_by_side(shape: tuple[int | str, ...]) -> None:
    """What is fused of known sizes, also of none."""
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, tuple(var(d) if isinstance(d, str) else d for d in shape))
    b.param("sizes", f32, (var("n"), var("m")))
    rank = len(shape)
    kinds = [(k, r) for k in range(rank) for r in (False, True)]
    results = [b.call("cumsum", x, axis=k, exclusive=False, reverse=r) for k, r in kinds]
    f = pliant.compile(b.finish(results))
    for n, m in ((1, 2), (5, 3), (17, 0)):
        at = tuple({"n": n, "m": m}[d] if isinstance(d, str) else d for d in shape)
        values = np.random.default_rng(n).integers(-4, 5, at).astype(np.float32)
        for (k, r), got in zip(kinds, f(values, np.zeros((n, m), np.float32)), strict=True):
            want = expected("cumsum", values, k, False, r)
            np.testing.assert_array_equal(got, want, err_msg=f"{at} {k}")
