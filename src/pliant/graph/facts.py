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
    return _solved(function.dims, function.equalities).copy()


@lru_cache(4)
def _solved(dims: tuple[Any, ...], equalities: tuple[Any, ...]) -> Facts:
    facts = Facts()
    for name, known in dims:
        facts.declare(name, known.min, known.max, known.multiple, known.likely)
    for a, b, *_ in equalities:
        facts.assume_equal(a, b)
    return facts
