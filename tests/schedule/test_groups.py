"""Products of short numbers: intrinsics that want neighbours along the reduction together."""

from __future__ import annotations

import pytest

from pliant.base.dtypes import bf16, f32, i8, i32, u8
from pliant.ir.expr import Expr, Select, const
from pliant.ir.tensor import compute, placeholder, reduce, within
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import Invoke, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.sym.expr import IntLike, var
from tests.schedule.programs import same

n, m, k = var("n"), var("m"), var("k")
BYTES = MatmulIntrinsic("mm_u8i8_2x4", 2, 4, 4, u8, i8, i32, group=4)
HALVES = MatmulIntrinsic("mm_bf16_2x4", 2, 4, 4, bf16, bf16, f32, group=2)
CASES = [(3, 5, 4), (1, 1, 1), (0, 3, 2), (3, 0, 2), (2, 3, 0), (7, 9, 3), (5, 4, 9), (4, 8, 8)]


def product(mm: MatmulIntrinsic, depth: IntLike = k, rows: IntLike = n) -> Program:
    """c = a @ b in the type of the sums."""
    a, b = placeholder("a", (rows, depth), mm.a), placeholder("b", (depth, m), mm.b)
    c = compute(
        (rows, m),
        lambda i, j: reduce("sum", (depth,), lambda r: a[i, r].cast(mm.c) * b[r, j].cast(mm.c)),
        "c",
    )
    sizes = ["n"] * (rows is n) + ["m"] + ["k"] * (depth is k)
    return program(unscheduled("product", [c], [a, b], sizes), intrinsics=mm.intrinsics)


def tiled(p: Program, mm: MatmulIntrinsic, tail: str = "clip") -> Program:
    """Tiles of rows and columns, the second operand in panels of words."""
    g, width = mm.group, mm.columns
    panels = layout(lambda r, j: (j // width, r // g, j % width, r % g))
    p = p.cache_read("c", "b", layout=panels, pad=0).cache_write("c")
    p = p.split("c_i", mm.rows, tail="clip").split("c_j", width)
    p = p.reorder("c_i_0", "c_j_0", "c_i_1", "c_j_1", "c_r")
    p = p.reverse_compute_at("c_store", "c_j_0").shrink_buffer("c_local").pad_block("c")
    p = p.add_unit_loop("c_r").cache_index("c", "a", "c_i_0", "c_r", ("u", "c_i_1"))
    p = p.split("c_r", g, tail=tail) if g > 1 else p
    return p.decompose_reduction("c", "u")


@pytest.mark.parametrize("mm", [BYTES, HALVES], ids=["bytes", "halves"])
def test_one_row_has_no_next_one(mm: MatmulIntrinsic) -> None:
    """How far the next row of a tile is does not matter where there is only one."""
    p = product(mm, rows=1)
    q = tiled(p, mm).tensorize("c_i_1", mm.plain)
    same(p, q, [case[1:] for case in CASES], {mm.symbol: mm.intrinsics[0].semantics})


@pytest.mark.parametrize("mm", [BYTES, HALVES], ids=["bytes", "halves"])
def test_reached_from_a_plain_program(mm: MatmulIntrinsic) -> None:
    p = product(mm)
    q = tiled(p, mm).tensorize("c_i_1", mm.plain)
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert (call.callee, len(call.args)) == (mm.symbol, 10)
    same(p, q, CASES, {mm.symbol: mm.intrinsics[0].semantics})


@pytest.mark.parametrize("mm", [BYTES, HALVES], ids=["bytes", "halves"])
@pytest.mark.parametrize("depth", [1, 6, 8])
def test_constant_depth(mm: MatmulIntrinsic, depth: int) -> None:
    p = product(mm, depth)
    q = tiled(p, mm)
    name = f"{mm.plain}_whole" if depth % mm.group == 0 else mm.plain
    q = q.tensorize("c_i_1", name)
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert call.callee == mm.symbol
    same(p, q, [(3, 5), (1, 1), (4, 8), (0, 3)], {mm.symbol: mm.intrinsics[0].semantics})


def test_what_does_not_fit_is_refused() -> None:
    other = MatmulIntrinsic("mm", 2, 4, 4, u8, u8, i32, group=4)
    p = tiled(program(product(BYTES).function, intrinsics=other.intrinsics), other)
    with pytest.raises(SchedulingError, match="b_cache holds i8, b u8"):
        p.tensorize("c_i_1", other.plain)
    pairs = MatmulIntrinsic("mm", 2, 4, 4, u8, i8, i32, group=2)
    p = tiled(program(product(BYTES).function, intrinsics=pairs.intrinsics), BYTES)
    with pytest.raises(SchedulingError, match=r"is 4\*c_r_0 \+ c_r_1 where it has 2\*c_r_0"):
        p.tensorize("c_i_1", pairs.plain)
    with pytest.raises(SchedulingError, match="extent of c_r_1 is 4 where it has min"):
        tiled(product(BYTES), BYTES, tail="mask").tensorize("c_i_1", BYTES.plain)
    with pytest.raises(SchedulingError, match=r"extent of c_r_1 is .* where it has 4"):
        tiled(product(BYTES), BYTES).tensorize("c_i_1", f"{BYTES.plain}_whole")


@pytest.mark.parametrize("mm", [BYTES, HALVES], ids=["bytes", "halves"])
def test_rows_that_are_missing(mm: MatmulIntrinsic) -> None:
    """A convolution with padding: positions of a window, each a reduction with a tail."""
    x, w = placeholder("x", (n, k), mm.a), placeholder("w", (3, k, m), mm.b)

    def term(i: IntLike, j: IntLike, r: IntLike, s: IntLike) -> Expr:
        row = Select(within(i + r - 1, n), x[i + r - 1, s], const(0, mm.a))
        return row.cast(mm.c) * w[r, s, j].cast(mm.c)

    y = compute(
        (n, m),
        lambda i, j: reduce("sum", (3, k), lambda r, s: term(i, j, r, s)),
        "y",
    )
    p = program(unscheduled("windows", [y], [x, w], ["n", "m", "k"]), intrinsics=mm.intrinsics)
    g, width = mm.group, mm.columns
    panels = layout(lambda r, s, j: (j // width, r, s // g, j % width, s % g))
    q = p.cache_read("y", "w", layout=panels, pad=0).cache_write("y")
    q = q.split("y_i", mm.rows, tail="clip").split("y_j", width)
    q = q.reorder("y_i_0", "y_j_0", "y_i_1", "y_j_1", "y_r", "y_s")
    q = q.reverse_compute_at("y_store", "y_j_0").shrink_buffer("y_local").pad_block("y")
    q = q.cache_index("y", "x", "y_i_0", "y_s", ("y_r", "y_i_1"))
    q = q.split("y_s", g, tail="clip").decompose_reduction("y", "y_r")
    with pytest.raises(SchedulingError, match="found select where it has load"):
        q.tensorize("y_i_1", mm.plain)
    q = q.tensorize("y_i_1", mm.symbol)
    same(p, q, CASES, {mm.symbol: mm.intrinsics[0].semantics})
