"""Copies around an intrinsic: their order of loops, and their vectors."""

from __future__ import annotations

from pliant.base.dtypes import f32
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import Invoke, statements
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.square import squares
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


def test_what_is_written_from_a_tile_is_written_line_by_line() -> None:
    row = placeholder("r", (8, 32), f32)
    t = compute((8, 32), lambda i, j: row[i, j] + 1, "t")
    y = compute((32, 8), lambda i, j: t[j, i], "y")
    p = program(unscheduled("tile", [y], [row], []))
    p = p.transform_block_layout("y", (var("_1"), var("_0")))
    q = copies_in_vectors(p)
    assert q.loops("y") == p.loops("y")[::-1]
    same(p, q, [()])


def test_squares_are_turned_in_registers_where_there_is_code_for_it() -> None:
    start = turned(n, k)
    p = program(start.function, intrinsics=squares(4))
    q = copies_in_vectors(p)
    calls = [s.callee for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert calls == ["transpose_f32_4"]
    meaning = {i.name: i.semantics for i in squares(4)}
    same(p, q, [(0, 3), (1, 1), (4, 4), (5, 17), (8, 3), (12, 8)], meaning)
    assert copies_in_vectors(start).function is not start.function  # by lines, where there is none


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
