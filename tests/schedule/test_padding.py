"""decompose_padding and pad_einsum."""

from __future__ import annotations

import pytest

from pliant.ir.tensor import compute, select, within
from pliant.loop.from_tensor import unscheduled
from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from tests.schedule.programs import (
    k,
    n,
    outline,
    rows,
    same,
    stencil,
    x1,
    x2,
)
from tests.schedule.test_loops import lines


def frame() -> Program:
    """y = x with a frame of ones, then doubled."""
    t = compute(
        (n + 2, k + 3),
        lambda i, j: select(within(i - 1, n) & within(j - 2, k), x2[i - 1, j - 2], 1.0),
        "t",
    )
    y = compute((n + 2, k + 3), lambda i, j: t[i, j] + t[i, j], "y")
    return program(unscheduled("frame", [y], [x2], ["n", "k"]))


def test_decompose_padding() -> None:
    p = stencil()
    q = p.decompose_padding("t", "t_i")
    assert q.made == ("t_init",)
    assert outline(q) == lines("""
        scratch t[n + 2]
        t_i_init < n + 2
          t_init(t_i_init)
        t_i < n + 2
          t(t_i) where 0 <= t_i - 1 and t_i - 1 < n
        u_i < n
          u(u_i)
    """)
    same(p, q)
    f = frame()
    for loop in ("t_i", "t_j"):
        same(f, f.decompose_padding("t", loop))
    q = f.split("t_j", 4).vectorize("t_j_1").decompose_padding("t", "t_j_0").parallel("t_i")
    same(f, q)
    q = f.compute_at("t", "y_i").decompose_padding("t", "t_j_1" if "t_j_1" in f.made else "t_j")
    same(f, q.shrink_buffer("t"))


def test_the_other_side_is_padding() -> None:
    y = compute((x1.shape[0],), lambda i: select(within(i, 2), 5.0, x1[i]), "y")
    p = program(unscheduled("front", [y], [x1], ["n"]))
    q = p.decompose_padding("y", "y_i")
    assert q.blocks == ("y_init", "y")
    same(p, q)


def test_decompose_padding_refuses() -> None:
    p = stencil()
    with pytest.raises(SchedulingError, match="its value is no choice"):
        p.decompose_padding("u", "u_i")
    with pytest.raises(SchedulingError, match="loop u_i is not around it"):
        p.decompose_padding("t", "u_i")
    q = p.compute_at("t", "u_i")
    with pytest.raises(SchedulingError, match="block u in loop u_i uses t too"):
        q.decompose_padding("t", "u_i")
    same(p, q.decompose_padding("t", str(q.made[0])))
    with pytest.raises(SchedulingError, match="it is more than one store"):
        rows().decompose_padding("s", "s_i")
    y = compute((x1.shape[0],), lambda i: select(within(i, 2), x1[0], x1[i]), "y")
    both = program(unscheduled("both", [y], [x1], ["n"]))
    with pytest.raises(SchedulingError, match="both sides of its choice load something"):
        both.decompose_padding("y", "y_i")
    text = """\
@loop
def again(x: f32["n"], y: f32["n"], n: i64):
    for o in grid(2):
        for i in grid(n):
            with block("y", S(o, 2), S(i, n)) as (a, v):
                y[v] = select(a < 1, x[v], 0.0)
"""
    twice = program(parse_function(text))
    with pytest.raises(SchedulingError, match="it may write an element of y again in loop o"):
        twice.decompose_padding("y", "o")
    same(twice, twice.decompose_padding("y", "i"))
