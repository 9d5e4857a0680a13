"""Values that variables may have, to see in no time that something cannot be proved.

A proof that fails has tried everything. Most claims that do not hold fail for some small or some
large values: one assignment that agrees with every fact and contradicts the claim spares the
search, and changes no answer, since what is proved holds for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pliant.sym.expr import Int
from pliant.sym.store import FactStore, Interval, Rule

STEPS: Final = ((0, 0, True), (1, 0, False), (3, 1, False), (1000, 37, False), (1000, 37, True))
"""How far above its least value a variable is, in its multiples; each further than the last; and
whether loops, variables that a size bounds, are at their first iteration or at their last one."""


def contradicted(store: FactStore, x: Int) -> bool:
    """Whether x is less than 0 for values that agree with all facts."""
    for values in _known_examples(store):
        with contextlib.suppress(ZeroDivisionError):
            if x.eval(values) < 0:
                return True
    return False


def _known_examples(store: FactStore) -> tuple[_Values, ...]:
    """Kept, and from an origin to its copies; what variables came since have values chosen now."""
    if store.examples is None:
        origin = store.origin()
        if origin is None:
            store.examples = tuple(_Values(*steps) for steps in STEPS)
            store.unsettled = {*store.dims, *store.values}
        else:
            store.examples = _known_examples(origin)
            store.unsettled = set(store.own)
    if store.unsettled:
        store.examples = tuple(_settled(store, store.examples))
        store.unsettled = set()
    return store.examples


class _Values(dict[str, int]):
    """Values by name, `first` and further multiples above the least, `step` more for each; where a
    size bounds it the least of all, if `at_first`, or the greatest. A variable that no fact
    declares may have any."""

    def __init__(self, first: int, step: int, at_first: bool) -> None:
        super().__init__()
        self.first, self.step, self.at_first = first, step, at_first

    def __missing__(self, name: str) -> int:
        return self.first + 1

    def copy(self) -> _Values:
        new = _Values(self.first, self.step, self.at_first)
        new.update(self)
        return new


def _settled(store: FactStore, examples: Iterable[_Values]) -> Iterator[_Values]:
    """Those that agree with what is known of the variables that have no values yet, with values of
    these."""
    new, order = store.unsettled, store.order
    names = [name for name in store.dims if name in new]
    nonneg = [x for x in store.nonneg if not x.names.isdisjoint(new)]
    multiples = [(x, k) for x, k in store.multiples if not new.isdisjoint(x.names | k.names)]
    rules = [r for r in store.rules if not new.isdisjoint(r.lead.names | r.rest.names)]
    bounding: dict[str, list[Int]] = {}  # by the variable that was declared last
    for x in nonneg:
        bounding.setdefault(max(x.names, key=lambda name: order.get(name, -1)), []).append(x)
    for known in examples:
        values = known.copy()
        with contextlib.suppress(ZeroDivisionError):
            for name in names:
                if name not in store.values:
                    facts = bounding.get(name, ())
                    values[name] = _value(store, values, name, order[name], facts)
            for name in new & store.values.keys():
                values[name] = store.values[name].eval(values)
            if _agrees(store, values, names, nonneg, multiples) and _obeys(rules, values):
                yield values


def _value(store: FactStore, values: _Values, name: str, at: int, facts: Iterable[Int]) -> int:
    """That of the variable declared as number `at`, given those before it: within its range and,
    where `facts` of them all say how large it is at least or at most, within that."""
    low, high = _range(store, values, name, facts)
    multiple = store.dims[name].multiple
    at_least = low if low is not None else 0 if high is None else min(0, high)
    least = -(-at_least // multiple) * multiple
    most = None if high is None else high // multiple * multiple
    if name in store.uppers and most is not None:
        return min(least, most) if values.at_first else most
    value = least + (values.first + at * values.step) * multiple
    return value if most is None else min(value, most)


def _range(store: FactStore, values: _Values, name: str, facts: Iterable[Int]) -> Interval:
    """(least, greatest) value of a variable, given those before it; None where it has none."""
    dim = store.dims[name]
    least = [] if dim.min is None else [dim.min]
    most = [] if dim.max is None else [dim.max]
    if name in store.uppers:
        most.append(store.uppers[name].eval(values))
    for fact in facts:
        if (line := fact.linear(name)) is not None:
            slope, rest = (x.eval(values) for x in line)
            if slope > 0:
                least.append(-(rest // slope))
            elif slope < 0:
                most.append(rest // -slope)
    return max(least, default=None), min(most, default=None)


def _agrees(
    store: FactStore, values: Mapping[str, int], names: Iterable[str], nonneg: Iterable[Int],
    multiples: Iterable[tuple[Int, Int]],
) -> bool:  # fmt: skip
    for name in names:
        dim, value = store.dims[name], values[name]
        if (dim.min is not None and value < dim.min) or (dim.max is not None and value > dim.max):
            return False
        if value % dim.multiple:
            return False
        if name in store.uppers and value > store.uppers[name].eval(values):
            return False
    return all(x.eval(values) >= 0 for x in nonneg) and all(
        x.eval(values) % k.eval(values) == 0 for x, k in multiples
    )


def _obeys(rules: Iterable[Rule], values: Mapping[str, int]) -> bool:
    return all(
        rule.rest.make({rule.lead: rule.coefficient}).eval(values) == rule.rest.eval(values)
        for rule in rules
    )
