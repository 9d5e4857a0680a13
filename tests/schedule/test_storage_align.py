"""Room between rows: storage_align."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.loop.interpret import interpret
from pliant.loop.parser import parse_function
from pliant.loop.stmt import compact_strides
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.sym.expr import ceildiv, var
from tests.schedule.native import native
from tests.schedule.programs import ROW_SIZES, chain, matmul, rows, same, softmax, stencil
from tests.schedule.random_programs import INTRINSICS
from tests.schedule.test_tiles import tiles
from tests.schedule.threads import device_transposition, same_on_device, transposition

n, m, k = var("n"), var("m"), var("k")


def steps(p: Program, buffer: str, *sizes: int) -> list[int]:
    """The buffer's strides at some sizes."""
    given = dict(zip(p.function.sizes, sizes, strict=True))
    return [s.eval(given) for s in p.buffer(buffer).strides]


def test_storage_align() -> None:
    p = chain()
    q = p.storage_align("b", 0, 16)
    assert q.buffer("b").strides == (k + -k % 16, 1)
    assert [steps(q, "b", 3, s)[0] for s in (0, 1, 15, 16, 17)] == [0, 16, 16, 16, 32]
    same(p, q)
    q = p.storage_align("b", 0, 8, 3)
    assert [steps(q, "b", 3, s)[0] for s in (0, 3, 4, 11)] == [3, 3, 11, 11]
    same(p, q)
    q = p.storage_align("b", 1, 4, 1).storage_align("b", 0, 8)  # from the inside outwards
    assert steps(q, "b", 3, 5) == [8, 1]
    q = p.storage_align("b", 1, 4, 2).storage_align("b", 0, 8)
    assert steps(q, "b", 3, 5) == [16, 2]
    same(p, q)
    three = p.transform_layout("b", layout(lambda i, j: (i // 2, i % 2, j)))
    q = three.storage_align("b", 1, 16)
    assert steps(q, "b", 5, 7) == [32, 16, 1]
    same(p, q)


def test_rows_that_fit_stay() -> None:
    q = chain().transform_layout("b", layout(lambda i, j: (i, j // 8, j % 8)))
    assert q.storage_align("b", 1, 8).function is q.function
    assert q.buffer("b").strides == compact_strides((n, ceildiv(k, 8), 8))


def test_memory_is_as_large_as_strides_need() -> None:
    for p in (
        chain().storage_align("b", 0, 16),
        chain().storage_align("b", 0, 8, 3).storage_align("a", 1, 4, 3),
        softmax().storage_align("e", 0, 32, 1).split("y_j", 8).vectorize("y_j_1"),
        chain().split("b_j", 8).vectorize("b_j_1").storage_align("b", 1, 4, 3),
    ):
        for sizes in ROW_SIZES:
            rng = np.random.default_rng(0)
            x = rng.standard_normal(sizes).astype(np.float32)
            got, want = np.zeros_like(x), np.zeros_like(x)
            interpret(p.function, [x, want], sizes)
            native(p.function, [x, got], dict(zip(p.function.sizes, sizes, strict=True)))
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_registers(axis: int) -> None:
    p = tiles(matmul(), "c").storage_align("c_local", axis, 8, 3)
    assert p.buffer("c_local").scope == "register"
    same(matmul(), p)
    p = p.vectorize("c_j_1")
    for sizes in [(3, 5, 4), (7, 17, 5), (0, 3, 2)]:
        rng = np.random.default_rng(0)
        rows_, columns, depth = sizes
        a = rng.standard_normal((rows_, depth)).astype(np.float32)
        b = rng.standard_normal((depth, columns)).astype(np.float32)
        c = np.zeros((rows_, columns), np.float32)
        native(p.function, [a, b, c], dict(zip(p.function.sizes, sizes, strict=True)))
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_rows_in_different_banks() -> None:
    """What threads share: columns are read without two threads at one bank."""
    p = device_transposition()
    q = p.storage_align("x_cache", 0, 8, 1)
    assert q.buffer("x_cache").scope == "shared"
    assert q.buffer("x_cache").strides == (9, 1)
    same_on_device(transposition(), q)
    same_on_device(transposition(), p.transform_layout("x_cache", layout(lambda i, j: (j, i))))


def test_storage_align_refuses() -> None:
    def refused(p: Program, reason: str, *args: object) -> None:
        with pytest.raises(SchedulingError, match=reason):
            p.storage_align(*args)

    refused(chain(), "it is a parameter", "x", 0, 16)
    refused(chain(), "it has no dimension 2", "b", 2, 16)
    refused(chain(), "it has no dimension -1", "b", -1, 16)
    refused(chain(), "0 is no remainder of division by 0", "b", 0, 0)
    refused(chain(), "4 is no remainder of division by 4", "b", 0, 4, 4)
    aligned = chain().storage_align("b", 0, 16)
    refused(aligned, "dimension 0, outside of 1, has a step of its own", "b", 1, 4, 1)
    tile = rows().cache_write("s").split("s_i", 8).reverse_compute_at("s_store", "s_i_0")
    tile = tile.shrink_buffer("s_local")
    refused(tile, "it does not fit into registers", "s_local", 0, 4096)
    read = stencil().cache_read("u", "t")
    table = tiles(matmul().cache_read("c", "a"), "c")
    table = table.cache_index("c", "a_cache", "c_i_0", "c_r", ("c_i_1_0", "c_i_1_1"))
    refused(table, "or it is read by offset", "a_cache", 0, 16)
    same(stencil(), read.storage_align("t_cache", 0, 2, 1))


def test_rows_of_nothing_that_lie_apart() -> None:
    """Their places are behind memory of none; nothing is read there."""
    text = (
        "@loop\n"
        'def copied(x: f32["n", "k"], y: f32["n", "k"], n: i64, k: i64):\n'
        '    t = alloc(f32[n, k], scope="scratch")\n'
        "    for i, j in grid(n, k):\n"
        '        with block("t", S(i, n), S(j, k)) as (a, b):\n'
        "            t[a, b] = x[a, b] + 1.0\n"
        "    for g, h in grid(n, k):\n"
        '        with block("y", S(g, n), S(h, k)) as (a, b):\n'
        "            y[a, b] = t[a, b]\n"
    )
    (copy,) = (i for i in INTRINSICS if i.name == "copy_row")
    p = program(parse_function(text), intrinsics=[copy])
    q = p.storage_align("t", 0, 4, 3).tensorize("h", "copy_row")
    same(p, q, [(4, 0), (0, 3), (3, 5)], {copy.callee: copy.semantics})
