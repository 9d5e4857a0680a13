"""Put quotients and remainders of the same division back together inside a sum.

c*d*(f//d)       + c*(f%d)  ->  c*f                 c any common factor, d symbolic or not
c*d*((f//d)%a)   + c*(f%d)  ->  c*(f%(a*d))
c*d*((f//d+z)%a) + c*(f%d)  ->  c*((f+d*z)%(a*d))
c*k*(f//d) + c*((q*(f%d) + z)//e)  ->  c*((q*f + z)//e)      k*e is q*d
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.sym.atoms import (
    HAS_DIV,
    HAS_MOD,
    MOD_INSIDE,
    DivAtom,
    ModAtom,
    Monomial,
    multiply,
    without_atom,
)

if TYPE_CHECKING:
    from pliant.sym.expr import Int


def recombine(x: Int) -> Int:
    """Apply the rules above until none fits."""
    changed = True
    while changed:
        changed = False
        for mono, coefficient in x.pairs:
            if mono.flags & (HAS_MOD | MOD_INSIDE):
                shorter = _join_one(x, mono, coefficient)
                if shorter is not None:
                    x, changed = shorter, True
                    break
    return x


def _join_one(x: Int, mono: Monomial, coefficient: int) -> Int | None:
    for atom, _ in mono.factors:
        if isinstance(atom, ModAtom):
            others = without_atom(mono, atom)
            assert others is not None
            joined = _with_quotient(x, mono, coefficient, atom, others)
            if joined is None:
                joined = _with_digit(x, mono, coefficient, atom, others)
            if joined is not None:
                return joined
        elif isinstance(atom, DivAtom) and atom.num.flags & HAS_MOD and atom.den.is_const:
            others = without_atom(mono, atom)
            assert others is not None
            joined = _with_quotient_outside(x, mono, coefficient, atom, others)
            if joined is not None:
                return joined
    return None


def _with_quotient_outside(
    x: Int, mono: Monomial, coefficient: int, atom: DivAtom, others: Monomial
) -> Int | None:
    for part, many in atom.num.pairs:
        if len(part.factors) != 1:
            continue
        ((inner, power),) = part.factors
        if not isinstance(inner, ModAtom) or power != 1 or not inner.den.is_const:
            continue
        quotient = inner.num // inner.den
        step, rest = divmod(many * inner.den.value, atom.den.value)
        if rest or not quotient.flags & HAS_DIV:
            continue
        common = x.make({others: coefficient})
        terms = _without(dict(x.pairs), quotient * step * common)
        if terms is None:
            continue
        del terms[mono]
        whole = (atom.num - x.make({part: many}) + inner.num * many) // atom.den
        for partner, c in (whole * common).pairs:
            terms[partner] = terms.get(partner, 0) + c
        return x.make(terms)
    return None


def _without(terms: dict[Monomial, int], part: Int) -> dict[Monomial, int] | None:
    """What is left of a sum without a part; None where it has not as much of it."""
    for mono, c in part.pairs:
        have = terms.get(mono, 0)
        if have * c <= 0 or abs(have) < abs(c):
            return None
        terms[mono] = have - c
    return terms


def _with_quotient(
    x: Int, mono: Monomial, coefficient: int, atom: ModAtom, others: Monomial
) -> Int | None:
    quotient = atom.num // atom.den
    if not quotient.flags & HAS_DIV and quotient.pairs:
        return None
    common = x.make({others: coefficient})
    terms = _without(dict(x.pairs), quotient * atom.den * common)
    if terms is None:
        return None
    del terms[mono]
    for partner, c in (atom.num * common).pairs:
        terms[partner] = terms.get(partner, 0) + c
    return x.make(terms)


def _with_digit(
    x: Int, mono: Monomial, coefficient: int, atom: ModAtom, others: Monomial
) -> Int | None:
    if len(atom.den.pairs) != 1:
        return None
    quotient = atom.num // atom.den
    ((den_mono, den_coefficient),) = atom.den.pairs
    wanted = multiply(others, den_mono)
    for partner, c in x.pairs:
        if c != coefficient * den_coefficient or not partner.flags & HAS_MOD:
            continue
        for digit, _ in partner.factors:
            if not isinstance(digit, ModAtom) or without_atom(partner, digit) is not wanted:
                continue
            more = digit.num - quotient
            if not more.pairs or len(more.pairs) < len(digit.num.pairs):
                whole = (atom.num + atom.den * more) % (digit.den * atom.den)
                whole = whole * x.make({others: coefficient})
                terms = dict(x.pairs)
                del terms[mono], terms[partner]
                for new, k in whole.pairs:
                    terms[new] = terms.get(new, 0) + k
                return x.make(terms)
    return None
