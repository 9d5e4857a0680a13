"""Lower bounds by elimination: the relations between variables that intervals do not see.

An atom that occurs linearly is replaced by one of its bounds, whichever makes the expression no
greater; what remains is bounded by intervals, or eliminated further. With i < n and j < 16:

    16*n - 16*i - j - 1  >=  16*n - 16*(n - 1) - j - 1  =  15 - j  >=  0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pliant.sym.atoms import (
    ONE,
    Atom,
    DivAtom,
    MaxAtom,
    MinAtom,
    ModAtom,
    VarAtom,
    divide,
    without_atom,
)
from pliant.sym.divide import exact_quotient
from pliant.sym.examples import contradicted
from pliant.sym.expr import Int, var
from pliant.sym.intervals import interval
from pliant.sym.store import FactStore

MAX_DEPTH: Final = 7
MAX_STEPS: Final = 60


def lower(store: FactStore, x: Int) -> int | None:
    """The best lower bound found for x, or None."""
    if x in store.lowers:
        return store.lowers[x]
    origin = store.shared(x)
    found = lower(origin, x) if origin else _Search(store, None).bound(x, MAX_DEPTH)
    store.lowers[x] = found
    return found


def nonneg(store: FactStore, x: Int) -> bool:
    """Whether x is provably at least 0."""
    found = store.signs.get(x)
    if found is None and (origin := store.shared(x)) is not None:
        found = store.signs[x] = nonneg(origin, x)
    elif found is None:
        low = interval(store, x)[0]
        if (low is None or low < 0) and not contradicted(store, x):
            # What few steps show (b - min(a, b)) must not depend on how long others take.
            for depth in (1, 2, MAX_DEPTH):
                low = _Search(store, 0).bound(x, depth)
                if low is not None and low >= 0:
                    break
        found = store.signs[x] = low is not None and low >= 0
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """x >= the least of `parts`, or, with a divisor, x >= floor(least / divisor)."""

    parts: tuple[Int, ...]
    divisor: Int | None = None


class _Search:
    """One bounded search; stops as soon as the target is reached."""

    __slots__ = ("best", "steps", "store", "target")

    def __init__(self, store: FactStore, target: int | None) -> None:
        self.store = store
        self.target = target
        self.steps = MAX_STEPS
        self.best: dict[Int, tuple[int, int | None]] = {}

    def bound(self, x: Int, depth: int) -> int | None:
        seen = self.best.get(x)
        if seen is not None and seen[0] >= depth:
            return seen[1]
        best = interval(self.store, x)[0]
        if best is None:
            best = _at_least_values(self.store, x)
        if depth and not x.is_const and not self._enough(best):
            self.best[x] = (depth, best)
            for step in _steps(self.store, x):
                if self.steps <= 0:
                    break
                self.steps -= 1
                found = self._follow(step, depth - 1)
                if found is not None and (best is None or found > best):
                    best = found
                    if self._enough(best):
                        break
        self.best[x] = (depth, best)
        return best

    def _enough(self, low: int | None) -> bool:
        return low is not None and self.target is not None and low >= self.target

    def _follow(self, step: _Step, depth: int) -> int | None:
        least: int | None = None
        for part in step.parts:
            low = self.bound(part, depth)
            if low is None:
                return None
            least = low if least is None else min(least, low)
        if step.divisor is None or least is None:
            return least
        if step.divisor.is_const:
            return least // step.divisor.value
        # The divisor is at least 1, so dividing moves the bound towards 0 but not past it.
        return min(least, 0)


def _at_least_values(store: FactStore, x: Int) -> int | None:
    """The polynomial's value where every variable has its least one, if it is nowhere less: in
    terms of how much larger each is, no term is negative. A product of extents that is multiplied
    out: n*(2*h - 1)*(2*w - 1) = n*(4*h'*w' + 2*h' + 2*w' + 1), with h = h' + 1, w = w' + 1.
    """
    lows: dict[str, Int] = {}
    for mono, _ in x.pairs:
        for atom, _ in mono.factors:
            if not isinstance(atom, VarAtom):
                return None
            low = interval(store, var(atom.name))[0]
            if low is None:
                return None
            if low:
                lows[atom.name] = var(atom.name) + low
    if not lows:
        return None
    terms = x.subs(lows).pairs
    if any(coefficient < 0 for mono, coefficient in terms if mono is not ONE):
        return None
    return next((coefficient for mono, coefficient in terms if mono is ONE), 0)


def _steps(store: FactStore, x: Int) -> Iterator[_Step]:
    atoms = dict.fromkeys(atom for mono, _ in x.pairs for atom, _ in mono.factors)
    order = store.order if len(atoms) > 1 else {}
    for atom in sorted(atoms, key=lambda atom: _by_promise(order, atom)):
        yield from _eliminations(store, x, atom)
    names = x.names
    for fact in store.nonneg:
        if not names.isdisjoint(fact.names):
            yield from _subtractions(store, x, fact)


def _by_promise(order: Mapping[str, int], atom: Atom) -> tuple[int, int]:
    """Extremes first: they are there to be undone by one of their arguments. Then variables, and
    those first that were declared last: their bounds mention others, which may cancel."""
    kind = 0 if isinstance(atom, MinAtom | MaxAtom) else 1 if isinstance(atom, VarAtom) else 2
    return kind, -max((order.get(name, -1) for name in atom.names), default=-1)


def _eliminations(store: FactStore, x: Int, atom: Atom) -> Iterator[_Step]:
    if isinstance(atom, VarAtom) and atom.name not in store.uppers and not _repeats(x, atom):
        return  # intervals are exact here
    slope, rest, count = _linear(x, atom)
    low, high = interval(store, slope)
    if low is not None and low >= 0:
        yield from _from_below(store, atom, slope, rest, count)
    elif high is not None and high <= 0:
        yield from _from_above(store, atom, slope, rest, count)
    if isinstance(atom, MinAtom | MaxAtom):
        yield _Step(tuple(slope * arg + rest for arg in atom.args))


def _repeats(x: Int, atom: VarAtom) -> bool:
    return sum(atom.name in mono.names for mono, _ in x.pairs) > 1


def _linear(x: Int, atom: Atom) -> tuple[Int, Int, int]:
    """(a, b, n): x == a*atom + b, where n terms of x have the atom (a and b may mention it too)."""
    slope = {}
    rest = {}
    for mono, coefficient in x.pairs:
        over = without_atom(mono, atom)
        if over is None:
            rest[mono] = coefficient
        else:
            slope[over] = coefficient
    return x.make(slope), x.make(rest), len(slope)


def _from_below(store: FactStore, atom: Atom, slope: Int, rest: Int, count: int) -> Iterator[_Step]:
    """slope >= 0: replace the atom by something not greater."""
    match atom:
        case VarAtom(name):
            low = interval(store, var(name))[0]
            if low is not None and count > 1:
                yield _Step((slope * low + rest,))
        case DivAtom(num, den):
            yield _divided(slope, rest, num - den + 1, den)
        case ModAtom():
            yield _Step((rest,))
        case MaxAtom(args):
            yield from (_Step((slope * arg + rest,)) for arg in args)
        case MinAtom():
            pass


def _from_above(store: FactStore, atom: Atom, slope: Int, rest: Int, count: int) -> Iterator[_Step]:
    """slope <= 0: replace the atom by something not smaller."""
    match atom:
        case VarAtom(name):
            if name in store.uppers:
                yield _Step((slope * store.uppers[name] + rest,))
            high = interval(store, var(name))[1]
            if high is not None and count > 1:
                yield _Step((slope * high + rest,))
        case DivAtom(num, den):
            yield _divided(slope, rest, num, den)
        case ModAtom(num, den):
            yield _Step((slope * (den - 1) + rest,))
            low = interval(store, num)[0]
            if low is not None and low >= 0:
                yield _Step((slope * num + rest,))
        case MinAtom(args):
            yield from (_Step((slope * arg + rest,)) for arg in args)
        case MaxAtom():
            pass


def _divided(slope: Int, rest: Int, num: Int, den: Int) -> _Step:
    """slope*(a//b) + rest, where num bounds b*(a//b) on the right side."""
    whole = exact_quotient(slope, den)
    if whole is not None:
        return _Step((whole * num + rest,))
    # x*b >= y means x >= ceil(y/b), which is floor((y + b - 1)/b): what y has of b may cancel.
    return _Step((slope * num + rest * den + den - 1,), den)


def _subtractions(store: FactStore, x: Int, fact: Int) -> Iterator[_Step]:
    """x >= x - q*fact for q >= 0; q is chosen to cancel a term."""
    for mono, coefficient in fact.pairs:
        if mono is ONE:
            continue
        for term, have in x.pairs:
            # The numbers first: they refuse most pairs and cost next to nothing.
            if have * coefficient <= 0 or have % coefficient:
                continue
            over = divide(term, mono)
            if over is None:
                continue
            factor = x.make({over: have // coefficient})
            low = interval(store, factor)[0]
            if low is not None and low >= 0:
                yield _Step((x - factor * fact,))
