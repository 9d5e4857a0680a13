"""Values that variables may have, to see in no time that something cannot be proved.

A proof that fails has tried everything. Most claims that do not hold fail for some small or some
large values: one assignment that agrees with every fact and contradicts the claim spares the
search, and changes no answer, since what is proved holds for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from pliant.sym.expr import Int
from pliant.sym.store import FactStore, Rule

STEPS: Final = ((0, 0), (3, 1), (1000, 37))
"""How far above its least value a variable is, in its multiples, and each further than the last."""


def contradicted(store: FactStore, x: Int) -> bool:
    """Whether x is less than 0 for values that agree with all facts."""
    for values in _known_examples(store):
        with contextlib.suppress(ZeroDivisionError):
            if x.eval(values) < 0:
                return True
    return False


def _known_examples(store: FactStore) -> tuple[_Values, ...]:
    if store.examples is None:
        origin = store.origin()
        if origin is None:
            begun = [_Values(first, step) for first, step in STEPS]
            found = [_all_values(store, v) for v in begun]
        else:
            found = [_own_values(store, v) for v in _known_examples(origin)]
        store.examples = tuple(v for v in found if v is not None)
    return store.examples


class _Values(dict[str, int]):
    """Values by name, `first` and further multiples above the least, `step` more for each; a
    variable that no fact declares may have any."""

    def __init__(self, first: int, step: int) -> None:
        super().__init__()
        self.first, self.step = first, step

    def __missing__(self, name: str) -> int:
        return self.first + 1


def _all_values(store: FactStore, values: _Values) -> _Values | None:
    """With values of all variables; None where they do not agree with the facts."""
    with contextlib.suppress(ZeroDivisionError):
        for at, name in enumerate(store.dims):
            if name not in store.values:
                values[name] = _value(store, values, name, at)
        for name, solved in store.values.items():
            values[name] = solved.eval(values)
        facts = (store.nonneg, store.multiples)
        if _agrees(store, values, store.dims, *facts) and _obeys(store.rules, values):
            return values
    return None


def _own_values(store: FactStore, known: _Values) -> _Values | None:
    """With values of those variables of which the store's origin does not know; None where these
    do not agree with what is known of them."""
    values = _Values(known.first, known.step)
    values.update(known)
    with contextlib.suppress(ZeroDivisionError):
        names = [name for name in store.dims if name in store.own]
        for at, name in enumerate(store.dims):
            if name in store.own and name not in store.values:
                values[name] = _value(store, values, name, at)
        for name in store.own & store.values.keys():
            values[name] = store.values[name].eval(values)
        nonneg = [x for x in store.nonneg if not x.names.isdisjoint(store.own)]
        multiples = [(x, k) for x, k in store.multiples if not x.names.isdisjoint(store.own)]
        if _agrees(store, values, names, nonneg, multiples):
            return values
    return None


def _value(store: FactStore, values: _Values, name: str, at: int) -> int:
    """That of the variable declared as number `at`, given those before it."""
    dim = store.dims[name]
    most = dim.max
    if name in store.uppers:
        upper = store.uppers[name].eval(values)
        most = upper if most is None else min(most, upper)
    least = dim.min if dim.min is not None else 0 if most is None else min(0, most)
    value = least + (values.first + at * values.step) * dim.multiple
    return value if most is None else min(value, most) // dim.multiple * dim.multiple


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
