"""What is known of a function's symbols."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pliant.graph.function import Function
from pliant.sym.facts import Facts


def facts_of(function: Function) -> Facts:
    """The ranges of its dimensions and the equalities that its calls keep, in a set of their own.

    Solving equalities between long shapes takes seconds, and every pass begins with them: they are
    solved once."""
    units = tuple(_units(function).items())
    return _solved(function.dims, function.equalities, units).copy()


def _units(function: Function) -> dict[str, int]:
    """Of how many times a symbol the sizes of parameters are: 32 of h for images of 32*h."""
    found: dict[str, int] = {}
    for param in function.params:
        for size in param.shape:
            if len(size.names) == 1:
                (name,) = size.names
                line = size.linear(name)
                if line is not None and line[0].is_const and line[0].value > 0:
                    found[name] = min(line[0].value, found.get(name, line[0].value))
    return found


@lru_cache(4)
def _solved(
    dims: tuple[Any, ...], equalities: tuple[Any, ...], units: tuple[tuple[str, int], ...]
) -> Facts:
    facts, unit = Facts(), dict(units)
    for name, known in dims:
        facts.declare(name, known.min, known.max, known.multiple, known.likely, unit.get(name, 1))
    for a, b, *_ in equalities:
        facts.assume_equal(a, b)
    return facts
