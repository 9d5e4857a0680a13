"""Loop programs print as Python and parse back to the same object."""

from __future__ import annotations

import ast

import pytest
from hypothesis import HealthCheck, given, settings

from pliant.base.dtypes import f32, i64
from pliant.ir.expr import Index, Var, const
from pliant.ir.parser import ParseError
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import Alloc, Function, If, Let, Nop, Seq, Stmt, Store, buffer
from pliant.sym.expr import as_int, var
from tests.generate import functions
from tests.share import draws

ROW_SUMS = """\
@loop
def row_sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    for a in parallel(n):
        for b in grid(k):
            with block("sum", S(a, n), R(b, k), where=b < k) as (i, r):
                with init():
                    y[i] = 0.0
                y[i] = y[i] + x[i, r] * 2.0"""

EVERYTHING = """\
@host(notes={"numerics": "strict", "tile": (4, f32, n + 1)})
def main(x: buffer(f32["n", 8], strides=("s", 1), align=64), out: f32["n"], n: i64, s: i64):
    m: i64 = n + 3
    scale: f32 = 0.5
    if n < 8:
        pass
    elif n == 8:
        memcpy(out, address(x[n - 1, 0]), 4*n)
    else:
        while out[0] < 3.0:
            out[0] = -out[0] + f32(m) * scale
    check(n <= m, "n is {0}", n, error="ResourceError")
    with alloc(f32[m, 4], scope="scratch") as t:
        t[0, 0] = max(x[i, j] for i in grid(n) for j in grid(8))
    acc = alloc(f32[4])
    for i, j in grid(n, 8):
        acc[j] = select(i < m, exp(x[i, j]), -inf)"""


@pytest.mark.parametrize("text", [ROW_SUMS, EVERYTHING])
def test_text_is_stable(text: str) -> None:
    assert function_text(parse_function(text)) == text


@settings(max_examples=draws(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(functions())
def test_round_trip(function: Function) -> None:
    text = function_text(function)
    assert parse_function(text) is function, text


def nested(count: int) -> Stmt:
    stmt: Stmt = Nop()
    for k in range(count):
        stmt = Let(Var(f"v{k}", i64), Index(var("n") + k), stmt)
    return stmt


def test_long_chains_need_no_stack() -> None:
    n = var("n")
    y = buffer("y", (n,), f32)
    expr = y[0]
    for _ in range(3000):
        expr = expr * y[1] + expr  # also shared twice at every step
    function = Function("f", (y,), ("n",), Seq((Store(y, (Index(n),), expr), nested(3000))))
    text = function_text(function)
    ast.parse(text)
    assert parse_function(text) is function


def test_many_alternatives() -> None:
    y = buffer("y", (as_int(1),), f32)
    stmt: Stmt = Nop()
    for k in range(60):
        stmt = If(Index(var("n")).eq(k), Store(y, (Index(as_int(0)),), const(k, f32)), stmt)
    function = Function("f", (y,), ("n",), Alloc(buffer("t", (), f32), stmt))
    assert parse_function(function_text(function)) is function


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y[0] = z[1]", "line 3: nothing named 'z' to load from"),
        ("z[0] = 1.0", "line 3: no buffer 'z' here"),
        ("y[0] = y[0] + f64(1)", "line 3: add of f32 and f64: cast first"),
        ("y[0, 1] = 0.0", "line 3: store to y: wrong number of indices"),
        ("for i in sideways(3): pass", "line 3: no kind of loop 'sideways'"),
        ("y[0] = frob(1, 2)", "line 3: frob is no function of 2"),
        ("y[0] = __import__('os').x", "line 3: .* is not an expression"),
        ("return 3", "line 3: not a statement"),
        ("y[0 = 1", "line 3"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_function(f'@loop\ndef f(y: f32["n"], n: i64):\n    {line}\n')
