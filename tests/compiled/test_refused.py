"""A schedule that a primitive refuses costs speed, not results."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.schedule.recipes import choose
from tests.compiled.torch_run import Apply


def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = (x @ w).relu()
    return y, y.softmax(1), y.sum(0), y.T.contiguous() + 1


def refused(*_: object) -> Program:
    raise SchedulingError("parallel", "loop i", "nobody knows why")


@pytest.fixture
def _refusing(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    for kind in ("map", "row", "reduction", "contraction"):
        monkeypatch.setattr(choose, f"{kind}_recipe", refused)


@pytest.mark.usefixtures("_refusing")
def test_the_program_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CHECK", "0")
    x, w = torch.randn(5, 7), torch.randn(7, 40)
    with pytest.warns(UserWarning, match="runs as it is written, which is slow: parallel of loop"):
        f = pliant.compile(Apply(model), (x, w), dynamic_shapes=(({0: "n"}, None),))
    for n in (0, 1, 9):
        x = torch.randn(n, 7)
        torch.testing.assert_close(f(x, w), model(x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("_refusing")
def test_checking_makes_it_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CHECK", "1")
    with pytest.raises(SchedulingError, match="nobody knows why"):
        pliant.compile(Apply(model), (torch.randn(5, 7), torch.randn(7, 40)))
