"""Interval arithmetic: the range of an expression from the ranges of its variables."""

from __future__ import annotations

from typing import Final

from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int
from pliant.sym.store import UNBOUNDED, FactStore, Interval

_INFINITE: Final = float("inf")


def interval(store: FactStore, x: Int) -> Interval:
    """Bounds of x, each term taken by itself."""
    found = store.intervals.get(x)
    if found is None:
        found = _sum(store, x)
        if not store.visiting:
            store.intervals[x] = found
    return found


def _sum(store: FactStore, x: Int) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for mono, coefficient in x.pairs:
        term: Interval = (coefficient, coefficient)
        for atom, power in mono.factors:
            term = _times(term, _power(_atom(store, atom), power))
        low = None if low is None or term[0] is None else low + term[0]
        high = None if high is None or term[1] is None else high + term[1]
        if low is None and high is None:
            return UNBOUNDED
    return low, high


def _atom(store: FactStore, atom: Atom) -> Interval:
    match atom:
        case VarAtom(name):
            return _variable(store, name)
        case DivAtom(num, den):
            return _quotient(interval(store, num), interval(store, den))
        case ModAtom(num, den):
            return _remainder(interval(store, num), interval(store, den))
        case MinAtom(args):
            return _least([interval(store, arg) for arg in args])
        case MaxAtom(args):
            return _negative(_least([_negative(interval(store, arg)) for arg in args]))


def _variable(store: FactStore, name: str) -> Interval:
    dim = store.dim(name)
    others = [x for x in (store.uppers.get(name), store.values.get(name)) if x is not None]
    if not others or name in store.visiting:
        return dim.min, dim.max
    store.visiting.add(name)
    try:
        low, high = dim.min, dim.max
        if name in store.uppers:
            high = _smaller(high, interval(store, store.uppers[name])[1])
        if name in store.values:
            value_low, value_high = interval(store, store.values[name])
            low, high = _larger(low, value_low), _smaller(high, value_high)
        return low, high
    finally:
        store.visiting.discard(name)


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _negative(a: Interval) -> Interval:
    low, high = a
    return (None if high is None else -high), (None if low is None else -low)


def _times(a: Interval, b: Interval) -> Interval:
    a_low, a_high = a
    b_low, b_high = b
    if a_low is not None and b_low is not None and a_low >= 0 and b_low >= 0:
        if a_high is not None and b_high is not None:
            return a_low * b_low, a_high * b_high
        return a_low * b_low, (0 if a_high == 0 or b_high == 0 else None)
    corners = [_corner(x, y) for x in _ends(a) for y in _ends(b)]
    low, high = min(corners), max(corners)
    return _finite(low), _finite(high)


def _ends(a: Interval) -> tuple[int | float, int | float]:
    low, high = a
    return (-_INFINITE if low is None else low), (_INFINITE if high is None else high)


def _corner(x: int | float, y: int | float) -> int | float:
    # Infinities are floats only as markers: an int times a float could overflow.
    if x == 0 or y == 0:
        return 0
    if isinstance(x, float) or isinstance(y, float):
        return _INFINITE if (x > 0) == (y > 0) else -_INFINITE
    return x * y


def _finite(x: int | float) -> int | None:
    return None if isinstance(x, float) else x


def _power(a: Interval, power: int) -> Interval:
    if power == 1:
        return a
    result = a
    for _ in range(power - 1):
        result = _times(result, a)
    return (_larger(0, result[0]), result[1]) if power % 2 == 0 else result


def _quotient(num: Interval, den: Interval) -> Interval:
    least_den, most_den = max(den[0] or 1, 1), den[1]
    low, high = num
    if low is not None:
        low = _towards_zero(low, most_den) if low >= 0 else low // least_den
    if high is not None:
        high = high // least_den if high >= 0 else _towards_zero(high, most_den)
    return low, high


def _towards_zero(num: int, den: int | None) -> int:
    if den is None:
        return 0 if num >= 0 else -1
    return num // max(den, 1)


def _remainder(num: Interval, den: Interval) -> Interval:
    low, high = num
    least_den, most_den = max(den[0] or 1, 1), den[1]
    fixed = least_den == most_den
    if fixed and low is not None and high is not None and low // least_den == high // least_den:
        return low % least_den, high % least_den
    most = None if most_den is None else max(most_den, 1) - 1
    if low is None or low < 0:
        return 0, most
    if high is not None and high < least_den:
        return low, high
    return 0, _smaller(most, high)


def _least(args: list[Interval]) -> Interval:
    lows = [low for low, _ in args if low is not None]
    highs = [high for _, high in args if high is not None]
    return (min(lows) if len(lows) == len(args) else None), (min(highs) if highs else None)
