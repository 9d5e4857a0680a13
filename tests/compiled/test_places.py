"""What follows from places alone: computed once where it takes long, else where it is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply


def compiled(
    fn: Callable[..., Any] | torch.nn.Module, *args: torch.Tensor, **options: Any
) -> pliant.Compiled:
    """Compiled, and right."""
    module = fn if isinstance(fn, torch.nn.Module) else Apply(fn)
    f = pliant.compile(module, args, **options)
    torch.testing.assert_close(f(*args), module(*args), rtol=2e-5, atol=2e-5)
    return f


def once(f: pliant.Compiled) -> int:
    """Kernels that ran when it was compiled."""
    found = re.search(r"(\d+) more ran when it was compiled", f.explain())
    return int(found[1]) if found else 0


def phases(x: torch.Tensor) -> torch.Tensor:
    place = torch.arange(x.shape[-2])[:, None] * 10000 ** -(torch.arange(x.shape[-1]) / 8)
    return x * torch.cos(place) + x.roll(1, -1) * torch.sin(place)


def test_phases_of_known_sizes() -> None:
    """They are computed when the model is compiled, though there are no weights."""
    f = compiled(phases, tensor(2, 33, 16))
    assert once(f) > 0
    assert not {"cos", "sin", "pow"} & set(f.explain().split())


def test_phases_of_symbolic_sizes() -> None:
    """What follows from no size is computed once, the rest once in a call, not for each batch."""
    f = compiled(phases, tensor(2, 33, 16), dynamic_shapes=(({1: "s"},),))
    assert {"cos", "sin"} <= set(f.explain().split())
    assert "pow" not in f.explain().split()
    for s in (1, 2, 100):
        x = tensor(2, s, 16, seed=s)
        torch.testing.assert_close(f(x), phases(x), rtol=2e-5, atol=2e-5)


def test_places_for_both() -> None:
    """Places are wanted by phases, which are constants, and by a mask, which is not kept."""

    def both(q: torch.Tensor) -> torch.Tensor:
        place = torch.arange(q.shape[-2])
        turned = q * torch.cos(place.float())[:, None]
        scores = turned @ q.mT
        scores = scores.masked_fill(place[:, None] < place, -torch.inf)
        return F.softmax(scores, -1) @ q

    f = compiled(both, tensor(2, 3, 40, 16))
    assert once(f) > 0
    assert "[attention" in f.explain()


class Positions(torch.nn.Module):
    """A projection of sinusoids, as in Transformer-XL."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(16, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(20.0).flip(0)[:, None] / torch.arange(1.0, 9.0)
        sinusoids = torch.cat([angle.sin(), angle.cos()], -1)
        return x @ self.project(sinusoids).mT


def test_a_projection_of_places() -> None:
    f = compiled(Positions().eval(), tensor(3, 24))
    assert f.explain().count("[contraction") == 1


def test_nothing_but_places() -> None:
    """The result is made in every call: whoever called may write to it."""
    f = compiled(lambda x: torch.arange(7).float().exp() + 0 * x.sum(), tensor(3))
    first = f(tensor(3))
    first += 1
    torch.testing.assert_close(f(tensor(3)), torch.arange(7).float().exp())
