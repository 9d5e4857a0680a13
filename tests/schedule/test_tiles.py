"""What products need: named sizes, staged operands, tables of rows."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import f32
from pliant.ir.expr import Select, const
from pliant.ir.tensor import compute, placeholder, reduce, within
from pliant.loop.from_tensor import unscheduled
from pliant.loop.printer import function_text
from pliant.loop.regions import accesses
from pliant.loop.stmt import BufferRef, Invoke, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.sym.expr import minimum, var
from pliant.sym.facts import Facts
from tests.schedule.programs import chain, matmul, outline, rows, running, same, stencil
from tests.schedule.test_loops import lines

n, m, k = var("n"), var("m"), var("k")
MM = MatmulIntrinsic("mm_2x4", 2, 4, 2)
CASES = [(3, 5, 4), (1, 1, 1), (0, 3, 2), (3, 0, 2), (2, 3, 0), (7, 9, 3), (9, 8, 2)]


def windows() -> Program:
    """y[i, j] = sum over r, s of x[i + r - 1, s] * w[r, s, j], zeros outside: a convolution."""
    x, w = placeholder("x", (n, k), f32), placeholder("w", (3, k, m), f32)
    y = compute(
        (n, m),
        lambda i, j: reduce(
            "sum",
            (3, k),
            lambda r, s: (
                Select(within(i + r - 1, n), x[i + r - 1, s], const(0.0, f32)) * w[r, s, j]
            ),
        ),
        "y",
    )
    return program(unscheduled("windows", [y], [x, w], ["n", "m", "k"]), intrinsics=MM.intrinsics)


def tiles(p: Program, block: str) -> Program:
    """Blocks of two tiles of two rows, panels of four columns, in a buffer of their own."""
    p = p.cache_write(block).split(f"{block}_i", 4, tail="clip").split(f"{block}_i_1", 2, "clip")
    p = p.split(f"{block}_j", 4)
    reduced = [x for x in p.loops(block) if x not in _outer(block)]
    p = p.reorder(
        f"{block}_i_0", f"{block}_j_0", f"{block}_i_1_0", f"{block}_i_1_1", f"{block}_j_1", *reduced
    )
    p = p.reverse_compute_at(f"{block}_store", f"{block}_i_1_0")
    return p.shrink_buffer(f"{block}_local")


def _outer(block: str) -> set[str]:
    return {f"{block}_{x}" for x in ("i_0", "i_1_0", "i_1_1", "j_0", "j_1")}


def test_name_size() -> None:
    p = rows()
    q = p.name_size("tile", minimum(n + 1, 5)).split("s_i", var("tile"), tail="clip")
    assert "s_i_1 < min(-s_i_0*tile + n, tile)" in outline(q.loop("s_i_0"))
    same(p, q)
    same(p, q.cache_write("s").reverse_compute_at("s_store", "s_i_0").shrink_buffer("s_local"))
    with pytest.raises(SchedulingError, match="one in use"):
        p.name_size("s_i", n)
    with pytest.raises(SchedulingError, match="mentions s_r, which are not sizes"):
        p.name_size("tile", var("s_r") + 1)
    with pytest.raises(SchedulingError, match="is not known to be at least 1"):
        p.name_size("tile", n).split("s_i", var("tile"))


def test_cache_write_in_another_layout() -> None:
    p = matmul()
    q = p.cache_write("c", layout=layout(lambda i, j: (i * m + j,)))
    assert "scratch c_local[m*n]" in outline(q)
    same(p, q)
    with pytest.raises(SchedulingError, match="the layout has no inverse"):
        p.cache_write("c", layout=layout(lambda i, j: (i + j,)))
    with pytest.raises(SchedulingError, match="the layout is not one of 2 indices"):
        p.cache_write("c", layout=(var("z"),))


def test_fuse_keeps_parallel_loops() -> None:
    p = chain()
    q = p.parallel("y_i").parallel("y_j", grain=7).fuse("y_i", "y_j")
    loop = q.loop(q.made[0])
    assert (loop.kind, dict(loop.notes)) == ("parallel", {"grain": 7})
    same(p, q)
    with pytest.raises(SchedulingError, match="it is parallel already"):
        p.parallel("y_i").fuse("y_i", "y_j")


def test_clipped_tiles_need_no_conditions() -> None:
    p = stencil()
    q = p.split("u_i", 4, tail="clip").compute_at("t", "u_i_0").shrink_buffer("t")
    assert "where" not in outline(q)
    assert "register t[6]" in outline(q)  # as much as a whole tile needs
    same(p, q.parallel("u_i_0"))


def test_pad_block_makes_room() -> None:
    facts = Facts()
    for name in ("n", "k"):
        facts.declare(name)
    facts.declare("m", min=3, max=3)
    p = program(matmul().function, facts)
    q = p.cache_read("c", "b", layout=layout(lambda r, j: (j // 4, r, j % 4)), pad=0.0)
    q = q.cache_write("c").split("c_j", 4).reorder("c_i", "c_j_0", "c_r", "c_j_1")
    q = q.reverse_compute_at("c_store", "c_j_0").shrink_buffer("c_local")
    assert "register c_local[1, 3]" in outline(q)
    q = q.pad_block("c")
    assert "register c_local[1, 4]" in outline(q)
    same(p, q, [(2, 3, 4), (0, 3, 1), (3, 3, 0)])


def test_stage_operand() -> None:
    p = windows()
    q = p.stage_operand("y", "x")
    assert q.made == ("x_part", "x_part")
    assert outline(q).startswith(
        lines("""
            scratch x_part[n, 3, k]
            x_part_0 < n
              x_part_1 < 3
                x_part_2 < k
                  x_part(x_part_0, x_part_1, x_part_2)
            y_i < n
        """)
    )
    same(p, q, CASES)
    q = tiles(p, "y").stage_operand("y", "x").compute_at("x_part", "y_i_0").shrink_buffer("x_part")
    assert "scratch x_part[min(4, n - 4*y_i_0), 3, k]" in outline(q)
    same(p, q.parallel("y_i_0"), CASES)


def test_stage_operand_refuses() -> None:
    x, w = placeholder("x", (n,), f32), placeholder("w", (n,), f32)
    y = compute((n,), lambda i: x[i] * w[i] + x[n - 1 - i] * w[i], "y")
    with pytest.raises(SchedulingError, match="2 parts of its value are made of x"):
        program(unscheduled("parts", [y], [x, w], ["n"])).stage_operand("y", "x")
    with pytest.raises(SchedulingError, match="0 parts of its value are made of x_cache"):
        chain().cache_read("a", "x").stage_operand("b", "x_cache")
    with pytest.raises(SchedulingError, match="y is written where it is read"):
        running().stage_operand("y", "y")


def test_cache_index() -> None:
    p = windows()
    q = tiles(p, "y").cache_index("y", "x", "y_i_0", "y_s", ("y_i_1_0", "y_r", "y_i_1_1"))
    assert q.made == ("x_at", "x_at", "x_else", "x_else")
    assert "scratch x_at[6*((min(4, n - 4*y_i_0) + 1)//2)]" in outline(q)
    assert "x_at_0 < (min(4, n - 4*y_i_0) + 1)//2" in outline(q)
    same(p, q, CASES)
    p = matmul()
    q = tiles(p, "c").cache_index("c", "a", "c_i_0", "c_r", ("c_i_1_1", "c_i_1_0"))
    assert q.made == ("a_at", "a_at")
    same(p, q.parallel("c_i_0"), CASES)


def test_cache_index_refuses() -> None:
    p = tiles(windows(), "y")
    with pytest.raises(SchedulingError, match="where a row of x begins depends on y_r too"):
        p.cache_index("y", "x", "y_i_0", "y_s", ("y_i_1_0", "y_i_1_1"))
    with pytest.raises(SchedulingError, match="whether it reads x depends on y_r"):
        p.cache_index("y", "x", "y_i_0", "y_r", ("y_i_1_0", "y_i_1_1", "y_s"))
    with pytest.raises(SchedulingError, match="w does not lie element after element along y_s"):
        p.cache_index("y", "w", "y_i_0", "y_s", ("y_r", "y_j_1", "y_j_0"))
    with pytest.raises(SchedulingError, match="the extent of y_i_1_1 depends on loops that"):
        p.cache_index("y", "w", "y_i_0", "y_j_1", ("y_i_1_1", "y_j_0", "y_r", "y_s"))
    with pytest.raises(SchedulingError, match="name each at most once"):
        p.cache_index("y", "x", "y_i_0", "y_i_0", ("y_r",))
    with pytest.raises(SchedulingError, match="it is not under loop y_store_0"):
        p.cache_index("y", "x", "y_store_0", "y_s", ("y_r",))


def groups() -> Program:
    """y[g, i, j] = sum over r, s of x[i + r - 1, g, s] * w[g, r, s, j]: groups of channels."""
    x, w = placeholder("x", (n, 3, k), f32), placeholder("w", (3, 3, k, m), f32)
    y = compute(
        (3, n, m),
        lambda g, i, j: reduce(
            "sum",
            (3, k),
            lambda r, s: (
                Select(within(i + r - 1, n), x[i + r - 1, g, s], const(0.0, f32)) * w[g, r, s, j]
            ),
        ),
        "y",
    )
    return program(unscheduled("groups", [y], [x, w], ["n", "m", "k"]), intrinsics=MM.intrinsics)


def test_cache_index_shared() -> None:
    """One table for all groups, whose rows begin k elements after one another."""
    p = groups()
    q = p.cache_write("y").split("y_j", 4, tail="clip").split("y_j_1", 2, "clip").split("y_k", 4)
    q = q.reorder("y_j_0", "y_i", "y_k_0", "y_j_1_0", "y_j_1_1", "y_k_1")
    q = q.reverse_compute_at("y_store", "y_j_1_0").shrink_buffer("y_local")
    table = ("y_j_1_0", "y_r", "y_j_1_1")
    with pytest.raises(SchedulingError, match="a row of x begins depends on y_i too"):
        q.cache_index("y", "x", "y_j_0", "y_s", table)
    with pytest.raises(SchedulingError, match="a row of x begins depends on y_r too"):
        q.cache_index("y", "x", "y_j_0", "y_s", ("y_j_1_0", "y_j_1_1"), ("y_i", "y_r"))
    with pytest.raises(SchedulingError, match="name each at most once"):
        q.cache_index("y", "x", "y_j_0", "y_s", table, ("y_r",))
    r = q.cache_index("y", "x", "y_j_0", "y_s", table, ("y_i",))
    assert "x.flat[x_at[" in function_text(r.function)
    same(p, r, CASES)


def test_memory_read_by_offset() -> None:
    p = tiles(matmul(), "c").cache_index("c", "a", "c_i_0", "c_r", ("c_i_1_0", "c_i_1_1"))
    assert "a.flat[a_at[" in function_text(p.function)
    (found,) = [x for x in accesses(p.function.body) if x.buffer.name == "a"]
    assert (found.indices, found.write) == (None, False)
    with pytest.raises(SchedulingError, match="a call takes the address of a"):
        p.cache_read("c", "a")


def test_tensorize_with_a_table_of_rows() -> None:
    p = windows()
    q = panels(tiles(p, "y"), "y", "w")
    q = q.cache_index("y", "x", "y_i_0", "y_s", ("y_i_1_0", "y_r", "y_i_1_1"))
    with pytest.raises(SchedulingError, match="found select where it has load"):
        q.tensorize("y_i_1_1", MM.plain)
    q = q.parallel("y_i_0").tensorize("y_i_1_1", MM.symbol)
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert call.callee == MM.symbol
    names = [a.buffer.name for a in call.args if isinstance(a, BufferRef)]
    assert names == ["x", "x_at", "x_else", "w_cache", "y_local"]
    same(p, q, CASES, {MM.symbol: MM.intrinsics[0].semantics})


def test_tensorize_for_certain_arguments() -> None:
    p = program(matmul().function, intrinsics=MM.intrinsics)
    q = panels(tiles(p, "c"), "c", "b").add_unit_loop("c_r")
    q = q.cache_index("c", "a", "c_i_0", "c_r", ("c_i_1_0", "u", "c_i_1_1"))
    q = q.decompose_reduction("c", "u").tensorize("c_i_1_1", MM.plain)
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert call.callee == MM.symbol
    names = [a.buffer.name for a in call.args if isinstance(a, BufferRef)]
    assert names == ["a", "a_at", "c_local", "b_cache", "c_local"]
    same(p, q, CASES, {MM.symbol: MM.intrinsics[0].semantics})


def test_tensorize_with_a_shared_table() -> None:
    """Each group's rows are found from where those of its first begin."""
    p = groups()
    how = layout(lambda g, r, s, j: (g, j // 4, r * k + s, j % 4))
    q = p.cache_write("y").split("y_j", 4, tail="clip").split("y_j_1", 2, "clip").split("y_k", 4)
    q = q.reorder("y_j_0", "y_i", "y_k_0", "y_j_1_0", "y_j_1_1", "y_k_1")
    q = q.reverse_compute_at("y_store", "y_j_1_0").shrink_buffer("y_local")
    q = q.cache_read("y", "w", layout=how, pad=0.0).pad_block("y")
    q = q.cache_index("y", "x", "y_j_0", "y_s", ("y_j_1_0", "y_r", "y_j_1_1"), ("y_i",))
    q = q.decompose_reduction("y", "y_r").tensorize("y_j_1_1", MM.symbol)
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert f"{MM.symbol}(address(x[0, 0, k*y_i])" in function_text(q.function)
    names = [a.buffer.name for a in call.args if isinstance(a, BufferRef)]
    assert names == ["x", "x_at", "x_else", "w_cache", "y_local"]
    same(p, q, CASES, {MM.symbol: MM.intrinsics[0].semantics})


def panels(p: Program, block: str, weight: str) -> Program:
    """Reads the weight from panels of four columns."""
    if weight == "b":
        how = layout(lambda r, j: (j // 4, r, j % 4))
    else:
        how = layout(lambda r, s, j: (j // 4, r * k + s, j % 4))
    return p.cache_read(block, weight, layout=how, pad=0.0).pad_block(block)
