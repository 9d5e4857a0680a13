"""Floor division and remainder of symbolic integers: the rules that need no facts.

    (4*x + 5) // 4  ->  x + 1                  (a*b + c*b) // b  ->  a + c
    (x//4 + y) // n ->  (x + 4*y) // (4*n)     (6*x + 3) % 4     ->  2*(x + 1)%2 + 1
    (x % 32) // 4   ->  (x // 4) % 8           (x % 32) % 4      ->  x % 4
    (x//9 + x%9)//4 ->  x//4 - 2*(x//9)        (x//9 + x%9) % 4  ->  x % 4
    (x//9%3 + x%9)//4 ->  x%27//4 - 2*(x//9%3), and so on

Every divisor, and every factor of one, is assumed to be at least 1 (a constant divisor may be
negative; the sign moves into the numerator). Nothing is assumed of numerators: rounding is towards
minus infinity, as in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING, Final

from pliant.sym.atoms import (
    HAS_MOD,
    ONE,
    DivAtom,
    MaxAtom,
    MinAtom,
    ModAtom,
    Monomial,
    common,
    divide,
    monomial,
    multiply,
)

if TYPE_CHECKING:
    from pliant.sym.expr import Int

Sum = dict[Monomial, int]

_QUOTIENTS: Final[dict[tuple[Int, Int], Int]] = {}
_REMAINDERS: Final[dict[tuple[Int, Int], Int]] = {}


def floordiv(num: Int, den: Int) -> Int:
    """`num // den` in normal form."""
    found = _QUOTIENTS.get((num, den))
    if found is None:
        found = _QUOTIENTS[num, den] = _floordiv(num, den)
    return found


def modulo(num: Int, den: Int) -> Int:
    """`num % den` in normal form."""
    found = _REMAINDERS.get((num, den))
    if found is None:
        found = _REMAINDERS[num, den] = _modulo(num, den)
    return found


def exact_quotient(num: Int, den: Int) -> Int | None:
    """The polynomial q with q*den == num, or None if there is none."""
    quotient, rest = _long_division(num, den)
    return quotient if not rest.pairs else None


def _floordiv(num: Int, den: Int) -> Int:
    if den.is_const:
        if den.value <= 0:
            return floordiv(-num, -den) if den.value else _zero_divisor(num)
        if den.value == 1:
            return num
    whole, rest = split(num, den)
    if not rest.pairs:
        return whole
    more, joined = _joined(rest, den)
    if joined is not rest:
        return whole + more + floordiv(joined, den)
    part, less, _, _ = _without_content(rest, den)
    if less is not den:
        return whole + floordiv(part, less)
    if rest.is_const and den.is_const:
        return whole + rest.value // den.value
    return whole + _quotient_atom(rest, den)


def _modulo(num: Int, den: Int) -> Int:
    if den.is_const:
        if den.value <= 0:
            return -modulo(-num, -den) if den.value else _zero_divisor(num)
        num = _without_inner_mods(num, den.value)
    _, rest = split(num, den)
    if not rest.pairs:
        return rest
    _, joined = _joined(rest, den)
    if joined is not rest:
        return modulo(joined, den)
    part, less, low, scale = _without_content(rest, den)
    if less is not den:
        return scale * modulo(part, less) + low
    if rest.is_const and den.is_const:
        return rest.make({ONE: rest.value % den.value})
    return _remainder_atom(rest, den)


def _zero_divisor(num: Int) -> Int:
    raise ZeroDivisionError(f"the divisor of {num} is 0")


def split(num: Int, den: Int) -> tuple[Int, Int]:
    """(q, r) with num == q*den + r; no term of r is divisible by den, signs are kept."""
    if den.is_const:
        return _split_by(num, den.value, ONE)
    if len(den.pairs) == 1:
        ((mono, coefficient),) = den.pairs
        if coefficient > 0:
            return _split_by(num, coefficient, mono)
    quotient, rest = _long_division(num, den)
    if len(rest.pairs) < len(num.pairs):
        return quotient, rest
    return num.make({}), num


def _split_by(num: Int, by: int, mono: Monomial) -> tuple[Int, Int]:
    quotient: Sum = {}
    rest: Sum = {}
    for term, coefficient in num.pairs:
        over = divide(term, mono)
        if over is None:
            rest[term] = coefficient
            continue
        # Only a constant is rounded down: -x//4 is better left alone than made -x + (3*x)//4.
        whole = coefficient // by if over is ONE or coefficient >= 0 else -(-coefficient // by)
        if whole:
            quotient[over] = whole
        if coefficient != whole * by:
            rest[term] = coefficient - whole * by
    return num.make(quotient), num.make(rest)


def _long_division(num: Int, den: Int) -> tuple[Int, Int]:
    lead, by = den.pairs[0]
    quotient: Sum = {}
    left: Sum = dict(num.pairs)
    pending = [mono for mono, _ in num.pairs]
    while pending:
        pending.sort(key=lambda mono: mono.key, reverse=True)
        term = pending.pop()
        over = divide(term, lead)
        coefficient = left.get(term, 0)
        if over is None or not coefficient or coefficient % by:
            continue
        factor = coefficient // by
        quotient[over] = quotient.get(over, 0) + factor
        for mono, c in den.pairs:
            product = multiply(mono, over)
            if product not in left:
                pending.append(product)
            left[product] = left.get(product, 0) - factor * c
    return num.make(quotient), num.make(left)


def _joined(num: Int, den: Int) -> tuple[Int, Int]:
    """(q, r) with num == q*den + r, where r has x for x%d + a*(x//d), or x%(d*e) for x%d +
    a*((x//d)%e), if there is such."""
    nothing = num.make({})
    if not den.is_const or not num.flags & HAS_MOD:
        return nothing, num
    for mono, coefficient in num.pairs:
        atom = mono.factors[0][0] if mono.degree == 1 else None
        if not isinstance(atom, ModAtom) or not atom.den.is_const:
            continue
        for upper, whole in _next_digits(num, atom):
            rest = dict(num.pairs)
            excess = rest.pop(upper, 0) - coefficient * atom.den.value
            if len(rest) < len(num.pairs) and excess % den.value == 0:
                del rest[mono]
                more = num.make({upper: excess // den.value})
                return more, num.make(rest) + coefficient * whole
    return nothing, num


def _next_digits(num: Int, atom: ModAtom) -> Iterator[tuple[Monomial, Int]]:
    """With x%d: what x//d or a digit of it may be in `num`, and what both together are."""
    yield monomial(((DivAtom(atom.num, atom.den), 1),)), atom.num
    quotient = floordiv(atom.num, atom.den)
    for mono, _ in num.pairs:
        digit = mono.factors[0][0] if mono.degree == 1 else None
        if isinstance(digit, ModAtom) and digit.num == quotient and digit.den.is_const:
            yield mono, modulo(atom.num, atom.den * digit.den)


def _without_content(num: Int, den: Int) -> tuple[Int, Int, int, Int]:
    """(part, den', low, scale): num//den == part//den' and num%den == scale*(part%den') + low."""
    g = gcd(*(c for _, c in den.pairs), *(c for mono, c in num.pairs if mono is not ONE))
    shared = den.pairs[0][0]
    for mono, _ in (*den.pairs[1:], *num.pairs):
        shared = common(shared, mono)
    if g == 1 and shared is ONE:
        return num, den, 0, num.make({ONE: 1})
    low = num.pairs[-1][1] % g if num.pairs[-1][0] is ONE else 0
    part = {_over(mono, shared): c // g for mono, c in num.pairs}
    less = {_over(mono, shared): c // g for mono, c in den.pairs}
    return num.make(part), num.make(less), low, num.make({shared: g})


def _over(mono: Monomial, shared: Monomial) -> Monomial:
    quotient = divide(mono, shared)
    assert quotient is not None
    return quotient


def _without_inner_mods(num: Int, den: int) -> Int:
    """Replace c*(x % m) by c*x where den divides c*m: they are equal modulo den."""
    for mono, coefficient in num.pairs:
        for atom, power in mono.factors:
            if not isinstance(atom, ModAtom) or power != 1 or not atom.den.is_const:
                continue
            if coefficient * atom.den.value % den == 0:
                others = _over(mono, monomial(((atom, 1),)))
                lift = num.make({others: coefficient}) * (
                    atom.num - num.make({monomial(((atom, 1),)): 1})
                )
                return _without_inner_mods(num + lift, den)
    return num


def _quotient_atom(num: Int, den: Int) -> Int:
    mono, coefficient = num.pairs[0]
    if coefficient == 1 and mono.degree == 1:
        atom = mono.factors[0][0]
        if isinstance(atom, DivAtom):
            if len(num.pairs) == 1:
                return floordiv(atom.num, atom.den * den)
            if num.pairs[1][0] is ONE and atom.den.is_const and den.is_const:
                return floordiv(atom.num + atom.den * num.pairs[1][1], atom.den * den)
        elif isinstance(atom, ModAtom) and len(num.pairs) == 1:
            if atom.den.is_const and den.is_const and atom.den.value <= den.value:
                return num.make({})
            outer = exact_quotient(atom.den, den)
            if outer is not None:
                return modulo(floordiv(atom.num, den), outer)
    inner = _only_quotient(num)
    if inner is not None:
        rest = num - num.make({monomial(((inner, 1),)): 1})
        own = {mono for mono, _ in inner.num.pairs}
        if not den.is_const or own.issuperset(mono for mono, _ in rest.pairs):
            return floordiv(inner.num + inner.den * rest, inner.den * den)
    return num.make({monomial(((DivAtom(num, den), 1),)): 1})


def _only_quotient(num: Int) -> DivAtom | None:
    """x // 5, where num is x // 5 + rest and there is one such: what a division of 5*rest + x by
    5*den comes to, done in two steps."""
    found: DivAtom | None = None
    for mono, coefficient in num.pairs:
        if coefficient == 1 and mono.degree == 1:
            atom = mono.factors[0][0]
            if isinstance(atom, DivAtom) and atom.den.is_const:
                if found is not None:
                    return None
                found = atom
    return found


def _remainder_atom(num: Int, den: Int) -> Int:
    atom = num.sole_atom
    if isinstance(atom, ModAtom):
        if atom.den.is_const and den.is_const and atom.den.value <= den.value:
            return num
        if exact_quotient(atom.den, den) is not None:
            return modulo(atom.num, den)
    return num.make({monomial(((ModAtom(num, den), 1),)): 1})


def divisors(x: Int) -> Iterator[Int]:
    """What it divides by, numbers left out."""
    for _, factors in x.terms():
        for atom, _ in factors:
            match atom:
                case DivAtom(num, den) | ModAtom(num, den):
                    if not den.is_const:
                        yield den
                    yield from divisors(num)
                    yield from divisors(den)
                case MinAtom(args) | MaxAtom(args):
                    for a in args:
                        yield from divisors(a)
