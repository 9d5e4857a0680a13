"""Scales of channels that go into weights: which do, and that results stay what they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import pliant
from pliant.frontend.select import Request, import_model
from pliant.graph.function import Function
from pliant.ops.table import OPERATORS
from pliant.opt.fold_scales import fold_scales
from pliant.opt.plain_numbers import plain_numbers
from pliant.opt.reassociate import reassociate
from tests.compiled.torch_cases import tensor
from tests.frontend.torch.running import assert_same
from tests.woven import woven


def norm(module: nn.Module) -> nn.Module:
    """With statistics and parameters of its own."""
    torch.manual_seed(1)
    for p in (*module.parameters(), *module.buffers()):
        if p.dtype.is_floating_point:
            p.data = torch.rand_like(p) + 0.5
    return module


class Scaled(nn.Module):
    """A product and a factor for each of its channels."""

    def __init__(self, product: nn.Module, *shape: int, first: bool = False) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.product, self.first = product, first
        self.factor = nn.Parameter(torch.rand(*shape) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.product(x)
        return self.factor * y if self.first else y * self.factor


class Shifted(Scaled):
    """A product and a term for each of its channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.product(x)
        return self.factor + y if self.first else y + self.factor


MODELS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Sequential(nn.Conv2d(4, 6, 3), norm(nn.BatchNorm2d(6))),
    "no bias": lambda: nn.Sequential(nn.Conv2d(4, 6, 3, bias=False), norm(nn.BatchNorm2d(6))),
    "plain": lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, affine=False)),
    "groups": lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), norm(nn.BatchNorm2d(8))),
    "depthwise": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), norm(nn.BatchNorm2d(4))),
    "line": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 6, 3), norm(nn.BatchNorm1d(6))),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 2, 2), norm(nn.BatchNorm2d(6))),
    "both": lambda: nn.Sequential(
        Scaled(nn.Conv2d(4, 6, 1), 6, 1, 1, first=True), norm(nn.BatchNorm2d(6))
    ),
    "factor": lambda: Scaled(nn.Conv2d(4, 6, 3), 1, 6, 1, 1),
    "linear": lambda: Scaled(nn.Linear(7, 5), 5),
    "no bias, linear": lambda: Scaled(nn.Linear(7, 5, bias=False), 1, 5, first=True),
    "one factor": lambda: Scaled(nn.Linear(7, 5), 1),
    "one factor of an image": lambda: Scaled(nn.Conv2d(4, 6, 3), 1, 1),
    "one factor, transposed": lambda: Scaled(nn.ConvTranspose2d(4, 6, 2, 2), 1, first=True),
    "term": lambda: Shifted(nn.Conv2d(4, 6, 3), 6, 1, 1),
    "one term": lambda: Shifted(nn.Conv2d(4, 6, 3, bias=False), 1),
    "first term": lambda: Shifted(nn.Linear(7, 5), 5, first=True),
    "groups, factor and term": lambda: Shifted(Scaled(nn.Conv2d(4, 8, 3, groups=4), 1), 8, 1, 1),
}

STAY: dict[str, Callable[[], nn.Module]] = {
    "groups, transposed": lambda: nn.Sequential(
        nn.ConvTranspose2d(4, 6, 2, 2, groups=2), norm(nn.BatchNorm2d(6))
    ),
    "another dimension": lambda: Scaled(nn.Conv2d(4, 6, 1), 7),
    "a factor each": lambda: Scaled(nn.Conv2d(4, 6, 1), 6, 9, 7),
    "of rows": lambda: Scaled(nn.Linear(7, 5), 9, 1),
    "a term each": lambda: Shifted(nn.Conv2d(4, 6, 1), 6, 9, 7),
    "more dimensions": lambda: Scaled(nn.Linear(7, 5), 1, 1, 1, 1, 1),
    "twice": lambda: Twice(),
}


class Twice(nn.Module):
    """What the product gives is a result, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 6, 1), norm(nn.BatchNorm2d(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        return y, self.norm(y)


def folded(module: nn.Module, dtype: torch.dtype = torch.float32) -> tuple[Function, Function]:
    x = tensor(2, 4, 9, 7).to(dtype)
    request = Request(module.eval().to(dtype), (x,), None, ({0: "n"},))
    before = import_model(request, OPERATORS).function
    return before, fold_scales(before, OPERATORS)


@pytest.mark.parametrize("name", MODELS)
def test_what_goes_into_weights(name: str) -> None:
    _, function = folded(MODELS[name]())
    (result,) = function.results
    made = next(b for b in function.bindings if result in b.outputs)
    assert made.op in ("conv", "conv_transpose", "linear")


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str) -> None:
    before, after = folded(STAY[name]())
    assert before == after


class Numbers(nn.Module):
    """What follows a hard swish of PP-LCNet: numbers of the definition, then learned ones."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        self.first, self.conv = first, nn.Conv2d(4, 6, 3)
        torch.manual_seed(3)
        self.factor, self.term = (nn.Parameter(torch.rand(1) + 0.5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        y = y * torch.clamp(y + 3.0, 0.0, 6.0)
        y = self.factor * (y * 0.25) if self.first else (y / 6.0) * self.factor
        return y + self.term


@pytest.mark.parametrize("first", [False, True])
def test_numbers_go_into_factors(first: bool) -> None:
    module, x = Numbers(first=first).eval(), tensor(2, 4, 9, 7)
    imported = import_model(Request(module, (x,), None, ({0: "n"},)), OPERATORS)
    before = plain_numbers(imported.function, imported.weights)
    after = fold_scales(before, OPERATORS)
    large = [[b.op for b in f.bindings if len(b.outputs[0].shape) == 4] for f in (before, after)]
    assert large[0].count("mul") + large[0].count("div") == 3
    assert large[1].count("mul") + large[1].count("div") == 2
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "n"},))
    with torch.no_grad():
        assert_same(f(x), module(x), tolerance=1e-5)


def test_products_still_move() -> None:
    """One before an enlargement has weights that were computed."""
    x = tensor(2, 32, 9, 7)
    module = nn.Sequential(
        nn.Upsample(scale_factor=2), nn.Conv2d(32, 4, 1), norm(nn.BatchNorm2d(4))
    )
    request = Request(module.eval(), (x,), None, ({0: "n"},))
    function = fold_scales(import_model(request, OPERATORS).function, OPERATORS)
    ops = [b.op for b in reassociate(function, OPERATORS).bindings]
    assert "batch_norm" not in ops[ops.index("resize") :]
    assert ops.index("conv") < ops.index("resize")
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "n"},))
    with torch.no_grad():
        assert_same(f(x), module(x), tolerance=1e-5)


def test_short_floats_stay() -> None:
    before, after = folded(MODELS["conv"](), torch.float16)
    assert before == after


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "dtype"), woven([*MODELS], [torch.float32, torch.float64]))
def test_the_same_results(name: str, dtype: torch.dtype) -> None:
    module = MODELS[name]().eval().to(dtype)
    x = tensor(2, 4, 9, 7).to(dtype)
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "n"},))
    for n in (0, 1, 3):
        x = tensor(n, 4, 9, 7).to(dtype)
        with torch.no_grad():
            assert_same(f(x), module(x), tolerance=1e-5)


def test_in_pairs_of_bf16() -> None:
    module = MODELS["depthwise"]().eval()
    x = tensor(2, 4, 9, 7)
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "n"},), precision="bf16")
    with torch.no_grad():
        assert_same(f(x), module(x), tolerance=0.02)
