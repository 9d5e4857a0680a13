"""Scatters: what lies beside the places in vectors and threads, the places in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pliant
from pliant.base.errors import PliantError
from tests.compiled.torch_run import Apply

ROWS = (0, 1, 3, 17)
COLUMNS = (0, 1, 5, 16, 300)


def places(count: int, *shape: int) -> Tensor:
    """With many that are the same, and some from the end."""
    return torch.randint(-count, count, shape, generator=torch.Generator().manual_seed(1))


CASES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "added": lambda x, at, v: x.index_put((at,), v, accumulate=True),
    "columns": lambda x, at, v: x.mT.index_add(1, torch.where(at < 0, at + x.shape[0], at), v.mT),
    "after an axis": lambda x, at, v: x[:, None].expand(-1, 2, -1).index_put(
        (at,), v[:, None].expand(-1, 2, -1), accumulate=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rows(case: str) -> None:
    fn = CASES[case]
    dynamic = (({0: "n", 1: "k"}, {0: "m"}, {0: "m", 1: "k"}),)
    args = torch.randn(4, 6), places(4, 7), torch.randn(7, 6)
    one, two = (pliant.compile(Apply(fn), args, dynamic_shapes=dynamic, threads=t) for t in (1, 2))
    assert "[scatter]" in one.explain()
    for n in ROWS:
        for k in COLUMNS:
            for m in (0, 1, 23) if n else (0,):
                x, at, v = torch.randn(n, k), places(max(n, 1), m), torch.randn(m, k)
                got = one(x, at, v)
                torch.testing.assert_close(got, fn(x, at, v), rtol=1e-5, atol=1e-5)
                assert torch.equal(got, two(x, at, v))


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
@pytest.mark.parametrize("count", [0, 3])
def test_nothing_known_while_compiling(shape: tuple[int, ...], count: int) -> None:
    """Extents of 0 that are numbers."""
    x, v = torch.ones(shape), torch.ones(count, *shape[1:])
    at = torch.zeros(count if shape[0] else 0, dtype=torch.int64)
    v = v[: len(at)]

    def fn(x: Tensor, at: Tensor, v: Tensor) -> Tensor:
        return x.index_add(0, at, v)

    f = pliant.compile(Apply(fn), (x, at, v))
    torch.testing.assert_close(f(x, at, v), fn(x, at, v))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("reduction", ["sum", "prod", "amax", "amin", None])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_elements(dim: int, reduction: str | None) -> None:
    def fn(x: Tensor, at: Tensor, v: Tensor) -> Tensor:
        if reduction is None:
            return x.scatter(dim, at, v)
        return x.scatter_reduce(dim, at, v, reduction)

    dynamic = (({1: "b"}, {1: "b"}, {1: "b"}),)
    if dim == 1:
        dynamic = (({0: "a"}, {0: "a"}, {0: "a"}),)
    f = pliant.compile(Apply(fn), _elements(5, dim, fn), dynamic_shapes=dynamic)
    for size in (1, 2, 5, 40):
        x, at, v = _elements(size, dim, fn)
        torch.testing.assert_close(f(x, at, v), fn(x, at, v), rtol=1e-5, atol=1e-5)


def _elements(size: int, dim: int, fn: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values by a permutation along the dim, so that the last of equal places is the only one."""
    shape = [7, size, 19] if dim != 1 else [size, 7, 19]
    x = torch.randn(shape)
    order = torch.argsort(torch.rand(shape), dim)
    return x, order, torch.randn(shape)


def test_places_outside() -> None:
    fn = CASES["added"]
    f = pliant.compile(Apply(fn), (torch.zeros(4, 300), places(4, 7), torch.ones(7, 300)))
    at = places(4, 7)
    for wrong in (4, -5, 1 << 40):
        at[3] = wrong
        with pytest.raises(PliantError, match="index is out of range of size 4"):
            f(torch.zeros(4, 300), at, torch.ones(7, 300))


def test_integers_in_order() -> None:
    """The last of equal places wins."""
    fn = lambda x, at, v: x.index_put((at,), v)  # noqa: E731
    args = torch.zeros(4, 40, dtype=torch.int64), torch.tensor([2, 0, 2, 2]), _numbers(4, 40)
    f = pliant.compile(Apply(fn), args, threads=2)
    got = f(*args)
    assert torch.equal(got[2], args[2][3])
    assert torch.equal(got[0], args[2][1])
    assert not got[1].any()


def _numbers(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape)
