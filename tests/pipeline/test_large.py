"""Graphs that are large in one way or another compile, and are right."""

from __future__ import annotations

import numpy as np

import pliant
from pliant.base.dtypes import f32
from pliant.graph.builder import Builder
from pliant.graph.function import Value
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var


def begin(columns: int = 4) -> tuple[Builder, Value, np.ndarray]:
    b = Builder("main", OPERATORS)
    x = np.random.default_rng(0).standard_normal((3, columns)).astype(np.float32)
    return b, b.param("x", f32, (var("n"), columns)), x


def test_a_long_chain_of_maps() -> None:
    b, h, x = begin()
    for _ in range(600):
        h = b.call("neg", b.call("relu", h))
        h = b.call("abs", h)
    f = pliant.compile(b.finish([h]))
    np.testing.assert_array_equal(f(x), np.maximum(x, 0))
    assert f.stats()["kernels"] <= 4  # pieces of 64, and how these begin


def test_many_prepared_weights() -> None:
    b, h, x = begin()
    want, rng = x.astype(np.float64), np.random.default_rng(1)
    for _ in range(400):
        w = rng.standard_normal((4, 4)).astype(np.float32) / 2
        h = b.call("tanh", b.call("matmul", h, b.weight("w", w)))
        want = np.tanh(want @ w)
    f = pliant.compile(b.finish([h]))
    np.testing.assert_allclose(f(x), want, atol=1e-4)


def test_a_concatenation_of_many() -> None:
    b, h, x = begin()
    parts = [b.call("mul", h, b.scalar(float(k), f32)) for k in range(150)]
    f = pliant.compile(b.finish([b.call("concat", tuple(parts), axis=1)]))
    np.testing.assert_array_equal(f(x), np.concatenate([x * k for k in range(150)], 1))


def test_many_results() -> None:
    b, h, x = begin()
    f = pliant.compile(b.finish([b.call("add", h, b.scalar(float(k), f32)) for k in range(400)]))
    for k, y in enumerate(f(x)):
        np.testing.assert_array_equal(y, x + np.float32(k))


def test_weights_are_as_they_were() -> None:
    b, h, x = begin()
    w = np.ones((4,), np.float32)
    function, _ = b.finish([b.call("mul", h, b.weight("w", w))])
    (key,) = [k for _, k in function.weights]
    f = pliant.compile((function, {key: w}))
    w[:] = 7
    np.testing.assert_array_equal(f(x), x)
