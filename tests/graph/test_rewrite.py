"""Rule tables over graph functions: before, the rules, after."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.dtypes import f32
from pliant.graph.builder import Builder
from pliant.graph.function import Function, Module, Value
from pliant.graph.operator import Operator, operator_table
from pliant.graph.rewrite import Match, NoMatch, Rule, any_, op, rewrite, rewrite_module
from pliant.graph.verify import verify_function
from pliant.ir.expr import Unary
from pliant.ir.rewrite import RewriteError
from pliant.ir.tensor import Tensor, compute
from pliant.text import parse_function, to_text


def _transpose(x: Tensor, *, perm: tuple[int, ...]) -> Tensor:
    back = [perm.index(k) for k in range(len(perm))]
    return compute(tuple(x.shape[p] for p in perm), lambda *i: x[tuple(i[b] for b in back)])


OPERATORS = operator_table((
    Operator("transpose", _transpose),
    Operator("identity", lambda x: x),
    Operator("exp", lambda x: compute(x.shape, lambda *i: Unary("exp", x[i]))),
    Operator("add", lambda a, b: compute(a.shape, lambda *i: a[i] + b[i])),
    Operator("scale", lambda x, *, by: compute(x.shape, lambda *i: x[i] * by)),
    Operator("total", lambda xs: xs[0], variadic=True),
))  # fmt: skip

x, y = any_("x"), any_("y")


def _compose(m: Match, b: Builder) -> Value:
    inner, outer = m.attrs("inner")["perm"], m.attrs()["perm"]
    result = b.call("transpose", m["x"], perm=tuple(inner[p] for p in outer))
    assert isinstance(result, Value)
    return result


RULES = (
    Rule("identity", op("identity", x), lambda m, b: m["x"]),
    Rule("no transpose", op("transpose", x, attrs={"perm": (0, 1)}), lambda m, b: m["x"]),
    Rule("transpose twice", op("transpose", op("transpose", x, name="inner")), _compose),
    Rule("exp once", op("scale", op("exp", x, once=True), attrs={"by": lambda by: by == 1.0}),
         lambda m, b: b.call("exp", m["x"])),
    Rule("double", op("add", x, x), lambda m, b: b.call("scale", m["x"], by=2.0)),
    Rule("total of one", op("total", (x,)), lambda m, b: m["x"]),
)  # fmt: skip


def check(before: str, after: str, rules: tuple[Rule, ...] = RULES) -> None:
    """`before` becomes `after`, and stays well formed."""
    function = parse_function("@graph\n" + before)
    result, _ = rewrite(function, rules, OPERATORS)
    assert to_text(result) == "@graph\n" + after
    verify_function(result, OPERATORS)


def test_chains_collapse_in_one_go() -> None:
    check(
        """\
def f(x: f32["n", "m"]):
    a: f32["m", "n"] = transpose(x, perm=(1, 0)) @ at("m.py", 1)
    b: f32["m", "n"] = identity(a)
    c: f32["n", "m"] = transpose(b, perm=(1, 0)) @ at("m.py", 2)
    d: f32["m", "n"] = transpose(c, perm=(1, 0)) @ at("m.py", 3)
    e: f32["m", "n"] = exp(d)
    return e""",
        """\
def f(x: f32["n", "m"]):
    transpose_1: f32["m", "n"] = transpose(x, perm=(1, 0))SPANS
    e: f32["m", "n"] = exp(transpose_1)
    return e""".replace("SPANS", SPANS),
    )


SPANS = ' @ at("m.py", 1) @ at("m.py", 2) @ at("m.py", 3)'


def test_single_use_is_respected() -> None:
    text = """\
def f(x: f32["n"]):
    a: f32["n"] = exp(x)
    b: f32["n"] = scale(a, by=1.0)
    return a, b"""
    check(text, text)
    check(
        text.replace("return a, b", "return b"),
        """\
def f(x: f32["n"]):
    exp: f32["n"] = exp(x)
    return exp""",
    )


def test_equal_operands_variadics_and_dead_code() -> None:
    check(
        """\
def f(x: f32["n"], y: f32["n"]):
    w: f32[3] = weight("k")
    a: f32["n"] = add(x, x)
    b: f32["n"] = add(x, y)
    c: f32["n"] = exp(b)
    d: f32["n"] = total((a,))
    return d""",
        """\
def f(x: f32["n"], y: f32["n"]):
    scale: f32["n"] = scale(x, by=2.0)
    return scale""",
    )


def test_rules_explain_themselves() -> None:
    told: list[str] = []
    refuse = Rule("never", op("exp", x), lambda m, b: NoMatch("it is not the season"))
    function = parse_function(
        '@graph\ndef f(x: f32["n"]):\n    a: f32["n"] = exp(x)\n'
        '    b: f32["n"] = scale(a, by=3.0)\n    return a, b'
    )
    rewrite(
        function, (*RULES, refuse), OPERATORS,
        explain=lambda rule, at, why: told.append(f"{rule}: {why}"),
    )  # fmt: skip
    assert told == ["never: it is not the season", "exp once: scale: by is 3.0"]


def test_endless_rules_are_named() -> None:
    again = Rule("again", op("exp", x), lambda m, b: b.call("exp", m["x"]))
    function = parse_function('@graph\ndef f(x: f32["n"]):\n    a: f32["n"] = exp(x)\n    return a')
    with pytest.raises(RewriteError, match="after 20 steps; the last rules were again, again"):
        rewrite(function, (again,), OPERATORS, limit=20)
    wrong = Rule("wrong", op("exp", x), lambda m, b: b.weight("c", np.zeros(3, np.float32)))
    scalar = parse_function('@graph\ndef f(x: f32["n"]):\n    a: f32["n"] = exp(x)\n    return a')
    with pytest.raises(RewriteError, match=r"wrong: a is f32\[n\], its replacement f32\[3\]"):
        rewrite(scalar, (wrong,), OPERATORS)


def test_new_constants_join_the_module() -> None:
    plus = Rule(
        "scale by adding", op("scale", x, attrs={"by": 0.0}),
        lambda m, b: b.call("add", m["x"], b.weight("zero", np.zeros(3, np.float32))),
    )  # fmt: skip
    function = parse_function(
        "@graph\ndef f(x: f32[3]):\n    a: f32[3] = scale(x, by=0.0)\n    return a"
    )
    module = rewrite_module(Module({"f": function}), (plus,), OPERATORS)
    result = module.functions["f"]
    assert isinstance(result, Function)
    assert [key for _, key in result.weights] == list(module.weights)
    verify_function(result, OPERATORS, module.weights)
    assert result.results[0].dtype is f32


def test_time_is_linear() -> None:
    lines = ['@graph\ndef f(x: f32["n"]):', '    v0: f32["n"] = identity(x)']
    lines += [
        f'    v{k}: f32["n"] = {"identity" if k % 2 else "exp"}(v{k - 1})' for k in range(1, 4000)
    ]
    function = parse_function("\n".join([*lines, "    return v3999"]))
    result, _ = rewrite(function, RULES, OPERATORS)
    assert len(result.bindings) == 1999
