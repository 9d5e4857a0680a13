"""Sizes that no memory holds, that would wrap, that divide by zero, that leave a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant import ResourceError, ShapeError
from pliant.lower.guards import guards
from pliant.sym.expr import maximum, var
from pliant.sym.facts import Facts


class Apply(nn.Module):
    """A module of one argument out of a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: torch.Tensor) -> Any:
        return self.fn(x)


def compiled(fn: Callable[..., Any], example: torch.Tensor, *dims: str, **options: Any) -> Any:
    """`fn` with names for the first dims of its argument."""
    shapes = (dict(enumerate(dims)),)
    return pliant.compile(Apply(fn), (example,), dynamic_shapes=shapes, **options)


def test_a_product_of_sizes_that_does_not_fit() -> None:
    cube = lambda x: (x[:, None, None] * x[None, :, None] + x).cumsum(0).cumsum(2)  # noqa: E731
    f = compiled(cube, torch.ones(5), "n")
    assert torch.equal(f(torch.ones(3)), cube(torch.ones(3)))
    # 4 * n**3 bytes are 2**65 and 2**68: as 64-bit integers both are 0.
    for n in (1 << 21, 1 << 22):
        with pytest.raises(ResourceError) as caught:
            f(torch.ones(n))
        assert str(caught.value) == (
            f"the call is too large: 4*n**3 is more than 2**50, with n = {n}; use smaller inputs"
        )
    assert torch.equal(f(torch.ones(3)), cube(torch.ones(3)))


def test_more_memory_than_a_call_may_use() -> None:
    f = compiled(lambda x: x[:, None] * x, torch.ones(5), "n", memory_limit=1 << 20)
    assert f(torch.ones(512)).shape == (512, 512)
    with pytest.raises(ResourceError) as caught:
        f(torch.ones(513))
    assert str(caught.value) == (
        "main: cannot get 1,052,676 bytes of memory (the limit for a call is 1,048,576); use "
        "smaller inputs, or raise memory_limit"
    )


def test_an_input_that_is_too_large_to_copy() -> None:
    f = compiled(torch.relu, torch.ones(5, 4), "n")
    with pytest.raises(ResourceError, match=r"input x: f32\[n, 4\]: it must be copied, and cannot"):
        f(np.broadcast_to(np.float32(1), (1 << 50, 4)))
    huge = np.broadcast_to(np.float32(1), (0, 1 << 40))
    g = compiled(lambda x: x.sum(0), torch.ones(5, 4), "n", "m")
    with pytest.raises(ResourceError):
        g(huge)


def test_an_extent_too_small_for_its_symbol() -> None:
    n = torch.export.Dim("n")
    f = pliant.compile(nn.ReLU(), (torch.ones(9),), dynamic_shapes=({0: n + 3},))
    assert f(torch.ones(3)).shape == (3,)
    with pytest.raises(ShapeError) as caught:
        f(torch.ones(2))
    assert str(caught.value) == "input: dim 0 (n) must be at least 0, got -1"


def test_a_size_that_the_model_divides_by() -> None:
    f = compiled(lambda x: x.chunk(3)[2], torch.ones(9), "n")
    assert f(torch.arange(8.0)).tolist() == [6, 7]
    with pytest.raises(ShapeError) as caught:
        f(torch.ones(0))
    assert str(caught.value) == "(n + 2)//3 must be at least 1 here, got 0: the model divides by it"


OUTSIDE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int, str]] = {
    "an element": (lambda x: x[4], 4, "the slice [4:5:1] must lie inside of dim 0, of size n"),
    "from the end": (
        lambda x: x[-4], 3, "the slice [n - 4:n - 3:1] must lie inside of dim 0, of size n",
    ),
    "narrow": (
        lambda x: x.narrow(0, 2, 3), 4, "the slice [2:5:1] must lie inside of dim 0, of size n",
    ),
    "select_scatter": (
        lambda x: x.select_scatter(torch.zeros(()), 0, 4), 4,
        "what is put in a slice of dim 0 must have the slice's size",
    ),
    "slice_scatter": (
        lambda x: x.slice_scatter(torch.zeros(3), 0, 2, 5), 4,
        "what is put in a slice of dim 0 must have the slice's size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTSIDE)
def test_places_outside_of_a_tensor(case: str) -> None:
    fn, size, text = OUTSIDE[case]
    f = compiled(fn, torch.ones(9), "n")
    assert torch.equal(f(torch.arange(size + 1.0)), fn(torch.arange(size + 1.0)))
    for n in (size, 0):
        with pytest.raises((IndexError, RuntimeError)):  # torch refuses it too
            fn(torch.ones(n))
        with pytest.raises(ShapeError) as caught:
            f(torch.ones(n))
        assert text in str(caught.value)


def test_slices_that_are_cut_short_are_no_error() -> None:
    fn = lambda x: (x[3:7], x[-4:], x[5:2], x[::2], x.flip(0)[1:])  # noqa: E731
    f = compiled(fn, torch.ones(9), "n")
    for n in (0, 1, 3, 5, 9):
        for found, wanted in zip(
            f(torch.arange(float(n))), fn(torch.arange(float(n))), strict=True
        ):
            assert torch.equal(found, wanted)


def test_guards_say_what_is_not_known() -> None:
    n, m = var("n"), var("m")
    facts = Facts()
    facts.declare("n", 0, 1000)
    facts.declare("m", 0)
    assert guards([n * n * 4, n, m, (n + 5) // 8], facts) == []
    assert len(guards([m * m, 2 * m * m], facts)) == 1  # the larger one
    divisor, product = guards([n // m * m], facts)
    assert divisor.error == "ShapeError" and product.error == "ResourceError"
    assert not [g for g in guards([n // maximum(m, 1)], facts) if g.error == "ShapeError"]
    with pytest.raises(ResourceError, match="more than 2\\*\\*50"):
        guards([n * 0 + (1 << 51)], facts)
