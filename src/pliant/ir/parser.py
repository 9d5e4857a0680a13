"""Python text back to scalar expressions, types and plain data: the inverse of `printer`.

Works on the syntax tree of the text and evaluates nothing. What the text may name is a `Scope`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Final

from pliant.base.dtypes import DTYPES, DType, f32, i64
from pliant.base.errors import InvalidModelError
from pliant.base.spans import Span
from pliant.ir.expr import (
    BINARY_OPS,
    COMBINERS,
    UNARY_OPS,
    Axis,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Guard,
    Index,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
    as_expr,
    const,
)  # fmt: skip
from pliant.ir.printer import INFIX, INTEGER_OPS
from pliant.sym.expr import Int, as_int, maximum, minimum, parse_int, var

Number = int | float


class ParseError(InvalidModelError):
    """The text is not a program; the message begins with the line."""


@dataclass(frozen=True)
class Scope:
    """What names mean: sources of loads, scalar variables that are no sizes, and named parts."""

    sources: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, DType] = field(default_factory=dict)
    parts: dict[str, Expr] = field(default_factory=dict)
    extents: dict[str, Int] = field(default_factory=dict)  # of loop variables and iterators
    unset: frozenset[str] = frozenset()  # names that get their value elsewhere

    def with_source(self, name: str, source: Any) -> Scope:
        return replace(self, sources={**self.sources, name: source})

    def with_scalar(self, name: str, dtype: DType) -> Scope:
        """A new variable; a size (i64) hides a scalar of its name."""
        scalars = {n: t for n, t in self.scalars.items() if n != name}
        scalars = scalars if dtype is i64 else {**scalars, name: dtype}
        return replace(self, scalars=scalars, unset=self.unset - {name})

    def with_part(self, name: str, expr: Expr) -> Scope:
        return replace(self, parts={**self.parts, name: expr}, unset=self.unset - {name})

    def with_extents(self, extents: dict[str, Int]) -> Scope:
        return replace(self, extents={**self.extents, **extents})


class Text:
    """Source text, for errors with their line: that of `file`, where it begins at line `first`."""

    def __init__(self, text: str, file: str = "", first: int = 1) -> None:
        self.lines = text.splitlines()
        self.file, self.first = file, first
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            where = self.place(error.lineno or 0)
            raise ParseError(f"{where}: {error.msg}: {error.text or ''}") from error

    def place(self, line: int) -> str:
        """How an error names a line of the text."""
        return f"{self.file}:{line + self.first - 1}" if self.file else f"line {line}"

    def error(self, node: ast.AST, message: str) -> ParseError:
        """The error to raise, with the line."""
        line = getattr(node, "lineno", 0)
        shown = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return ParseError(f"{self.place(line)}: {message}\n    {shown}")

    def located(self, node: ast.AST, build: Callable[[], Any]) -> Any:
        """The result of `build`; errors of nodes' own checks get the line."""
        try:
            return build()
        except ParseError:
            raise
        except (InvalidModelError, ValueError, TypeError) as error:
            raise self.error(node, str(error)) from error


_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne", ast.BitOr: "or",
    ast.BitXor: "xor", ast.BitAnd: "and", ast.LShift: "shl", ast.RShift: "shr", ast.Add: "add",
    ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
}  # fmt: skip
assert set(_OPERATORS.values()) == set(INFIX)

_ALGEBRA: Final[dict[str, Callable[[Int, Int], Int]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b,
    "min": minimum, "max": maximum,
}  # fmt: skip
assert set(_ALGEBRA) == INTEGER_OPS


class ExprParser:
    """Expressions of one text in one scope."""

    def __init__(self, text: Text, scope: Scope) -> None:
        self.text = text
        self.scope = scope

    def expr(self, node: ast.expr, dtype: DType | None = None) -> Expr:
        """An expression; a bare number is a literal of `dtype`."""
        return self.text.located(node, lambda: _settle(self._value(node), dtype))  # type: ignore[no-any-return]

    def integer(self, node: ast.expr) -> Int:
        """A symbolic integer; as a string where its names are not bound."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            return self.text.located(node, lambda: parse_int(text))  # type: ignore[no-any-return]
        value = self.text.located(node, lambda: _integer(node))
        if value is None:
            raise self.text.error(node, f"{ast.unparse(node)} is not an integer expression")
        return value  # type: ignore[no-any-return]

    def integers(self, node: ast.expr) -> tuple[Int, ...]:
        """A tuple of symbolic integers."""
        return tuple([self.integer(e) for e in self.elements(node)])

    def elements(self, node: ast.expr) -> list[ast.expr]:
        """The elements of a tuple or list display."""
        if not isinstance(node, ast.Tuple | ast.List):
            raise self.text.error(node, f"{ast.unparse(node)} is not a tuple")
        return node.elts

    def string(self, node: ast.expr) -> str:
        """A string literal."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self.text.error(node, f"{ast.unparse(node)} is not a string")

    def dtype(self, node: ast.expr) -> DType:
        """The name of an element type."""
        if isinstance(node, ast.Name) and node.id in DTYPES:
            return DTYPES[node.id]
        raise self.text.error(node, f"{ast.unparse(node)} is not an element type")

    def type(self, node: ast.expr) -> tuple[DType, tuple[Int, ...]]:
        """`f32["n", 384]`."""
        if not isinstance(node, ast.Subscript):
            raise self.text.error(node, f"{ast.unparse(node)} is not a tensor type")
        inside = node.slice
        dims = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        return self.dtype(node.value), tuple([self.integer(d) for d in dims])

    def data(self, node: ast.expr) -> Any:
        """Plain data, as `data_text` prints it."""
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str()):
                return node.value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Name(id=name) if name in DTYPES:
                return DTYPES[name]
            case ast.Tuple() | ast.List():
                return tuple([self.data(e) for e in node.elts])
            case ast.Call(func=ast.Name(id="float"), args=[text]):
                return math.nan if self.string(text) == "nan" else float(self.string(text))
            case ast.Call(func=ast.Name(id="size"), args=[text]):
                return self.integer(text)
            case ast.Call(func=ast.Name(id="at")):
                return self.span(node)
        return self.integer(node)

    def pairs(self, node: ast.expr) -> tuple[tuple[str, Any], ...]:
        """A dictionary display as pairs, in order."""
        if not isinstance(node, ast.Dict) or None in node.keys:
            raise self.text.error(node, "expected a dictionary of names")
        keys = [k for k in node.keys if k is not None]
        return tuple(
            [(self.string(k), self.data(v)) for k, v in zip(keys, node.values, strict=True)]
        )

    def requirement(self, node: ast.expr) -> tuple[Int, Int, str]:
        """`(size, size, message)`."""
        match self.elements(node):
            case [a, b, message]:
                return self.integer(a), self.integer(b), self.string(message)
        raise self.text.error(node, "expected (size, size, message)")

    def span(self, node: ast.expr) -> Span:
        """`at("model.py", 12, "name")`."""
        match node:
            case ast.Call(func=ast.Name(id="at"), args=[ast.Constant(), *_], keywords=[]):
                parts = [self.data(a) for a in node.args]
                if [type(p) for p in parts] == [str, int, str][: len(parts)]:
                    return Span(*parts)
        raise self.text.error(node, f"{ast.unparse(node)} is not a place: at(file, line, name)")

    def _value(self, node: ast.expr) -> Expr | Number:
        match node:
            case ast.Constant(value=bool(flag)):
                return as_expr(flag)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                if name in self.scope.unset:
                    reason = f"{name} has no value here: it has one only where it is given one"
                    raise self.text.error(node, reason)
                return self._name(name)
            case ast.UnaryOp(op=op, operand=operand):
                return self._prefix(node, op, self._value(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
                base = _settle(self._value(left), None)
                if isinstance(base, Index):
                    return Index(base.int_**power)
                return _binary("pow", base, power)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                return _binary(_OPERATORS[type(operator)], self._value(left), self._value(right))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return _binary("pow", self._value(left), self._value(right))
            case ast.Compare(left=left, ops=operators, comparators=rights):
                pairs = zip([left, *rights], operators, rights)
                return _chain("and", [self._compare(node, a, op, b) for a, op, b in pairs])
            case ast.BoolOp(op=word, values=values):
                name = "and" if isinstance(word, ast.And) else "or"
                return _chain(name, [self.expr(v) for v in values])
            case ast.IfExp(test=test, body=a, orelse=b):
                x, y = _match_types(self._value(a), self._value(b))
                return Select(self.expr(test), x, y)
            case ast.Subscript(value=ast.Name(id=name), slice=at):
                return self._load(node, name, at)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="flat"), slice=at):
                return self._load(node, name, at, flat=True)
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(node, name)
        raise self.text.error(node, f"{ast.unparse(node)} is not an expression")

    def _name(self, name: str) -> Expr | Number:
        if name in self.scope.parts:
            return self.scope.parts[name]
        if name in self.scope.scalars:
            return Var(name, self.scope.scalars[name])
        if name in ("inf", "nan"):
            return float(name)
        return Index(var(name))

    def _prefix(self, node: ast.expr, op: ast.unaryop, value: Expr | Number) -> Expr | Number:
        if isinstance(op, ast.USub):
            if not isinstance(value, Expr):
                return -value
            return Index(-value.int_) if isinstance(value, Index) else Unary("neg", value)
        if isinstance(op, ast.Invert | ast.Not):
            return Unary("not", _settle(value, None))
        raise self.text.error(node, f"{ast.unparse(node)}: no such operator")

    def _compare(
        self, node: ast.expr, left: ast.expr, operator: ast.cmpop, right: ast.expr
    ) -> Expr:
        a, b = self._value(left), self._value(right)
        if isinstance(operator, ast.Gt | ast.GtE):
            return _binary("lt" if isinstance(operator, ast.Gt) else "le", b, a)
        if type(operator) not in _OPERATORS:
            raise self.text.error(node, f"{ast.unparse(node)}: no such comparison")
        return _binary(_OPERATORS[type(operator)], a, b)

    def _load(self, node: ast.expr, name: str, at: ast.expr, flat: bool = False) -> Expr:
        source = self.scope.sources.get(name)
        if flat:
            source = getattr(source, "flat", None)
        if source is None:
            raise self.text.error(node, f"nothing named {name!r} to load from here")
        return Load(source, tuple(self.indices(at)))

    def indices(self, at: ast.expr) -> list[Expr]:
        """The indices of `x[i, j]`."""
        return [self.expr(i) for i in (at.elts if isinstance(at, ast.Tuple) else [at])]

    def _call(self, node: ast.Call, name: str) -> Expr:
        args = node.args
        if len(args) == 1 and isinstance(args[0], ast.GeneratorExp) and name in COMBINERS:
            return self._reduce(name, args[0])
        if name in DTYPES and len(args) == 1:
            return self._convert(DTYPES[name], args[0])
        if name in UNARY_OPS and len(args) == 1:
            return Unary(name, self.expr(args[0]))
        if name in ("min", "max") and args:
            return self._extreme(node, name)
        if name in BINARY_OPS and len(args) == 2:
            return _binary(name, self._value(args[0]), self._value(args[1]))
        return self._special(node, name)

    def _special(self, node: ast.Call, name: str) -> Expr:
        match name, node.args:
            case "select", [cond, a, b]:
                x, y = _match_types(self._value(a), self._value(b))
                return Select(self.expr(cond), x, y)
            case "cast", [to, a]:
                return Cast(self.dtype(to), self.expr(a))
            case "bitcast", [to, a]:
                return Bitcast(self.dtype(to), self.expr(a))
            case "guard", [cond, value, kind, message]:
                return Guard(
                    self.expr(cond), self.expr(value), self.string(kind), self.string(message)
                )
            case "var", [text, dtype]:
                return Var(self.string(text), self.dtype(dtype))
            case "index", [text]:
                return Index(self.integer(text))
            case "bits", [dtype, ast.Constant(value=int(pattern))]:
                return Const(self.dtype(dtype), pattern)
            case "unary", [op, a]:
                return Unary(self.string(op), self.expr(a))
            case "binary", [op, a, b]:
                x, y = _match_types(self._value(a), self._value(b))
                return Binary(self.string(op), x, y)
            case "reduce", [combiner, body]:
                return Reduce(self.string(combiner), (), self.expr(body))
        raise self.text.error(node, f"{name} is no function of {len(node.args)} expressions")

    def _convert(self, dtype: DType, node: ast.expr) -> Expr:
        value = self._value(node)
        if isinstance(value, Expr):
            return Cast(dtype, value)
        return const(value, dtype)

    def _extreme(self, node: ast.Call, op: str) -> Expr:
        values = [self._value(a) for a in node.args]
        whole = [v.int_ if isinstance(v, Index) else v for v in values]
        sizes = [v for v in whole if isinstance(v, Int | int)]
        if len(sizes) == len(values):
            return Index((minimum if op == "min" else maximum)(*sizes))
        if len(values) != 2:
            raise self.text.error(node, f"{op} takes two values")
        return _binary(op, *values)

    def _reduce(self, combiner: str, node: ast.GeneratorExp) -> Expr:
        axes: list[Axis] = []
        for loop in node.generators:
            match loop:
                case ast.comprehension(
                    target=ast.Name(id=name),
                    iter=ast.Call(func=ast.Name(id="grid"), args=[extent]),
                    ifs=[],
                ):
                    axes.append(Axis(name, self.integer(extent)))
                case _:
                    raise self.text.error(node, "expected `for name in grid(extent)`")
        return Reduce(combiner, tuple(axes), self.expr(node.elt))


def _settle(value: Expr | Number, dtype: DType | None) -> Expr:
    if isinstance(value, Expr):
        return value
    return as_expr(value, f32 if dtype is None and isinstance(value, float) else dtype)


def _match_types(a: Expr | Number, b: Expr | Number) -> tuple[Expr, Expr]:
    return (
        _settle(a, b.dtype if isinstance(b, Expr) else None),
        _settle(b, a.dtype if isinstance(a, Expr) else None),
    )


def _chain(op: str, values: Sequence[Expr]) -> Expr:
    return reduce(partial(Binary, op), values)


def _binary(op: str, a: Expr | Number, b: Expr | Number) -> Expr:
    x, y = _match_types(a, b)
    if op in _ALGEBRA and isinstance(x, Index) and isinstance(y, Index):
        return Index(_ALGEBRA[op](x.int_, y.int_))
    return Binary(op, x, y)


def _integer(node: ast.expr) -> Int | None:
    """The symbolic integer that a syntax tree says, or None."""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return as_int(number)
        case ast.Name(id=name):
            return var(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _integer(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            inner = _integer(left)
            return None if inner is None else inner**power
        case ast.BinOp(left=left, op=op, right=right):
            a, b, name = _integer(left), _integer(right), _OPERATORS.get(type(op), "")
            return (
                _ALGEBRA[name](a, b)
                if name in _ALGEBRA and a is not None and b is not None
                else None
            )
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]):
            values = _all([_integer(a) for a in args])
            return (minimum if name == "min" else maximum)(*values) if values else None
    return None


def _all(values: Sequence[Int | None]) -> list[Int]:
    found = [v for v in values if v is not None]
    return found if len(found) == len(values) else []
