"""decompose_padding and pad_einsum."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.dtypes import f32
from pliant.ir.tensor import compute, placeholder, reduce, select, within
from pliant.loop.from_tensor import unscheduled
from pliant.loop.interpret import interpret
from pliant.loop.parser import parse_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import (
    chain,
    k,
    matmul,
    matmul_relu,
    n,
    outline,
    rows,
    same,
    softmax,
    stencil,
    x1,
    x2,
)
from tests.schedule.test_loops import lines
from tests.schedule.tuples import normals


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


def test_pad_einsum() -> None:
    p = matmul()
    q = p.pad_einsum("c", (4, 8, 2))
    assert q.made == ("a_pad", "b_pad", "c_crop", "a_pad", "b_pad", "c_pad")
    assert outline(q) == lines("""
        scratch a_pad[4*((n + 3)//4), 2*((k + 1)//2)]
        scratch b_pad[2*((k + 1)//2), 8*((m + 7)//8)]
        scratch c_pad[4*((n + 3)//4), 8*((m + 7)//8)]
        a_pad_0 < 4*((n + 3)//4)
          a_pad_1 < 2*((k + 1)//2)
            a_pad(a_pad_0, a_pad_1)
        b_pad_0 < 2*((k + 1)//2)
          b_pad_1 < 8*((m + 7)//8)
            b_pad(b_pad_0, b_pad_1)
        c_i < 4*((n + 3)//4)
          c_j < 8*((m + 7)//8)
            c_r < 2*((k + 1)//2)
              c(c_i, c_j, c_r)
        c_crop_0 < n
          c_crop_1 < m
            c_crop(c_crop_0, c_crop_1)
    """)
    same(p, q)
    tiles = q.split("c_i", 4, tail="exact").split("c_j", 8, tail="exact")
    tiles = tiles.reorder("c_i_0", "c_j_0", "c_r", "c_i_1", "c_j_1").vectorize("c_j_1")
    assert "where" not in outline(tiles)
    same(p, tiles.parallel("c_i_0"))
    q = p.pad_einsum("c", (4, 1, 1))
    assert q.made == ("a_pad", "c_crop", "a_pad", "c_pad")
    same(p, q)
    q = p.pad_einsum("c", (1, 1, 4))
    assert q.made == ("a_pad", "b_pad", "a_pad", "b_pad")
    same(p, q)
    same(p, p.pad_einsum("c", (var("m") + 1, 1, 3)))
    relu = matmul_relu()
    same(relu, relu.pad_einsum("c", (2, 4, 4)).reverse_compute_at("y", "c_crop_0"))


def test_what_the_padding_is() -> None:
    """The identity of the reduction: none of it is seen, even beside infinities."""
    for combiner in ("sum", "max", "min", "prod"):
        p = rows(combiner)
        q = p.pad_einsum("s", (2, 4))
        same(p, q)
        x, got = np.full((3, 5), np.inf, np.float32), np.zeros(3, np.float32)
        interpret(q.function, [x, got], {"n": 3, "k": 5})
        assert np.all(got == np.inf)


def test_a_window_in_the_padding() -> None:
    """A convolution: positions are padded, and channels; not what overlaps."""
    h, c, o = var("h"), var("c"), var("o")
    x, w = placeholder("x", (h + 2, c), f32), placeholder("w", (o, 3, c), f32)
    y = compute(
        (h, o), lambda i, j: reduce("sum", (3, c), lambda r, s: x[i + r, s] * w[j, r, s]), "y"
    )
    p = program(unscheduled("conv", [y], [x, w], ["h", "c", "o"]))
    q = p.pad_einsum("y", (4, 8, 1, 4))
    same(p, q, [(5, 3, 2), (1, 1, 1), (0, 2, 2), (4, 0, 3), (8, 4, 8)])
    with pytest.raises(SchedulingError, match="beyond the extent of y_vr it would reduce more"):
        p.pad_einsum("y", (4, 8, 4, 4))


def test_pad_einsum_refuses() -> None:
    p = matmul()
    for padding, reason in (
        ((4, 4), "it has 3 iterators, not 2"),
        ((1, 1, 1), "its extents are multiples already"),
        ((0, 1, 4), "0 is not known to be at least 1"),
    ):
        with pytest.raises(SchedulingError, match=reason):
            p.pad_einsum("c", padding)
    for q, reason in (
        (p.split("c_i", 4), "it runs under a condition"),
        (p.split("c_i", 4, tail="clip"), "its loops are not just its iterators"),
        (p.decompose_reduction("c", "c_r"), "its reduction is started elsewhere"),
        (p.parallel("c_i"), "loop c_i is parallel"),
    ):
        with pytest.raises(SchedulingError, match=reason):
            q.pad_einsum("c", (4, 4, 4))
    with pytest.raises(SchedulingError, match="it is no update by a known combiner"):
        chain().pad_einsum("a", (4, 4))
    with pytest.raises(SchedulingError, match="beyond the extent of u it would reduce more than"):
        normals().pad_einsum("s", (1, 4))
    same(normals(), normals().pad_einsum("s", (4, 1)))
    with pytest.raises(SchedulingError, match="beyond the extent of s_vr it would"):
        softmax().compute_inline("e").pad_einsum("s", (1, 4))
