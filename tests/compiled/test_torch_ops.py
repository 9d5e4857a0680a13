"""Compiled torch functions against torch eager: each compiled once, run at every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from tests.compiled.torch_cases import CASES, Case, small, tensor
from tests.compiled.torch_run import Apply, check, compiled


@pytest.mark.sweep(8)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_same_as_torch(case: Case) -> None:
    check(case)


def test_names_are_unique() -> None:
    names = [c.name for c in CASES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("fn", [
    lambda x, y: x // y, lambda x, y: x % y, lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: torch.fmod(x, y),
])  # fmt: skip
def test_integer_division_by_zero_fails_the_call(fn: Callable[..., Any]) -> None:
    f = compiled(Case("zero", fn, lambda n: (small(n), small(n) * 2 + 1)))
    for n in (1, 17):
        zero = torch.ones(n, dtype=torch.int64)
        f(zero, zero)
        zero[n - 1] = 0
        with pytest.raises(pliant.PliantError, match="zero"):
            f(zero, zero)


def test_an_index_out_of_range_fails_the_call() -> None:
    table = tensor(5, 3)
    f = compiled(Case("range", lambda i: table[i], lambda n: (torch.arange(n) % 5,)))
    f(torch.tensor([0, 4, -5]))
    for bad in (5, -6, 1 << 40):
        with pytest.raises(pliant.PliantError, match="range"):
            f(torch.tensor([0, bad, 0]))


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t(), "expanded": lambda x: x[:, :1].expand(-1, 6),
    "stepped": lambda x: x[::2, ::3], "offset": lambda x: x[1:, 2:], "empty": lambda x: x[:0],
    "one row": lambda x: x[:1].expand(5, -1),
}  # fmt: skip


def test_inputs_may_be_views() -> None:
    fn = lambda x: (x + 1, x.sum(0), x.softmax(1), x @ x.t(), x.flip(0))  # noqa: E731
    f = pliant.compile(
        Apply(fn), (tensor(4, 5),), dynamic_shapes=(({0: "n", 1: "m"},),)
    )  # fmt: skip
    for view in VIEWS.values():
        x = view(tensor(7, 12))
        for found, wanted in zip(f(x), fn(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_inputs_may_run_backwards() -> None:
    f = compiled(Case("backwards", lambda x: (x * 2, x.cumsum(0)), lambda n: (tensor(n, 3),)))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for view in (x[::-1], x[:, ::-1], x[::-1, ::-1]):
        doubled, running = f(view)
        np.testing.assert_array_equal(doubled, view * 2)
        np.testing.assert_allclose(running, view.cumsum(0), rtol=1e-6)


def test_results_go_to_the_callers_buffers() -> None:
    f = compiled(Case("out", lambda x: (x + 1, x.sum(1)), lambda n: (tensor(n, 3),)))
    for n in (0, 1, 17):
        x, out = tensor(n, 3), (torch.empty(n, 3), torch.empty(n))
        found = f(x, out=out)
        assert found[0].data_ptr() == out[0].data_ptr()
        torch.testing.assert_close(out, (x + 1, x.sum(1)))


def test_a_buffer_may_overlap_an_input() -> None:
    f = compiled(Case("overlap", lambda x: x.flip(0) + x.sum(0), lambda n: (tensor(n, 3),)))
    x = tensor(17, 3)
    wanted = x.flip(0) + x.sum(0)
    torch.testing.assert_close(f(x, out=x), wanted)


def test_extents_that_are_known_to_be_zero() -> None:
    fn = lambda x: (x[:, :0].sum(1), x[:, :0].square().sum(), x[:, :0] + 1, x[:, 3:].softmax(1))  # noqa: E731
    f = compiled(Case("nothing", fn, lambda n: (tensor(n, 3),)))
    for n in (0, 1, 17):
        for found, wanted in zip(f(tensor(n, 3)), fn(tensor(n, 3)), strict=True):
            assert torch.equal(found, wanted)
