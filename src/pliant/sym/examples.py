"""Values that variables may have, to see in no time that something cannot be proved.

A proof that fails has tried everything. Most claims that do not hold fail for some small or some
large values: one assignment that agrees with every fact and contradicts the claim spares the
search, and changes no answer, since what is proved holds for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from pliant.sym.expr import Int
from pliant.sym.store import FactStore

STEPS: Final = ((0, 0), (3, 1), (1000, 37))
"""How far above its least value a variable is, in its multiples, and each further than the last."""


def contradicted(store: FactStore, x: Int) -> bool:
    """Whether x is less than 0 for values that agree with all facts."""
    if store.examples is None:
        store.examples = tuple(_examples(store))
    for values in store.examples:
        with contextlib.suppress(ZeroDivisionError):
            if x.eval(values) < 0:
                return True
    return False


def _examples(store: FactStore) -> Iterator[Mapping[str, int]]:
    for first, step in STEPS:
        with contextlib.suppress(ZeroDivisionError):
            values = _values(store, first, step)
            if _agrees(store, values):
                yield values


class _Values(dict[str, int]):
    """Values by name; a variable that no fact declares may have any."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self._others = others

    def __missing__(self, name: str) -> int:
        return self._others


def _values(store: FactStore, first: int, step: int) -> _Values:
    values = _Values(first + 1)
    for at, (name, dim) in enumerate(store.dims.items()):
        if name in store.values:
            continue
        most = dim.max
        if name in store.uppers:
            upper = store.uppers[name].eval(values)
            most = upper if most is None else min(most, upper)
        least = dim.min if dim.min is not None else 0 if most is None else min(0, most)
        value = least + (first + at * step) * dim.multiple
        values[name] = value if most is None else min(value, most) // dim.multiple * dim.multiple
    for name, solved in store.values.items():
        values[name] = solved.eval(values)
    return values


def _agrees(store: FactStore, values: Mapping[str, int]) -> bool:
    for name, dim in store.dims.items():
        value = values[name]
        if (dim.min is not None and value < dim.min) or (dim.max is not None and value > dim.max):
            return False
        if value % dim.multiple:
            return False
    return (
        all(values[name] <= upper.eval(values) for name, upper in store.uppers.items())
        and all(x.eval(values) >= 0 for x in store.nonneg)
        and all(x.eval(values) % k.eval(values) == 0 for x, k in store.multiples)
        and all(
            rule.rest.make({rule.lead: rule.coefficient}).eval(values) == rule.rest.eval(values)
            for rule in store.rules
        )
    )
