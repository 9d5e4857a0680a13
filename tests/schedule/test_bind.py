"""Loops bound to thread axes: what is legal, and programs whose threads share work."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pliant.base.dtypes import f32
from pliant.base.errors import InvalidModelError
from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.ir.expr import Index
from pliant.loop.printer import function_text
from pliant.loop.stmt import Function, Store, buffer, for_
from pliant.schedule.bind import check_bind
from pliant.schedule.errors import SchedulingError
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import (
    best,
    chain,
    matmul,
    n,
    outline,
    rows,
    running,
    same,
    softmax,
    stencil,
)
from tests.schedule.threads import (
    device,
    device_matmul,
    device_softmax,
    device_stencil,
    device_transposition,
    halo_stencil,
    row_softmax,
    same_on_device,
    transposition,
)


def test_bind() -> None:
    p = chain()
    q = p.split("y_i", 2).split("y_j", 4).reorder("y_i_0", "y_j_0", "y_i_1", "y_j_1")
    q = q.compute_inline("a").compute_inline("b")
    q = q.bind("y_i_0", "blockIdx.y").bind("y_j_0", "blockIdx.x")
    q = q.bind("y_i_1", "vthread").bind("y_j_1", "threadIdx.x")
    assert outline(q).splitlines()[:4] == [
        "y_i_0 < blockIdx.y (n + 1)//2",
        "  y_j_0 < blockIdx.x (k + 3)//4",
        "    y_i_1 < vthread 2",
        "      y_j_1 < threadIdx.x 4",
    ]
    same(p, q)
    lowered = same_on_device(p, q)
    assert "vthread" not in function_text(lowered)
    assert "barrier" not in function_text(lowered)


def carried() -> Program:
    """a[i + 1] = a[i]."""
    a = buffer("a", (n + 1,), f32)
    body = Store(a, (Index(var("i") + 1),), a[var("i")])
    return program(Function("carried", (a,), ("n",), for_([("i", n)], body)))


@pytest.mark.parametrize(
    ("made", "loop", "axis", "reason"),
    [
        (rows, "s_i", "threadIdx.w", "there is no axis 'threadIdx.w'"),
        (lambda: rows().bind("s_i", "blockIdx.x"), "s_i", "blockIdx.y",
         "it is bound to blockIdx.x already"),
        (carried, "i", "blockIdx.x", "a statement reads and a statement writes perhaps the same "),
        (rows, "s_r", "blockIdx.x", "block s reduces over it; only threads of one block can"),
        (rows, "s_r", "vthread", "has an extent that is not a number"),
        (rows, "s_r", "threadIdx.x", "block s reduces over it; the extent k of s_r is not a"),
        (running, "y_j", "threadIdx.x", "block y must run over it in order"),
        (lambda: matmul().split("c_r", 4).reorder("c_r_1", "c_j"), "c_r_1", "threadIdx.x",
         "block c reduces over it; loop c_j inside is not one that it reduces over: reorder"),
        (lambda: rows().bind("s_i", "threadIdx.x").split("s_r", 4), "s_r_1", "threadIdx.x",
         "is inside another loop of that axis"),
        (lambda: matmul().split("c_j", 4).bind("c_j_1", "threadIdx.x"), "c_i", "threadIdx.x",
         "loop c_j_1, bound to threadIdx.x, is inside another loop of that axis"),
        (lambda: matmul().split("c_j", 4).bind("c_j_0", "blockIdx.x"), "c_i", "threadIdx.y",
         "is not the only thing in the loops of the launch around it"),
        (lambda: matmul().split("c_j", 4, tail="clip").bind("c_j_0", "blockIdx.x"), "c_j_1",
         "threadIdx.x", "depends on c_j_0 in its launch"),
        (lambda: rows().split("s_i", 4).parallel("s_i_1"), "s_i_0", "blockIdx.x",
         "the parallel loop s_i_1 is inside a loop bound to blockIdx.x"),
    ],
)  # fmt: skip
def test_bind_refuses(made: Callable[[], Program], loop: str, axis: str, reason: str) -> None:
    p = made()
    with pytest.raises(SchedulingError, match=re.escape(reason)):
        check_bind(p, loop, axis)
    with pytest.raises(SchedulingError, match=f"bind of loop {loop}"):
        p.bind(loop, axis)


def test_bind_refuses_to_reorder_strict_sums() -> None:
    p = rows().split("s_r", 4)
    strict = p.function.replace(notes=(("numerics", "strict"),))
    with pytest.raises(SchedulingError, match="the numerics are strict"):
        program(strict, p.facts).bind("s_r_1", "threadIdx.x")
    top = rows("max").split("s_r", 4)
    strict = top.function.replace(notes=(("numerics", "strict"),))
    assert program(strict, top.facts).bind("s_r_1", "threadIdx.x")


def test_other_steps_keep_the_rules_of_threads() -> None:
    p = stencil().bind("u_i", "blockIdx.x")
    with pytest.raises(SchedulingError, match=r"bound to blockIdx\.x already"):
        p.split("u_i", 4)
    with pytest.raises(SchedulingError, match=r"iterations of the blockIdx\.x loop u_i would meet"):
        p.compute_at("t", "u_i")
    q = matmul().split("c_j", 4).bind("c_j_1", "threadIdx.x")
    with pytest.raises(SchedulingError, match=r"then loop c_j_1, bound to threadIdx\.x, is in"):
        q.blockize("c_j_1")
    with pytest.raises(SchedulingError, match=r"loop c_j_1 inside it is threadIdx\.x"):
        matmul().split("c_j", 4).split("c_i", 4).reorder("c_i_1", "c_j_0").bind(
            "c_j_1", "threadIdx.x"
        ).vectorize("c_i_1")
    with pytest.raises(SchedulingError, match="it is inside a loop of threads"):
        rows().split("s_i", 4).bind("s_i_0", "blockIdx.x").parallel("s_i_1")


def test_a_processor_has_no_threads_of_that_kind() -> None:
    with pytest.raises(InvalidModelError, match=r"loop s_i is bound to blockIdx\.x, and this targ"):
        kernel_source(rows().bind("s_i", "blockIdx.x").function, target())


@pytest.mark.sweep
@pytest.mark.parametrize("combiner", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("threads", [1, 2, 5, 8])
def test_threads_reduce_together(combiner: str, threads: int) -> None:
    p = rows(combiner)
    q = p.split("s_r", threads).bind("s_r_1", "threadIdx.x").split("s_i", 2)
    q = q.bind("s_i_1", "threadIdx.y").bind("s_i_0", "blockIdx.x")
    same(p, q)
    same_on_device(p, q)


def test_threads_find_the_best_together() -> None:
    p = best()
    q = p.split("p_r", 4).set_scope("p_best", "shared").shrink_buffer("p_best")
    q = q.bind("p_r_1", "threadIdx.x").bind("p_i", "blockIdx.x")
    same(p, q)
    same_on_device(p, q)


def test_threads_of_two_axes_reduce_together() -> None:
    p = rows()
    q = p.split("s_r", 6).split("s_r_1", 2)
    q = q.bind("s_r_1_0", "threadIdx.y").bind("s_r_1_1", "threadIdx.x").bind("s_i", "blockIdx.x")
    text = function_text(same_on_device(p, q))
    assert 's_tree = alloc(f32[2, 6], scope="shared")' in text


def test_a_reduction_of_threads_cannot_end_in_memory_of_each() -> None:
    p = row_softmax().bind("m_r_1", "threadIdx.x").bind("m_i", "blockIdx.x").set_scope("m", "local")
    with pytest.raises(InvalidModelError) as caught:
        device(p)
    assert str(caught.value) == (
        "softmax: threads reduce together in block m into m, which is in local memory that each "
        "has for itself"
    )


def test_tiled_product_with_operands_in_shared_memory() -> None:
    q = device_matmul()
    same(matmul(), q)
    text = function_text(same_on_device(matmul(), q))
    for line in (
        'a_cache = alloc(f32[8, 4], scope="shared")',
        'b_cache = alloc(f32[4, 8], scope="shared")',
        'c_local = alloc(f32[2, 2], scope="local")',  # a thread's part of the tile
    ):
        assert line in text
    assert text.count("barrier()") == 2  # when the tiles are there, and when they were used


def test_rows_whose_threads_reduce_together() -> None:
    q = device_softmax()
    same(softmax(), q)
    text = function_text(same_on_device(softmax(), q))
    assert text.count("_tree = alloc(f32[2, 4]") == 2


def test_stencil_with_its_ends_in_shared_memory() -> None:
    q = device_stencil()
    same(stencil(), q)
    text = function_text(same_on_device(stencil(), q))
    assert 't = alloc(f32[10], scope="shared")' in text
    assert text.count("barrier()") == 1


def test_a_copy_may_be_of_more_than_was_written() -> None:
    """The last tile's part of `t` is not written where nothing needs it."""
    p = halo_stencil().cache_read("u", "t").set_scope("t_cache", "local")
    p = p.shrink_buffer("t_cache").bind("u_i_0", "blockIdx.x")
    same_on_device(stencil(), p, [(0,), (1,), (6,), (9,)])


def test_transposition_through_shared_memory() -> None:
    q = device_transposition()
    same(transposition(), q)
    assert function_text(same_on_device(transposition(), q)).count("barrier()") == 1


@pytest.mark.parametrize(
    ("scope", "rows_kept"), [("shared", 4), ("warp", 4), ("local", 1), ("scratch", 1)]
)
def test_memory_is_allocated_where_those_that_see_it_share_it(scope: str, rows_kept: int) -> None:
    p = rows().split("s_i", 4).cache_read("s", "x", scope).compute_at("x_cache", "s_i_1")
    p = p.bind("s_i_1", "threadIdx.x").bind("s_i_0", "blockIdx.x").shrink_buffer("x_cache")
    assert f"{scope} x_cache[{rows_kept}, k]" in outline(p)
    same(rows(), p)


def test_global_memory_is_allocated_outside_of_launches() -> None:
    p = chain().set_scope("a", "global").bind("a_i", "blockIdx.x").bind("b_i", "blockIdx.x")
    p = p.set_scope("b", "global").bind("y_i", "blockIdx.x").shrink_buffer("a")
    same_on_device(chain(), p)
