"""Primitives on loops: split, loop_partition, fuse, reorder, marks, unit loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.base.dtypes import f32
from pliant.ir.expr import Index, const
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Function, Store, buffer, for_, seq
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.reorder import check_reorder
from pliant.schedule.split import check_split
from pliant.sym.expr import as_int, var
from pliant.sym.facts import Facts
from tests.schedule.programs import (
    chain,
    matmul,
    n,
    outline,
    reversing,
    rows,
    running,
    same,
    softmax,
    stencil,
)


def lines(text: str) -> str:
    """The outline in a triple-quoted string."""
    body = text.strip("\n").rstrip()
    indent = len(body) - len(body.lstrip())
    return "\n".join(line[indent:] for line in body.splitlines())


def plain(*, carried: bool = False) -> Program:
    """a[i] = 1, b[i] = a[i] (or a[i - 1] of the iteration before), without blocks."""
    a, b, i = buffer("a", (n + 1,), f32), buffer("b", (n + 1,), f32), var("i")
    first = Store(a, (Index(i + 1 if carried else i),), b[i])
    second = Store(b, (Index(i),), a[i])
    return program(Function("plain", (a, b), ("n",), for_([("i", n)], seq(first, second))))


def test_split_with_a_mask() -> None:
    p = rows()
    q = p.split("s_i", 4)
    assert q.made == ("s_i_0", "s_i_1")
    assert outline(q) == lines("""
        s_i_0 < (n + 3)//4
          s_i_1 < 4
            s_r < k
              s(4*s_i_0 + s_i_1, s_r) where 4*s_i_0 + s_i_1 < n
    """)
    same(p, q)
    same(p, q.split("s_r", 3).split("s_r_1", 2))


def test_split_with_a_peeled_tail() -> None:
    p = rows()
    q = p.split("s_i", 4, tail="peel")
    assert q.made == ("s_i_0", "s_i_1", "s_i_t")
    assert outline(q) == lines("""
        s_i_0 < n//4
          s_i_1 < 4
            s_r < k
              s(4*s_i_0 + s_i_1, s_r)
        s_i_any < min(1, n%4)
          s_i_t < 4
            s_r_t < k
              s_t(4*(n//4) + s_i_t, s_r_t) where 4*(n//4) + s_i_t < n
    """)
    same(p, q)
    exact = p.split("s_i", 4, tail="peel", tail_loop="exact")
    assert "s_i_t < n%4" in outline(exact)
    same(p, exact)


def test_split_into_one() -> None:
    """Where the extent is known to be no more than the factor, and not 0, one loop runs once."""
    p = rows().split("s_i", 4, tail="clip")
    q = p.split("s_i_1", 6)
    assert outline(q) == lines("""
        s_i_0 < (n + 3)//4
          s_i_1_0 < 1
            s_i_1_1 < 6
              s_r < k
                s(4*s_i_0 + s_i_1_1, s_r) where s_i_1_1 < min(4, n - 4*s_i_0)
    """)
    same(p, q)


def test_split_with_a_clipped_tail() -> None:
    p = rows()
    q = p.split("s_i", 4, tail="clip")
    assert outline(q) == lines("""
        s_i_0 < (n + 3)//4
          s_i_1 < min(4, n - 4*s_i_0)
            s_r < k
              s(4*s_i_0 + s_i_1, s_r)
    """)
    same(p, q)
    same(p, q.parallel("s_i_0", grain=var("n") + 1))
    same(p, p.split("s_r", 3, tail="clip"))


def test_merge() -> None:
    p = chain()
    q = p.merge("a_i", "b_i").merge("a_j", "b_j").merge("a_i", "y_i")
    assert outline(q) == lines("""
        scratch a[n, k]
        scratch b[n, k]
        a_i < n
          a_j < k
            a(a_i, a_j)
            b(a_i, a_j)
          y_j < k
            y(a_i, y_j)
    """)
    same(p, q)
    same(p, q.parallel("a_i"))


def test_merge_refuses() -> None:
    p = chain()
    with pytest.raises(SchedulingError, match="between them, block b writes and block y reads"):
        p.merge("a_i", "y_i")
    with pytest.raises(SchedulingError, match="they are the same"):
        p.merge("a_i", "a_i")
    with pytest.raises(SchedulingError, match="the second comes before the first"):
        p.merge("b_i", "a_i")
    with pytest.raises(SchedulingError, match="they do not stand side by side"):
        p.merge("a_i", "b_j")
    with pytest.raises(SchedulingError, match=r"n \+ 2 and n, are not known to be equal"):
        stencil().merge("t_i", "u_i")
    with pytest.raises(SchedulingError, match="it is parallel already"):
        p.parallel("a_i").merge("a_i", "b_i")
    halves = p.split("a_i", 2).split("b_i", 2)
    same(p, halves.merge("a_i_0", "b_i_0"))
    late = plain_pair()
    with pytest.raises(SchedulingError, match="a statement writes and a statement reads perhaps"):
        late.merge("i", "j")


BETWEEN = """\
@loop
def between(x: f32["n"], y: f32["n"], n: i64):
    t = alloc(f32[n + 4], scope="scratch")
    for i in grid(n):
        with block("t", S(i, n)) as (a,):
            t[a] = x[a] * 2.0
    for j in grid(4):
        with block("rest", S(j, 4)) as (a,):
            t[n + a] = 0.0
    for k in grid(n):
        with block("y", S(k, n)) as (a,):
            y[a] = t[a]"""


def test_merge_past_another_part() -> None:
    """What stands between writes behind what the second loop reads; or, one element before, not."""
    p = program(parse_function(BETWEEN))
    same(p, p.merge("i", "k"), [(0,), (1,), (5,)])
    q = program(parse_function(BETWEEN.replace("t[n + a]", "t[n + a - 1]")))
    with pytest.raises(SchedulingError, match="between them, block rest writes and block y reads"):
        q.merge("i", "k")
    p = chain().split("a_i", 4, tail="peel").split("b_i", 4, tail="peel")
    same(p, p.merge("a_i_0", "b_i_0"))


def plain_pair() -> Program:
    """a[i] = 1; b[j] = a[j + 1]."""
    a, b = buffer("a", (n + 1,), f32), buffer("b", (n,), f32)
    first = for_([("i", n)], Store(a, (Index(var("i")),), const(1.0, f32)))
    second = for_([("j", n)], Store(b, (Index(var("j")),), a[var("j") + 1]))
    return program(Function("pair", (a, b), ("n",), seq(first, second)))


def test_split_by_a_symbolic_factor() -> None:
    p = rows()
    same(p, p.split("s_i", var("k") + 1))
    same(p, p.split("s_i", var("k") + 1, tail="peel"))
    with pytest.raises(SchedulingError, match="the factor k is not known to be at least 1"):
        p.split("s_i", var("k"))


def test_facts_remove_masks_and_tails() -> None:
    facts = Facts()
    facts.declare("n", min=0, multiple=8)
    facts.declare("k")
    p = program(rows().function, facts)
    for tail in ("mask", "peel", "exact"):
        q = p.split("s_i", 4, tail=tail)
        assert "where" not in outline(q)
        assert len(q.made) == 2
        same(p, q, [(8, 3), (0, 2), (16, 1)])


def test_split_of_plain_statements_puts_an_if() -> None:
    p = plain()
    q = p.split("i", 4)
    assert outline(q) == lines("""
        i_0 < (n + 3)//4
          i_1 < 4
            if 4*i_0 + i_1 < n
              a =
            if 4*i_0 + i_1 < n
              b =
    """)
    same(p, q)


def test_check_split_names_the_reason() -> None:
    p = rows()
    check_split(p, "s_i", as_int(4), "mask")
    with pytest.raises(SchedulingError, match=r"^split of loop s_i: 4 is not known to divide n$"):
        check_split(p, "s_i", as_int(4), "exact")
    with pytest.raises(SchedulingError, match="decompose_reduction first"):
        check_split(p, "s_r", as_int(4), "peel")
    with pytest.raises(SchedulingError, match="there is no such loop"):
        check_split(p, "z", as_int(4), "mask")
    with pytest.raises(SchedulingError, match="the factor mentions s_r"):
        check_split(p, "s_i", var("s_r"), "mask")
    with pytest.raises(SchedulingError, match="it is parallel already"):
        p.parallel("s_i").split("s_i", 4)


def test_partition_drops_the_conditions_that_hold() -> None:
    p = chain().compute_inline("a").compute_inline("b")
    q = p.split("y_j", 4).loop_partition("y_j_0", var("k") // 4)
    assert q.made == ("y_j_0_t",)
    assert outline(q) == lines("""
        y_i < n
          y_j_0 < k//4
            y_j_1 < 4
              y(y_i, 4*y_j_0 + y_j_1)
          y_j_0_t < (k + 3)//4 - (k//4)
            y_j_1_t < 4
              y_t(y_i_t, 4*(k//4) + 4*y_j_0_t + y_j_1_t) where 4*(k//4) + 4*y_j_0_t + y_j_1_t < k
    """).replace("y_i_t,", "y_i,")
    same(p, q)
    with pytest.raises(SchedulingError, match="k is not known to be from 0 to n"):
        p.loop_partition("y_i", var("k"))
    with pytest.raises(SchedulingError, match="there is no point to divide it at"):
        p.loop_partition("y_i")
    with pytest.raises(SchedulingError, match="n//4 is not known to be from n//2 to n"):
        p.loop_partition("y_i", var("n") // 2, var("n") // 4)
    q = p.loop_partition("y_i", var("n") // 4, var("n") // 2)
    assert q.made == ("y_i_t", "y_i_t_1")
    same(p, q)


def test_partition_of_a_reduction_over_lanes() -> None:
    p = rows()
    q = p.split("s_r", 4).rfactor("s_r_1").decompose_reduction("s_rf", "s_r_0")
    q = q.loop_partition("s_r_0", var("k") // 4)
    same(p, q)


def test_fuse() -> None:
    p = chain()
    q = p.fuse("y_i", "y_j")
    assert outline(q).endswith("y_i_f < k*n\n  y(y_i_f//k, y_i_f%k)")
    same(p, q)
    same(p, q.split("y_i_f", 4).parallel("y_i_f_0").vectorize("y_i_f_1"))


def test_fuse_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="block m reduces over some of them only"):
        p.fuse("m_i", "m_r")
    with pytest.raises(SchedulingError, match="it is not in one nest with m_i"):
        p.fuse("m_i", "e_j")
    with pytest.raises(SchedulingError, match="do not follow each other from outer to inner"):
        p.fuse("e_j", "e_i")
    q = p.compute_at("m", "e_i")
    with pytest.raises(SchedulingError, match="the next loop is not the only thing in it"):
        q.fuse("e_i", "e_j")


def test_fuse_keeps_the_condition_of_an_init() -> None:
    p = rows().add_unit_loop("s_r")
    p = p.split("u", 2).split("u_1", 1)
    with pytest.raises(SchedulingError, match="the start of block s is under a condition on some"):
        p.fuse("u_1_1", "s_r")


def test_reorder() -> None:
    p = matmul()
    q = p.split("c_i", 2).split("c_j", 4).reorder("c_i_0", "c_j_0", "c_r", "c_i_1", "c_j_1")
    assert outline(q) == lines("""
        c_i_0 < (n + 1)//2
          c_j_0 < (m + 3)//4
            c_r < k
              c_i_1 < 2
                c_j_1 < 4
                  c(2*c_i_0 + c_i_1, 4*c_j_0 + c_j_1, c_r) where 2*c_i_0 + c_i_1 < n and 4*c_j_0 + c_j_1 < m
    """)  # noqa: E501
    same(p, q)
    # The loops named swap among the places that they hold.
    assert outline(p.reorder("c_r", "c_i")).startswith("c_r < k\n  c_j < m\n    c_i < n")


def test_reorder_refuses() -> None:
    p = running()
    check_reorder(p, ("y_j", "y_i"))
    same(p, p.reorder("y_j", "y_i"))
    a, i, j = buffer("a", (n + 1, n + 1), f32), var("i"), var("j")
    skewed = Store(a, (Index(i + 1), Index(j)), a[i, j + 1])
    q = program(Function("f", (a,), ("n",), for_([("i", n), ("j", n)], skewed)))
    with pytest.raises(SchedulingError, match="perhaps the same element of a in another order"):
        q.reorder("j", "i")
    triangle = Store(a, (Index(i), Index(j)), a[i, j])
    q = program(Function("f", (a,), ("n",), for_([("i", n), ("j", i + 1)], triangle)))
    with pytest.raises(SchedulingError, match="the extent of j depends on i"):
        q.reorder("j", "i")


def test_strict_numerics_keep_the_order_of_sums() -> None:
    p = rows().split("s_r", 4)
    f = p.function.replace(notes=(("numerics", "strict"),))
    q = program(f)
    with pytest.raises(SchedulingError, match="twice in another order"):
        q.reorder("s_r_1", "s_r_0")
    with pytest.raises(SchedulingError, match="the numerics are strict"):
        q.rfactor("s_r_1")
    same(p, p.reorder("s_r_1", "s_r_0"))
    top = rows("max").split("s_r", 4)  # which rounds nothing
    q = program(top.function.replace(notes=(("numerics", "strict"),)), top.facts)
    same(q, q.reorder("s_r_1", "s_r_0"))


def test_parallel_vectorize_unroll() -> None:
    p = rows()
    q = p.split("s_i", 4).vectorize("s_i_1").parallel("s_i_0")
    assert "s_i_0 < parallel (n + 3)//4\n  s_i_1 < vectorized 4" in outline(q)
    same(p, q)
    same(p, p.split("s_i", 4).unroll("s_i_1"))
    same(plain(), plain().parallel("i"))


@pytest.mark.parametrize(
    ("make", "step", "reason"),
    [
        (rows, lambda p: p.parallel("s_r"), "block s reduces over it"),
        (running, lambda p: p.parallel("y_j"), "block y must run over it in order"),
        (reversing, lambda p: p.parallel("y_at_i"), "must run over it in order"),
        (rows, lambda p: p.vectorize("s_i"), "its extent n is not a number"),
        (rows, lambda p: p.unroll("s_i"), "its extent n is not a number"),
        (rows, lambda p: p.parallel("s_i").parallel("s_i"), "it is parallel already"),
        (
            lambda: plain(carried=True),
            lambda p: p.parallel("i"),
            "a statement writes and a statement reads perhaps the same element of a",
        ),
        (
            rows,
            lambda p: p.split("s_i", 4).split("s_i_1", 2).vectorize("s_i_1_0").vectorize("s_i_1_1"),
            "it is inside a vectorized loop",
        ),
        (
            lambda: stencil().compute_at("t", "u_i"),
            lambda p: p.parallel("u_i"),
            "block t may touch an element of t twice in different iterations",
        ),
    ],
)
def test_marks_refuse(
    make: Callable[[], Program], step: Callable[[Program], Program], reason: str
) -> None:
    with pytest.raises(SchedulingError, match=reason):
        step(make())


def test_add_unit_loop() -> None:
    p = rows()
    q = p.add_unit_loop("s").add_unit_loop("s_i")
    assert outline(q) == lines("""
        u_1 < 1
          s_i < n
            s_r < k
              u < 1
                s(s_i, s_r)
    """)
    same(p, q)
