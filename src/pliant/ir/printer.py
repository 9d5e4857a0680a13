"""Scalar expressions, types and plain data as Python text that parses back to the same object.

    x[i, j] * 2.0 + f32(n)                       Binary, Const, Cast, Index
    max(x[i, _r0] for _r0 in grid(k))            Reduce
    select(i < n, exp(x[i]), 0.0)                Select

A bare name or integer is a symbolic integer (`Index`), and `+ - * // % ** min max` over those stay
in the integer algebra; what has no such form is written `binary("add", n, 1)`. A literal beside a
typed operand takes its type. Parts that are large and shared, or deep, get names (`_e0`), printed
on lines of their own before the statement that uses them.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from pliant.base.dtypes import DTYPES, DType, i64
from pliant.base.errors import InvalidModelError
from pliant.base.spans import Span
from pliant.ir.expr import (
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
    const,
)
from pliant.ir.node import Node
from pliant.ir.scalar import from_bits
from pliant.sym.expr import Int

# Python's precedences, loosest first; a comparison cannot be chained.
INFIX: Final[dict[str, tuple[str, int]]] = {
    "lt": ("<", 0), "le": ("<=", 0), "eq": ("==", 0), "ne": ("!=", 0), "or": ("|", 1),
    "xor": ("^", 2), "and": ("&", 3), "shl": ("<<", 4), "shr": (">>", 4), "add": ("+", 5),
    "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6), "floormod": ("%", 6),
}  # fmt: skip
UNARY_PREFIX: Final = {"neg": "-", "not": "~"}
_PREFIX, _ATOM = 7, 9

# Over symbolic integers these belong to the integer algebra.
INTEGER_OPS: Final = frozenset({"add", "sub", "mul", "floordiv", "floormod", "min", "max"})

_DEEP, _LARGE = 24, 12  # nodes; what is deeper, or larger and shared, gets a name

RESERVED: Final = frozenset({*DTYPES, "inf", "nan", "min", "max"})


def expr_text(
    expr: Expr,
    *,
    type: DType | None = None,
    source_name: Callable[[Any], str] = lambda source: str(source.name),
    scalars: Collection[str] = (),
    first_name: int = 0,
) -> tuple[list[str], str]:
    """Lines that name parts, and the text of `expr`.

    A literal is written bare where `type` says what it is. `scalars` are the names of variables
    that are bound here and are no sizes; names of parts start at `_e{first_name}`.
    """
    printer = _ExprPrinter(expr, source_name, scalars, first_name)
    piece = printer.piece(expr)
    bare = type is not None and expr is not None and isinstance(expr, Const) and expr.type is type
    return printer.lines, printer.operand(expr, bare).text if bare else piece.text


def int_text(value: Int) -> str:
    """A symbolic integer as Python."""
    return str(value)


def type_text(dtype: DType, shape: Sequence[Int], *, quoted: bool = True) -> str:
    """`f32["n", 384]`; symbolic extents are quoted where their names are not bound."""
    return f"{dtype}[{dims_text(shape, quoted=quoted)}]"


def dims_text(shape: Sequence[Int], *, quoted: bool = True) -> str:
    """The extents with commas; `()` for none."""
    return ", ".join(_dim_text(d, quoted) for d in shape) or "()"


def tuple_text(items: Iterable[str]) -> str:
    """A Python tuple of texts."""
    parts = list(items)
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def quote(text: str) -> str:
    """A string literal, in double quotes where that needs no escape."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if '"' not in text else literal


def data_text(value: Any, name_of: Callable[[Any], str | None] = lambda value: None) -> str:
    """Attributes and notes: numbers, strings, None, types, symbolic integers, tuples of these.

    `name_of` gives the name of what is defined elsewhere in the text.
    """
    if type(value) is str:
        return quote(value)
    if value is None or type(value) in (bool, int):
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({quote(str(value))})"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Int):
        text = int_text(value)
        return f"size({quote(text)})" if text in RESERVED or value.is_const else text
    if isinstance(value, Span):
        return span_text(value)
    if type(value) is tuple:
        return tuple_text([data_text(item, name_of) for item in value])
    name = name_of(value)
    if name is not None:
        return name
    raise InvalidModelError(f"cannot print {value!r} ({type(value).__name__}) as plain data")


def pairs_text(pairs: Iterable[tuple[str, Any]]) -> str:
    """(name, value) pairs as a dictionary display."""
    return "{" + ", ".join(f"{quote(name)}: {data_text(value)}" for name, value in pairs) + "}"


def span_text(span: Span) -> str:
    """`at("model.py", 12)`."""
    parts = [quote(span.file)]
    if span.line or span.name:
        parts.append(repr(span.line))
    if span.name:
        parts.append(quote(span.name))
    return f"at({', '.join(parts)})"


def is_name(text: str) -> bool:
    """Whether `text` can stand as a Python name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def is_part_name(text: str) -> bool:
    """Whether the name means something else than a variable inside an expression."""
    return text in ("inf", "nan") or (text.startswith("_e") and text[2:].isdigit())


def as_name(text: str) -> str:
    """A Python name like `text`."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
    return clean if is_name(clean) else f"v_{clean}"


def const_text(value: Const) -> str:
    """A literal with its type: `f32(1.5)`, `True`, `bits(f32, 0x7fc00001)`."""
    number = _number_text(value)
    if number is None:
        return f"bits({value.type}, {value.bits:#x})"
    return number if value.type.kind == "bool" else f"{value.type}({number})"


class _Piece:
    """Text of an expression, how tightly it binds, and how much of it is on this line."""

    __slots__ = ("binding", "depth", "size", "text")

    def __init__(self, text: str, binding: int = _ATOM, depth: int = 1, size: int = 1) -> None:
        self.text, self.binding, self.depth, self.size = text, binding, depth, size

    def within(self, binding: int) -> str:
        return self.text if self.binding >= binding else f"({self.text})"


class _ExprPrinter:
    def __init__(
        self,
        root: Expr,
        source_name: Callable[[Any], str],
        scalars: Collection[str],
        first_name: int,
    ) -> None:
        self.lines: list[str] = []
        self._source_name = source_name
        self._scalars = scalars
        self._next = first_name
        self._pieces: dict[Expr, _Piece] = {}
        self._uses: dict[Node, int] = {}
        order = self._count(root)
        for node in order:
            self._pieces[node] = self._named(node, self._print(node))

    def piece(self, expr: Expr) -> _Piece:
        return self._pieces[expr]

    def operand(self, expr: Expr, bare: bool) -> _Piece:
        """A piece; literals without their type where `bare`."""
        if bare and isinstance(expr, Const) and expr.type is not i64:
            number = _number_text(expr)
            if number is not None:
                return _Piece(number, _PREFIX if number[0] == "-" else _ATOM)
        return self._pieces[expr]

    def _count(self, root: Expr) -> list[Expr]:
        """Nodes in the order of their text, children first; counts uses on the way."""
        order: list[Expr] = []
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            self._uses[node] = self._uses.get(node, 0) + 1
            if self._uses[node] > 1:
                continue
            stack.append((node, True))
            stack += [(c, False) for c in reversed(_operands(node))]
        return order

    def _named(self, node: Expr, piece: _Piece) -> _Piece:
        shared = self._uses[node] > 1 and piece.size >= _LARGE
        if not shared and piece.depth < _DEEP:
            return piece
        name = f"_e{self._next}"
        self._next += 1
        self.lines.append(f"{name} = {piece.text}")
        return _Piece(name)

    def _print(self, node: Expr) -> _Piece:
        text, binding = self._text(node)
        inside = [self._pieces[c] for c in _operands(node)]
        depth = 1 + max([p.depth for p in inside], default=0)
        return _Piece(text, binding, depth, 1 + sum(p.size for p in inside))

    def _text(self, node: Expr) -> tuple[str, int]:
        match node:
            case Const():
                text = const_text(node)
                return text, _ATOM
            case Index(integer):
                return self._index(integer)
            case Var(name, dtype):
                if name in self._scalars and dtype is not i64 and not is_part_name(name):
                    return name, _ATOM
                return f"var({quote(name)}, {dtype})", _ATOM
            case Load(source, indices):
                at = ", ".join(self._pieces[i].text for i in indices) or "()"
                return f"{self._source_name(source)}[{at}]", _ATOM
            case Unary(op, a):
                return self._unary(op, a)
            case Binary(op, a, b):
                return self._binary(op, a, b)
            case Select(cond, a, b):
                return f"select({self._pieces[cond].text}, {self._both(a, b)})", _ATOM
            case Cast(to, a):
                text = self._pieces[a].text
                constant = (isinstance(a, Index) and a.int_.is_const) or text in ("True", "False")
                return (f"cast({to}, {text})" if constant else f"{to}({text})"), _ATOM
            case Bitcast(to, a):
                return f"bitcast({to}, {self._pieces[a].text})", _ATOM
            case Guard(cond, value, kind, message):
                parts = [self._pieces[cond].text, self._pieces[value].text, quote(kind)]
                return f"guard({', '.join(parts)}, {quote(message)})", _ATOM
            case Reduce(combiner, axes, body):
                text = self._pieces[body].text
                if not axes:
                    return f"reduce({quote(combiner)}, {text})", _ATOM
                loops = " ".join(f"for {a.var} in grid({int_text(a.extent)})" for a in axes)
                return f"{combiner}({text} {loops})", _ATOM
        raise InvalidModelError(f"cannot print {type(node).__name__}")

    def _index(self, integer: Int) -> tuple[str, int]:
        text = int_text(integer)
        if any(n in self._scalars or is_part_name(n) for n in integer.names):
            return f"index({quote(text)})", _ATOM
        simple = text.isidentifier() or text.isdigit() or text.startswith(("min(", "max("))
        return text, _ATOM if (simple and integer.sole_atom is not None) or text.isdigit() else 5

    def _unary(self, op: str, a: Expr) -> tuple[str, int]:
        if op in UNARY_PREFIX:
            if op == "neg" and isinstance(a, Index | Const):
                return f"unary({quote(op)}, {self._pieces[a].text})", _ATOM
            return UNARY_PREFIX[op] + self._pieces[a].within(_PREFIX), _PREFIX
        return f"{op}({self._pieces[a].text})", _ATOM

    def _binary(self, op: str, a: Expr, b: Expr) -> tuple[str, int]:
        if op in INTEGER_OPS and isinstance(a, Index) and isinstance(b, Index):
            return f"binary({quote(op)}, {self._pieces[a].text}, {self._pieces[b].text})", _ATOM
        if op not in INFIX:
            return f"{op}({self._both(a, b)})", _ATOM
        symbol, binding = INFIX[op]
        both = isinstance(a, Const) and isinstance(b, Const)
        left = self.operand(a, not both).within(binding + (binding == 0))
        right = self.operand(b, not both).within(binding + 1)
        return f"{left} {symbol} {right}", binding

    def _both(self, a: Expr, b: Expr) -> str:
        bare = not (isinstance(a, Const) and isinstance(b, Const))
        return f"{self.operand(a, bare).text}, {self.operand(b, bare).text}"


def _operands(node: Expr) -> list[Expr]:
    """The expressions in a node, left to right as printed; not the source of a load."""
    if isinstance(node, Load):
        return list(node.indices)
    return [c for c in node.children() if isinstance(c, Expr)]


def _dim_text(extent: Int, quoted: bool) -> str:
    text = int_text(extent)
    return quote(text) if quoted and not extent.is_const else text


def _number_text(value: Const) -> str | None:
    """The shortest number that gives these bits; None if no number does."""
    if not value.type.is_float:
        return str(value.value)
    for text in (str(from_bits(value.bits, value.type)), repr(value.value)):
        if const(float(text), value.type).bits == value.bits:
            return text if "e" in text or "." in text or text[-1] in "fn" else text + ".0"
    return None
