"""Blocks that loops do not run through the whole of their domains: only a part is written."""

from __future__ import annotations

import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import same

SIZES = [(0,), (1,), (5,), (6,)]


def halves(made: str, used: str, outside: str = "") -> Program:
    """`t` is made for the first `made` of its elements, `y` of it for the first `used`."""
    return program(
        parse_function(
            "@loop\n"
            'def halves(x: f32["n"], y: f32["n"], n: i64):\n'
            '    t = alloc(f32[n], scope="scratch")\n'
            f"    for i in grid({made}):\n"
            '        with block("t", S(i, n)) as (v,):\n'
            "            t[v] = x[v]\n"
            f"    for j in grid({used}):\n"
            '        with block("y", S(j, n)) as (w,):\n'
            f"            y[w] = select(w < {made}, t[w] + 1.0, 0.0)\n"
        )
    )


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (("reverse_compute_inline", "y"), "block t does not write all of t"),
        (("reverse_compute_at", "y", "i"), "no input made under the loop is read for each of its"),
        (("compute_inline", "t"), "it does not write all of t"),
        (("cache_write", "t"), "it is not known to run for all values of its iterators"),
    ],
)
def test_what_is_made_in_part(step: tuple[str, ...], reason: str) -> None:
    """The rest of y would not be written; in its place t would be computed where it must not."""
    with pytest.raises(SchedulingError, match=reason):
        getattr(halves("n//2", "n"), step[0])(*step[1:])


@pytest.mark.parametrize(
    "step", [("reverse_compute_inline", "y"), ("reverse_compute_at", "y", "i")]
)
def test_what_is_used_in_part(step: tuple[str, ...]) -> None:
    """All of y would be written."""
    with pytest.raises(SchedulingError, match="its loops do not run through all of its iterators"):
        getattr(halves("n", "n//2"), step[0])(*step[1:])


@pytest.mark.parametrize(
    "step",
    [
        ("reverse_compute_inline", "y"),
        ("reverse_compute_at", "y", "i"),
        ("compute_inline", "t"),
        ("cache_write", "t"),
    ],
)
def test_loops_may_be_split(step: tuple[str, ...]) -> None:
    """Whatever loops run through the whole."""
    p = halves("n", "n")
    for q in (p, p.split("i", 4).split("j", 2, tail="clip"), p.split("j", 4)):
        loop = next(x for x in q.loops("t"))
        args = (*step[1:-1], loop) if step[-1] == "i" else step[1:]
        same(q, getattr(q, step[0])(*args), SIZES)
