"""Nested choices as one, and what they certainly need (`ir.choices`)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pliant.base.dtypes import boolean, f32
from pliant.ir.choices import certain, one_choice, shared
from pliant.ir.evaluator import Env, Evaluator
from pliant.ir.expr import Binary, Expr, Select, Var, const

X, Y, Z = (Var(n, f32) for n in "xyz")
C, D = (Var(n, boolean) for n in "cd")
NESTED = (
    Select(C, X, Select(D, Y, X)),
    Select(C, X, Select(D, X, Y)),
    Select(C, Select(D, Y, X), X),
    Select(C, Select(D, X, Y), X),
)


def _nothing_is_loaded(source: Any) -> Any:
    raise AssertionError(source)


def _value(x: Expr, values: dict[str, Any]) -> Any:
    return Evaluator(_nothing_is_loaded).value(x)(Env(values))


@pytest.mark.parametrize("choice", NESTED)
def test_one_choice_means_the_same(choice: Select) -> None:
    one = one_choice(choice)
    assert not isinstance(one.a, Select) and not isinstance(one.b, Select)
    for c, d in itertools.product((False, True), repeat=2):
        values = {"x": np.float32(1), "y": np.float32(2), "c": np.bool_(c), "d": np.bool_(d)}
        assert _value(one, values) == _value(choice, values)


def test_other_choices_stay() -> None:
    for choice in (Select(C, X, Y), Select(C, X, Select(D, Y, Z)), Select(C, Select(D, X, Y), Z)):
        assert one_choice(choice) is choice


def test_what_is_needed() -> None:
    both = Binary("mul", X, X)
    a, b = Binary("add", both, Y), Select(D, Binary("sub", both, Z), both)
    memo: dict[Expr, frozenset[Expr]] = {}
    assert both in certain(b, memo) and X in certain(b, memo)
    assert Z not in certain(b, memo) and D in certain(b, memo)
    assert shared(a, b, memo) == [both]  # x is needed for it anyway
    assert shared(Y, Z, memo) == []
    assert shared(Binary("add", X, const(1.0, f32)), Binary("mul", X, Y), memo) == [X]
