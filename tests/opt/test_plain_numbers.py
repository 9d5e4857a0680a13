"""Scalars that become part of the code."""

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant.frontend.select import Request, import_model
from pliant.ops.table import OPERATORS
from pliant.opt.plain_numbers import MOST, plain_numbers


class Scaled(nn.Module):
    def __init__(self, *numbers: float) -> None:
        super().__init__()
        for k, number in enumerate(numbers):
            self.register_buffer(f"n{k}", torch.tensor(number))
        self.count = len(numbers)

    def forward(self, x):
        for k in range(self.count):
            x = x * getattr(self, f"n{k}") + 1
        return x


def scalars_left(module: nn.Module, x: torch.Tensor) -> list[float]:
    imported = import_model(Request(module.eval(), (x,), None, None), OPERATORS)
    function = plain_numbers(imported.function, imported.weights)
    return sorted(float(imported.weights[key]) for v, key in function.weights if not v.shape)


@pytest.mark.parametrize(
    ("number", "plain"),
    [
        (6.0, True), (-0.5, True), (0.0, True), (1 / 64, True), (1024.0, True),
        (-0.0, False), (1 / 128, False), (0.1, False), (1025.0, False),
        (float("inf"), True), (float("-inf"), True), (float("nan"), False),
        (-1e9, True), (1e4, True), (-1.5e9, False), (torch.finfo(torch.float32).min, True),
    ],
)  # fmt: skip
def test_which_are_plain(number, plain):
    left = scalars_left(Scaled(number), torch.randn(3))
    assert len(left) == (0 if plain else 1)


@pytest.mark.parametrize(
    ("number", "dtype", "plain"),
    [
        (3, torch.int64, True), (-1024, torch.int32, True), (1025, torch.int64, False),
        (3, torch.uint8, False), (3, torch.int8, False), (1, torch.bool, False),
    ],
)  # fmt: skip
def test_whole_numbers(number, dtype, plain):
    """Of 8 bits they are zero points, one for each layer."""
    module = Scaled(0.1)
    module.n0 = torch.tensor(number, dtype=dtype)
    found = scalars_left(module, torch.arange(3))
    assert (float(number) in found) is not plain


def test_values_are_those_of_torch():
    x = torch.tensor([0.0, -0.0, 1.5, -7.0, 6.0, float("inf"), -float("inf"), float("nan"), 1e-45])
    for module in (nn.ReLU6(), nn.Hardtanh(-2.5, 0.5), Scaled(0.5, 0.0, -3.0, 0.1)):
        f = pliant.compile(module, (x,), dynamic_shapes=({0: "n"},))
        np.testing.assert_array_equal(f(x).numpy(), module(x).numpy())
    # Its quotient is a product with fast numerics.
    f = pliant.compile(nn.Hardswish(), (x,), dynamic_shapes=({0: "n"},), numerics="strict")
    np.testing.assert_array_equal(f(x).numpy(), nn.Hardswish()(x).numpy())
    f = pliant.compile(nn.Hardswish(), (x,), dynamic_shapes=({0: "n"},))
    np.testing.assert_allclose(f(x).numpy(), nn.Hardswish()(x).numpy(), rtol=2e-7, atol=1e-44)


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1)])
def test_arrays_of_one_number(shape):
    """They keep their shape, which results may have."""
    module = Scaled(6.0)
    module.n0 = torch.full(shape, 6.0)
    x = torch.randn(3, 4)
    imported = import_model(Request(module.eval(), (x,), None, None), OPERATORS)
    assert not any(v.shape == shape for v, _ in _kept(imported))
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "n"},))
    assert f(x).shape == module(x).shape
    torch.testing.assert_close(f(x), module(x))


def _kept(imported):
    return plain_numbers(imported.function, imported.weights).weights


def test_a_scalar_that_is_a_result():
    class Both(Scaled):
        def forward(self, x):
            return self.n0, x * self.n0

    f = pliant.compile(Both(2.0), (torch.randn(3),))
    n, y = f(torch.ones(3))
    assert n.item() == 2.0
    assert y.tolist() == [2.0] * 3


def test_of_many_the_most_frequent():
    """A kernel for each of hundreds of numbers would take a compiler minutes."""
    numbers = [float(k) for k in range(2, 102)]
    left = scalars_left(Scaled(*numbers, 101.0, 100.0), torch.ones(3))
    assert len(set(left)) == 101 - MOST  # 1 is added to each
    assert not {1.0, 100.0, 101.0} & set(left)  # which are there more than once
