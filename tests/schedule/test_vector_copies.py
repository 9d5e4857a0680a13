"""Copies around an intrinsic: their order of loops, and their vectors."""

from __future__ import annotations

from pliant.base.dtypes import f32
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.vector_copies import copies_in_vectors
from pliant.sym.expr import IntLike, minimum, var
from tests.schedule.programs import n, same

k = var("k")
few = minimum(n, 100)
x = placeholder("x", (k, n), f32)


def turned(rows: IntLike, columns: IntLike) -> Program:
    y = compute((rows, columns), lambda i, j: x[j, i], "y")
    return program(unscheduled("turned", [y], [x], ["n", "k"]))


def test_a_short_loop_along_the_source_goes_inside() -> None:
    p = turned(few, k)
    q = copies_in_vectors(p)
    assert q.loops("y") == ("y_j", "y_i")
    same(p, q)


def test_a_line_of_a_long_one() -> None:
    wide = placeholder("x", (32, n), f32)
    y = compute((n, 32), lambda i, j: wide[j, i], "y")
    p = program(unscheduled("turned", [y], [wide], ["n"]))
    q = copies_in_vectors(p)
    *_, inner, element = q.loops("y")
    assert inner == "y_j" and str(q.loop(element).extent).startswith("min(16")
    same(p, q, [(0,), (1,), (16,), (37,)])


def test_what_lies_side_by_side_is_a_vector() -> None:
    source = placeholder("x", (n, 32), f32)
    row = placeholder("r", (n,), f32)
    y = compute((n, 32), lambda i, j: source[i, j], "y")
    z = compute((n, 32), lambda i, j: row[i], "z")
    p = program(unscheduled("plain", [y, z], [source, row], ["n"]))
    q = copies_in_vectors(p)
    assert [q.loop(q.loops(b)[-1]).kind for b in ("y", "z")] == ["vectorized"] * 2
    same(p, q)


def test_others_stay() -> None:
    """Lines of unknown length, gaps between elements, sums, loops that are something already."""
    wide = placeholder("w", (n, 64), f32)
    apart = compute((n, 32), lambda i, j: wide[i, 2 * j], "apart")
    long = compute((n, k), lambda i, j: x[j, 0], "long")
    total = compute((n,), lambda i: reduce("sum", (32,), lambda r: wide[i, r]), "total")
    p = program(unscheduled("others", [apart, long, total], [wide, x], ["n", "k"]))
    assert copies_in_vectors(p).function == p.function
    y = compute((n, 32), lambda i, j: wide[i, j], "y")
    unrolled = program(unscheduled("unrolled", [y], [wide], ["n"])).unroll("y_j")
    assert copies_in_vectors(unrolled).function == unrolled.function
