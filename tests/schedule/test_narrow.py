"""Loops of reductions that run only where there is something to combine."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.dtypes import f32
from pliant.ir.expr import Expr, Index, Unary
from pliant.ir.tensor import compute, placeholder, reduce, select
from pliant.loop.from_tensor import unscheduled
from pliant.loop.printer import function_text
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import Int, as_int, maximum, minimum, var
from tests.schedule.programs import same

INF = float("inf")
n, k = var("n"), var("k")
x, v = placeholder("x", (n, k), f32), placeholder("v", (k,), f32)
SIZES = [(0, 0), (3, 0), (1, 1), (2, 9), (9, 2), (7, 7), (20, 13)]


def seen(i: Int, j: Int) -> Expr:
    """A band."""
    return (Index(j) <= Index(i)) & (Index(i) <= Index(j + 4))


def row(combiner: str, other: float) -> Program:
    """A reduction of what is in the band."""

    def body(i: Int, j: Int) -> Expr:
        return select(seen(i, j), x[i, j], other)

    y = compute((n,), lambda i: reduce(combiner, (k,), lambda j: body(i, j)), "y")
    return program(unscheduled("rows", [y], [x], ["n", "k"]))


def band(i: Int) -> tuple[Int, Int]:
    first = minimum(maximum(i - 4, 0), k)
    return first, maximum(minimum(i + 1, k), first)


@pytest.mark.parametrize(
    ("combiner", "other"),
    [("max", -INF), ("fmax", -INF), ("min", INF), ("sum", 0.0), ("prod", 1.0)],
)
def test_identities(combiner: str, other: float) -> None:
    p = row(combiner, other)
    q = p.narrow("y_r", *band(var("y_i")))
    assert q.loop("y_r").extent != k
    same(p, q, SIZES)
    # The start is of the row, not of all rows.
    same(p, q.decompose_reduction("y", "y_r").parallel("y_i"), SIZES)
    same(p, q.split("y_r", 4).decompose_reduction("y", "y_r_0"), SIZES)


def test_conditions_that_hold_in_what_is_left() -> None:
    p = row("sum", 0.0)
    q = p.narrow("y_r", *band(var("y_i")))
    assert "select" in function_text(p.function)
    assert "select" not in function_text(q.function)
    wider = p.narrow("y_r", 0, band(var("y_i"))[1])
    text = function_text(wider.function)
    assert "select" in text
    assert text.count("<=") == 1  # only where the band begins
    same(p, wider, SIZES)


def test_the_rest_of_a_split() -> None:
    """How many iterations are left depends on the row, which is still no part of the reduction."""
    p = row("sum", 0.0)
    q = p.narrow("y_r", *band(var("y_i"))).decompose_reduction("y", "y_r")
    q = q.split("y_r", 2, tail="peel", tail_loop="exact")
    same(p, q.reduce_lanes("y").parallel("y_i"), SIZES)


def test_where_no_block_runs() -> None:
    """The rest of a split, where its size is known though not whether there is one."""
    z = placeholder("z", (4 * n,), f32)
    y = compute((4 * n,), lambda i: z[i] * z[i], "y")
    p = program(unscheduled("squares", [y], [z], ["n"])).split("y_i", 8)
    o, i = p.made
    p = p.loop_partition(o, n // 2)
    *_, rest = (b for b in p.blocks if b != "y")
    lane = p.loops(rest)[-1]
    q = p.narrow(lane, 0, 4)
    assert q.loop(lane).extent == 4
    assert q.block(rest).where is None
    same(p, q.vectorize(lane), [(0,), (1,), (2,), (7,)])
    with pytest.raises(SchedulingError, match="reduces over it"):
        p.narrow(lane, 0, 3)  # some of the last four
    with pytest.raises(SchedulingError, match="reduces over it"):
        p.narrow(i, 0, 4)  # some of those that are whole


def attention() -> Program:
    """The exponentials of a band, times a vector."""
    s = compute((n, k), lambda i, j: select(seen(i, j), x[i, j], -INF), "s")
    m = compute((n,), lambda i: reduce("max", (k,), lambda j: s[i, j]), "m")
    e = compute((n, k), lambda i, j: Unary("exp", s[i, j] - m[i]), "e")
    y = compute((n,), lambda i: reduce("sum", (k,), lambda j: e[i, j] * v[j]), "y")
    return program(unscheduled("attention", [y], [x, v], ["n", "k"]))


def test_what_is_computed_before() -> None:
    p = attention()
    q = p.narrow("y_r", *band(var("y_i")))
    for block in ("e", "m", "s"):
        q = q.compute_at(block, "y_i")
        if block == "m":
            assert len(q.made) == 1
            q = q.narrow(q.loops("m")[-1], *band(var("y_i")))
        assert q.loop(q.loops(block)[-1]).extent != k
    given, vector = np.random.default_rng(0).standard_normal((2, 9, 9)).astype(np.float32)
    for rows, columns in ((9, 9), (5, 9), (9, 5)):
        args = given[:rows, :columns], vector[0, :columns]
        have = q.run(*args)
        np.testing.assert_allclose(have, p.run(*args), rtol=1e-6)
        # A row without columns is no number.
        assert (np.isnan(have) == (np.arange(rows) > columns + 3)).all()


def refused(p: Program, reason: str, loop: str, first: Int, end: Int) -> None:
    with pytest.raises(SchedulingError, match=reason):
        p.narrow(loop, first, end)


def test_refuses() -> None:
    i, zero = var("y_i"), as_int(0)
    first, end = band(i)
    more = "it may combine more than the identity"
    refused(row("max", -INF), more, "y_r", first, minimum(i, k))
    refused(row("max", -INF), more, "y_r", minimum(maximum(i - 3, 0), k), end)
    refused(row("max", 0.0), more, "y_r", first, end)
    refused(row("sum", -INF), more, "y_r", first, end)
    refused(row("sum", 1.0), more, "y_r", first, end)
    refused(row("max", -INF), "is not known", "y_r", zero, i + 1)
    refused(row("max", -INF), "is not known", "y_r", zero - 1, end)
    refused(row("max", -INF), "y_r is not known around it", "y_r", zero, var("y_r"))
    refused(row("max", -INF), "does not hold one block", "y_i", zero, minimum(n, 1))
    started = row("max", -INF).decompose_reduction("y", "y_r")
    same(row("max", -INF), started.narrow("y_r", first, end), SIZES)
    serial = row("max", -INF).decompose_reduction("y", "y_r")
    refused(serial.split("y_r", 4), "does not hold", "y_r_0", zero, zero)


def test_strict_numerics() -> None:
    p = row("max", -INF)
    strict = program(p.function.replace(notes=(("numerics", "strict"),)))
    refused(strict, "strict", "y_r", *band(var("y_i")))


def test_the_start_is_where_it_was() -> None:
    """A row of which nothing is left starts all the same; one that is none does not."""

    def body(i: Int, j: Int) -> Expr:
        return select((Index(i) <= Index(j)) & (Index(j) < Index(n)), x[i, j], -INF)

    y = compute((n,), lambda i: reduce("max", (k,), lambda j: body(i, j)), "y")
    p = program(unscheduled("rows", [y], [x], ["n", "k"])).split("y_i", 2)
    i = 2 * var("y_i_0") + var("y_i_1")
    q = p.narrow("y_r", minimum(maximum(i, 0), k), minimum(n, k))
    same(p, q, SIZES)
