"""Expressions read as mixed-radix numerals.

    128*b + 16*(i//4 % 2) + j      digits  j (scale 1), i//4 % 2 (scale 16), b (scale 128)

A digit is cut out of a source: an input, or a whole expression of which several digits are taken.
Flipped digits (7 - i) count downwards. What matters of a numeral is whether different digits may
give the same value, and whether all values up to some size occur.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pliant.sym.atoms import Atom, DivAtom, ModAtom, VarAtom, without_atom
from pliant.sym.expr import Int, ceildiv, const, var
from pliant.sym.facts import Facts


@dataclass(frozen=True, slots=True)
class Digit:
    """`source // low`, then `% modulus` if there is one."""

    source: Int
    low: Int
    modulus: Int | None = None

    def value(self) -> Int:
        """The digit as a formula."""
        quotient = self.source // self.low
        return quotient if self.modulus is None else quotient % self.modulus

    def extent(self, size: Int, facts: Facts) -> Int:
        """The number of values of the digit (or a greater number) if the source is below `size`."""
        top = facts.simplify(ceildiv(size, self.low))
        if self.modulus is None or facts.le(top, self.modulus):
            return top
        return facts.simplify(self.modulus)


@dataclass(frozen=True, slots=True)
class Term:
    """coefficient * digit, before its size is known."""

    coefficient: Int
    digit: Digit


@dataclass(frozen=True, slots=True)
class Place:
    """scale * digit, or scale * (extent - 1 - digit) if flipped."""

    scale: Int
    digit: Digit
    extent: Int
    flipped: bool


@dataclass(frozen=True, slots=True)
class Numeral:
    """The sum of an offset, which is the least value, and places."""

    offset: Int
    places: tuple[Place, ...]


def terms(x: Int, inputs: frozenset[str]) -> tuple[tuple[Term, ...], Int] | None:
    """x as digits with coefficients, and what remains; None if inputs occur in other ways."""
    found: dict[Digit, Int] = {}
    offset = {}
    for mono, coefficient in x.pairs:
        if mono.names.isdisjoint(inputs):
            offset[mono] = coefficient
            continue
        moving = [factor for factor in mono.factors if factor[0].names & inputs]
        if len(moving) != 1 or moving[0][1] != 1:
            return None
        digit = digit_of(moving[0][0], inputs)
        others = without_atom(mono, moving[0][0])
        if digit is None or others is None:
            return None
        found[digit] = found.get(digit, const(0)) + x.make({others: coefficient})
    return tuple(Term(scale, digit) for digit, scale in found.items()), x.make(offset)


def digit_of(atom: Atom, inputs: frozenset[str]) -> Digit | None:
    """The atom as a digit of what `inputs` occur in; None if it is none."""
    match atom:
        case VarAtom(name):
            return Digit(var(name), const(1))
        case DivAtom(num, den) if den.names.isdisjoint(inputs):
            return Digit(num, den)
        case ModAtom(num, den) if den.names.isdisjoint(inputs):
            inner = num.sole_atom
            if isinstance(inner, DivAtom) and inner.den.names.isdisjoint(inputs):
                return Digit(inner.num, inner.den, den)
            return Digit(num, const(1), den)
    return None


def numeral(
    x: Int, inputs: frozenset[str], sizes: Mapping[Int, Int], facts: Facts
) -> Numeral | None:
    """x as a numeral over sources of known sizes; None if it is not one."""
    read = terms(x, inputs)
    if read is None:
        return None
    places = []
    found, offset = read
    for term in found:
        scale, digit = term.coefficient, term.digit
        if digit.source not in sizes:
            return None
        extent = digit.extent(sizes[digit.source], facts)
        flipped = not facts.nonneg(scale)
        if flipped:
            if not facts.nonneg(-scale):
                return None
            offset += scale * (extent - 1)
            scale = -scale
        places.append(Place(scale, digit, extent, flipped))
    return Numeral(facts.simplify(offset), tuple(places))


def dense(places: tuple[Place, ...], facts: Facts) -> Int | None:
    """The size of a numeral that takes each value below it exactly once; None if there are gaps."""
    left = list(places)
    size: Int = const(1)
    while left:
        following = next((p for p in left if facts.equal(p.scale, size)), None)
        if following is None:
            return None
        left.remove(following)
        size *= following.extent
    return facts.simplify(size)


def distinct(places: tuple[Place, ...], facts: Facts) -> bool:
    """Whether different digits give different values (there may be gaps)."""
    ordered = _ascending(places, facts)
    span: Int = const(1)
    for place in ordered or ():
        if not facts.le(span, place.scale):
            break
        span = place.scale * place.extent
    else:
        if ordered is not None:
            return True
    return dense(places, facts) is not None


def reach(places: tuple[Place, ...], facts: Facts) -> Int:
    """A size below which all values occur, each digit taking all its values independently.

    Extents must be at least 1 unless the numeral is dense.
    """
    size = dense(places, facts)
    if size is not None:
        return size
    span: Int = const(1)
    for place in _ascending(places, facts) or ():
        if not facts.le(place.scale, span):
            break
        span += place.scale * (place.extent - 1)
    return span


def _ascending(places: tuple[Place, ...], facts: Facts) -> list[Place] | None:
    """Places by scale, least first; None where scales cannot be compared."""
    left = list(places)
    ordered = []
    while left:
        least = next((p for p in left if all(facts.le(p.scale, q.scale) for q in left)), None)
        if least is None:
            return None
        left.remove(least)
        ordered.append(least)
    return ordered
