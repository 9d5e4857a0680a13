"""The unscheduled program against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.dtypes import f32, i64
from pliant.ir.expr import as_expr
from pliant.ir.tensor import (
    Opaque,
    OpaqueOutput,
    compute,
    placeholder,
    reduce,
    scan,
    scatter,
)
from pliant.loop.from_tensor import unscheduled
from pliant.loop.interpret import interpret
from pliant.loop.stmt import Function, Store, buffer, for_
from pliant.loop.verify import verify_function
from pliant.sym.expr import as_int, var
from tests.schedule.programs import PROGRAMS, ROW_SIZES, k, n, outline, x2


def run(f: Function, *arrays: np.ndarray, **sizes: int) -> None:
    verify_function(f)
    interpret(f, arrays, sizes)


def test_a_tensor_becomes_a_nest_and_a_block() -> None:
    assert outline(PROGRAMS["softmax"]()) == "\n".join(
        [
            "scratch m[n]",
            "scratch e[n, k]",
            "scratch s[n]",
            "m_i < n",
            "  m_r < k",
            "    m(m_i, m_r)",
            "e_i < n",
            "  e_j < k",
            "    e(e_i, e_j)",
            "s_i < n",
            "  s_r < k",
            "    s(s_i, s_r)",
            "y_i < n",
            "  y_j < k",
            "    y(y_i, y_j)",
        ]
    )


@pytest.mark.parametrize("size", ROW_SIZES)
def test_matmul_and_softmax(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(size).astype(np.float32)
    y = np.zeros_like(x)
    run(PROGRAMS["softmax"]().function, x, y, n=size[0], k=size[1])
    e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    b = rng.standard_normal((size[1], 3)).astype(np.float32)
    c = np.full((size[0], 3), np.nan, np.float32)
    run(PROGRAMS["matmul"]().function, x, b, c, n=size[0], m=3, k=size[1])
    np.testing.assert_allclose(c, x @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("combiner", ["argmax", "argmin"])
def test_position_of_the_best(combiner: str) -> None:
    p = compute((n,), lambda i: reduce(combiner, (k,), lambda r: x2[i, r]), "p")
    x = np.array(
        [[1, 3, 3, 0], [-np.inf] * 4, [np.inf] * 4, [1, np.nan, 5, np.nan], [0, -1, -1, 2]],
        np.float32,
    )
    got = np.zeros(5, np.int64)
    run(unscheduled("f", [p], [x2], ["n", "k"]), x, got, n=5, k=4)
    np.testing.assert_array_equal(got, getattr(x, combiner)(1))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(exclusive: bool, reverse: bool) -> None:
    y = scan((n, k), 0, "sum", lambda i, j: x2[i, j], exclusive=exclusive, reverse=reverse)
    f = unscheduled("f", [y], [x2], ["n", "k"])
    for size in ROW_SIZES:
        x = np.random.default_rng(1).integers(0, 9, size).astype(np.float32)
        got = np.zeros_like(x)
        run(f, x, got, n=size[0], k=size[1])
        full = np.flip(x, 0) if reverse else x
        sums = np.cumsum(full, 0) - (full if exclusive else 0)
        np.testing.assert_array_equal(got, np.flip(sums, 0) if reverse else sums)


def test_scatter_combines_in_order_and_skips() -> None:
    base = placeholder("base", (n,), f32)
    at, new = placeholder("at", (k,), i64), placeholder("new", (k,), f32)
    for combiner, expected in (("set", [0, 5, 0, 4]), ("add", [0, 8, 0, 4])):
        y = scatter(
            base, (k,), lambda i: (at[i],), lambda i: new[i], combiner=combiner,
            skip=lambda i: at[i] < 0,
        )  # fmt: skip
        f = unscheduled("f", [y], [base, at, new], ["n", "k"])
        got = np.full(4, np.nan, np.float32)
        where = np.array([1, -1, 3, 1])
        values = np.array([3, 9, 4, 5], np.float32)
        run(f, np.zeros(4, np.float32), where, values, got, n=4, k=4)
        np.testing.assert_array_equal(got, expected)


def test_opaque_program_is_taken_over_with_its_sizes() -> None:
    i, size = var("i"), var("size")
    a, b = buffer("a", (size,), f32), buffer("b", (size,), f32)
    flip = Function(
        "flip", (a, b), ("size",), for_([("i", size)], Store(b, (as_expr(i),), a[size - 1 - i]))
    )
    t = compute((n + 1,), lambda i: as_expr(i, f32), "t")
    flipped = OpaqueOutput(Opaque("flip", (t,), ((f32, (n + 1,)),), flip), 0)
    twice = compute((n + 1,), lambda i: flipped[i] * 2.0, "twice")
    got = np.zeros(4, np.float32)
    run(unscheduled("f", [twice], [], ["n"]), got, n=3)
    np.testing.assert_array_equal(got, [6, 4, 2, 0])


def test_outputs_that_are_inputs_or_repeated_are_copied() -> None:
    y = compute((n, k), lambda i, j: x2[i, j] + 1.0, "y")
    f = unscheduled("f", [x2, y, y], [x2], ["n", "k"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = [np.zeros_like(x) for _ in range(3)]
    run(f, x, *got, n=2, k=3)
    for a, b in zip(got, (x, x + 1, x + 1), strict=True):
        np.testing.assert_array_equal(a, b)


def test_given_strides_are_used() -> None:
    y = compute((n, k), lambda i, j: x2[i, j] + 1.0, "y")
    f = unscheduled("f", [y], [x2], ["n", "k"], {x2: (as_int(1), n)})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = np.zeros_like(x)
    run(f, x.T.copy().reshape(-1), got, n=2, k=3)
    np.testing.assert_array_equal(got, x + 1)


def test_names_are_unique_identifiers() -> None:
    a = compute((n, k), lambda i, j: x2[i, j] + 1.0, "layer.0/add")
    b = compute((n, k), lambda i, j: a[i, j] + 1.0, "layer.0/add")
    f = unscheduled("f", [b], [x2], ["n", "k"])
    verify_function(f)
    blocks = outline(f)
    assert "layer_0_add(" in blocks
    assert "layer_0_add_1(" in blocks
