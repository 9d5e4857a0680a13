"""Reshape: which dimensions of both shapes are the same."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32
from pliant.ir.expr import Load
from pliant.ir.tensor import Compute, placeholder
from pliant.ops.reshape import reshape
from pliant.sym.expr import IntLike, var

n = var("n")


@pytest.mark.parametrize(
    ("have", "want", "places"),
    [
        ((n, 6, 5), (n, 2, 3, 5), ["_i0", "3*_i1 + _i2", "_i3"]),
        ((1, 6, 5), (1, 2, 3, 5), ["_i0", "3*_i1 + _i2", "_i3"]),  # as a batch of any size
        ((1, 2, 3, 7), (1, 6, 7), ["_i0", "_i1//3", "_i1%3", "_i2"]),
        ((1, 1, n, 8), (1, n, 8), ["_i0", "0", "_i1", "_i2"]),
        ((1, 20, 1, 1), (1, 20), ["_i0", "_i1", "0", "0"]),
        ((20, 1), (4, 5, 1), ["5*_i0 + _i1", "_i2"]),
        ((n, 1, 8), (n, 1, 2, 4), ["_i0", "_i1", "4*_i2 + _i3"]),
        ((1,), (1, 1), ["_i0"]),
        ((1, 1), (), ["0", "0"]),
        ((), (1, 1), []),
    ],
)
def test_dimensions_that_stay_are_read_along_themselves(
    have: tuple[IntLike, ...], want: tuple[IntLike, ...], places: list[str]
) -> None:
    made = reshape(placeholder("x", have, f32), shape=want)
    assert isinstance(made, Compute) and isinstance(made.body, Load)
    assert [str(i.int_) for i in made.body.indices] == places  # type: ignore[attr-defined]
