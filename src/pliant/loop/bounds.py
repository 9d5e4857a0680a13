"""Symbolic ranges of integer expressions when some variables run over their loops.

    ranges = {"i": 8}                  0 <= i < 8
    span(16*o + i, ranges, facts)      (16*o, 16*o + 7)

Ends are exact where the expression is linear in the variables, else safe: never too tight. Loops
are taken to run at least once, since an access in an empty loop does not happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pliant.loop.stmt import For
from pliant.sym.atoms import (
    HAS_EXTREME,
    ONE,
    Atom,
    DivAtom,
    MaxAtom,
    MinAtom,
    ModAtom,
    VarAtom,
    common,
    monomial,
)
from pliant.sym.divide import exact_quotient
from pliant.sym.expr import Int, const, maximum, minimum, rebuild_atom
from pliant.sym.facts import Facts

Span = tuple[Int, Int]
Ranges = Mapping[str, Int]
_ZERO = const(0)


def span(x: Int, ranges: Ranges, facts: Facts) -> Span | None:
    """(least, greatest) value of `x` over all values of the variables in `ranges`.

    The ends mention none of them. None where no finite range was found.
    """
    if x.names.isdisjoint(ranges):
        return x, x
    for name in sorted(x.names & ranges.keys()):
        if not ranges[name].names.isdisjoint(ranges):
            found = _dependent_span(x, name, ranges, facts)
            if found is not None:
                return found
    low: Int = _ZERO
    high: Int = _ZERO
    for coefficient, factors in x.terms():
        term = _term_span(coefficient, factors, ranges, facts)
        if term is None:
            return None
        low, high = low + term[0], high + term[1]
    return low, high


def _dependent_span(x: Int, name: str, ranges: Ranges, facts: Facts) -> Span | None:
    """The span where the extent of the loop `name` depends on other loops: its ends are put in
    before theirs, so that what they have in common cancels.

        8*o + i, i < min(8, n - 8*o)        at most 8*o + (n - 8*o) - 1, which is n - 1
    """
    line = x.linear(name)
    if line is None or not line[0].names.isdisjoint(ranges):
        return None
    slope, rest = line
    if any(name in ranges[other].names for other in x.names & ranges.keys()):
        return None
    down = not facts.nonneg(slope)
    if down and not facts.nonneg(-slope):
        return None
    near = span(rest, ranges, facts)
    atom = ranges[name].sole_atom
    tops = atom.args if isinstance(atom, MinAtom) else (ranges[name],)
    spans = [span(rest + slope * (top - 1), ranges, facts) for top in tops]
    far = [s[0] if down else s[1] for s in spans if s is not None]
    if near is None or not far:
        return None
    return (maximum(*far), near[1]) if down else (near[0], minimum(*far))


def _term_span(
    coefficient: int, factors: tuple[tuple[Atom, int], ...], ranges: Ranges, facts: Facts
) -> Span | None:
    scale: Int = const(coefficient)
    varying: list[Span] = []
    for atom, power in factors:
        value = rebuild_atom(atom, lambda inner: inner)
        if value.names.isdisjoint(ranges):
            scale = scale * value**power
            continue
        ends = _atom_span(atom, ranges, facts)
        if ends is None:
            return None
        varying += [ends] * power
    if not varying:
        return scale, scale
    if len(varying) > 1 and not all(facts.nonneg(low) for low, _ in varying):
        return None
    low = reduce(lambda a, b: a * b, (low for low, _ in varying))
    high = reduce(lambda a, b: a * b, (high for _, high in varying))
    if facts.nonneg(scale):
        return scale * low, scale * high
    if facts.nonneg(-scale):
        return scale * high, scale * low
    return None


def _atom_span(atom: Atom, ranges: Ranges, facts: Facts) -> Span | None:
    match atom:
        case VarAtom(name):
            last = ranges[name] - 1
            if last.names.isdisjoint(ranges):
                return _ZERO, last
            within = span(last, ranges, facts)
            return None if within is None else (_ZERO, within[1])
        case DivAtom(num, den):
            ends = span(num, ranges, facts)
            if ends is None or not den.names.isdisjoint(ranges):
                return None
            return ends[0] // den, ends[1] // den
        case ModAtom(num, den):
            return _mod_span(num, den, ranges, facts)
        case MinAtom(args) | MaxAtom(args):
            pick = minimum if isinstance(atom, MinAtom) else maximum
            spans = [span(a, ranges, facts) for a in args]
            known = [s for s in spans if s is not None]
            if len(known) != len(spans):
                return None
            return pick(*(s[0] for s in known)), pick(*(s[1] for s in known))


def _mod_span(num: Int, den: Int, ranges: Ranges, facts: Facts) -> Span | None:
    if not den.names.isdisjoint(ranges):
        return None
    ends = span(num, ranges, facts)
    if ends is not None and facts.equal(ends[0] // den, ends[1] // den):
        return ends[0] % den, ends[1] % den
    return _ZERO, den - 1


def union(spans: Iterable[Span], facts: Facts) -> Span:
    """The smallest range that holds all of them; ends that the facts can compare are compared."""
    first, *others = spans
    low, high = first
    for a, b in others:
        low = low if facts.le(low, a) else a if facts.le(a, low) else minimum(low, a)
        high = high if facts.le(b, high) else b if facts.le(high, b) else maximum(high, b)
    return low, high


def declare_loops(facts: Facts, loops: Iterable[For]) -> Facts:
    """The facts inside these loops: their variables' ranges, and that each runs at least once."""
    inside = facts.copy()
    for loop in loops:
        inside.declare_index(loop.var, loop.extent)
        try:
            for part in _implied(loop.extent, inside):
                inside.assume_le(1, part)
        except ValueError:  # the loop never runs: anything holds inside
            continue
    return inside


def _implied(x: Int, facts: Facts) -> list[Int]:
    """Integers that are at least 1 if `x` is, and of use: of n*m + n that is n and m + 1; of
    (n + 7)//8 it is n. The extents of clipped tiles tell nothing of the sizes."""
    lead, *others = x.pairs or ((ONE, 0),)
    if isinstance(lead[0].atom, DivAtom) and lead[1] == 1 and all(m is ONE for m, _ in others):
        num, den = lead[0].atom.num, lead[0].atom.den
        more = x - x.make({lead[0]: 1})
        x = num - (1 - more) * den + 1
    if x.flags & HAS_EXTREME:
        return []
    shared = reduce(common, (mono for mono, _ in x.pairs)) if x.pairs else ONE
    parts = [x.make({monomial(((atom, 1),)): 1}) for atom, _ in shared.factors]
    if not parts or not all(facts.nonneg(p) for p in parts):
        return [x]
    rest = exact_quotient(x, x.make({shared: 1}))
    return [x] if rest is None else [*parts, rest]
