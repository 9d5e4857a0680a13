"""What is said of torch models that cannot be imported: all at once, with the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import pliant
from pliant import InvalidModelError, UnsupportedError
from tests.compiled.torch_run import Apply

X = torch.ones(4, 8)


class Spectrum(nn.Module):
    """Several operators that Pliant lacks, one of them twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.linalg.qr(x)[0]
        b = torch.special.bessel_j0(x)
        c = torch.special.bessel_j0(a)
        return b.sum() + c.sum() + torch.nonzero(x).sum()


def line_of(text: str) -> str:
    """Where a line of this file is, as messages have it."""
    lines = Path(__file__).read_text().splitlines()
    number = next(k for k, line in enumerate(lines, 1) if text in line)
    return f"{__file__}:{number}"


def test_what_can_be_decomposed_is_not_reported_beside_what_cannot() -> None:
    """Also on one line."""
    with pytest.raises(UnsupportedError) as caught:
        pliant.compile(Apply(lambda x: torch.polygamma(2, torch.logaddexp(x, x))), (X,))
    assert "polygamma" in str(caught.value)
    assert "logaddexp" not in str(caught.value)


def test_everything_unsupported_is_reported_at_once() -> None:
    with pytest.raises(UnsupportedError) as caught:
        pliant.compile(Spectrum(), (X,))
    assert str(caught.value) == (
        "the model uses what Pliant does not support:\n"
        f"  aten.linalg_qr.default (once, first at {line_of('a = torch.linalg')}): there is no "
        "import rule for it\n"
        f"  aten.special_bessel_j0.default (2 times, first at {line_of('b = torch')}): there "
        "is no import rule for it\n"
        f"  aten.nonzero.default (once, first at {line_of('torch.nonzero(x)')}): its size depends "
        "on the data; use torch.where with a fixed size\n"
        "Rewrite these lines with other operators, or keep them outside the compiled part."
    )


def test_weights_without_values() -> None:
    with pytest.raises(InvalidModelError) as caught:
        pliant.compile(nn.Linear(8, 3, device="meta"), (X.to("meta"),))
    assert str(caught.value) == (
        "the weight 'weight' has no values (it is on the meta device): load the model's weights "
        "first"
    )


def test_a_dim_that_was_exported_as_a_number() -> None:
    program = torch.export.export(nn.Linear(8, 3), (X,))
    with pytest.raises(InvalidModelError) as caught:
        pliant.compile(program, dynamic_shapes=({0: "batch"},))
    assert str(caught.value) == (
        "dynamic_shapes: dim 0 of input is always 4 in the exported program; export it again with "
        "that dim dynamic"
    )


class Sparse(nn.Module):
    """Its weight is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(8).to_sparse(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_weights_of_other_layouts() -> None:
    with pytest.raises(UnsupportedError, match="sparse_coo and quantized weights are not"):
        pliant.compile(Sparse(), (X,))
    with pytest.raises(UnsupportedError, match=r"torch\.complex64 are not supported"):
        pliant.compile(nn.Identity(), (X.to(torch.complex64),))


def test_sizes_that_values_decide() -> None:
    """The error is about the model, whatever the rule for the operator makes of such a size."""

    class Some(torch.nn.Module):
        def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            n = int(counts.sum().item())
            torch._check(n >= 1)
            torch._check(n <= 4)
            return torch.as_strided(x, (n, 3), (3, 1)).sum()

    with pytest.raises(UnsupportedError, match=r"aten\.as_strided.* depends on the values"):
        pliant.compile(Some(), (torch.randn(5, 3), torch.tensor([1, 2])))


def test_torchscript() -> None:
    for made in (torch.jit.script(nn.Linear(4, 3)), torch.jit.trace(nn.ReLU(), torch.ones(3))):
        with pytest.raises(UnsupportedError, match="the torch module that it was made from"):
            pliant.compile(made, (torch.ones(2, 4),))
