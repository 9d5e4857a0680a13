"""Random integer programs, built as expressions or as plain numbers: the oracle of these tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from pliant.sym.expr import maximum, minimum, var

Tree = Any
"""A name, a number, or (operator, left, right)."""

NAMES = ("x", "y", "z", "n", "m")
POSITIVE = ("n", "m")


def _divisors() -> st.SearchStrategy[Tree]:
    name = st.sampled_from(POSITIVE)
    small = st.integers(1, 12)
    return st.one_of(
        small,
        st.sampled_from((2, 4, 8, 16)),
        name,
        st.tuples(st.sampled_from("*+"), name, small),
        st.just(("*", "n", "m")),
    )


def trees(max_leaves: int = 10) -> st.SearchStrategy[Tree]:
    """Programs over NAMES whose divisors are at least 1 as long as `n` and `m` are."""
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(-20, 20))

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%"]), inner, _divisors()),
            st.tuples(st.just("+"), st.tuples(st.just("*"), inner, _divisors()), inner),
        )

    return st.recursive(leaves, grow, max_leaves=max_leaves)


def valuations() -> st.SearchStrategy[dict[str, int]]:
    """Values for NAMES: any integers, but at least 1 for those that divide."""
    values = {name: st.integers(1 if name in POSITIVE else -50, 50) for name in NAMES}
    return st.fixed_dictionaries(values)


def build(tree: Tree, values: Mapping[str, int] | None = None) -> Any:
    """The tree's value: a number given values, else an expression."""
    if isinstance(tree, str):
        return var(tree) if values is None else values[tree]
    if isinstance(tree, int):
        return tree
    operator, left, right = tree[0], build(tree[1], values), build(tree[2], values)
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case "%":
            return left % right
        case "min":
            return minimum(left, right) if values is None else min(left, right)
        case _:
            return maximum(left, right) if values is None else max(left, right)
