"""Symbolic integers: polynomials over variables, floor divisions, remainders, minima and maxima.

    n = var("n")
    (4*n + 5)//4         ->  n + 1
    (n//8)*8 + n%8       ->  n
    min(n + 3, n + 1)    ->  n + 1

Values are interned in normal form, so `==` is identity and costs nothing; it says "the same
expression". Whether two different expressions are always equal is a question for `Facts`. The text
of an expression is Python that builds the same object. Divisors, and their factors, are taken to be
at least 1: who divides by a size that may be 0 checks first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import add, floordiv, mod, mul, sub
from typing import Any, Final

from pliant.sym import divide
from pliant.sym.atoms import (
    HAS_MOD,
    ONE,
    Atom,
    DivAtom,
    Factors,
    MaxAtom,
    MinAtom,
    ModAtom,
    Monomial,
    VarAtom,
    atom_text,
    eval_atom,
    monomial,
    multiply,
    without_atom,
)
from pliant.sym.recombine import recombine

Pairs = tuple[tuple[Monomial, int], ...]


class Int:
    """An immutable, interned integer expression, built with `var`, `const` and operators."""

    __slots__ = ("_hash", "_linear", "_names", "_text", "_value", "flags", "is_const", "pairs")

    pairs: Pairs
    """Terms as (monomial, coefficient), greatest monomial first; read-only."""
    is_const: bool
    """Whether this is a plain number."""
    flags: int
    """Which kinds of compound atoms occur at the top level; 0 if variables only."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.is_const = not pairs or pairs[0][0] is ONE
        self._value = (pairs[0][1] if pairs else 0) if self.is_const else None
        # A constant equals a Python int, so it must hash like one.
        self._hash = object.__hash__(self) if self._value is None else hash(self._value)
        self.flags = reduce(lambda flags, pair: flags | pair[0].flags, pairs, 0)
        self._names: frozenset[str] | None = None
        self._linear: dict[str, tuple[Int, Int] | None] = {}
        self._text: str | None = None

    @property
    def value(self) -> int:
        """The number, if this is a constant; ValueError otherwise."""
        if self._value is None:
            raise ValueError(f"{self} is not a constant")
        return self._value

    @property
    def names(self) -> frozenset[str]:
        """The variables that occur."""
        if self._names is None:
            self._names = frozenset().union(*(mono.names for mono, _ in self.pairs))
        return self._names

    @property
    def sole_atom(self) -> Atom | None:
        """The atom, if the expression is exactly one atom."""
        if len(self.pairs) == 1 and self.pairs[0][1] == 1:
            return self.pairs[0][0].atom
        return None

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """A total order, the same in every process: constants by value, the rest by text."""
        return (1, 0, str(self)) if self._value is None else (0, self._value, "")

    def terms(self) -> Iterator[tuple[int, Factors]]:
        """The terms of the sum as (coefficient, ((atom, power), ...))."""
        return ((coefficient, mono.factors) for mono, coefficient in self.pairs)

    def make(self, terms: Mapping[Monomial, int]) -> Int:
        """The sum of these terms (a constructor for this package's rules)."""
        return _from_terms(terms)

    def __add__(self, other: IntLike) -> Int:
        if other.__class__ is not Int:
            return self._plus(other) if isinstance(other, int) else NotImplemented
        if other._value is not None:
            return self._plus(other._value)
        if self._value is not None:
            return other._plus(self._value)
        key = (id(self), id(other))
        found = _SUMS.get(key)
        if found is None:
            found = _SUMS[key] = self._merged(other)
        return found

    def _plus(self, number: int) -> Int:
        pairs = self.pairs
        if pairs and pairs[-1][0] is ONE:
            number += pairs[-1][1]
            pairs = pairs[:-1]
        return _lookup((*pairs, (ONE, int(number)))) if number else _lookup(pairs)

    def _merged(self, other: Int) -> Int:
        terms = dict(self.pairs)
        for mono, coefficient in other.pairs:
            terms[mono] = terms.get(mono, 0) + coefficient
        return _from_terms(terms)

    __radd__ = __add__

    def __neg__(self) -> Int:
        return _lookup(tuple((mono, -coefficient) for mono, coefficient in self.pairs))

    def __sub__(self, other: IntLike) -> Int:
        if not isinstance(other, Int | int):
            return NotImplemented
        return self + -other

    def __rsub__(self, other: int) -> Int:
        return -self + other

    def __mul__(self, other: IntLike) -> Int:
        if isinstance(other, int):
            return self._scaled(other)
        if not isinstance(other, Int):
            return NotImplemented
        if other._value is not None:
            return self._scaled(other._value)
        if self._value is not None:
            return other._scaled(self._value)
        key = (id(self), id(other))
        found = _PRODUCTS.get(key)
        if found is None:
            found = _PRODUCTS[key] = self._product(other)
        return found

    def _product(self, other: Int) -> Int:
        terms: dict[Monomial, int] = {}
        for left, a in self.pairs:
            for right, b in other.pairs:
                mono = multiply(left, right)
                terms[mono] = terms.get(mono, 0) + a * b
        return _from_terms(terms)

    __rmul__ = __mul__

    def _scaled(self, by: int) -> Int:
        if by == 1:
            return self
        return (
            _lookup(tuple((mono, coefficient * by) for mono, coefficient in self.pairs))
            if by
            else _ZERO
        )

    def __pow__(self, power: int) -> Int:
        if not isinstance(power, int) or power < 0:
            return NotImplemented
        return reduce(mul, (self,) * power, const(1))

    def __floordiv__(self, other: IntLike) -> Int:
        return (
            divide.floordiv(self, as_int(other)) if isinstance(other, Int | int) else NotImplemented
        )

    def __rfloordiv__(self, other: int) -> Int:
        return divide.floordiv(const(other), self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: IntLike) -> Int:
        return (
            divide.modulo(self, as_int(other)) if isinstance(other, Int | int) else NotImplemented
        )

    def __rmod__(self, other: int) -> Int:
        return divide.modulo(const(other), self) if isinstance(other, int) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, int) and self._value == other

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of {self} is not a Python bool; compare it, or ask Facts")

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text(self.pairs)
        return self._text

    __repr__ = __str__

    def __copy__(self) -> Int:
        return self

    def __deepcopy__(self, memo: object) -> Int:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_int, (str(self),)

    def linear(self, name: str) -> tuple[Int, Int] | None:
        """(a, b) with self == a*var(name) + b, neither mentioning name; None if impossible."""
        if name not in self.names:
            return _ZERO, self
        if name not in self._linear:
            self._linear[name] = self._split(VarAtom(name))
        return self._linear[name]

    def _split(self, atom: VarAtom) -> tuple[Int, Int] | None:
        slope: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for mono, coefficient in self.pairs:
            if atom.name not in mono.names:
                rest[mono] = coefficient
                continue
            over = without_atom(mono, atom)
            if over is None or atom.name in over.names:
                return None
            slope[over] = coefficient
        return _from_terms(slope), _from_terms(rest)

    def subs(self, mapping: Mapping[str, IntLike]) -> Int:
        """Replace variables, all at once."""
        if self.names.isdisjoint(mapping):
            return self
        return _substitute(self, mapping, {})

    def map_atoms(self, change: Mapping[Atom, Int]) -> Int:
        """Replace whole top-level atoms, all at once."""
        terms: dict[Monomial, int] = {}
        for mono, coefficient in self.pairs:
            if mono.degree == 1:  # most are
                alone = change.get(mono.factors[0][0])
                if alone is None:
                    terms[mono] = terms.get(mono, 0) + coefficient
                else:
                    for term, many in alone.pairs:
                        terms[term] = terms.get(term, 0) + coefficient * many
                continue
            kept: list[tuple[Atom, int]] = []
            others: list[Int] = []
            for atom, power in mono.factors:
                new = change.get(atom)
                if new is None:
                    kept.append((atom, power))
                elif new._value is None:
                    others.append(new**power)
                else:
                    coefficient *= new._value**power
            left = mono if len(kept) == len(mono.factors) else monomial(tuple(kept))
            pairs: Pairs = ((left, coefficient),)
            if others and coefficient:
                pairs = reduce(mul, others, _lookup(pairs)).pairs
            for term, many in pairs:
                terms[term] = terms.get(term, 0) + many
        return _from_terms(terms)

    def eval(self, mapping: Mapping[str, int]) -> int:
        """The number that this is for these values of its variables."""
        total = 0
        for mono, coefficient in self.pairs:
            for atom, power in mono.factors:
                coefficient *= eval_atom(atom, mapping) ** power
            total += coefficient
        return total


IntLike = Int | int

# Expressions live as long as the process, so their addresses can serve as keys.
_INTERNED: Final[dict[Pairs, Int]] = {}
_SUMS: Final[dict[tuple[int, int], Int]] = {}
_PRODUCTS: Final[dict[tuple[int, int], Int]] = {}


def _lookup(pairs: Pairs) -> Int:
    found = _INTERNED.get(pairs)
    if found is None:
        # setdefault, so that threads that race agree on one object.
        found = _INTERNED.setdefault(pairs, Int(pairs))
    return found


def _pair_key(pair: tuple[Monomial, int]) -> tuple[int, tuple[tuple[str, int], ...]]:
    return pair[0].key


def _intern(terms: Mapping[Monomial, int]) -> Int:
    pairs = [pair for pair in terms.items() if pair[1]]
    if len(pairs) > 1:
        pairs.sort(key=_pair_key)
    return _lookup(tuple(pairs))


def _from_terms(terms: Mapping[Monomial, int]) -> Int:
    plain = _intern(terms)
    return plain if plain.flags < HAS_MOD else recombine(plain)


def _of_atom(atom: Atom) -> Int:
    return _lookup(((monomial(((atom, 1),)), 1),))


_ZERO: Final = _lookup(())
_SMALL: Final = tuple(_lookup(((ONE, v),)) if v else _ZERO for v in range(257))
_VARS: Final[dict[str, Int]] = {}


def var(name: str) -> Int:
    """The variable of that name, a Python identifier other than `min` and `max`."""
    found = _VARS.get(name)
    if found is None:
        if not name.isidentifier() or name in ("min", "max"):
            raise ValueError(f"{name!r} cannot name a variable")
        found = _VARS[name] = _of_atom(VarAtom(name))
    return found


def const(v: int) -> Int:
    """A plain number as an Int."""
    if 0 <= v <= 256:
        return _SMALL[v]
    return _lookup(((ONE, int(v)),))


def as_int(x: IntLike) -> Int:
    """An Int from an Int or a number."""
    return x if isinstance(x, Int) else const(x)


def minimum(*xs: IntLike) -> Int:
    """The least of one or more expressions."""
    args = _extreme_args(xs, MinAtom, smaller=True)
    return args[0] if len(args) == 1 else _of_atom(MinAtom(args))


def maximum(*xs: IntLike) -> Int:
    """The greatest of one or more expressions."""
    args = _extreme_args(xs, MaxAtom, smaller=False)
    return args[0] if len(args) == 1 else _of_atom(MaxAtom(args))


def _extreme_args(
    xs: Iterable[IntLike], kind: type[MinAtom | MaxAtom], *, smaller: bool
) -> tuple[Int, ...]:
    # Of x + 1 and x + 3 one always wins: keep, for each varying part, the better constant.
    best: dict[Int, int] = {}
    for x in map(as_int, xs):
        atom = x.sole_atom
        for arg in (
            atom.args if isinstance(atom, MinAtom | MaxAtom) and isinstance(atom, kind) else (x,)
        ):
            offset = arg.pairs[-1][1] if arg.pairs and arg.pairs[-1][0] is ONE else 0
            varying = arg - offset
            if varying not in best or (offset < best[varying]) == smaller:
                best[varying] = offset
    if not best:
        raise ValueError("min and max need at least one argument")
    return tuple(sorted((v + c for v, c in best.items()), key=lambda arg: arg.sort_key))


def ceildiv(a: IntLike, b: IntLike) -> Int:
    """The quotient rounded up; `b` is at least 1."""
    return (as_int(a) + b - 1) // b


def _substitute(x: Int, mapping: Mapping[str, IntLike], memo: dict[Int, Int]) -> Int:
    if x.names.isdisjoint(mapping):
        return x
    found = memo.get(x)
    if found is None:
        change: dict[Atom, Int] = {}
        for mono, _ in x.pairs:
            if mono.names.isdisjoint(mapping):
                continue
            for atom, _ in mono.factors:
                if atom not in change and not atom.names.isdisjoint(mapping):
                    change[atom] = _substitute_atom(atom, mapping, memo)
        found = memo[x] = x.map_atoms(change)
    return found


def _substitute_atom(atom: Atom, mapping: Mapping[str, IntLike], memo: dict[Int, Int]) -> Int:
    if isinstance(atom, VarAtom):
        return as_int(mapping[atom.name])  # it is there, or nothing were to be replaced
    return rebuild_atom(atom, lambda x: _substitute(x, mapping, memo))


def rebuild_atom(atom: Atom, change: Callable[[Int], Int]) -> Int:
    """The value of an atom after its arguments changed."""
    match atom:
        case VarAtom():
            return _of_atom(atom)
        case DivAtom(num, den):
            return change(num) // change(den)
        case ModAtom(num, den):
            return change(num) % change(den)
        case MinAtom(args):
            return minimum(*map(change, args))
        case MaxAtom(args):
            return maximum(*map(change, args))


def parse_int(text: str) -> Int:
    """The expression that `str` printed, or any of integers, names, + - * // % **, min and max."""
    try:
        return _build(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"{text!r} is not an integer expression") from error


_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: mod,
}  # fmt: skip


def _build(node: ast.expr) -> Int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return const(number)
        case ast.Name(id=name):
            return var(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            return _build(left) ** power
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return as_int(_OPERATORS[type(op)](_build(left), _build(right)))
        case ast.Call(func=ast.Name(id="min"), args=[_, *_] as args, keywords=[]):
            return minimum(*map(_build, args))
        case ast.Call(func=ast.Name(id="max"), args=[_, *_] as args, keywords=[]):
            return maximum(*map(_build, args))
    raise ValueError(f"{ast.unparse(node)!r} cannot occur in an integer expression")


def _text(pairs: Pairs) -> str:
    parts: list[str] = []
    for mono, coefficient in pairs:
        size = abs(coefficient)
        if mono is ONE:
            text = str(size)
        elif size != 1:
            text = f"{size}*{mono.text}"
        else:
            alone = mono.degree == 1 and coefficient == 1
            text = atom_text(mono.factors[0][0]) if alone else mono.text
        sign = (
            ("-" if coefficient < 0 else "") if not parts else (" - " if coefficient < 0 else " + ")
        )
        parts.append(sign + text)
    return "".join(parts) or "0"
