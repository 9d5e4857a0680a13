"""Transpositions, in registers and through a buffer (schedule/recipes/turning.py), against torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pliant
from tests.compiled.torch_run import Apply
from tests.targets import where_it_runs

SIZES = ((1, 1), (0, 9), (8, 16), (7, 33), (64, 64), (65, 127), (129, 40), (200, 263), (16, 515))
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int64)
Turn = Callable[[torch.Tensor], torch.Tensor]
TURNS: dict[str, Turn] = {
    "matrix": lambda x: x.mT.contiguous(),
    "batch": lambda x: x.reshape(-1, 1, 1).expand(-1, 2, 3).permute(2, 1, 0).contiguous(),
    "channels last": lambda x: (
        x.unflatten(0, (1, -1)).unsqueeze(2).permute(0, 2, 3, 1).contiguous()
    ),
    "ends": lambda x: x.unflatten(1, (1, -1)).expand(-1, 3, -1).permute(2, 1, 0).contiguous(),
    "with others": lambda x: torch.maximum(x.mT, x.amax(0)[:, None] - 1) + x.mT,
}


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return (torch.randn(shape) * 40).clamp(-60, 60).to(dtype)


@pytest.fixture(params=["in caches", "past caches"])
def _large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as large is so little that matrices of tests do, or not."""
    if request.param == "past caches":
        monkeypatch.setattr("pliant.schedule.recipes.turning.PAST", 1 << 14)
        monkeypatch.setenv("PLIANT_CACHE_DIR", "off")  # its kernels have the others' names


@pytest.mark.sweep
@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize("target", where_it_runs("native", "x86-64-avx2"))
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_matrices(dtype: torch.dtype, target: str) -> None:
    dims = ({0: "m", 1: "n"},)
    example = (drawn((24, 40), dtype),)
    f = pliant.compile(Apply(TURNS["matrix"]), example, dynamic_shapes=(dims,), target=target)
    for shape in SIZES:
        x = drawn(shape, dtype)
        assert torch.equal(f(x), x.mT)
    assert f.stats()["compiles"] == 1


@pytest.mark.sweep
@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize("how", TURNS)
def test_ways(how: str) -> None:
    turn = TURNS[how]
    f = pliant.compile(
        Apply(turn), (drawn((24, 40), torch.float32),), dynamic_shapes=(({0: "m", 1: "n"},),)
    )
    for shape in SIZES[2:]:
        x = drawn(shape, torch.float32)
        assert torch.equal(f(x), turn(x)), shape


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 2, 7), (2, 3, 4, 6, 5), (3, 2, 7, 10), (1, 3, 3, 2, 11)]
)
def test_small_images(shape: tuple[int, ...]) -> None:
    """Their places are split in tiles that fill no row: `(2*t + i)//14 + t`, `(2*t + i)//7 % 2` and
    `(2*t + i)%7` together are one number."""
    order = (0, *range(2, len(shape)), 1)
    f = pliant.compile(Apply(lambda x: x.permute(order).contiguous()), (torch.zeros(shape),))
    assert all("as written" not in line for line in str(f.explain()).splitlines())
    x = torch.randn(shape)
    assert torch.equal(f(x), x.permute(order))
    back = tuple(torch.tensor(order).argsort().tolist())
    y = torch.randn([shape[d] for d in order])
    g = pliant.compile(Apply(lambda y: y.permute(back).contiguous()), (y,))
    assert torch.equal(g(y), y.permute(back))
