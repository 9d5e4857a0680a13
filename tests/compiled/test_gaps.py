"""Rows of operands that begin multiples of a page after one another."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant.codegen.llvm.target import target as find_target
from pliant.frontend.select import Request, import_model
from pliant.ops.table import OPERATORS
from tests.compiled.torch_run import Apply
from tests.stages.oracle import stages_of
from tests.targets import skipped_without

ROWS = (0, 1, 2, 13, 14, 15, 31, 113)


def weight(*shape: int) -> nn.Parameter:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return nn.Parameter(made / shape[-1] ** 0.5)


UP, DOWN, WIDE = weight(1024, 24), weight(17, 1024), weight(2048, 24)
KERNEL = weight(40, 1024, 1, 1)


def between(x: torch.Tensor) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(x, UP)), DOWN)


def also_a_result(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    middle = F.linear(x, UP).relu()
    return middle, F.linear(middle, DOWN)


def heads(x: torch.Tensor) -> torch.Tensor:
    split = F.linear(x, UP).unflatten(-1, (16, 64)).softmax(-1)
    return F.linear(split.flatten(-2), DOWN) + F.linear(x, UP)[:, :17]


def two_readers(x: torch.Tensor) -> torch.Tensor:
    middle = F.linear(x, UP).tanh()
    return F.linear(middle, DOWN) + F.linear(middle.flip(-1), DOWN) + middle[:, 3:20]


def both_halves(x: torch.Tensor) -> torch.Tensor:
    a, b = F.linear(x, WIDE).chunk(2, -1)
    return F.linear(F.silu(a) * b, DOWN)


def pixels(x: torch.Tensor) -> torch.Tensor:
    maps = F.linear(x, UP).relu().T.reshape(1, 1024, -1, 1)
    return F.conv2d(F.conv2d(maps, KERNEL), KERNEL.transpose(0, 1).contiguous()).mean(1)


CASES: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (between, also_a_result, heads, two_readers, both_halves, pixels)
}


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_values_with_gaps(case: str) -> None:
    fn = CASES[case]
    f = pliant.compile(Apply(fn), (torch.randn(8, 24),), dynamic_shapes=(({0: "rows"},),))
    for rows in ROWS[1:] if fn is pixels else ROWS:  # no window lies in a picture of nothing
        x = torch.randn(rows, 24, generator=torch.Generator().manual_seed(rows))
        torch.testing.assert_close(f(x), fn(x), rtol=1e-4, atol=1e-5)
    assert f.stats()["compiles"] == 1


def decided(fn: Callable[..., Any], target: str, columns: int = 24) -> tuple[int, int]:
    """How many kernels write rows with gaps, and how many copy the rows that they read."""
    request = Request(Apply(fn), (torch.randn(8, columns),), None, (({0: "rows"},),))
    imported = import_model(request, OPERATORS)
    main = stages_of(imported.function, {}, find_target(target), programs=False).parts[-1]
    gaps = copies = 0
    for _, launch in main.launches:
        spec = launch.spec
        sizes = dict(zip(spec.sizes, launch.sizes, strict=True))
        for name in spec.outputs:
            *_, step, one = spec.strides_of(name)
            gaps += one == 1 and (step - spec.tensor(name).shape[-1]).subs(sizes) != 0
        copies += any(plan.gather for _, plan in spec.plans)
    return gaps, copies


def test_who_keeps_rows_apart() -> None:
    assert decided(between, "x86-64-avx512") == (1, 0)
    assert decided(also_a_result, "x86-64-avx512") == (0, 1)
    assert decided(two_readers, "x86-64-avx512") == (1, 1)  # what is reversed is copied
    assert decided(between, "x86-64-avx2") == (
        0,
        0,
    )  # its tiles have fewer rows than a set has lines


def test_one_kernel_for_rows_with_gaps_and_without() -> None:
    weights = [weight(b, a) for a, b in pairwise((64, 1024, 128, 2048, 32))]

    def products(x: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = F.linear(x, w).relu()
        return x

    assert decided(products, "x86-64-avx512", 64) == (2, 0)
    f = pliant.compile(Apply(products), (torch.randn(8, 64),), target="x86-64-avx512")
    assert str(f.explain()).count("[contraction") == len(weights)
    assert len(set(re.findall(r"k_contraction_\w+", str(f.explain())))) == 1


@skipped_without("x86-64-avx512")
def test_rows_of_parameters_are_copied() -> None:
    f = pliant.compile(nn.Linear(1024, 17), (torch.randn(8, 1024),), target="x86-64-avx512")
    assert "rows gathered" in f.explain()
    f = pliant.compile(nn.Linear(1008, 17), (torch.randn(8, 1008),), target="x86-64-avx512")
    assert "rows read in place" in f.explain()


class Product(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b).relu()


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_rows_as_long_as_a_call_says(precision: str | None) -> None:
    dims = {"a": {0: "m", 1: "k"}, "b": {0: "k", 1: "n"}}
    example = torch.randn(8, 24), torch.randn(24, 40)
    f = pliant.compile(Product(), example, dynamic_shapes=dims, precision=precision)
    rtol, atol = (1e-4, 1e-4) if precision is None else (3e-2, 1.0)
    for k in (0, 1, 1023, 1024, 1025, 2048, 4096):
        for m, n in ((0, 5), (1, 1), (14, 33), (113, 70)):
            generator = torch.Generator().manual_seed(k + m)
            a, b = (torch.randn(s, generator=generator) for s in ((m, k), (k, n)))
            torch.testing.assert_close(f(a, b), (a @ b).relu(), rtol=rtol, atol=atol)
    assert f.stats()["compiles"] == 1


@skipped_without("x86-64-avx512")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_for_either_length_of_rows(dtype: torch.dtype) -> None:
    """The guard is in bytes; where the rows are known to collide, or not to, there is none."""
    example = torch.randn(8, 2048, dtype=dtype), torch.randn(2048, 40, dtype=dtype)
    dims = {"a": {0: "m", 1: "k"}, "b": {0: "k"}}
    lengths = 4096 // dtype.itemsize

    def told(**known: int) -> str:
        f = pliant.compile(
            Product(), example, dynamic_shapes=dims, target="x86-64-avx512",
            dims={"k": pliant.Dim(**known)},
        )  # fmt: skip
        return f.explain()

    either = told()
    assert "rows read in place" in either and "rows gathered" in either
    assert f"where {dtype.itemsize}*(k%{lengths}) is 0: k_contraction_" in either
    known = told(multiple=lengths)
    assert "rows gathered" in known and "rows read in place" not in known
    f = pliant.compile(Product(), example, dynamic_shapes=dims, target="x86-64-avx2")
    assert "rows gathered" not in f.explain()  # its tiles have fewer rows than a set has lines
