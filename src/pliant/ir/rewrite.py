"""Rewriting of scalar expressions by tables of rules.

    x, y = any_("x"), any_("y")
    RULES = (
        Rule("times one", x * 1, x),
        Rule("not less", ~(ints("x") < y), y <= x),
        Rule("fold", unary("exp", literal("c")), lambda c: const(math.exp(c.value), c.dtype)),
    )
    rewrite(expr, RULES)

Patterns use the operators of expressions; a number matches a literal of that value in any type,
a variable that occurs twice must match the same expression, and the operands of a commutative
operator may come in either order. A replacement is a pattern too, or a function of the variables,
which may refuse with `NoMatch(reason)`, as may `when`.

Rules apply bottom-up, the first that matches wins, until none matches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pliant.base.dtypes import DType, i64
from pliant.base.errors import PliantError
from pliant.ir.expr import (
    COMMUTATIVE,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Guard,
    Index,
    Select,
    Unary,
    as_expr,
    const,
)
from pliant.ir.node import Node

STEP_LIMIT: Final = 100_000

Bindings = dict[str, Expr]
Explain = Callable[[str, Expr, str], None]
"""Called with a rule's name, the expression and the reason for which the rule does not apply."""

N = TypeVar("N", bound=Node)


class RewriteError(PliantError):
    """Rewriting does not come to an end."""


@dataclass(frozen=True)
class NoMatch:
    """A rule does not apply, and why."""

    reason: str


class Pattern:
    """What an expression may look like. Operators build larger patterns."""

    def __add__(self, other: Any) -> Pattern:
        return binary("add", self, other)

    def __sub__(self, other: Any) -> Pattern:
        return binary("sub", self, other)

    def __mul__(self, other: Any) -> Pattern:
        return binary("mul", self, other)

    def __truediv__(self, other: Any) -> Pattern:
        return binary("div", self, other)

    def __floordiv__(self, other: Any) -> Pattern:
        return binary("floordiv", self, other)

    def __mod__(self, other: Any) -> Pattern:
        return binary("floormod", self, other)

    def __and__(self, other: Any) -> Pattern:
        return binary("and", self, other)

    def __or__(self, other: Any) -> Pattern:
        return binary("or", self, other)

    def __xor__(self, other: Any) -> Pattern:
        return binary("xor", self, other)

    def __lshift__(self, other: Any) -> Pattern:
        return binary("shl", self, other)

    def __rshift__(self, other: Any) -> Pattern:
        return binary("shr", self, other)

    def __lt__(self, other: Any) -> Pattern:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Pattern:
        return binary("le", self, other)

    def __neg__(self) -> Pattern:
        return unary("neg", self)

    def __invert__(self) -> Pattern:
        return unary("not", self)


@dataclass(frozen=True)
class Variable(Pattern):
    """Matches one expression; `kind`: any, int, float, logic (integer or bool), bool, literal,
    index."""

    name: str
    kind: str = "any"


@dataclass(frozen=True)
class Number(Pattern):
    """Matches a literal of this value (and sign of zero), of any type."""

    value: int | float | bool


@dataclass(frozen=True)
class Apply(Pattern):
    """Matches a node of a class, with this operator if it has one."""

    cls: type[Expr]
    op: str
    args: tuple[Pattern, ...]


def any_(name: str) -> Variable:
    return Variable(name)


def ints(name: str) -> Variable:
    """Any integer expression."""
    return Variable(name, "int")


def floats(name: str) -> Variable:
    """Any float expression."""
    return Variable(name, "float")


def logic(name: str) -> Variable:
    """An integer or a bool."""
    return Variable(name, "logic")


def bools(name: str) -> Variable:
    """A condition."""
    return Variable(name, "bool")


def literal(name: str) -> Variable:
    """A constant of any type, symbolic integers that are numbers included."""
    return Variable(name, "literal")


def index(name: str) -> Variable:
    """A symbolic integer."""
    return Variable(name, "index")


def unary(op: str, a: Any) -> Pattern:
    return Apply(Unary, op, (_pattern(a),))


def binary(op: str, a: Any, b: Any) -> Pattern:
    return Apply(Binary, op, (_pattern(a), _pattern(b)))


def select(cond: Any, a: Any, b: Any) -> Pattern:
    return Apply(Select, "", (_pattern(cond), _pattern(a), _pattern(b)))


def cast(a: Any) -> Pattern:
    """A cast to any type; a function as replacement finds the type at `root`."""
    return Apply(Cast, "", (_pattern(a),))


def bitcast(a: Any) -> Pattern:
    return Apply(Bitcast, "", (_pattern(a),))


def guard(cond: Any, value: Any) -> Pattern:
    return Apply(Guard, "", (_pattern(cond), _pattern(value)))


@dataclass(frozen=True)
class Rule:
    """`pattern` becomes `replacement` where `when` holds.

    Functions take the pattern's variables by name; one named `root` is the whole expression.
    """

    name: str
    pattern: Pattern
    replacement: Pattern | bool | int | Callable[..., Expr | NoMatch]
    when: Callable[..., bool | NoMatch] | None = None

    def apply(self, expr: Expr) -> Expr | NoMatch:
        """The expression rewritten, or why not."""
        bindings: Bindings = {}
        reason = _match(self.pattern, expr, bindings)
        if reason is not None:
            return NoMatch(reason)
        if self.when is not None:
            verdict = self.when(**_arguments(self.when, bindings, expr))
            if isinstance(verdict, NoMatch):
                return verdict
            if not verdict:
                return NoMatch("its condition does not hold")
        if isinstance(self.replacement, Pattern | bool | int):
            return _build(_pattern(self.replacement), bindings, expr.dtype)
        return self.replacement(**_arguments(self.replacement, bindings, expr))


def rewrite(
    root: N, rules: Sequence[Rule], *, limit: int = STEP_LIMIT, explain: Explain | None = None
) -> N:
    """Apply rules below and at `root` until none matches.

    Raises RewriteError after `limit` steps, naming the last ten rules. `explain` is told of every
    rule that was tried in vain.
    """
    return _Rewriter(rules, limit, explain).run(root)  # type: ignore[no-any-return]


@dataclass
class _Rewriter:
    rules: Sequence[Rule]
    limit: int
    explain: Explain | None
    steps: int = 0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=10))
    table: dict[tuple[type, str], list[Rule]] = field(default_factory=dict)

    def run(self, root: Node) -> Any:
        """`done` has normal forms; `became` what a node was replaced by, not yet normal."""
        for rule in self.rules:
            self.table.setdefault(_head(rule.pattern), []).append(rule)
        done: dict[Node, Node] = {}
        became: dict[Node, Node] = {}
        stack: list[Node] = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            target = became.get(node)
            if target is not None:
                if target in done:
                    done[node] = done[target]
                else:
                    self._step("")
                    stack.append(target)
                continue
            waiting = [c for c in node.children() if c not in done]
            if waiting:
                stack += waiting
                continue
            rebuilt = node.map_children(done.__getitem__)
            new = self._apply(rebuilt)
            if new is node:
                done[node] = node
            else:
                became[node] = new
        return done[root]

    def _apply(self, node: Node) -> Node:
        if not isinstance(node, Expr):
            return node
        for rule in self.table.get(_kind(node), ()):
            new = rule.apply(node)
            if isinstance(new, NoMatch):
                if self.explain is not None:
                    self.explain(rule.name, node, new.reason)
            elif new is not node:
                self._step(rule.name)
                return new
        return node

    def _step(self, name: str) -> None:
        self.steps += 1
        if name:
            self.last.append(name)
        if self.steps > self.limit:
            raise RewriteError(
                f"rewriting does not end after {self.limit} steps; the last rules were "
                + ", ".join(self.last)
            )


def literal_value(expr: Expr) -> int | float | bool | None:
    """The number that an expression is, or None."""
    if isinstance(expr, Const):
        return expr.value
    return expr.int_.value if isinstance(expr, Index) and expr.int_.is_const else None


def _pattern(value: Any) -> Pattern:
    return value if isinstance(value, Pattern) else Number(value)


def _head(pattern: Pattern) -> tuple[type, str]:
    if not isinstance(pattern, Apply):
        raise TypeError("a pattern begins with an operator")
    return pattern.cls, pattern.op


def _kind(expr: Expr) -> tuple[type, str]:
    return type(expr), expr.op if isinstance(expr, Unary | Binary) else ""


def _match(pattern: Pattern, expr: Expr, bindings: Bindings) -> str | None:
    """Bind the pattern's variables; None if it matches, else the reason why not."""
    match pattern:
        case Variable(name, kind):
            if not _is_of_kind(expr, kind):
                return f"{name} is no {kind}"
            known = bindings.setdefault(name, expr)
            return None if known is expr else f"{name} would be two different expressions"
        case Number(value):
            found = literal_value(expr)
            same = found is not None and found == value and _sign(found) == _sign(value)
            return None if same else f"{value} is expected, not {found or type(expr).__name__}"
        case Apply(cls, op, args):
            if _kind(expr) != (cls, op):
                return f"{op or cls.__name__} is expected, not {_kind(expr)[1] or _kind(expr)[0]}"
            return _match_all(pattern, list(_operands(expr)), args, bindings)
    raise TypeError(f"not a pattern: {pattern!r}")


def _match_all(
    pattern: Apply, operands: list[Expr], args: tuple[Pattern, ...], bindings: Bindings
) -> str | None:
    before = dict(bindings)
    reason = _match_each(operands, args, bindings)
    if reason is not None and pattern.op in COMMUTATIVE and pattern.cls is Binary:
        bindings.clear()
        bindings |= before
        if _match_each(operands[::-1], args, bindings) is None:
            return None
    return reason


def _match_each(operands: list[Expr], args: tuple[Pattern, ...], bindings: Bindings) -> str | None:
    for operand, arg in zip(operands, args, strict=True):
        reason = _match(arg, operand, bindings)
        if reason is not None:
            return reason
    return None


def _operands(expr: Expr) -> Iterator[Expr]:
    return (c for c in expr.children() if isinstance(c, Expr))


def _is_of_kind(expr: Expr, kind: str) -> bool:
    match kind:
        case "int":
            return expr.dtype.is_int
        case "float":
            return expr.dtype.is_float
        case "logic":
            return not expr.dtype.is_float
        case "bool":
            return expr.dtype.kind == "bool"
        case "literal":
            return literal_value(expr) is not None
        case "index":
            return isinstance(expr, Index)
    return True


def _sign(value: float) -> float:
    return math.copysign(1, value)


def _arguments(fn: Callable[..., Any], bindings: Mapping[str, Expr], root: Expr) -> dict[str, Expr]:
    wanted = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    return {name: root if name == "root" else bindings[name] for name in wanted}


def _build(pattern: Pattern, bindings: Bindings, dtype: DType) -> Expr:
    """The expression of type `dtype` that a replacement says."""
    match pattern:
        case Variable(name, _):
            return bindings[name]
        case Number(value):
            return as_expr(value, dtype) if dtype is i64 else const(value, dtype)
        case Apply(cls, op, args) if cls is Unary:
            return Unary(op, _build(args[0], bindings, dtype))
        case Apply(cls, op, args) if cls is Binary:
            parts = _operand_types(args, bindings, dtype)
            return Binary(op, *[_build(a, bindings, t) for a, t in zip(args, parts, strict=True)])
        case Apply(cls, _, (cond, a, b)) if cls is Select:
            test = _build(cond, bindings, dtype)
            return Select(test, _build(a, bindings, dtype), _build(b, bindings, dtype))
    raise TypeError(f"{pattern!r} is no replacement; write a function")


def _operand_types(args: tuple[Pattern, ...], bindings: Bindings, dtype: DType) -> list[DType]:
    known = [bindings[a.name].dtype for a in args if isinstance(a, Variable)]
    return [known[0] if known else dtype] * len(args)
