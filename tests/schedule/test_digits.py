"""Iterations of loops that were fused and split again are known to be independent."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import same


def channels_last(batch: object, channels: int, side: object) -> Program:
    """y[i, j, k, l] = x[i, l, j, k]."""
    x, y = f"{batch}, {channels}, {side}, {side}", f"{batch}, {side}, {side}, {channels}"
    return program(
        parse_function(
            "@loop\n"
            f"def last(x: f32[{x}], y: f32[{y}], n: i64):\n"
            f"    for i, j, k, l in grid({y}):\n"
            f'        with block("y", S(i, {batch}), S(j, {side}), S(k, {side}), S(l, {channels}))'
            " as (a, b, c, d):\n"
            "            y[a, b, c, d] = x[a, d, b, c]\n"
        )
    )


@pytest.mark.parametrize("side", [12, 20, 24])
@pytest.mark.parametrize("batch", [2, "n"])
def test_tiles_of_a_constant_plane(side: int, batch: object) -> None:
    """The remainder of what a tile's number was multiplied by was written without the remainder
    within: (4*(t%9) + i)//12 stood beside (4*t + i)%12."""
    p = channels_last(batch, 3, side)
    q = p.fuse("j", "k")
    q = q.split(*q.made, 16, tail="clip")
    tiles, inside = q.made
    q = q.reorder("i", tiles, "l", inside).fuse("i", tiles)
    q = q.parallel(*q.made)
    same(p, q, [(0,), (1,), (2,)])


def test_tiles_that_overlap_are_not() -> None:
    p = program(
        parse_function(
            "@loop\n"
            "def f(x: f32[12, 12], y: f32[12, 12]):\n"
            "    for t, i in grid(9, 17):\n"
            '        with block("y", S((4*t + i)//12 + t, 12), S((4*t + i)%12, 12),'
            " where=16*t + i < 144) as (a, b):\n"
            "            y[a, b] = x[a, b]\n"
        )
    )
    with pytest.raises(SchedulingError, match="may touch an element of y twice"):
        p.parallel("t")
