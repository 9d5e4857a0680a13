"""Primitives that move or merge blocks."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32, i64
from pliant.ir.expr import Guard, Index, as_expr
from pliant.ir.tensor import compute, placeholder, within
from pliant.loop.from_tensor import unscheduled
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Alloc, Function, Store, buffer, for_, seq
from pliant.schedule.compute_at import check_compute_at
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow
from pliant.schedule.primitives import program
from pliant.sym.expr import var
from tests.schedule.programs import (
    ROW_SIZES,
    chain,
    k,
    matmul_relu,
    n,
    outline,
    rows,
    running,
    same,
    softmax,
    stencil,
    x1,
)
from tests.schedule.test_loops import lines


def test_compute_inline() -> None:
    p = chain()
    q = p.compute_inline("a").compute_inline("b")
    assert outline(q) == "y_i < n\n  y_j < k\n    y(y_i, y_j)"
    same(p, q)
    same(stencil(), stencil().compute_inline("t"))
    same(p, p.split("a_j", 4).compute_inline("a"))


def test_compute_inline_may_keep_the_block() -> None:
    p = chain()
    q = p.compute_inline("a", keep=True)
    assert q.blocks == p.blocks
    assert [a.buffer.name for a in Flow(q).of_block("b") if not a.write] == ["x"]
    same(p, q)


def test_compute_inline_into_places_that_depend_on_data() -> None:
    at = placeholder("at", (k,), i64)
    a = compute((n,), lambda i: x1[n - 1 - i] * 2.0, "a")
    shifted = compute((n,), lambda i: a[i] + 1.0, "b")
    y = compute((k,), lambda j: Guard(within(0, 1), shifted[at[j]], "index", "out of range"), "y")
    p = program(unscheduled("f", [y], [x1, at], ["n", "k"]))
    q = p.compute_inline("a").compute_inline("b")
    assert outline(q) == "y_i < k\n  y(y_i)"


def test_compute_inline_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="it is more than one store"):
        p.compute_inline("m")
    with pytest.raises(SchedulingError, match="y is not a buffer of the function's own"):
        p.compute_inline("y")
    q = p.cache_read("y", "e")
    with pytest.raises(SchedulingError, match="there is no such block"):
        q.compute_inline("nothing")
    with pytest.raises(SchedulingError, match="is written again in loop e_i"):
        p.compute_at("m", "e_i").compute_inline("e")


KEPT = """\
@loop
def kept(x: f32["n"], y: f32["n"], z: f32["n"], n: i64):
    t = alloc(f32["n"], scope="scratch")
    for i in grid(n):
        with block("y", S(i, n)) as (a,):
            y[a] = exp(x[a])
    for j in grid(n):
        with block("t", S(j, n)) as (b,):
            t[b] = y[b] + 1.0
    for k in grid(n):
        with block("z", S(k, n)) as (c,):
            z[c] = t[c] * t[c]
    for l in grid(n):
        with block("y_1", S(l, n)) as (d,):
            y[d] = y[d] - x[0]
"""


def test_compute_inline_where_what_it_reads_is_overwritten_later() -> None:
    p = program(parse_function(KEPT))
    q = p.compute_inline("t")
    assert q.blocks == ("y", "z", "y_1")
    same(p, q, [(1,), (2,), (5,)])
    nests = KEPT.index("    for k"), KEPT.index("    for l")
    swapped = KEPT[: nests[0]] + KEPT[nests[1] :] + KEPT[nests[0] : nests[1]]
    with pytest.raises(SchedulingError, match="y, which it reads, is written after it"):
        program(parse_function(swapped)).compute_inline("t")
    around = "\n".join(f"    {line}" for line in KEPT[KEPT.index("    for i") :].splitlines())
    again = f"{KEPT[: KEPT.index('    for i')]}    for r in grid(3):\n{around}\n"
    with pytest.raises(SchedulingError, match="y, which it reads, may change in loop r"):
        program(parse_function(again)).compute_inline("t")


def test_reverse_compute_inline() -> None:
    p = chain()
    q = p.reverse_compute_inline("b").reverse_compute_inline("y")
    assert outline(q) == "a_i < n\n  a_j < k\n    a(a_i, a_j)"
    same(p, q)


def test_reverse_compute_inline_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="must read one buffer of the function's own"):
        p.reverse_compute_inline("y")
    with pytest.raises(SchedulingError, match="not every iterator indexes s"):
        p.reverse_compute_inline("y", buffer="s")
    with pytest.raises(SchedulingError, match="it is not the only reader of e"):
        p.reverse_compute_inline("y", buffer="e")
    with pytest.raises(SchedulingError, match="block c is a reduction"):
        matmul_relu().reverse_compute_inline("y")


def test_compute_at() -> None:
    p = softmax()
    q = p.split("y_i", 2).compute_at("s", "y_i_0").compute_at("e", "y_i_0")
    assert outline(q.compute_at("m", "y_i_0")) == lines("""
        scratch m[n]
        scratch e[n, k]
        scratch s[n]
        y_i_0 < (n + 1)//2
          m_i < 2
            m_r < k
              m(m_i + 2*y_i_0, m_r) where m_i + 2*y_i_0 < n
          e_i < 2
            e_j < k
              e(e_i + 2*y_i_0, e_j) where e_i + 2*y_i_0 < n
          s_i < 2
            s_r < k
              s(s_i + 2*y_i_0, s_r) where s_i + 2*y_i_0 < n
          y_i_1 < 2
            y_j < k
              y(2*y_i_0 + y_i_1, y_j) where 2*y_i_0 + y_i_1 < n
    """)
    same(p, q.compute_at("m", "y_i_0"))


def test_compute_at_takes_the_union_of_all_reads() -> None:
    p = stencil()
    q = p.split("u_i", 4).compute_at("t", "u_i_0")
    assert "  t_i < 6\n    t(t_i + 4*u_i_0) where t_i + 4*u_i_0 < n + 2" in outline(q)
    same(p, q)
    same(p, p.compute_at("t", "u_i"))


def test_compute_at_below_a_fused_loop() -> None:
    p = chain()
    q = p.fuse("y_i", "y_j").split("y_i_f", 4).compute_at("b", "y_i_f_1").compute_at("a", "y_i_f_1")
    same(p, q)


def test_compute_at_refuses() -> None:
    p = softmax()
    check_compute_at(p, "s", "y_i")
    with pytest.raises(SchedulingError, match="block y, not under loop s_r, reads e"):
        check_compute_at(p, "e", "s_r")
    with pytest.raises(SchedulingError, match="y is not a buffer of the function's own"):
        p.compute_at("y", "m_i")
    with pytest.raises(SchedulingError, match="loop m_r is around it already"):
        p.compute_at("m", "m_r")
    with pytest.raises(SchedulingError, match="its reduction is started elsewhere"):
        p.decompose_reduction("m", "m_r").compute_at("m", "e_i")
    with pytest.raises(SchedulingError, match="iterations of the parallel loop u_i would meet"):
        stencil().parallel("u_i").compute_at("t", "u_i")


def test_reverse_compute_at() -> None:
    p = matmul_relu()
    q = p.split("c_i", 2).split("c_j", 4).reorder("c_i_0", "c_j_0", "c_r", "c_i_1", "c_j_1")
    q = q.reverse_compute_at("y", "c_j_0")
    assert outline(q).endswith(
        lines("""
            y_i < 2
              y_j < 4
                y(2*c_i_0 + y_i, 4*c_j_0 + y_j) where 2*c_i_0 + y_i < n and 4*c_j_0 + y_j < m
        """).replace("\n", "\n    ")
    )
    same(p, q)
    with pytest.raises(SchedulingError, match="block c still reduces over c_r"):
        p.reverse_compute_at("y", "c_r")


def test_reverse_compute_at_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="not all of its iterators are data parallel"):
        p.reverse_compute_at("s", "e_i")
    with pytest.raises(SchedulingError, match="nothing that it reads is computed under loop m_i"):
        p.reverse_compute_at("y", "m_i")
    with pytest.raises(SchedulingError, match="s, which it reads, is written after the loop"):
        p.reverse_compute_at("y", "e_i")
    q = stencil().cache_read("t", "x")
    with pytest.raises(SchedulingError, match="no input made under the loop is read for each"):
        q.reverse_compute_at("t", "x_cache_0")
    with pytest.raises(SchedulingError, match="ready for different values"):
        stencil().reverse_compute_at("u", "t_i")


def test_two_inputs_from_different_iterations_are_not_ready_together() -> None:
    a = compute((n,), lambda i: x1[i] + 1.0, "a")
    b = compute((n,), lambda i: a[i] * 2.0, "b")
    y = compute((n, n), lambda i, j: a[i] * b[j], "y")
    p = program(unscheduled("outer", [y], [x1], ["n"])).reverse_compute_at("b", "a_i")
    with pytest.raises(SchedulingError, match="no input made under the loop is read for each"):
        p.reverse_compute_at("y", "a_i")


def test_shrink_buffer() -> None:
    p = stencil()
    q = p.split("u_i", 4).compute_at("t", "u_i_0").shrink_buffer("t")
    assert outline(q).startswith("u_i_0 < (n + 3)//4\n  register t[6]")
    same(p, q.parallel("u_i_0").vectorize("u_i_1"))
    p = softmax()
    q = p.compute_at("s", "y_i").compute_at("e", "y_i").compute_at("m", "y_i")
    for name in ("s", "e", "m"):
        q = q.shrink_buffer(name)
    assert "scratch e[1, k]" in outline(q)
    assert outline(q).count("register") == 2
    same(p, q.parallel("y_i"))


def test_shrink_buffer_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="it is a parameter"):
        p.shrink_buffer("x")
    x, y = buffer("x", (n,), f32), buffer("y", (n,), f32)
    t, i = buffer("t", (1,), f32, scope="scratch"), var("i")
    late = seq(Store(y, (Index(i),), t[0]), Store(t, (as_expr(0),), x[i]))
    q = program(Function("late", (x, y), ("n",), Alloc(t, for_([("i", n)], late))))
    with pytest.raises(SchedulingError, match="may read what another iteration of i wrote"):
        q.shrink_buffer("t")
    q = rows().cache_write("s").split("s_r", 4).reorder("s_r_0", "s_i", "s_r_1")
    assert outline(q.shrink_buffer("s_local")) == outline(q)


def test_store_in() -> None:
    p = softmax()
    q = p.store_in("e", "y")
    assert "e[" not in outline(q)
    same(p, q)
    q = p.store_in("e", "y").merge("m_i", "e_i").merge("m_i", "s_i").merge("m_i", "y_i")
    same(p, q.parallel("m_i"))


def test_store_in_what_is_read_later() -> None:
    """The place may be the program's own and read, once all of it is there."""
    p = chain()
    q = p.store_in("a", "b")
    assert "a[" not in outline(q)
    same(p, q)
    # In each iteration of a loop around both buffers they are new.
    p = p.split("y_i", 3).compute_at("b", "y_i_0").compute_at("a", "y_i_0")
    p = p.shrink_buffer("b").shrink_buffer("a")
    same(chain(), p.store_in("a", "b"))
    inner = p.blocks[0]
    with pytest.raises(SchedulingError, match="b is read before block b has written all of it"):
        p.merge(p.loops("b")[-2], p.loops("y")[-2]).store_in(inner, "b")


def test_store_in_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="it is a parameter"):
        p.store_in("x", "y")
    with pytest.raises(SchedulingError, match="and y is"):
        p.store_in("m", "y")
    with pytest.raises(SchedulingError, match="block e may use it after block y has written y"):
        p.compute_at("s", "y_i").compute_at("e", "y_i").store_in("e", "y")
    with pytest.raises(SchedulingError, match="not one block writes x"):
        p.store_in("e", "x")
    square = compute((n, n), lambda i, j: x1[i] * x1[j], "q")
    turned = compute((n, n), lambda i, j: square[j, i] * 2.0, "y")
    q = program(unscheduled("turned", [turned], [x1], ["n"]))
    with pytest.raises(SchedulingError, match="uses it at other places than it writes y"):
        q.store_in("q", "y")
    with pytest.raises(SchedulingError, match="not one block writes y"):
        p.split("y_i", 4).loop_partition("y_i_0", n // 4).store_in("e", "y")


def test_set_scope() -> None:
    p = stencil().split("u_i", 4).compute_at("t", "u_i_0").shrink_buffer("t")
    q = p.set_scope("t", "scratch")
    assert "scratch t[6]" in outline(q)
    same(p, q)
    with pytest.raises(SchedulingError, match=r"its shape \[n, k\] is not constant"):
        softmax().set_scope("e", "register")
    with pytest.raises(SchedulingError, match="it is a parameter"):
        p.set_scope("x", "register")


def test_room_is_defined_where_there_is_nothing() -> None:
    """Found by random steps: of rows that were fused with columns as many are used as a quotient by
    the columns says, of which there may be none."""
    at, column = var("_0"), var("_1")
    apart = (2 * (at // 3) + 1, 2 * (at % 3) + 1, 2 * column + 1)
    p = running().fuse("y_i", "y_j").cache_read("y", "x")
    p = p.transform_layout("x_cache", apart, None).shrink_buffer("x_cache")
    same(running(), p, ROW_SIZES)
