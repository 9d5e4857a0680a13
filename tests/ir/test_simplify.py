"""Every rule of the simplifier gives the same bits on edge and random values."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from pliant.base.dtypes import DTYPES, DType, boolean, f32, i8, i32, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.check import type_fault
from pliant.ir.evaluator import Env, Evaluator
from pliant.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Guard,
    Index,
    Reduce,
    Select,
    Unary,
    Var,
    as_expr,
)
from pliant.ir.node import walk
from pliant.ir.parser import ExprParser, Scope, Text
from pliant.ir.printer import expr_text
from pliant.ir.rewrite import (
    Apply,
    NoMatch,
    Number,
    Pattern,
    RewriteError,
    Rule,
    Variable,
    any_,
    literal_value,
    rewrite,
)  # fmt: skip
from pliant.ir.scalar import from_bits
from pliant.ir.simplify import RULES, holds, simplify
from pliant.ir.tensor import own_nodes
from pliant.sym.expr import as_int, var
from tests.generate import exprs
from tests.share import draws

TYPES = list(DTYPES.values())


class Instance:
    """A random expression of a pattern's form."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.bound: dict[str, Expr] = {}

    def build(self, pattern: Pattern, dtype: DType) -> Expr:
        match pattern:
            case Variable(name, kind):
                if name not in self.bound:
                    self.bound[name] = self.leaf(name, kind, dtype)
                if self.bound[name].dtype is not dtype:
                    raise InvalidModelError("one variable, two types")
                return self.bound[name]
            case Number(value):
                return as_expr(value, dtype)
            case Apply(cls, op, args):
                return self.apply(cls, op, args, dtype)
        raise AssertionError(pattern)

    def leaf(self, name: str, kind: str, dtype: DType) -> Expr:
        if kind == "index":
            return Index(
                self.rng.choice([var("s"), var("s") + 2, var("s") * 2 + 1, var("t"), as_int(3)])
            )
        if kind == "literal":
            return Const(
                dtype, int(self.rng.choice(samples(dtype, self.rng)).view(unsigned(dtype)))
            )
        return Var(name, dtype)

    def apply(self, cls: type[Expr], op: str, args: tuple[Pattern, ...], dtype: DType) -> Expr:
        inner = self.rng.choice([dtype, *TYPES])
        if cls is Unary:
            return Unary(op, self.build(args[0], dtype if op not in ("isnan", "isinf") else inner))
        if cls is Binary:
            of = inner if op in ("eq", "ne", "lt", "le") else dtype
            return Binary(op, self.build(args[0], of), self.build(args[1], of))
        if cls is Select:
            c, a, b = args
            return Select(self.build(c, boolean), self.build(a, dtype), self.build(b, dtype))
        if cls is Guard:
            return Guard(self.build(args[0], boolean), self.build(args[1], dtype), "index", "")
        if cls is Bitcast and inner.bytes != dtype.bytes:
            raise InvalidModelError("widths differ")
        return cls(dtype, self.build(args[0], inner))


def unsigned(dtype: DType) -> Any:
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.bytes]


def samples(dtype: DType, rng: random.Random) -> list[Any]:
    """Edge values and random bits."""
    if dtype is boolean:
        return [np.False_, np.True_]
    edges: list[float] = [0, 1, 2, 7, 100]
    edges += [-0.0, -1.5, np.inf, -np.inf, np.nan] if dtype.is_float else [dtype.min, dtype.max]
    edges += [-1, -7] if dtype.kind == "int" else []
    bits = [from_bits(rng.getrandbits(dtype.bits), dtype) for _ in range(4)]
    return [dtype.numpy.type(e) for e in edges] + bits


def same(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype:
        return False
    return bool(a != a and b != b) or a.tobytes() == b.tobytes()


def value(expr: Expr, env: Env) -> Any:
    with np.errstate(all="ignore"):
        return Evaluator(lambda source: None).value(expr)(env)  # type: ignore[arg-type,return-value]


def variables(expr: Expr) -> list[Var]:
    return [n for n in walk(expr) if isinstance(n, Var)]


@pytest.mark.sweep
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule(rule: Rule) -> None:
    rng = random.Random(rule.name)
    fired = 0
    for attempt in range(400):
        try:
            before = Instance(rng).build(rule.pattern, TYPES[attempt % len(TYPES)])
        except (InvalidModelError, ValueError, OverflowError):
            continue
        if any(type_fault(node) for node in own_nodes(before) if isinstance(node, Expr)):
            continue
        after = rule.apply(before)
        if isinstance(after, NoMatch):
            continue
        assert after.dtype is before.dtype
        assert after is not before
        fired += 1
        for _ in range(8):
            env = Env({v.name: rng.choice(samples(v.type, rng)) for v in variables(before)})
            env |= {n: int(x) for n, x in env.items() if x.dtype == np.int64}
            env |= {"s": rng.randrange(9), "t": rng.randrange(9)}
            assert same(value(before, env), value(after, env)), (before, after, env)
    assert fired, "never applies"


SIZES = dict.fromkeys(("n", "m", "i", "j", "_r0"), 3)


def terms(expr: Expr) -> int:
    """How many the reductions in an expression have, at most, one inside the other."""
    axes = [a for n in walk(expr) if isinstance(n, Reduce) for a in n.axes]
    extents = [a.extent.subs(SIZES | {a.var: 3 for a in axes}) for a in axes]
    return math.prod(max(x.value, 1) for x in extents if x.is_const)


@settings(max_examples=draws(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(exprs(f32, depth=3) | exprs(i32, depth=3) | exprs(boolean, depth=3) | exprs(i64, depth=3))
def test_simplify_keeps_the_meaning(expr: Expr) -> None:
    assume(terms(expr) <= 10_000)  # which the interpreter takes one by one
    rng = random.Random(0)
    after = simplify(expr)
    assert after.dtype is expr.dtype
    assert simplify(after) is after
    for _ in range(5):
        env = Env(SIZES)
        for v in variables(expr):
            sample = rng.choice(samples(v.type, rng))
            env[v.name] = int(sample) if v.type is i64 else sample
        try:
            expected = value(expr, env)
        except Exception as error:
            with pytest.raises(type(error)):
                value(after, env)
            return
        assert same(expected, value(after, env))


def show(text: str) -> str:
    """Parse, simplify, print."""
    source = Text(text)
    parser = ExprParser(source, Scope(scalars={"x": f32, "y": f32, "k": i32, "c": boolean}))
    node = source.tree.body[0].value  # type: ignore[attr-defined]
    return expr_text(simplify(parser.expr(node)), scalars=("x", "y", "k", "c"))[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x * 1.0 + y / 1.0", "x + y"),
        ("1.0 * x", "x"),
        ("x + 0.0", "x + 0.0"),  # -0.0 would change
        ("x - x", "x - x"),  # NaN and infinities
        ("k - k", "i32(0)"),
        ("(k + 1) * 0 + k", "k"),
        ("select(~(k < 3), x, y)", "select(3 <= k, x, y)"),
        ("~(x < y)", "~(x < y)"),
        ("select(c, True, False)", "c"),
        ("i8(i64(k))", "i8(k)"),
        ("i8(f64(k))", "i8(f64(k))"),
        ("f32(1.5) * 2.0 + x", "3.0 + x"),
        ("binary('add', n, 1)", "n + 1"),
        ("n < n + 1", "True"),
        ("k // 0 * 0", "k // 0 * 0"),
        ("guard(c, k, 'zero', 'm') * 0", "guard(c, k, \"zero\", \"m\") * 0"),
    ],
)  # fmt: skip
def test_examples(before: str, after: str) -> None:
    assert show(before) == after


def test_holds() -> None:
    assert holds(i64, i8)
    assert holds(f32, DTYPES["bf16"])
    assert not holds(DTYPES["f16"], DTYPES["bf16"])
    assert not holds(f32, i8)


def test_rules_that_undo_each_other_are_named() -> None:
    x, y = any_("x"), any_("y")
    rules = (Rule("swap", x - y, y - x, when=lambda x, y: True),)
    with pytest.raises(RewriteError, match=r"does not end after 50 steps; .* swap, swap"):
        rewrite(Binary("sub", Var("a", f32), Var("b", f32)), rules, limit=50)


def test_explain_says_why_not() -> None:
    told: list[str] = []
    expr = Binary("mul", Var("a", f32), as_expr(2.0, f32))
    simplify(expr, explain=lambda rule, at, why: told.append(f"{rule}: {why}"))
    assert "x * 1: 1 is expected, not 2.0" in told
    assert "k * 0: k is no int" in told


def test_deep_expressions_need_no_stack() -> None:
    expr: Expr = Var("a", i8)
    for _ in range(5000):
        expr = Cast(i8, Unary("neg", expr))
    assert simplify(expr) is Var("a", i8)


def test_division_by_zero_stays() -> None:
    expr = Binary("truncdiv", Const(i32, 1), Const(i32, 0))
    assert simplify(expr) is expr
    assert literal_value(expr) is None
