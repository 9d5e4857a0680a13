"""Maps that compute something else at each place of a period run a period at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pliant.base.dtypes import f32
from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.graph.builder import Builder
from pliant.graph.function import Dim
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Tensor, compute, select
from pliant.loop.interpret import interpret
from pliant.loop.stmt import For
from pliant.lower.function import lower_function
from pliant.schedule.program import Program
from pliant.schedule.recipes.map import map_recipe
from pliant.schedule.recipes.start import start
from pliant.sym.expr import Int, var
from tests.schedule.native import native
from tests.schedule.programs import same

Case = Callable[[Int, Int, Int], Sequence[tuple[Int, int]]]  # places, and which they are asked for


def chosen(x: Tensor, case: Case, at: Sequence[Int]) -> Expr:
    """As many times x as the first place that is the one asked for says."""
    value: Expr = x[tuple(at)]
    for n, (place, which) in enumerate(case(*at), 2):
        value = select(as_expr(place).eq(which), x[tuple(at)] * float(n), value)
    return value


def scheduled(case: Case, *dims: Any) -> tuple[Program, Program]:
    """The kernel as it is written, and by the recipe."""

    def waves(x: Tensor) -> Tensor:
        return compute(x.shape, lambda *at: chosen(x, case, at), "waves")

    operators = {"waves": Operator("waves", waves)}
    b = Builder("main", operators)
    for name in filter(lambda d: isinstance(d, str), dims):
        b.dim(name, Dim())
    shape = [var(d) if isinstance(d, str) else d for d in dims]
    y = b.call("waves", b.param("x", f32, shape))
    function, _ = b.finish([y])
    ((_, launch),) = lower_function(function, operators, 4).main.launches
    return start(launch.spec), map_recipe(launch.spec, 4)


def unrolled(p: Program) -> set[int]:
    return {s.extent.value for s in p.statements() if isinstance(s, For) and s.kind == "unrolled"}


PERIODS: dict[str, tuple[Case, set[int]]] = {
    "rows": (lambda i, j, k: [(i % 3, n) for n in range(3)], {3}),
    "columns": (lambda i, j, k: [(j % 4, n) for n in (0, 1, 3)], {4}),
    "both": (
        lambda i, j, k: [(i % 3, n) for n in range(3)] + [(j % 4, n) for n in range(4)], {3, 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PERIODS)
def test_periods(name: str) -> None:
    case, periods = PERIODS[name]
    p, q = scheduled(case, "h", "w", "c")
    assert unrolled(q) == periods
    same(p, q, [(6, 8, 8), (7, 9, 5), (1, 1, 1), (2, 11, 4), (0, 4, 3), (5, 3, 0)])


def test_places_of_a_short_dimension() -> None:
    p, q = scheduled(lambda i, j, k: [(j, n) for n in range(5)], "h", 6, "c")
    assert unrolled(q) == {6}
    same(p, q, [(2, 9), (1, 1), (0, 4)])


@pytest.mark.parametrize(
    "case",
    [
        lambda i, j, k: [(k % 4, n) for n in range(4)],  # along which vectors lie
        lambda i, j, k: [(j % 4, n) for n in range(2)],
        lambda i, j, k: [(j % 4, 0), (j % 3, 1), (j % 4, 2), (j % 4, 3)],
        lambda i, j, k: [(j % 20, n) for n in range(4)],
        lambda i, j, k: [(j, n) for n in range(4)],
    ],
)
def test_others(case: Case) -> None:
    p, q = scheduled(case, "h", "w", "c")
    assert not unrolled(q)
    same(p, q, [(3, 8, 8), (2, 9, 5)])


@pytest.mark.parametrize(("name", "products"), [("rows", 3), ("columns", 3), ("both", 12)])
def test_code(name: str, products: int) -> None:
    """Machine code knows at each place which case that is, and computes no other."""
    p, q = scheduled(PERIODS[name][0], "h", "w", "c")
    x = np.random.default_rng(0).random((7, 9, 21), np.float32)
    sizes = dict(zip(("n0", "n1", "n2"), (7, 9, 21), strict=True))
    y, z = np.zeros_like(x), np.zeros_like(x)
    interpret(p.function, [x, y], {n: sizes[n] for n in p.function.sizes})
    native(q.function, [x, z], {n: sizes[n] for n in q.function.sizes})
    np.testing.assert_array_equal(z, y)
    text = kernel_source(q.function, target("x86-64-avx512")).text
    assert text.count("fmul") == products
