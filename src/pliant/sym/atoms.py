"""Atoms and monomials: what the terms of a symbolic integer are made of.

    3*n*(m//4)**2      coefficient 3, monomial  n * (m//4)**2,  atoms  n  and  m//4

Monomials are interned, so products are dictionary look-ups and equality is identity. They are
ordered by degree and then by the text of their atoms (an admissible monomial order), hence the same
in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from pliant.sym.expr import Int


class _OneOfEach(type):
    """Of equal arguments one object, so that atoms are compared and hashed by identity."""

    def __call__(cls, *args: Any) -> Any:
        found = _ATOMS.get((cls, args))
        if found is None:
            # setdefault, so that threads that race agree on one object.
            found = _ATOMS.setdefault((cls, args), super().__call__(*args))
        return found


class _Atom(metaclass=_OneOfEach):
    __match_args__: ClassVar[tuple[str, ...]]
    __slots__ = ("names",)

    names: frozenset[str]
    """The variables that occur."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field) for field in self.__match_args__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.__reduce__()[1]}"


class VarAtom(_Atom):
    """A variable; its name is its identity."""

    __match_args__ = ("name",)
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        self.names = frozenset((name,))


class _Ratio(_Atom):
    __match_args__ = ("num", "den")
    __slots__ = ("den", "num")

    def __init__(self, num: Int, den: Int) -> None:
        self.num = num
        self.den = den
        self.names = num.names | den.names


class DivAtom(_Ratio):
    """`num // den`, rounded towards minus infinity; `den` is at least 1."""

    __slots__ = ()


class ModAtom(_Ratio):
    """`num % den`, in `[0, den)`; `den` is at least 1."""

    __slots__ = ()


class _Extreme(_Atom):
    __match_args__ = ("args",)
    __slots__ = ("args",)

    def __init__(self, args: tuple[Int, ...]) -> None:
        self.args = args
        self.names = frozenset().union(*(arg.names for arg in args))


class MinAtom(_Extreme):
    """The least of two or more arguments, in the order of their sort keys."""

    __slots__ = ()


class MaxAtom(_Extreme):
    """The greatest of two or more arguments, in the order of their sort keys."""

    __slots__ = ()


Atom = VarAtom | DivAtom | ModAtom | MinAtom | MaxAtom
Factors = tuple[tuple[Atom, int], ...]

HAS_EXTREME: Final = 1
HAS_DIV: Final = 2
HAS_MOD: Final = 4
MOD_INSIDE: Final = 8  # a quotient of a sum with remainders

_FLAGS: Final[dict[type[Atom], int]] = {
    VarAtom: 0,
    DivAtom: HAS_DIV,
    ModAtom: HAS_MOD,
    MinAtom: HAS_EXTREME,
    MaxAtom: HAS_EXTREME,
}


class Monomial:
    """An interned product of powers of atoms; compare with `is`. Make one with `monomial`."""

    __slots__ = ("degree", "factors", "flags", "key", "names", "text")

    def __init__(self, factors: Factors, texts: tuple[str, ...]) -> None:
        self.factors = factors
        self.degree = sum(power for _, power in factors)
        powers = tuple((text, -power) for text, (_, power) in zip(texts, factors, strict=True))
        self.key = (-self.degree, powers)
        self.names: frozenset[str] = frozenset().union(*(atom.names for atom, _ in factors))
        self.flags = 0
        for atom, _ in factors:
            self.flags |= _FLAGS[type(atom)]
            if isinstance(atom, DivAtom) and atom.num.flags & HAS_MOD:
                self.flags |= MOD_INSIDE
        self.text = "*".join(_power_text(t, a, p) for t, (a, p) in zip(texts, factors, strict=True))

    @property
    def atom(self) -> Atom | None:
        """The atom, where the monomial is one atom to the power 1."""
        return self.factors[0][0] if self.degree == 1 else None

    def __repr__(self) -> str:
        return f"Monomial({self.text})"


ONE: Final = Monomial((), ())

_ATOMS: Final[dict[tuple[type, tuple[Any, ...]], Any]] = {}
_MONOMIALS: Final[dict[Factors, Monomial]] = {(): ONE}
_PRODUCTS: Final[dict[tuple[Monomial, Monomial], Monomial]] = {}
_TEXTS: Final[dict[Atom, str]] = {}


def monomial(factors: Factors) -> Monomial:
    """The interned monomial of these factors, which may come in any order but each atom once."""
    found = _MONOMIALS.get(factors)
    if found is None:
        ordered = tuple(sorted(factors, key=lambda factor: atom_text(factor[0])))
        found = _MONOMIALS.get(ordered)
        if found is None:
            new = Monomial(ordered, tuple(atom_text(atom) for atom, _ in ordered))
            # setdefault, so that threads that race agree on one object.
            found = _MONOMIALS.setdefault(ordered, new)
    return found


def multiply(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    if left is ONE:
        return right
    if right is ONE:
        return left
    found = _PRODUCTS.get((left, right))
    if found is None:
        powers = dict(left.factors)
        for atom, power in right.factors:
            powers[atom] = powers.get(atom, 0) + power
        found = _PRODUCTS[left, right] = monomial(tuple(powers.items()))
    return found


def divide(left: Monomial, right: Monomial) -> Monomial | None:
    """`left / right`, or None where `right` does not divide `left`."""
    if right is ONE:
        return left
    if left is right:
        return ONE
    if right.degree > left.degree or not right.names <= left.names:
        return None
    powers = dict(left.factors)
    for atom, power in right.factors:
        have = powers.get(atom, 0)
        if have < power:
            return None
        powers[atom] = have - power
    return monomial(tuple(factor for factor in powers.items() if factor[1]))


def common(left: Monomial, right: Monomial) -> Monomial:
    """The greatest monomial that divides both."""
    if left is right:
        return left
    if left is ONE or right is ONE:
        return ONE
    powers = dict(right.factors)
    shared = ((atom, min(power, powers.get(atom, 0))) for atom, power in left.factors)
    return monomial(tuple(factor for factor in shared if factor[1]))


def without_atom(mono: Monomial, atom: Atom) -> Monomial | None:
    """The monomial without one power of the atom, or None if it has none."""
    for at, (found, power) in enumerate(mono.factors):
        if found is atom:
            kept = ((found, power - 1),) if power > 1 else ()
            return monomial(mono.factors[:at] + kept + mono.factors[at + 1 :])
    return None


def eval_atom(atom: Atom, mapping: Mapping[str, int]) -> int:
    """The number that an atom is for these values of its variables."""
    match atom:
        case VarAtom(name):
            return mapping[name]
        case DivAtom(num, den):
            return num.eval(mapping) // den.eval(mapping)
        case ModAtom(num, den):
            return num.eval(mapping) % den.eval(mapping)
        case MinAtom(args):
            return min(arg.eval(mapping) for arg in args)
        case MaxAtom(args):
            return max(arg.eval(mapping) for arg in args)


def atom_text(atom: Atom) -> str:
    """The atom as Python text, without parentheses around it."""
    found = _TEXTS.get(atom)
    if found is None:
        found = _TEXTS[atom] = _atom_text(atom)
    return found


def _atom_text(atom: Atom) -> str:
    match atom:
        case VarAtom(name):
            return name
        case DivAtom(num, den):
            return f"{_operand(num)}//{_operand(den)}"
        case ModAtom(num, den):
            return f"{_operand(num)}%{_operand(den)}"
        case MinAtom(args):
            return f"min({', '.join(map(str, args))})"
        case MaxAtom(args):
            return f"max({', '.join(map(str, args))})"


def _operand(x: Int) -> str:
    text = str(x)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


def _power_text(text: str, atom: Atom, power: int) -> str:
    grouped = f"({text})" if isinstance(atom, DivAtom | ModAtom) else text
    return grouped if power == 1 else f"{grouped}**{power}"
