"""Vectors that lie in one run, or backwards, or nearly always so."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

import pliant
from pliant.codegen.llvm.runs import steps_of
from pliant.sym.expr import Int, as_int, maximum, minimum, var
from tests.compiled.torch_run import Apply

LANES, START, SIZE = var("lane"), var("a"), var("n")


def places() -> st.SearchStrategy[Int]:
    leaf = st.sampled_from([LANES, START, SIZE, as_int(3)])

    def larger(x: st.SearchStrategy[Int]) -> st.SearchStrategy[Int]:
        return st.one_of(
            st.builds(lambda a, b, k: a + k * b, x, x, st.integers(-2, 2)),
            st.builds(lambda a: a % SIZE, x),
            st.builds(lambda a, k: a // k, x, st.integers(1, 5)),
            st.builds(minimum, x, x),
            st.builds(maximum, x, x),
        )

    return st.recursive(leaf, larger, max_leaves=6)


@given(places(), st.integers(0, 40), st.integers(1, 20))
def test_no_step_is_outside(place: Int, start: int, size: int) -> None:
    least, greatest = steps_of(place, "lane")
    at = [place.subs({"lane": k, "a": start, "n": size}).value for k in range(9)]
    assert all(least <= b - a <= greatest for a, b in pairwise(at))


def test_what_is_known() -> None:
    inf = float("inf")
    assert steps_of(START - LANES, "lane") == (-1, -1)
    assert steps_of((START + LANES) % SIZE, "lane") == (-inf, 1)
    assert steps_of((START - LANES) % SIZE, "lane") == (-1, inf)
    assert steps_of(minimum(LANES - 2, 2 * SIZE - LANES), "lane") == (-1, 1)
    assert steps_of(SIZE * LANES, "lane") == (-inf, inf)


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["native", "x86-64-avx2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.flip(-1),
        lambda x: x.flip(0, 1),
        lambda x: x.flip(-1)[:, 2:],
        lambda x: x.roll(5, -1),
        lambda x: x.roll((3, -1), (1, 0)),
        lambda x: x.repeat(2, 3),
        lambda x: x.repeat(1, 3).flip(-1),
        lambda x: x.flip(-1).repeat(1, 2)[:, 1:],
        lambda x: torch.cat([x.flip(-1), x, x.flip(-1)], -1),
    ],
)
def test_sizes(read: Callable[[Tensor], Tensor], dtype: torch.dtype, target: str) -> None:
    f = pliant.compile(
        Apply(read),
        (torch.zeros(4, 60, dtype=dtype),),
        dynamic_shapes=(({0: "m", 1: torch.export.Dim("n", min=6, max=999)},),),
        target=target,
    )
    for n in (6, 7, 15, 16, 17, 31, 33, 100, 257):
        x = (torch.randn(3, n) * 9).to(dtype)
        assert torch.equal(f(x), read(x))


@pytest.mark.parametrize("mode", ["reflect", "circular", "replicate"])
def test_borders(mode: str) -> None:
    def function(x: Tensor) -> Tensor:
        return pad(x, (5, 3, 1, 2), mode=mode) * 2

    f = pliant.compile(
        Apply(function),
        (torch.zeros(1, 2, 30, 40),),
        dynamic_shapes=(({2: torch.export.Dim("h", min=6), 3: torch.export.Dim("w", min=6)},),),
    )
    for h, w in ((6, 6), (7, 15), (6, 16), (9, 17), (8, 40), (6, 133)):
        x = torch.randn(1, 2, h, w)
        assert torch.equal(f(x), function(x))
