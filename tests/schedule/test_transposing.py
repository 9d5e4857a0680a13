"""A transposition turns squares of its source in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.base.dtypes import DTYPES, DType
from pliant.codegen.llvm.target import target
from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Index
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.rows_ahead import rows_ahead
from pliant.loop.stmt import (
    PREFETCH,
    STREAM,
    Alloc,
    BufferRef,
    For,
    Function,
    Invoke,
    Let,
    Seq,
    Stmt,
    buffer,
)
from pliant.lower.function import lower_function
from pliant.lower.row_facts import LARGE, NEAR
from pliant.ops.table import OPERATORS
from pliant.pipeline import compile_imported
from pliant.schedule.program import Program
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.square import square_name, square_of, squares
from pliant.schedule.recipes.start import start
from pliant.schedule.recipes.turning import PAST, READ
from pliant.sym.expr import as_int
from tests.schedule.native import native
from tests.schedule.programs import same


class Turn(torch.nn.Module):
    """Nothing but the transposition."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).contiguous()


class Last(torch.nn.Module):
    """Channels last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).contiguous()


class Ends(torch.nn.Module):
    """The first dimension and the last change places, others are between them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, -1).contiguous()


class Sum(torch.nn.Module):
    """Two that are turned, and one that is not."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.t() * z + y.t()


class Panels(torch.nn.Module):
    """The second operand is turned where it is packed; its last panel has columns of zeros."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b.mT


ROWS = {"a": {0: "batch", 1: "rows", 2: "depth"}, "b": {0: "batch", 1: "columns", 2: "depth"}}


def scheduled(
    module: torch.nn.Module, dynamic: Any, *args: torch.Tensor, large: int = LARGE, lanes: int = 4,
    near: int = NEAR,
) -> tuple[Program, Program]:  # fmt: skip
    """The kernel as it is written, and by the recipe, with squares of 4."""
    imported = import_model(Request(module, args, None, dynamic), OPERATORS)
    ((_, launch),) = lower_function(imported.function, OPERATORS, lanes).main.launches
    p = start(launch.spec, intrinsics=squares(lanes))
    return p, map_recipe(launch.spec, lanes, large, near)


def calls(p: Program) -> list[str]:
    """The intrinsics that are called, in program order."""
    return [s.callee for s in p.statements() if isinstance(s, Invoke)]


def check(
    p: Program, q: Program, cases: Sequence[Sequence[int]], count: int = 1, filled: int = 0,
    large: str = "scratch",
) -> None:  # fmt: skip
    """So many squares are turned, in registers, of which some were filled there, and first as many
    for outputs past the caches, whose blocks lie in `large`, if there may be such outputs; and the
    meaning is the same."""
    past = [large] * count if large else []
    assert calls(q) == ["transpose_f32_4"] * (count + len(past))
    scopes = past + ["register"] * (count + filled)
    assert [q.buffer(b).scope for b in q.allocated] == scopes
    same(p, q, cases, callees={i.callee: i.semantics for i in squares(4)})


def test_rows_and_columns() -> None:
    """Whole squares, and what is left of both sides, of sizes that are known or are not."""
    cases = [(3, 5), (4, 4), (9, 8), (0, 3), (17, 1), (35, 6)]
    for large in (LARGE, PAST):  # of the latter a byte is large
        dynamic = ({0: "rows", 1: "columns"},)
        check(*scheduled(Turn(), dynamic, torch.zeros(9, 7), large=large), cases)
    for shape in ((9, 7), (8, 12)):  # sizes below 16 are constants
        check(*scheduled(Turn(), None, torch.zeros(shape)), [()], large="")


def test_dimensions_of_one_element() -> None:
    """One image: its dimension has no loop."""
    for shape, dynamic, cases, large in [
        ((1, 8, 5, 7), {}, [()], ""),
        ((1, 8, 5, 7), {1: "c", 2: "h", 3: "w"}, [(8, 5, 7), (4, 1, 4), (3, 2, 2)], "scratch"),
        ((1, 8, 1, 12), {}, [()], ""),
        ((2, 8, 5, 7), {0: "n"}, [(1,), (3,), (0,)], "register"),  # blocks of 8 x 32
    ]:
        check(*scheduled(Last(), (dynamic,), torch.zeros(shape)), cases, large=large)


def test_dimensions_that_lie_together_are_one() -> None:
    cases = [(1, 4, 3, 3), (2, 5, 2, 4), (0, 4, 4, 4), (1, 9, 1, 11)]
    dynamic = ({0: "n", 1: "c", 2: "h", 3: "w"},)
    for large in (LARGE, PAST):
        check(*scheduled(Last(), dynamic, torch.zeros(2, 5, 3, 6), large=large), cases)


def test_dimensions_between() -> None:
    """What is turned lies apart in the output."""
    for shape, dynamic, cases in [
        ((9, 3, 8), {0: "n", 1: "m", 2: "k"}, [(9, 3, 8), (4, 1, 17), (33, 2, 5), (3, 0, 4)]),
        ((9, 2, 3, 7), {0: "n", 3: "k"}, [(9, 7), (4, 4), (6, 35)]),
    ]:
        for large in (LARGE, PAST):
            check(*scheduled(Ends(), (dynamic,), torch.zeros(shape), large=large), cases)


def test_several_sources() -> None:
    sizes = {0: "n", 1: "m"}
    x, z = torch.zeros(9, 7), torch.zeros(7, 9)
    for large in (LARGE, PAST):
        p, q = scheduled(Sum(), (sizes, sizes, {0: "m", 1: "n"}), x, x + 1, z, large=large)
        check(p, q, [(3, 5), (8, 4), (9, 6)], 2)


def asked_in(q: Program, names: dict[str, int]) -> set[int]:
    """Places, in elements, that a kernel asks for with these sizes, in all iterations of its first
    loop but the last."""
    plain = rows_ahead(lower_blocks(q.function))
    found = set[int]()

    def visit(s: Stmt, at: dict[str, int], depth: int = 0) -> None:
        if isinstance(s, Let):
            assert isinstance(s.value, Index)
            at = {**at, s.var.name: s.value.int_.subs(at).value}
        if not isinstance(s, For):
            one = isinstance(s, Alloc | Let)
            for part in s.stmts if isinstance(s, Seq) else [s.body] if one else []:
                visit(part, at, depth)
            return
        extent = s.extent.subs(at).value
        for k in range(extent if depth else extent - 1):
            here = {**at, s.var: k}
            if PREFETCH in dict(s.notes):
                _, lines, _, cache, size = dict(s.notes)[PREFETCH]
                assert cache == 1
                starts = [x.subs(here).value for x in lines]
                found.update(x + e for x in starts for e in range(size))
            visit(s.body, here, depth + 1)

    visit(plain.body, dict(names))
    return found


def test_blocks_ask_for_the_next() -> None:
    """All of it, line by line, for a first cache that is large; wide ones and narrow ones."""
    dynamic = ({0: "rows", 1: "columns"},)
    p, q = scheduled(Turn(), dynamic, torch.zeros(300, 600), lanes=16, near=48 << 10)
    assert calls(q) == ["turn_f32_16"]
    cases = [(3, 5), (16, 16), (70, 300), (0, 30), (170, 17)]
    same(p, q, cases, callees={i.callee: i.semantics for i in squares(16)})
    n, m = q.function.sizes
    for rows, columns in ((192, 512), (128, 64), (192, 128), (128, 256)):
        high, wide = 64, min(columns, 256)
        blocks = [
            {(i + a) * columns + j + b for a in range(high) for b in range(wide)}
            for i in range(0, rows, high) for j in range(0, columns, wide)
        ]  # fmt: skip
        sizes = [{n: rows, m: columns}, {n: columns, m: rows}]
        given = next(x for x in sizes if q.function.buffers[0].shape[0].subs(x).value == rows)
        assert asked_in(q, given) >= set().union(*blocks[1:])
    for module, args in ((Turn(), torch.zeros(300, 600)), (Sum(), torch.zeros(300, 300))):
        given = (args,) * (3 if isinstance(module, Sum) else 1)
        _, q = scheduled(module, None, *given, lanes=16)
        assert set(calls(q)) == {"transpose_f32_16"}  # asks by itself


def test_edges() -> None:
    """Squares that are not all in the source are filled before they are turned."""
    request = Request(Panels(), (torch.zeros(2, 5, 6), torch.zeros(2, 7, 6)), None, ROWS)
    function = import_model(request, OPERATORS).function
    (_, packing), _ = lower_function(function, OPERATORS, 8).main.launches
    p, q = start(packing.spec, intrinsics=squares(4)), map_recipe(packing.spec, 4)
    cases = [(b, n, k, -(-n // 8)) for b in (0, 1, 2) for n in (1, 8, 19) for k in (0, 3, 4, 9)]
    check(p, q, cases, 2, filled=1, large="")
    # A program that reads more panels than there are rows for.
    same(p, q, [(1, 3, 5, 4)], callees={i.callee: i.semantics for i in squares(4)})


class Filtered(torch.nn.Module):
    """Its image is turned before a convolution reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(24, 24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x)
        return y.permute(0, 2, 3, 1)


@pytest.mark.parametrize(("module", "part"), [(Last(), PAST), (Filtered().eval(), READ)])
def test_what_is_read_next_stays_in_the_caches_longer(module: torch.nn.Module, part: int) -> None:
    """Whoever reads it finds it there."""
    image = torch.zeros(1, 24, 40, 40)
    imported = import_model(Request(module, (image,), None, None), OPERATORS)
    (_, launch), *_ = lower_function(imported.function, OPERATORS, 4).main.launches
    p = map_recipe(launch.spec, 4)
    notes = [note for x in p.statements() if isinstance(x, For) for note in x.notes]
    assert {n for kind, n in notes if kind == STREAM} == {LARGE // part}


def test_too_few_for_a_square() -> None:
    """They are read where they lie."""
    for shape in ((3, 70), (70, 3)):
        p, q = scheduled(Turn(), None, torch.zeros(shape))
        assert not calls(q)
        same(p, q, [(70,), (5,)])


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_code(dtype: DType, lanes: int) -> None:
    """The code of each intrinsic does what its semantics says, whatever the distance of lines."""
    n = square_of(dtype, lanes)
    (known,) = (i for i in squares(lanes) if i.name == square_name(dtype, n))
    ldx = n + 5
    x = buffer("x", (n, n), dtype, strides=(ldx, 1))
    y = buffer("y", (n, n), dtype)
    start = (Index(as_int(0)), Index(as_int(0)))
    call = Invoke(known.callee, (BufferRef(x, start), BufferRef(y, start), Index(as_int(ldx))))
    given = np.random.default_rng(n).integers(0, 2, (n * ldx, dtype.bytes)).astype(np.uint8)
    given = given.reshape(-1).view(dtype.numpy)
    got = np.zeros(n * n, dtype.numpy)
    native(Function("turn", (x, y), (), call), [given, got], {})
    lines = np.lib.stride_tricks.as_strided(given, (n, n), (ldx * given.itemsize, given.itemsize))
    assert got.tobytes() == np.ascontiguousarray(lines.T).tobytes()


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(100, 90), (64, 128), (17, 131), (131, 65), (3, 70), (1, 99)])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool]
)
def test_transposed(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Whole squares and rests of both sides."""
    x = torch.arange(shape[0] * shape[1]).reshape(shape).remainder(251).to(dtype)
    module = Turn()
    f = compile_imported(import_model(Request(module, (x,)), OPERATORS), target(), OPERATORS)
    assert torch.equal(f(x), module(x))


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_packed(precision: str | None) -> None:
    example = torch.zeros(2, 5, 6), torch.zeros(2, 7, 6)
    f = pliant.compile(Panels(), example, dynamic_shapes=ROWS, precision=precision)
    for n in (1, 16, 31, 32, 33, 70):
        for k in (1, 15, 16, 64, 77):
            generator = torch.Generator().manual_seed(n + k)
            a, b = (torch.randn(2, r, k, generator=generator) for r in (3, n))
            got, want = f(a, b), a @ b.mT
            assert torch.dist(got, want) <= (1e-6 if precision is None else 2e-2) * want.norm()
    assert f.stats()["compiles"] == 1
