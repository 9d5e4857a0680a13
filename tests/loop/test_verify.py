"""Each fault of a loop program is found and shown where it is."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32, i64
from pliant.base.errors import InvalidModelError
from pliant.base.spans import Span
from pliant.ir.expr import Binary, Index, Var, const
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Block, For, Function, Let, Nop, Seq, Store, buffer
from pliant.loop.verify import verify_function
from pliant.sym.expr import as_int, var

GOOD = """\
@loop
def f(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
    for a in parallel(n):
        acc = alloc(f32[4])
        for lane in vectorized(4):
            acc[lane] = 0.0
        for b in grid(k):
            with block("sum", S(a, n), R(b, k), where=b < k) as (i, r):
                with init():
                    y[i] = 0.0
                y[i] = y[i] + x[i, r] * 2.0
        m: i64 = n + 3
        check(m < 9, "m is {0}", m)
        kernel(x, address(y[a]), m)
"""


def test_a_good_program_passes() -> None:
    verify_function(parse_function(GOOD))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("y[i] = 0.0", "y[q] = 0.0", "q, in an index, is not defined here"),
        ("grid(k)", "grid(kk)", "kk, in the extent of b, is not defined"),
        ("vectorized(4)", "vectorized(n)", "lane is vectorized, so n must be a constant"),
        ("alloc(f32[4])", "alloc(f32[n])", "acc is in registers, so n must be a constant"),
        ('alloc(f32[4])', 'alloc(f32[4], scope="param")', "acc is allocated here"),
        ("m: i64 = n + 3", "k: i64 = n + 3", "k hides a variable"),
        ("for b in", "for a in", "a hides a variable"),
        ("parallel(n)", 'each(n, kind="odd")', "no kind of loop 'odd'"),
        ("S(a, n)", "Q(a, n)", "i: no kind of iterator 'Q'"),
        ("S(a, n)", "S(-1, n)", r"i is -1, outside \[0, n\)"),
        ("R(b, k)", "R(a, k)", "a is bound to i and to r"),
        ("where=b < k", "where=b + k", "the predicate is i64, not bool"),
        ("y[i] = 0.0", "y[i] = y[x[0, 0]]", "an index of y is f32, not i64"),
        ("y[a]), m)", "y[a]), m, x)", "addresses come before scalars"),
        ("{0}", "{1}", r"the message wants \['1'\]"),
        ('"m is {0}", m', '"m", error="OSError"', "no error class 'OSError'"),
        ("x[i, r] * 2.0", "var('z', f32)", "z is used as f32 but is not defined here"),
        ("x[i, r] * 2.0", "sum(x[a, b] for a in grid(n))", "the axis a hides a variable"),
        ("x[i, r] * 2.0", "select(x[i, r] < y[i] / 2.0, (x[i, r] | x[i, r]), 1.0)", "or of f32"),
        ("y: f32", 'y: buffer(f32["n"], scope="weight0"), z: f32', "y, which is read only"),
    ],
)  # fmt: skip
def test_faults(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidModelError, match=message):
        verify_function(parse_function(GOOD.replace(old, new)))


def test_the_fault_is_shown_with_its_lines_and_span() -> None:
    y = buffer("y", (var("n"),), f32)
    block = Block(
        "b", (), (), Store(y, (Index(var("j")),), const(0, f32)), spans=(Span("model.py", 7),)
    )
    with pytest.raises(InvalidModelError) as caught:
        verify_function(Function("f", (y,), ("n",), For("i", var("n"), block)))
    assert str(caught.value) == (
        "f: j, in an index, is not defined here (model.py:7)\n"
        "     1 @loop\n"
        '     2 def f(y: f32["n"], n: i64):\n'
        "     3     for i in grid(n):\n"
        '     4         with block("b", spans=(at("model.py", 7),)):\n'
        ">    5             y[j] = 0.0"
    )


def test_what_text_cannot_say() -> None:
    y, other = buffer("y", (var("n"),), f32), buffer("y", (as_int(3),), f32)
    zero = Index(as_int(0))
    bad = Store(other, (zero,), const(0, f32))
    with pytest.raises(InvalidModelError, match=r"declared otherwise: shape \(n,\), here \(3,\)"):
        verify_function(Function("f", (y,), ("n",), bad))
    with pytest.raises(InvalidModelError, match="buffer y hides a buffer"):
        verify_function(Function("f", (y, y), ("n",), Nop()))
    with pytest.raises(InvalidModelError, match="the value of s is f32, not i64"):
        verify_function(Function("f", (y,), ("n",), Let(Var("s", i64), y[0], Nop())))
    wrong = Store(y, (zero,), Binary("and", y[0], y[0]))
    with pytest.raises(InvalidModelError, match="and of f32"):
        verify_function(Function("f", (y,), ("n",), wrong))


def test_a_long_program_needs_no_stack() -> None:
    body = Nop()
    for k in range(5000):
        body = Let(Var(f"v{k}", i64), Index(var("n")), Seq((Nop(), body)))
    verify_function(Function("f", (), ("n",), body))


NEVER = """
@loop
def never(x: f32[1], y: f32[1]):
    with block("y", S(1, 1), where=CONDITION) as a:
        y[a] = x[a]
"""


@pytest.mark.parametrize(
    ("condition", "runs"), [("1 < 1", False), ("2 <= 1", False), ("0 < 1", True)]
)
def test_a_block_that_never_runs_is_nowhere(condition: str, runs: bool) -> None:
    """An iteration that a pipeline runs by itself, where there is none."""
    source = NEVER.replace("CONDITION", condition)
    if runs:
        with pytest.raises(InvalidModelError, match="outside"):
            verify_function(parse_function(source))
    else:
        verify_function(parse_function(source))
