"""Functions of torch tensors: names of parameters, weights of the modules that they refer to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.base.errors import InvalidModelError, UnsupportedError

torch.manual_seed(0)
LAYER = nn.Linear(4, 3)


class Pair(nn.Module):
    """Two ways to call it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 4)

    def encode(self, x: Tensor) -> Tensor:
        return self.a(x).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.encode(x))


PAIR = Pair()


def plain(x: Tensor, *, scale: float = 2.0) -> dict[str, Tensor]:
    return {"twice": x * scale, "sum": x.sum(-1)}


def of_global(x: Tensor) -> Tensor:
    return LAYER(x).tanh()


@torch.no_grad()
def decorated(x: Tensor) -> Tensor:
    return LAYER(x).sigmoid()


def enclosed() -> Callable[[Tensor], Tensor]:
    inner, shift = nn.Linear(4, 2), torch.ones(2)
    return lambda x: inner(x) + shift


def applied(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return layer(x) - y


class Exponential:
    def __call__(self, x: Tensor) -> Tensor:
        return x.exp()


CASES: dict[str, Any] = {
    "plain": plain,
    "torch's own": torch.sin,
    "method": PAIR.encode,
    "forward": PAIR.forward,
    "global": of_global,
    "decorated": decorated,
    "closure": enclosed(),
    "object": Exponential(),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES)
def test_functions(case: str) -> None:
    function = CASES[case]
    f = pliant.compile(function, (torch.randn(5, 4),), dynamic_shapes=({0: "n"},))
    for n in (0, 1, 7):
        x = torch.randn(n, 4)
        with torch.no_grad():
            torch.testing.assert_close(f(x), function(x))
    assert f.stats()["compiles"] == 1


def test_names_and_partial() -> None:
    f = pliant.compile(
        functools.partial(applied, LAYER),
        (torch.randn(5, 4),),
        kwargs={"y": torch.randn(3)},
        dynamic_shapes={"x": {0: "n"}, "y": None},
    )
    x, y = torch.randn(9, 4), torch.randn(3)
    torch.testing.assert_close(f(x, y=y), LAYER(x) - y)
    assert f.stats()["weights_bytes"] > 0


def test_weights_are_as_they_were() -> None:
    layer = nn.Linear(4, 4)
    function = lambda x: layer(x)  # noqa: E731
    f = pliant.compile(function, (torch.ones(2, 4),))
    before = f(torch.ones(2, 4)).clone()
    with torch.no_grad():
        layer.weight.zero_()
    torch.testing.assert_close(f(torch.ones(2, 4)), before)


def test_what_does_not_fit() -> None:
    with pytest.raises(InvalidModelError, match="the example inputs do not fit plain"):
        pliant.compile(plain, (torch.ones(2), torch.ones(2)))
    with pytest.raises(UnsupportedError, match="cannot compile a function: give a torch"):
        pliant.compile(plain)
    with pytest.raises(UnsupportedError, match="TorchScript"):
        pliant.compile(torch.jit.trace(plain_sum, torch.ones(3)), (torch.ones(3),))


def plain_sum(x: Tensor) -> Tensor:
    return x.sum()
