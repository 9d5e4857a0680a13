"""What sizes are expected, where nothing is said of them."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32
from pliant.graph.builder import Builder
from pliant.graph.facts import facts_of
from pliant.graph.function import Dim, Function
from pliant.ir.mapping import SIDE, likely_value
from pliant.ops.table import OPERATORS
from pliant.sym.expr import Int, var

H, W = var("h"), var("w")


def images(*sides: Int, likely: tuple[int, ...] = ()) -> Function:
    b = Builder("main", OPERATORS)
    b.dim("h", Dim(max=64, likely=likely))
    b.dim("w", Dim(min=3))
    function, _ = b.finish([b.call("relu", b.param("x", f32, (1, *sides)))])
    return function


@pytest.mark.parametrize(
    ("sides", "h", "w"),
    [
        ((H * 32, W), 7, SIDE),
        ((H * 32 + 1, W * 100), 7, 3),  # the least that there may be
        ((H, H * 32, W * 2), 64, SIDE // 2),  # a size of its own, too, and the greatest
        ((H * W, H * 4), 56, SIDE),  # what two symbols make says nothing of one
    ],
)
def test_sizes_are_usual_ones(sides: tuple[Int, ...], h: int, w: int) -> None:
    """Of an input, not of the symbols that they are made of."""
    facts = facts_of(images(*sides))
    assert likely_value(H, facts, SIDE) == h
    assert likely_value(W, facts, SIDE) == w
    assert likely_value(H * W + 1, facts, SIDE) == h * w + 1


def test_what_is_said_counts() -> None:
    assert likely_value(H * 32, facts_of(images(H * 32, W, likely=(20, 7))), SIDE) == 640
