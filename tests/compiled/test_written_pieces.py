"""Values that are written element by element, and read while they are (`lower.read_pieces`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

Fn = Callable[[torch.Tensor], Any]


def _states(steps: int) -> Fn:
    """What a recurrence leaves at each step, and the last."""

    def run(x: torch.Tensor) -> Any:
        h, out = torch.zeros_like(x[:, 0]), torch.zeros_like(x)
        for t in range(steps):
            h = torch.tanh(h * 0.9 + x[:, t])
            out[:, t] = h * 2
        return out, h

    return run


def _read_back(x: torch.Tensor) -> Any:
    out = torch.zeros_like(x)
    out[:, 0] = x[:, 0]
    for t in range(1, x.shape[1]):
        out[:, t] = out[:, t - 1] * 0.5 + out[:, t // 2] - x[:, t]
    return out


def _backwards(x: torch.Tensor) -> Any:
    out = x * 3
    for t in reversed(range(1, x.shape[1] - 1)):
        out[:, t : t + 2] = out[:, t - 1 : t + 1] * 0.5
    return out


def _table(x: torch.Tensor) -> Any:
    """Along two axes, each element from those before it."""
    out = torch.ones_like(x)
    for i in range(1, x.shape[1]):
        for j in range(1, 4):
            out[:, i, j] = torch.minimum(out[:, i - 1, j], out[:, i, j - 1]) + x[:, i, j]
    return out


def _crosswise(x: torch.Tensor) -> Any:
    """Each is written along another axis than the one before."""
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        out[:, t] = x[:, t] * 2
        out[:, :, t] = x[:, :, t] * 3
    return out


def _seen_meanwhile(x: torch.Tensor) -> Any:
    """All that is there so far is a result, too, and is read as a whole."""
    out, seen = torch.zeros_like(x), []
    for t in range(4):
        out[:, t] = x[:, t].exp()
        seen.append(out.clone() if t % 2 else out.sum(1))
    return out, *seen


def _of_whole_parts(x: torch.Tensor) -> Any:
    """Parts that begin and end within pieces, and over several of them."""
    c = torch.cat([x, x * 2, x[:, :3] + 1], 1)
    n = x.shape[1]
    return torch.cat([c[:, 2:n], c[:, n - 1 : 2 * n + 1], c[:, 1:]], 1), c[:, n + 2], c[:, 2 * n :]


def _many(x: torch.Tensor) -> Any:
    """More pieces than a kernel reads."""
    c = torch.cat([x[:, k : k + 1] for k in reversed(range(x.shape[1]))], 1)
    return torch.cat([c[:, 3:], c[:, :-2]], 1)


CASES: dict[str, tuple[Fn, int]] = {
    "states": (_states(9), 9),
    "many": (_many, 40),
    "read back": (_read_back, 7),
    "backwards": (_backwards, 7),
    "table": (_table, 6),
    "crosswise": (_crosswise, 12),
    "seen meanwhile": (_seen_meanwhile, 5),
    "whole parts": (_of_whole_parts, 8),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    fn, steps = CASES[name]
    wide = 12 if name == "crosswise" else 21
    f = pliant.compile(Apply(fn), (tensor(3, steps, wide),), dynamic_shapes=(({0: "n"},),))
    for n in (3, 1, 8):
        x = tensor(n, steps, wide, seed=n)
        assert_same(f(x), fn(x), tolerance=1e-5)
    assert f.stats()["compiles"] == 1


def test_sizes_that_vary() -> None:
    """Where a piece begins follows from sizes; what cannot be known stays a concatenation."""
    f = pliant.compile(
        Apply(_of_whole_parts), (tensor(2, 9, 5),), dynamic_shapes=(({0: "n", 1: "m"},),),
        dims={"m": pliant.Dim(min=3)},
    )  # fmt: skip
    for n, m in ((2, 9), (1, 3), (3, 4), (1, 17)):
        x = tensor(n, m, 5, seed=m)
        assert_same(f(x), _of_whole_parts(x), tolerance=0)


def test_an_element_between_others() -> None:
    def put(x: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> Any:
        at = k.shape[0]
        out = torch.cat([x[:, :at], y, x[:, at + 1 :]], 1)
        return torch.cat([out[:, : at + 1], y * 2, out[:, at + 2 :]], 1)

    example = tensor(2, 11, 5), tensor(2, 1, 5), tensor(4)
    shapes = ({0: "n", 1: "m"}, {0: "n"}, {0: "k"})
    f = pliant.compile(
        Apply(put), example, dynamic_shapes=(shapes,), dims={"m": pliant.Dim(min=10)}
    )
    for n, m, k in ((2, 11, 4), (1, 10, 2), (2, 30, 8), (1, 12, 0)):
        args = tensor(n, m, 5), tensor(n, 1, 5), tensor(k)
        assert_same(f(*args), put(*args), tolerance=0)


def _lines(name: str) -> list[str]:
    fn, steps = CASES[name]
    f = pliant.compile(Apply(fn), (tensor(3, steps, 21),), dynamic_shapes=(({0: "n"},),))
    return [x for x in f.explain().splitlines() if "[map]" in x]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["states", "read back"])
def test_what_was_written_is_put_together_once(name: str) -> None:
    together = [x for x in _lines(name) if "concat" in x]
    assert len(together) == 1, together


def _chain(steps: int) -> Fn:
    """Choices between values that are made of the same value, by data and by a row's."""

    def run(x: torch.Tensor) -> Any:
        for t in range(steps):
            x = torch.where(x > t * 0.1, x * 0.5 + 1, x * 0.75)
            x = torch.where(x[:, :1] > 0.2, x * 0.9, x + 0.5)
        return x

    return run


def test_many_pieces_share_a_kernel() -> None:
    """Where some pieces begin in the whole is nothing that their kernel knows."""

    def run(x: torch.Tensor) -> Any:
        return torch.cat([x * k for k in range(200)], 1)

    f = pliant.compile(Apply(run), (tensor(3, 16),), dynamic_shapes=(({0: "n"},),))
    names = re.findall(r"(k_map_\w+) \[map\] concat", str(f.explain()))
    assert len(names) > len(set(names)) == 2  # of 64 pieces each, and of all
    for n in (3, 1, 8):
        assert_same(f(tensor(n, 16, seed=n)), run(tensor(n, 16, seed=n)))


def test_nested_choices() -> None:
    """There are as many paths as there are combinations; each value is computed once."""
    fn = _chain(20)
    f = pliant.compile(Apply(fn), (tensor(3, 21),), dynamic_shapes=(({0: "n"},),))
    for n in (3, 1, 8):
        x = tensor(n, 21, seed=n)
        assert_same(f(x), fn(x), tolerance=1e-5)


def test_nested_choices_under_a_row_mask() -> None:
    def run(x: torch.Tensor, m: torch.Tensor) -> Any:
        for t in range(24):
            x = torch.where(m[:, t : t + 1] > 0, x * 0.5 + 1, x * 0.75)
        return x

    f = pliant.compile(Apply(run), (tensor(3, 21), tensor(3, 24)),
                       dynamic_shapes=(({0: "n"}, {0: "n"}),))  # fmt: skip
    for n in (3, 1, 8):
        args = tensor(n, 21, seed=n), tensor(n, 24, seed=n + 1)
        assert_same(f(*args), run(*args), tolerance=1e-5)
