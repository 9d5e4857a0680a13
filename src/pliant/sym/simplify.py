"""Rewriting of expressions by facts: solved equalities, ranges, divisibility.

n == m, batch*seq == 2*k        m + batch*seq//2   ->  n + k
0 <= i < n                      (q*n + i)//n       ->  q           (q*n + i)%n  ->  i
0 <= j < 16                     (16*i + j)//64     ->  i//4        (16*i + j)%64  ->  16*(i%4) + j
n is a multiple of 16           (n*k + j)//16      ->  k*(n//16)
n >= 4                          min(n, 3)          ->  3
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Final

from pliant.sym.atoms import (
    HAS_DIV,
    ONE,
    Atom,
    DivAtom,
    MaxAtom,
    MinAtom,
    ModAtom,
    Monomial,
    VarAtom,
    common,
    divide,
    without_atom,
)
from pliant.sym.divide import exact_quotient
from pliant.sym.expr import Int, const, maximum, minimum, rebuild_atom, var
from pliant.sym.intervals import interval
from pliant.sym.prove import nonneg
from pliant.sym.store import FactStore

MAX_ROUNDS: Final = 8


def simplify(store: FactStore, x: Int) -> Int:
    """An equal expression, as simple as the facts allow."""
    if x.is_const:
        return x
    found = store.simplified.get(x)
    if found is None:
        store.simplified[x] = x  # facts may lead back to what is being simplified: it stays
        origin = store.shared(x)
        try:
            found = _fixpoint(store, x) if origin is None else simplify(origin, x)
        except ZeroDivisionError:
            # The facts make a divisor 0: there is no value, and nothing to simplify.
            found = x
        store.simplified[x] = store.simplified[found] = found
    return found


def _fixpoint(store: FactStore, x: Int) -> Int:
    for _ in range(MAX_ROUNDS):
        before, x = x, _once(store, x)
        if x is before:
            break
    return x


def canonical(store: FactStore, x: Int) -> Int:
    """A form for comparing (never for printing): multiples and remainders are spelled out.

    A variable n that is a multiple of k becomes k*N, and a%b becomes a - b*(a//b).
    """
    multiples = {
        name: dim.multiple * var(f"__{dim.multiple}_in_{name}")
        for name in sorted(x.names)
        if (dim := store.dim(name)).multiple > 1
    }
    return _without_mods(x.subs(multiples))


def _without_mods(x: Int) -> Int:
    change: dict[Atom, Int] = {}
    for mono, _ in x.pairs:
        for atom, _ in mono.factors:
            if isinstance(atom, ModAtom):
                num, den = _without_mods(atom.num), _without_mods(atom.den)
                change[atom] = num - den * (num // den)
            elif not isinstance(atom, VarAtom):
                change[atom] = rebuild_atom(atom, _without_mods)
    return x.map_atoms(change) if change else x


def _once(store: FactStore, x: Int) -> Int:
    if store.values and not x.names.isdisjoint(store.values):
        x = x.subs(store.values)
    if store.pinned and not x.names.isdisjoint(store.pinned):
        x = x.subs(store.pinned)
    if x.flags:
        change: dict[Atom, Int] = {}
        for mono, _ in x.pairs:
            for atom, _ in mono.factors:
                if not isinstance(atom, VarAtom) and atom not in change:
                    change[atom] = _atom(store, atom)
        x = _undo_exact_divisions(store, x.map_atoms(change))
    return _apply_rules(store, x) if store.rules else x


def _undo_exact_divisions(store: FactStore, x: Int) -> Int:
    """c*d*(a//d) -> c*a, where a is a multiple of d."""
    for mono, coefficient in x.pairs if x.flags & HAS_DIV else ():
        for atom, _ in mono.factors:
            if not isinstance(atom, DivAtom):
                continue
            others = without_atom(mono, atom)
            assert others is not None
            factor = exact_quotient(x.make({others: coefficient}), atom.den)
            if factor is not None and _remainder(store, atom.num, atom.den) == 0:
                return x - x.make({mono: coefficient}) + factor * atom.num
    return x


def _apply_rules(store: FactStore, x: Int) -> Int:
    """Rewrite with the polynomial equalities. Leads are greatest in a well-order, so this ends."""
    changed = True
    while changed:
        changed = False
        for mono, coefficient in x.pairs:
            for rule in store.rules:
                over = divide(mono, rule.lead)
                if over is None or coefficient % rule.coefficient:
                    continue
                factor = x.make({over: coefficient // rule.coefficient})
                x = x - x.make({mono: coefficient}) + factor * rule.rest
                changed = True
                break
            if changed:
                break
    return x


def _atom(store: FactStore, atom: Atom) -> Int:
    match atom:
        case DivAtom(num, den):
            return _quotient(store, simplify(store, num), simplify(store, den))
        case ModAtom(num, den):
            return _remainder(store, simplify(store, num), simplify(store, den))
        case MinAtom(args) | MaxAtom(args):
            return _extreme(
                store, [simplify(store, arg) for arg in args], isinstance(atom, MinAtom)
            )
        case VarAtom(name):
            return var(name)


def _extreme(store: FactStore, args: list[Int], smaller: bool) -> Int:
    kept = list(args)
    for arg in args:
        others = [other for other in kept if other is not arg]
        if any(nonneg(store, arg - o if smaller else o - arg) for o in others):
            kept = others
    return minimum(*kept) if smaller else maximum(*kept)


def _quotient(store: FactStore, num: Int, den: Int) -> Int:
    whole, rest, closed = _divide(store, num, den)
    if closed:
        return whole
    if rest is num:
        for part, less, _, _ in _mixed_radix(store, num, den):
            return part // less
    return whole + rest // den


def _remainder(store: FactStore, num: Int, den: Int) -> Int:
    _, rest, closed = _divide(store, num, den)
    if closed:
        return rest
    for part, less, scale, low in _mixed_radix(store, rest, den):
        return scale * (part % less) + low
    return rest % den


def _divide(store: FactStore, num: Int, den: Int) -> tuple[Int, Int, bool]:
    """(q, r, closed) with num == q*den + r, and 0 <= r < den if closed."""
    whole, rest = _split_multiples(store, num, den)
    digit = _digit(store, rest, den)
    if digit is None:
        return whole, rest, False
    return whole + digit, rest - digit * den, True


def _digit(store: FactStore, x: Int, den: Int) -> int | None:
    """The number t with t*den <= x < (t + 1)*den, if provably the same for all values."""
    low, high = interval(store, x)
    if den.is_const and low is not None and high is not None:
        digit = low // den.value
        if digit == high // den.value:
            return digit
    if nonneg(store, x):
        return 0 if nonneg(store, den - 1 - x) else None
    if nonneg(store, -x - 1) and nonneg(store, x + den):
        return -1
    return None


def _split_multiples(store: FactStore, num: Int, den: Int) -> tuple[Int, Int]:
    """(q, r) with num == q*den + r, from what is known to be divisible."""
    whole: Int = const(0)
    for mono, coefficient in num.pairs if den.is_const else ():
        for atom, _ in mono.factors:
            if isinstance(atom, VarAtom) and (dim := store.dim(atom.name)).multiple > 1:
                by = den.value // gcd(coefficient, den.value)
                if dim.multiple % by == 0:
                    term = num.make({mono: coefficient})
                    whole += exact(term, const(den.value // by) * var(atom.name)) * (
                        var(atom.name) // by
                    )
                    num -= term
                    break
    for fact, by_fact in store.multiples:
        scale = exact_quotient(by_fact, den)
        factor = _factor(num, fact) if scale is not None else None
        if scale is not None and factor is not None:
            whole += factor * scale * (fact // by_fact)
            num -= factor * fact
    return whole, num


def exact(num: Int, den: Int) -> Int:
    """The quotient of a division known to be exact."""
    quotient = exact_quotient(num, den)
    assert quotient is not None
    return quotient


def _factor(num: Int, fact: Int) -> Int | None:
    """q such that num - q*fact has no term left with fact's greatest monomial."""
    lead, by = fact.pairs[0]
    for mono, coefficient in num.pairs:
        over = divide(mono, lead)
        if over is not None and coefficient % by == 0:
            return num.make({over: coefficient // by})
    return None


def _mixed_radix(store: FactStore, num: Int, den: Int) -> Iterator[tuple[Int, Int, Int, Int]]:
    """(part, less, scale, low): num == scale*part + low, den == scale*less, 0 <= low < scale.

    Then num//den == part//less and num%den == scale*(part%less) + low.
    """
    if len(den.pairs) != 1:
        return
    for scale in _scales(num, *den.pairs[0]):
        by, mono = scale.pairs[0][1], scale.pairs[0][0]
        high = {m: c for m, c in num.pairs if c % by == 0 and divide(m, mono) is not None}
        low = num - num.make(high)
        digit = _digit(store, low, scale)
        if digit is not None:
            part = exact(num.make(high), scale) + digit
            yield part, exact(den, scale), scale, low - digit * scale


def _scales(num: Int, den_mono: Monomial, den_coefficient: int) -> list[Int]:
    """What the divisor has in common with some term, greatest first; neither 1 nor the divisor."""
    found: dict[Int, None] = {}
    for mono, coefficient in num.pairs:
        shared = common(mono, den_mono)
        by = gcd(coefficient, den_coefficient)
        trivial = (shared is ONE and by == 1) or (shared is den_mono and by == den_coefficient)
        if not trivial:
            found[num.make({shared: by})] = None
    return sorted(found, key=lambda scale: (scale.pairs[0][0].key, -scale.pairs[0][1]))
