"""Copies and tiles: cache_read, cache_write, pad_block, blockize, tensorize."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32
from pliant.ir.expr import Index, const
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import BufferRef, Function, Invoke, Store, buffer, for_, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.programs import matmul, outline, rows, same, softmax, stencil, tiled
from tests.schedule.test_loops import lines

K, lda, ldb, ldc = (var(name) for name in ("K", "lda", "ldb", "ldc"))
C = buffer("C", (2, 4), f32, strides=(ldc, 1))
A = buffer("A", (K, 2), f32, strides=(lda, 1))
B = buffer("B", (K, 4), f32, strides=(ldb, 1))
i, j, r = var("i"), var("j"), var("r")
PRODUCT = Function(
    "gemm_2x4",
    (C, A, B),
    ("K", "lda", "ldb", "ldc"),
    for_(
        [("r", K), ("i", 2), ("j", 4)],
        Store(C, (Index(i), Index(j)), C[i, j] + B[r, j] * A[r, i]),
    ),
)
ZERO = Function(
    "zero_2x4",
    (C,),
    ("ldc",),
    for_([("i", 2), ("j", 4)], Store(C, (Index(i), Index(j)), const(0.0, f32))),
)
CALLEES = {f.name: f for f in (PRODUCT, ZERO)}
INTRINSICS = [Intrinsic(f.name, f) for f in (PRODUCT, ZERO)]


def with_intrinsics(p: Program) -> Program:
    return program(p.function, p.facts, intrinsics=INTRINSICS)


def test_cache_read() -> None:
    p = stencil()
    q = p.cache_read("u", "t")
    assert q.made == ("t_cache", "t_cache")
    assert "t_cache_0 < n + 2\n  t_cache(t_cache_0)\nu_i < n" in outline(q)
    same(p, q)
    same(p, q.split("u_i", 4).compute_at("t_cache", "u_i_0").shrink_buffer("t_cache"))


def test_cache_read_in_panels() -> None:
    p = matmul()
    panels = layout(lambda row, col: (col // 4, row, col % 4))
    q = p.cache_read("c", "b", layout=panels, pad=0.0)
    assert outline(q).startswith("scratch b_cache[(m + 3)//4, k, 4]")
    assert "where" not in outline(q)
    same(p, q)
    bare = p.cache_read("c", "b", layout=panels)
    assert "where 4*b_cache_v0 + b_cache_v2 < m" in outline(bare)
    same(p, bare)
    same(p, p.cache_read("c", "a", layout=layout(lambda row, col: (col, row))))


def test_cache_read_refuses() -> None:
    p = softmax()
    with pytest.raises(SchedulingError, match="it does not read m"):
        p.cache_read("y", "m")
    with pytest.raises(SchedulingError, match="it writes s"):
        p.cache_read("s", "s")
    with pytest.raises(SchedulingError, match="the layout has no inverse"):
        p.cache_read("m", "x", layout=layout(lambda a, b: (a + b,)))
    with pytest.raises(SchedulingError, match="there is no such buffer"):
        p.cache_read("m", "z")


def test_cache_write() -> None:
    p = rows()
    q = p.cache_write("s")
    assert q.made == ("s_store", "s_local")
    assert outline(q) == lines("""
        scratch s_local[n]
        s_i < n
          s_r < k
            s(s_i, s_r)
        s_store_0 < n
          s_store(s_store_0)
    """)
    same(p, q)
    same(p, p.decompose_reduction("s", "s_i").cache_write("s") if False else q)
    q = q.reverse_compute_at("s_store", "s_i").shrink_buffer("s_local")
    assert "register s_local[1]" in outline(q)
    same(p, q)


def test_cache_write_refuses() -> None:
    with pytest.raises(SchedulingError, match="other statements write s elsewhere"):
        rows().decompose_reduction("s", "s_i").cache_write("s")
    panels = layout(lambda row, col: (col // 4, row, col % 4))
    p = matmul().cache_read("c", "b", layout=panels)
    with pytest.raises(SchedulingError, match="does not write all of b_cache"):
        p.cache_write("b_cache")


def test_pad_block() -> None:
    p, q = matmul(), tiled().pad_block("c")
    assert "c(2*c_i_0 + c_i_1, 4*c_j_0 + c_j_1, c_r)\n" in outline(q)
    same(p, with_history(p, q))
    split = tiled().decompose_reduction("c", "c_r")
    with pytest.raises(SchedulingError, match="block c_init, not padded with it, writes c_local"):
        split.pad_block("c")
    same(p, with_history(p, split.pad_block("c", "c_init")))


def test_pad_block_along_a_loop() -> None:
    """Of rows whole tiles, of columns what is there."""
    q = tiled().pad_block("c", along="c_i_0")
    assert q.block("c").iters[0].extent == 2 * q.loop("c_i_0").extent
    assert q.block("c").iters[1].extent == matmul().block("c").iters[1].extent
    assert q.block("c").where is not None
    same(matmul(), with_history(matmul(), q))
    with pytest.raises(SchedulingError, match="c_k is no loop around it"):
        tiled().pad_block("c", along="c_k")


def with_history(p: Program, q: Program) -> Program:
    """`q`, whose steps all began at `p`."""
    assert not p.trace
    return q


def test_pad_block_refuses() -> None:
    with pytest.raises(SchedulingError, match="its store to c may be out of bounds"):
        tiled().pad_block("c_store")
    with pytest.raises(SchedulingError, match="it has no condition"):
        matmul().pad_block("c")
    p = matmul().cache_write("c").split("c_i", 2)
    with pytest.raises(SchedulingError, match="may be out of bounds"):
        p.pad_block("c")


def test_blockize() -> None:
    p = matmul()
    q = p.split("c_j", 4).reorder("c_i", "c_j_0", "c_r", "c_j_1").decompose_reduction("c", "c_r")
    q = q.blockize("c_j_1")
    assert q.made == ("c_o",)
    assert [(it.kind, str(it.extent)) for it in q.block("c_o").iters] == [
        ("S", "n"), ("S", "(m + 3)//4"), ("R", "k"),
    ]  # fmt: skip
    same(p, q)
    same(p, q.parallel("c_i"))
    with pytest.raises(SchedulingError, match="block c has its init inside"):
        p.split("c_r", 4).blockize("c_r_1")
    with pytest.raises(SchedulingError, match="it is inside a block"):
        q.blockize("c_j_1")


def test_tensorize() -> None:
    p = with_intrinsics(matmul())
    q = p.cache_read("c", "a", layout=layout(lambda row, col: (row // 2, col, row % 2)), pad=0.0)
    q = q.cache_read("c", "b", layout=layout(lambda row, col: (col // 4, row, col % 4)), pad=0.0)
    q = q.cache_write("c").split("c_i", 2).split("c_j", 4)
    q = q.reorder("c_j_0", "c_i_0", "c_r", "c_i_1", "c_j_1").reverse_compute_at("c_store", "c_i_0")
    q = q.shrink_buffer("c_local").pad_block("c").decompose_reduction("c", "c_r")
    q = q.tensorize("c_r", "gemm_2x4").tensorize("c_i_1_init", "zero_2x4")
    calls = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert [c.callee for c in calls] == ["zero_2x4", "gemm_2x4"]
    address = calls[1].args[1]
    assert isinstance(address, BufferRef)
    assert str(address.indices[0]) == "Index(int_=c_i_0)"
    assert [str(s) for s in calls[1].args[3:]] == [f"Index(int_={x})" for x in ("k", "2", "4", "4")]
    same(p, q, callees=CALLEES)
    same(p, q.parallel("c_j_0"), callees=CALLEES)


def test_tensorize_finds_strides() -> None:
    p = with_intrinsics(matmul())
    q = p.cache_read("c", "a", layout=layout(lambda row, col: (col, row)))
    q = q.split("c_i", 2).split("c_j", 4).reorder("c_i_0", "c_j_0", "c_r", "c_i_1", "c_j_1")
    q = q.decompose_reduction("c", "c_r").loop_partition("c_i_0", var("n") // 2)
    q = q.loop_partition("c_j_0", var("m") // 4).tensorize("c_r", "gemm_2x4")
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert [str(s) for s in call.args[3:]] == [f"Index(int_={x})" for x in ("k", "n", "m", "m")]
    same(p, q, callees=CALLEES)


def test_tensorize_tells_why_not() -> None:
    p = with_intrinsics(matmul())
    q = p.split("c_i", 2).split("c_j", 4).reorder("c_i_0", "c_j_0", "c_r", "c_i_1", "c_j_1")
    with pytest.raises(SchedulingError, match="found seq where it has for"):
        q.tensorize("c_r", "gemm_2x4")
    q = q.decompose_reduction("c", "c_r")
    with pytest.raises(SchedulingError, match="found if where it has store"):
        q.tensorize("c_r", "gemm_2x4")
    q = q.loop_partition("c_i_0", var("n") // 2).loop_partition("c_j_0", var("m") // 4)
    with pytest.raises(SchedulingError, match=r"step of a along c_r is 1 where it has|step of a"):
        q.tensorize("c_r", "gemm_2x4")
    with pytest.raises(SchedulingError, match="extent of c_j_1 is 4 where it has 2"):
        q.tensorize("c_i_1", "gemm_2x4")
    with pytest.raises(SchedulingError, match="the program has no intrinsic 'other'"):
        q.tensorize("c_r", "other")


def test_pad_block_keeps_the_rows_of_what_is_used_by_address() -> None:
    n = var("n")
    x = placeholder("x", (n, n), f32)
    t = compute((n, n), lambda i, j: x[j, i], "t")
    y = compute((), lambda: reduce("sum", (n, n), lambda i, j: t[i, j]), "y")
    p = program(unscheduled("sums", [y], [x], ["n"]))
    p = p.cache_index("y", "t", "y_r", "y_s", ())
    p = p.cache_read("t", "x", layout=layout(lambda i, j: (i // 4, j, i % 4)), pad=0.0)
    p = p.split("t_j", 4, tail="mask")
    with pytest.raises(SchedulingError, match="t is used by address, and its rows would move"):
        p.pad_block("t")
