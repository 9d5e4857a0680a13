"""Sums that start with what is added to them wherever they are read."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.by_hand import BY_HAND
from tests.schedule.programs import matmul_relu, rows, same

TEXT = """\
@loop
def f(x: f32["n", "m", "k"], b: f32["m"], y: f32["n", "m"], n: i64, m: i64, k: i64):
    t = alloc(f32[n, m], scope="scratch")
    for i, j, r in grid(n, m, k):
        with block("t", S(i, n), S(j, m), R(r, k)) as (a, c, e):
            with init():
                t[a, c] = START
            t[a, c] = t[a, c] + x[a, c, e]
    for g, h in grid(n, m):
        with block("y", S(g, n), S(h, m)WHERE) as (v, w):
            y[v, w] = VALUE
"""


def summed(value: str, start: str = "0.0", where: str = "") -> Program:
    text = TEXT.replace("START", start).replace("VALUE", value).replace("WHERE", where)
    return program(parse_function(text))


@pytest.mark.parametrize(
    ("value", "term"),
    [
        ("max(t[v, w] + b[w], 0.0)", "b[c]"),
        ("(2.0 * b[w] + t[v, w]) * (t[v, w] + 2.0 * b[w])", "2.0 * b[c]"),
        ("t[v, w] + f32(v) + 1.0", "f32(a)"),  # the first of the two
        ("t[v, w] + 3.0", "3.0"),
    ],
)
def test_the_term(value: str, term: str) -> None:
    p = summed(value)
    q = p.start_with_term("t")
    assert f"                t[a, c] = {term}\n" in function_text(q.function)
    assert q.block("t").body is p.block("t").body
    same(p, q)
    q = q.split("r", 4).decompose_reduction("t", "r_0")
    same(p, q)


def test_several_readers() -> None:
    p = BY_HAND["biased"]()
    q = p.start_with_term("t")
    same(p, q)
    text = function_text(q.function)
    assert "y[d] = max(t[d], 0.0)" in text and "z[e] = t[e]" in text


@pytest.mark.parametrize(
    ("made", "block", "reason"),
    [
        (lambda: summed("t[v, w] * b[w]"), "t", "block y reads t and adds nothing to it"),
        (lambda: summed("(t[v, w] + b[w]) * t[v, w]"), "t", "block y reads t and adds nothing"),
        (lambda: summed("(t[v, w] + b[w]) * (t[v, w] + 1.0)"), "t", "there is no one term"),
        (lambda: summed("t[v, w] + t[v, w]"), "t", "block y reads t and adds nothing"),
        (lambda: summed("t[v, w] + b[w]", "1.0"), "t", "it does not start with 0"),
        (lambda: summed("t[v, w] + b[w]", where=", where=v < w"), "t", "under a condition"),
        (lambda: summed("t[v, m - 1 - w] + b[w]"), "t", "depends on more than the place"),
        (lambda: rows("max"), "s", "it is no sum"),
        (rows, "s", "s is not a buffer of the function's own"),
        (matmul_relu, "y", "it is no sum of one element with an init"),
    ],
)
def test_refusals(made: object, block: str, reason: str) -> None:
    assert callable(made)
    with pytest.raises(SchedulingError, match=f"start_with_term of block {block}: .*{reason}"):
        made().start_with_term(block)


def test_strict_numerics_keep_the_order() -> None:
    p = summed("t[v, w] + b[w]")
    strict = p.function.replace(notes=(("numerics", "strict"),))
    with pytest.raises(SchedulingError, match="the numerics are strict"):
        program(strict).start_with_term("t")


def test_what_is_written_is_no_term() -> None:
    text = TEXT.replace("START", "0.0").replace("WHERE", "").replace("VALUE", "t[v, w] + b[w]")
    text += """\
    for u in grid(m):
        with block("b", S(u, m)) as (s,):
            b[s] = 1.0
"""
    with pytest.raises(SchedulingError, match="b, which the term reads, is written"):
        program(parse_function(text)).start_with_term("t")
