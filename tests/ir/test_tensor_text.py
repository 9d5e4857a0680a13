"""Tensor expressions and scalar expressions round-trip through text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.base.dtypes import DTYPES, f32
from pliant.ir.expr import Const, Expr, Index
from pliant.ir.parser import ExprParser, ParseError, Scope, Text
from pliant.ir.printer import expr_text
from pliant.ir.tensor import Compute, compute, placeholder
from pliant.sym.expr import var
from pliant.text import parse_tensors, to_text
from tests.generate import exprs, tensors
from tests.share import draws

SEVERAL = """\
x = placeholder(f32["n", "k"])
m = compute((n,), lambda _i0: max(x[_i0, _r0] for _r0 in grid(k)))
e = compute((n, k), lambda _i0, _i1: exp(x[_i0, _i1] - m[_i0]), requires=((n, 2*k, "n is 2 k"),))
s = scan((n,), 0, "sum", lambda _i0: m[_i0], reverse=True)
o = scatter(s, (n,), lambda _i0: (_i0//2,), lambda _i0: m[_i0], skip=lambda _i0: _i0 < 3)
@loop
def sort(a: f32["n"], b: f32["n"], c: i64["n"], n: i64):
    for i in grid(n):
        b[i] = a[i]
t = opaque(sort, (o,), (f32["n"], i64["n"]))
t_0 = output(t, 0)
p = scatter(s, (n,), lambda _i0: (_i0//2,), lambda _i0: m[_i0], combiner="add")
e, t_0, p"""


def test_text_is_stable() -> None:
    assert to_text(parse_tensors(SEVERAL)) == SEVERAL


@settings(max_examples=draws(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(tensors())
def test_round_trip(roots: tuple) -> None:  # type: ignore[type-arg]
    text = to_text(roots)
    again = parse_tensors(text)
    assert all(a is b for a, b in zip(again, roots, strict=True)), text


def parse(text: str, dtype: object = None) -> Expr:
    source = Text(text)
    return ExprParser(source, Scope()).expr(source.tree.body[-1].value)  # type: ignore[attr-defined]


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(list(DTYPES.values())).flatmap(lambda t: exprs(t, depth=2)))
def test_expressions_round_trip(expr: Expr) -> None:
    lines, text = expr_text(expr)
    if not lines:
        assert parse(text) is expr


@given(st.integers(0, (1 << 16) - 1), st.sampled_from(["f16", "bf16"]))
def test_every_bit_pattern(bits: int, name: str) -> None:
    value = Const(DTYPES[name], bits)
    assert parse(expr_text(value)[1]) is value


@pytest.mark.parametrize(
    "text", ["n*2 + 1", "f32(n)", "-f32(x)", "min(n, m, 3)", "n < 3", "~(n < m)"]
)
def test_handwritten(text: str) -> None:
    assert parse(text) is parse(expr_text(parse(text))[1])


def test_shared_and_deep_bodies() -> None:
    x = placeholder("x", (var("n"),), f32)

    def body(i: object) -> Expr:
        value: Expr = x[i]
        for _ in range(100):
            value = value * value + 1.0
        return value

    t = compute((var("n"),), body)
    text = to_text(t)
    assert "def t_at(_i0):" in text
    assert len(text) < 10_000
    assert parse_tensors(text) == (t,)


def test_labels_that_are_no_names() -> None:
    x = placeholder("in.1", (var("n"),), f32)
    t = Compute("in.1", (), x[0] + x[Index(var("n") - 1)])
    assert to_text(t).splitlines() == [
        'in_1 = placeholder(f32["n"], name="in.1")',
        'in_1_1 = compute((), lambda: in_1[0] + in_1[n - 1], name="in.1")',
        "(in_1_1,)",
    ]
    assert parse_tensors(to_text(t)) == (t,)


def test_errors_name_the_line() -> None:
    with pytest.raises(ParseError, match="line 2: nothing named 'y'"):
        parse_tensors("x = placeholder(f32[3])\nt = compute((3,), lambda i: y[i])\n(t,)")
    with pytest.raises(ParseError, match="line 1: 1 indices for 2 extents"):
        parse_tensors("t = compute((3, 4), lambda i: 0.5)\n(t,)")
