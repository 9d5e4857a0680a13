"""What is made of weights alone, when a model is compiled."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import pliant
from pliant.codegen.build import ONCE_LEVEL, host_source, spec_source
from pliant.codegen.llvm.compile import LEVEL
from pliant.codegen.llvm.target import target
from tests.compiled.torch_run import Apply, traced
from tests.stages.oracle import stages_of


class Scaled(nn.Module):
    """A product with weights that are scaled and packed, and the scaling of something given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 48))
        self.scale = nn.Parameter(torch.randn(40, 48))

    def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return x @ (self.weight * self.scale).tanh(), (other * self.scale).tanh()


def test_code_that_runs_once_is_quickly_made() -> None:
    """Maps of weights alone get LLVM's quick code generator, and their host; what runs in every
    call does not, of the same structure or not."""
    t, model = target(), Scaled().eval()
    args = torch.randn(7, 40), torch.randn(40, 48)
    stages = stages_of(*traced(model, args, None), t)
    first, main = stages.parts
    made = [spec_source(symbol, spec, t).level for symbol, spec in first.kernels.items()]
    assert made and set(made) == {ONCE_LEVEL}
    assert {spec_source(*pair, t).level for pair in main.kernels.items()} == {LEVEL}
    assert first.kernels.keys().isdisjoint(main.kernels)
    assert host_source(first.host).level == ONCE_LEVEL < host_source(main.host).level
    for got, want in zip(pliant.compile(model, args)(*args), model(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_products_of_weights_are_not() -> None:
    """Only what takes about as long as it takes to write its results."""
    t = target()
    a, b = torch.randn(64, 96), torch.randn(96, 80)
    model, args = Apply(lambda x: x @ (a @ b)), (torch.randn(5, 64),)
    first = stages_of(*traced(model, args, None), t).parts[0]
    levels = {
        spec.kind: spec_source(symbol, spec, t).level for symbol, spec in first.kernels.items()
    }
    assert levels["contraction"] == LEVEL
    torch.testing.assert_close(
        pliant.compile(model, args)(*args), model(*args), rtol=1e-4, atol=1e-3
    )
