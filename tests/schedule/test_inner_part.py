"""Loops divided at their borders: the part in between runs without conditions."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32
from pliant.ir.expr import Binary, Expr, Index
from pliant.ir.tensor import compute, placeholder, reduce, select, within
from pliant.loop.from_tensor import unscheduled
from pliant.loop.regions import accesses
from pliant.schedule.loop_partition import conditions_in, inner_part, live_part
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import Int, as_int, maximum, minimum, var
from tests.schedule.programs import n, same

k = var("k")
x = placeholder("x", (n,), f32)


def window(size: int, stride: int) -> Program:
    """Sums of a window over a vector with a border of zeros; there are k of them."""
    edge = size // 2

    def body(i: Int, r: Int) -> Expr:
        at = stride * i + r - edge
        return select(within(at, n), x[at], 0.0)

    y = compute((k,), lambda i: reduce("sum", (size,), lambda r: body(i, r)), "y")
    return program(unscheduled("window", [y], [x], ["n", "k"]))


def tiled(size: int, stride: int) -> Program:
    p = window(size, stride).split("y_i", 4).reorder("y_r", "y_i_1")
    return p.decompose_reduction("y", "y_r")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_inner_part(size: int, stride: int) -> None:
    p = tiled(size, stride)
    whole = conditions_in(p.loop("y_i_0"))
    first, end = inner_part(p, "y_i_0")
    q = p.loop_partition("y_i_0", first, end)
    middle, after = q.made
    assert not conditions_in(q.loop(middle))
    assert 0 < len(conditions_in(q.loop(after))) < len(whole)  # nothing is left of x[0] there
    same(p, q)


def test_inner_part_is_all() -> None:
    p = window(3, 1).split("y_i", 4, tail="clip")
    first, end = inner_part(p, "y_i_0")
    same(p, p.decompose_reduction("y", "y_r").loop_partition("y_i_0", first, end))
    y = compute((n,), lambda i: x[i], "y")
    assert inner_part(program(unscheduled("copy", [y], [x], ["n"])), "y_i") == (as_int(0), n)


@pytest.mark.parametrize("slope", [1, 3])
@pytest.mark.parametrize("after", [-4, 0, 5])
def test_live_part(after: int, slope: int) -> None:
    """Only columns in the live part are read: those up to the diagonal, by blocks of four rows and
    of eight columns."""
    table = placeholder("x", (n, k), f32)

    def body(i: Int, j: Int) -> Expr:
        return select(Binary("le", Index(j), Index(slope * i + after)), table[i, j], 7.0)

    y = compute((n, k), body, "y")
    p = program(unscheduled("band", [y], [table], ["n", "k"]))
    p = p.split("y_i", 4, tail="clip").split("y_j", 8, tail="clip")
    p = p.reorder("y_i_0", "y_j_0", "y_i_1", "y_j_1")
    first, end = live_part(p, "y_j_0")
    assert first == as_int(0)
    q = p.loop_partition("y_j_0", end)
    (dead,) = q.made
    assert all(a.buffer.name != "x" for a in accesses(q.loop(dead)))
    assert any(a.buffer.name == "x" for a in accesses(q.loop("y_j_0")))
    same(p, q)


def test_live_part_between() -> None:
    """Before and after a band."""
    table = placeholder("x", (n, k), f32)

    def body(i: Int, j: Int) -> Expr:
        return select(
            Binary("le", Index(j), Index(i + 3)),
            select(Binary("le", Index(i), Index(j + 9)), table[i, j], 5.0),
            7.0,
        )

    y = compute((n, k), body, "y")
    p = program(unscheduled("band", [y], [table], ["n", "k"]))
    p = p.split("y_i", 4, tail="clip").split("y_j", 8, tail="clip")
    p = p.reorder("y_i_0", "y_j_0", "y_i_1", "y_j_1")
    first, end = live_part(p, "y_j_0")
    assert first != as_int(0)
    q = p.loop_partition("y_j_0", first, end)
    live, after = q.made
    assert all(a.buffer.name != "x" for a in accesses(q.loop(after)))
    assert any(a.buffer.name == "x" for a in accesses(q.loop(live)))
    same(p, q)


def test_all_is_live() -> None:
    """Without a condition, and with one that says nothing of the loop."""
    table = placeholder("x", (n, k), f32)
    for body in (
        lambda i, j: table[i, j],
        lambda i, j: select(Binary("le", Index(i), Index(n // 2)), table[i, j], 7.0),
    ):
        y = compute((n, k), body, "y")
        p = program(unscheduled("all", [y], [table], ["n", "k"]))
        assert live_part(p, "y_j") == (as_int(0), k)


def test_points_given_as_they_are() -> None:
    """Of i >= min(1, extent) remains i >= 1; of i < max(first, last) i < last, each in its part."""
    p = tiled(3, 1)
    count = p.loop("y_i_0").extent
    first = minimum(1, count)
    q = p.loop_partition("y_i_0", first, maximum(first, minimum(count, minimum(n, k) // 4 - 1)))
    assert not conditions_in(q.loop(q.made[0]))
    same(p, q)


def test_points_that_tell_too_little() -> None:
    """A condition stays where the points do not imply it."""
    p = tiled(3, 1)
    count = p.loop("y_i_0").extent
    q = p.loop_partition("y_i_0", maximum(0, count - 1))
    assert conditions_in(q.loop("y_i_0"))
    same(p, q)
