"""Copies indexed by a block's iterators: reindex, reindex_cache_read, reindex_cache_write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.ir.expr import loads_of
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.stmt import Store, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import (
    best,
    chain,
    matmul,
    outline,
    reversing,
    rows,
    running,
    same,
    softmax,
    stencil,
)
from tests.schedule.test_loops import lines
from tests.schedule.test_tiles import CASES, windows

n, m, k = var("n"), var("m"), var("k")


def written(text: str) -> Program:
    return program(parse_function(text))


def refused(apply: Callable[[], Program], reason: str) -> None:
    with pytest.raises(SchedulingError, match=reason):
        apply()


def test_a_convolution_becomes_a_matrix_product() -> None:
    p = windows()
    q = p.reindex("y", "x")
    assert q.made == ("x_reindex", "x_reindex")
    q = q.reindex("y", "w").reindex("y", "y")
    assert q.made == ("y_store", "y_reindex")
    (store,) = [s for s in statements(q.block("y").body) if isinstance(s, Store)]
    names = [i.var for i in q.block("y").iters]
    used = {str(i.int_) for x in (*loads_of(store.value),) for i in x.indices}
    assert used == set(names)  # every index is one iterator
    assert "select" not in function_text(q.function).split("for y_i")[1]
    same(p, q, CASES)
    flat = layout(lambda i, j, r, s: (i, j, r * k + s))
    q = q.transform_block_layout("y", flat)
    assert q.loop(q.made[2]).extent == 3 * k
    same(p, q, CASES)


def test_reindex() -> None:
    for p, block, buffer in [
        (stencil(), "t", "x"),
        (stencil(), "t", "t"),
        (matmul(), "c", "a"),
        (matmul(), "c", "c"),
        (rows("max"), "s", "s"),
        (softmax(), "e", "m"),
        (softmax(), "y", "y"),
        (best(), "p", "x"),
        (reversing(), "y", "y"),
        (chain().split("b_i", 4).reorder("b_j", "b_i_0", "b_i_1"), "b", "b"),
    ]:
        same(p, p.reindex(block, buffer))
    same(rows(), rows().reindex("s", "x").reindex("s", "s").parallel("s_i"))
    p = matmul().split("c_i", 4, tail="clip")
    same(p, p.reindex("c", "a").compute_at("a_reindex", "c_i_0").shrink_buffer("a_reindex"))


def test_reindex_of_what_depends_on_nothing() -> None:
    p = written("""
@loop
def f(x: f32[4], y: f32["n"], n: i64):
    for a in grid(n):
        with block("t", S(a, n)) as (i,):
            y[i] = x[2] * 2.0
""")
    q = p.reindex("t", "x")
    assert "scratch x_reindex[]" in outline(q)
    same(p, q)


def test_reindex_of_gathered_rows() -> None:
    p = written("""
@loop
def f(at: i64["n"], x: f32[9, "k"], y: f32["n", "k"], n: i64, k: i64):
    for a, b in grid(n, k):
        with block("t", S(a, n), S(b, k)) as (i, j):
            y[i, j] = x[(at[i] * at[i]) % 9, j] * 2.0
""")
    q = p.reindex("t", "x")
    assert "scratch x_reindex[n, k]" in outline(q)
    same(p, q)
    q = p.reindex("t", "at")
    assert "scratch at_reindex[n]" in outline(q)
    same(p, q)


def test_a_copy_is_not_filled_for_no_iterations() -> None:
    """With m = 0 the block never runs, and x[i + m - 1] would be outside for i = 0."""
    p = written("""
@loop
def f(x: f32["n"], y: f32["n", "m"], n: i64, m: i64):
    for a, b in grid(n, m):
        with block("t", S(a, n), S(b, m)) as (i, j):
            y[i, j] = x[(i + m - 1) % m]
""")
    sizes = [(3, 0), (0, 2), (4, 2), (5, 5)]
    q = p.reindex("t", "x")
    assert "select(0 < m, x[" in function_text(q.function)
    same(p, q, sizes)
    q = p.stage_operand("t", "x")
    assert "select(0 < m, x[" in function_text(q.function)
    same(p, q, sizes)


def test_reindex_cache_read() -> None:
    p = windows()
    how = layout(lambda i, j, r, s: (i // 4, r * k + s, i % 4))
    q = p.reindex_cache_read("y", "x", how, pad=0.0)
    assert q.made == ("x_cache", "x_cache")
    assert outline(q).startswith("scratch x_cache[(n + 3)//4, 3*k, 4]")
    same(p, q, CASES)
    bare = p.reindex_cache_read("y", "x", how)
    assert "where 4*x_cache_v0 + x_cache_v2 < n" in outline(bare)
    same(p, bare, CASES)
    # An iterator that the access does not use: as often there as it has values.
    q = p.reindex_cache_read("y", "x", layout(lambda i, j, r, s: (j, i, r, s)), "scratch")
    assert "scratch x_cache[m, n, 3, k]" in outline(q)
    same(p, q, CASES)


def test_reindex_cache_write() -> None:
    p = matmul()
    q = p.reindex_cache_write("c", "c", layout(lambda i, j, r: (j // 4, i, j % 4)))
    assert outline(q) == lines("""
        scratch c_local[(m + 3)//4, n, 4]
        c_i < n
          c_j < m
            c_r < k
              c(c_i, c_j, c_r)
        c_store_0 < n
          c_store_1 < m
            c_store(c_store_0, c_store_1)
    """)
    assert q.made == ("c_store", "c_local")
    same(p, q)
    p = reversing()
    same(p, p.reindex_cache_write("y", "y", layout(lambda i: (i // 3, i % 3))))


def test_only_what_is_written_is_brought_back() -> None:
    p = written("""
@loop
def f(y: f32["2*n"], n: i64):
    for a in grid(n):
        with block("t", S(a, n)) as (i,):
            y[2*i + 1] = 3.0
""")
    q = p.reindex("t", "y")
    assert "scratch y_reindex[n]" in outline(q)
    same(p, q)


def test_reindex_refuses() -> None:
    refused(lambda: stencil().reindex("u", "t"), "it reads t at 3 places, not one")
    refused(lambda: stencil().reindex("u", "x"), "it reads x at 0 places, not one")
    refused(lambda: running().reindex("y", "y"), "it uses y at 2 places, not one")
    refused(lambda: chain().reindex("a", "z"), "there is no such buffer")
    split = rows().decompose_reduction("s", "s_r")
    refused(lambda: split.reindex("s", "s"), "it reads what was in s before")
    refused(lambda: split.reindex("s_init", "s"), "s is used in loop s_i as well")
    inside = chain().split("y_i", 4).compute_at("b", "y_i_0")
    refused(lambda: inside.reindex("b", "b"), "b is used in loop y_i_0 as well")
    shared = inside.parallel("y_i_0")
    refused(lambda: shared.reindex("y", "b"), "iterations of the parallel loop y_i_0")
    tile = stencil().split("u_i", 4, tail="clip").compute_at("t", "u_i_0").shrink_buffer("t")
    refused(lambda: tile.reindex("t", "t"), "where it writes t depends on u_i_0")
    how = layout(lambda i, j, r: (i, j))
    refused(lambda: matmul().reindex_cache_read("c", "a", how), "the part depends on c_vr")
    refused(lambda: matmul().reindex_cache_read("c", "c", how), "it writes c")
    refused(lambda: matmul().reindex_cache_write("c", "a", how), "it does not write a")
    bad = layout(lambda i, j, r: (i + j,))
    refused(lambda: matmul().reindex_cache_write("c", "c", bad), "the layout has no inverse")
    all3 = layout(lambda i, j, r: (i, j, r))
    refused(lambda: matmul().reindex_cache_write("c", "c", all3), "c_vr is not data parallel")
    one = layout(lambda i: (i,))
    refused(lambda: matmul().reindex_cache_write("c", "c", one), "c depends on c_vj")
    refused(lambda: matmul().reindex_cache_read("c", "a", (var("z"),)), "not one of 3 iterators")


def test_reindex_needs_every_element_once() -> None:
    text = """
@loop
def f(x: f32["n"], y: f32["n + m"], n: i64, m: i64):
    for a, b in grid(n, m):
        with block("t", S(a, n), S(b, m)) as (i, j):
            y[{}] = x[i]
"""
    refused(lambda: written(text.format("i + j")).reindex("t", "y"), "an element of y twice")
    refused(lambda: written(text.format("i")).reindex("t", "y"), "same element of y for all j")


def test_conditions() -> None:
    text = """
@loop
def f(x: f32["n"], y: f32["n"], n: i64):
    for a in grid(n):
        with block("t", S(a, n), where=2*a < n) as (i,):
            y[i] = x[{}]
"""
    p = written(text.format("i"))
    same(p, p.reindex("t", "x"))
    refused(lambda: p.reindex("t", "y"), "it runs under a condition")
    p = written(text.format("2*i"))
    refused(lambda: p.reindex("t", "x"), "it runs under a condition, which x may need")
    p = written("""
@loop
def f(x: f32["n"], y: f32["n"], n: i64):
    if 4 <= n:
        for a in grid(n):
            with block("t", S(a, n)) as (i,):
                y[i] = x[3]
""")
    refused(lambda: p.reindex("t", "x"), "it runs under a condition, which x may need")
    refused(lambda: p.reindex("t", "y"), "it is not known to run for all values")
    refused(lambda: p.cache_write("t"), "it is not known to run for all values")


def test_loops_that_may_not_run() -> None:
    p = written("""
@loop
def f(y: f32["n"], n: i64, m: i64):
    for b, a in grid(m, n):
        with block("t", S(a, n)) as (i,):
            y[i] = 3.0
""")
    refused(lambda: p.reindex("t", "y"), "it is not known to run for all values")
    refused(lambda: p.cache_write("t"), "it is not known to run for all values")


def test_blocks_that_run_through_a_part_of_their_domain() -> None:
    """Their copies hold nothing for the rest."""
    reason = "it is not known to run for all values of its iterators"
    parted = chain().loop_partition("y_i", n // 2)
    refused(lambda: parted.reindex("y", "y"), reason)
    refused(lambda: parted.reindex("y_t", "y"), reason)
    p = written("""
@loop
def f(x: f32["n"], y: f32["n"], n: i64):
    for a in grid(n // 2):
        with block("t", S(a, n)) as (i,):
            y[i] = x[i]
""")
    refused(lambda: p.reindex("t", "y"), reason)
    refused(lambda: p.cache_write("t"), reason)
    for tail in ("mask", "clip"):
        p = chain().split("y_i", 4, tail=tail).split("y_j", 3, tail=tail)
        same(p, p.cache_write("y"))
        same(p, p.reorder("y_j_0", "y_i_1").reindex("y", "y"))


def test_threads_do_not_share_a_copy_that_they_fill() -> None:
    p = chain().split("y_i", 4).compute_at("b", "y_i_0")
    same(p, p.cache_read("y", "b"))
    refused(lambda: p.parallel("y_i_0").cache_read("y", "b"), "iterations of the parallel loop")
