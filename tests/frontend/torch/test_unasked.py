"""Masks, which torch compares with the causal one by value, and arguments of distributions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, distributions, nn
from torch.nn.modules import transformer

import pliant

BATCH_TIME = {0: "b", 1: "t"}


class Encoder(nn.Module):
    """The mask is an argument: of numbers, or of what is left out."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layers(x, mask=mask)


class Decoder(nn.Module):
    """The mask is made in the model."""

    def __init__(self, *, said: bool) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
        self.layers, self.said = nn.TransformerDecoder(layer, 2), said

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        hint = True if self.said else None
        return self.layers(x, memory, tgt_mask=mask, tgt_is_causal=hint)


class Whole(nn.Module):
    """Encoder and decoder; padding of the source is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, padding: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.both(
            source, target, tgt_mask=mask, src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )  # fmt: skip


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_encoder() -> None:
    module = Encoder().eval()
    causal = nn.Transformer.generate_square_subsequent_mask
    for mask in (causal, lambda n: torch.ones(n, n).triu(2).bool()):
        dims = (BATCH_TIME, {0: "t", 1: "t"})
        f = pliant.compile(module, (torch.randn(2, 7, 16), mask(7)), dynamic_shapes=dims)
        for b, t in ((2, 7), (1, 1), (3, 13)):
            x = torch.randn(b, t, 16)
            for other in (
                mask(t),
                causal(t).bool() if mask(t).dtype == torch.bool else mask(t) / 2,
            ):
                close(f(x, other), module(x, other))


@pytest.mark.parametrize("said", [True, False])
def test_decoder(said: bool) -> None:
    module = Decoder(said=said).eval()
    dims = (BATCH_TIME, {0: "b", 1: "s"})
    f = pliant.compile(module, (torch.randn(2, 5, 16), torch.randn(2, 7, 16)), dynamic_shapes=dims)
    for b, t, s in ((2, 5, 7), (1, 1, 1), (3, 11, 4)):
        x, memory = torch.randn(b, t, 16), torch.randn(b, s, 16)
        close(f(x, memory), module(x, memory))


def test_both() -> None:
    module = Whole().eval()
    dims = ({0: "b", 1: "s"}, BATCH_TIME, {0: "b", 1: "s"})

    def args(b: int, s: int, t: int) -> tuple[Tensor, ...]:
        padding = torch.arange(s).expand(b, s) >= torch.arange(s, s - b, -1).clamp(min=1)[:, None]
        return torch.randn(b, s, 16), torch.randn(b, t, 16), padding

    f = pliant.compile(module, args(2, 7, 5), dynamic_shapes=dims)
    for sizes in ((2, 7, 5), (1, 2, 1), (3, 6, 9)):
        x = args(*sizes)
        close(f(*x), module(*x))


class Policy(nn.Module):
    """What is asked of a distribution; `checked` as one is told to validate its arguments."""

    def __init__(self, checked: bool | None = None) -> None:
        super().__init__()
        self.checked = checked

    def forward(self, mean: Tensor, deviation: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        normal = distributions.Normal(mean, deviation, validate_args=self.checked)
        squashed = distributions.TransformedDistribution(
            distributions.Independent(normal, 1), [distributions.TanhTransform(cache_size=1)]
        )
        choice = distributions.Categorical(logits=mean)
        unit = distributions.Normal(torch.zeros_like(mean), 1.0)
        mixture = distributions.MixtureSameFamily(choice, normal)
        return (
            normal.log_prob(x), normal.entropy(), normal.cdf(x), squashed.log_prob(x.tanh() * 0.9),
            distributions.kl_divergence(normal, unit), choice.entropy(), choice.probs,
            choice.log_prob((x[:, 0] > 0).long()), mixture.log_prob(x[:, 1]),
        )  # fmt: skip


def test_distributions() -> None:
    module = Policy()

    def args(b: int) -> tuple[Tensor, ...]:
        return torch.randn(b, 5), torch.rand(b, 5) + 0.1, torch.randn(b, 5)

    f = pliant.compile(module, args(3), dynamic_shapes=({0: "b"},) * 3)
    for b in (1, 3, 8):
        x = args(b)
        for got, want in zip(f(*x), module(*x), strict=True):
            close(got, want)


def test_a_model_that_wants_its_arguments_checked_is_refused() -> None:
    x = (torch.zeros(3, 5), torch.ones(3, 5), torch.zeros(3, 5))
    with pytest.raises(pliant.UnsupportedError, match="by the values of a tensor"):
        pliant.compile(Policy(checked=True), x)


@pytest.mark.parametrize("validated", [True, False])
def test_torch_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, validated: bool) -> None:
    """Also where a model is refused. (Dynamo ends all validation, when it is used.)"""
    monkeypatch.setattr(distributions.Distribution, "_validate_args", validated)
    before = transformer._detect_is_causal_mask
    pliant.compile(Encoder().eval(), (torch.randn(2, 3, 16), torch.zeros(3, 3)))
    with pytest.raises(pliant.UnsupportedError):
        pliant.compile(Policy(checked=True), (torch.ones(3, 5),) * 3)
    assert transformer._detect_is_causal_mask is before
    assert distributions.Distribution._validate_args is validated
