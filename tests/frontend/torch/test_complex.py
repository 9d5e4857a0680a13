"""Complex numbers inside of a model, and Fourier transforms, beside torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pliant
from pliant import UnsupportedError
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import check

Tensor = torch.Tensor


def c(x: Tensor) -> Tensor:
    """[..., 8] as [..., 4] complex numbers."""
    return torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))


def r(x: Tensor) -> Tensor:
    return torch.view_as_real(x)


def _rotated(x: Tensor) -> Tensor:
    """Rotary embedding, as Llama's."""
    angles = torch.outer(torch.arange(x.shape[1]), torch.tensor([1.0, 0.3, 0.1, 0.03]))
    turns = torch.polar(torch.ones_like(angles), angles)
    return r(c(x.float()) * turns).flatten(2).type_as(x)


def _mixed(x: Tensor) -> Tensor:
    """A spectral layer's: some of the bins times weights, the others zero (as FNO's)."""
    given = torch.fft.rfft(x, dim=1)
    out = torch.zeros(x.shape[0], x.shape[1] // 2 + 1, 8, dtype=torch.cfloat)
    weight = torch.complex(torch.eye(8), torch.full((8, 8), 0.1))
    out[:, :2] = torch.einsum("bnc,co->bno", given[:, :2], weight)
    return torch.fft.irfft(out, n=x.shape[1], dim=1)


def _signal(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x.flatten(1), (0, 40))


def _spectrum(x: Tensor, **options: Any) -> Tensor:
    return torch.stft(_signal(x), 16, return_complex=True, window=torch.hann_window(16), **options)


CASES: dict[str, Any] = {
    "rotary embedding": _rotated,
    "spectral layer": _mixed,
    "arithmetic": lambda x: r((c(x) + c(x).conj() * 2 - 1j) * c(x) / (c(x) + 3)),
    "with numbers": lambda x: r(c(x) / 2.5 + 1 / (c(x) + 5) - (2 - c(x)) + 1j * x[..., :4]),
    "lengths and angles": lambda x: torch.stack(
        [c(x).abs(), c(x).angle(), c(x).real * c(x).imag, torch.sgn(c(x)).real]
    ),
    "exp, log": lambda x: r(torch.exp(c(x)) + torch.log(c(x) + 4)),
    "powers": lambda x: r(c(x) ** 3 + c(x).square() + c(x).reciprocal()),
    "reductions": lambda x: r(c(x).sum(1) + c(x).mean(1) + c(x).cumsum(1)[:, -1]),
    "shapes": lambda x: r(torch.cat([c(x).transpose(1, 2), c(x)[:, :1].mT * 0.5], 2)).flatten(1),
    "parts of a dim": lambda x: torch.stack([r(p) for p in c(x).split(2, -1)]),
    "adjoint": lambda x: r(c(x).mH.resolve_conj()),
    "products": lambda x: r(c(x) @ torch.complex(torch.ones(4, 3), torch.full((4, 3), 0.5))),
    "einsum": lambda x: r(torch.einsum("bnc,bmc->bnm", c(x), c(x).conj())),
    "where": lambda x: r(torch.where(x[..., :4] > 0, c(x), 0.0)),
    "like": lambda x: r(torch.zeros_like(c(x)) + torch.ones_like(c(x)) + torch.full((1,), 2j)),
    "tests": lambda x: torch.isnan(c(x)) | torch.isinf(c(x)) | (c(x) != c(x).conj()),
    "types": lambda x: r(c(x).to(torch.complex128)) + r(x[..., :4].to(torch.complex64)),
    "fft": lambda x: r(torch.fft.fft(x)) + r(torch.fft.fft(c(x), n=8)),
    "fft along a symbol": lambda x: r(torch.fft.ifft(torch.fft.fft(x, dim=1), dim=1)),
    "fft of integers": lambda x: torch.fft.fft((x * 3).long()).abs(),
    "fft in f64": lambda x: r(torch.fft.fft(x.double()) * 1j),
    "fft2": lambda x: torch.fft.fft2(x, norm="ortho").real,
    "ifftn": lambda x: r(torch.fft.ifftn(c(x), dim=(1, 2), norm="forward")),
    "rfft": lambda x: torch.cat([torch.fft.rfft(x, n=n).abs() for n in (None, 5, 12)], 2),
    "rfftn": lambda x: r(torch.fft.rfftn(x, s=(8, 6), dim=(1, 2), norm="forward")),
    "rfft2 and back": lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho"), norm="ortho"),
    "odd lengths": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1),
    "irfft": lambda x: torch.cat([torch.fft.irfft(c(x), n=n) for n in (None, 3, 11)], 2),
    "symmetric": lambda x: torch.fft.hfft2(c(x), dim=(1, 2), norm="ortho") + torch.fft.hfft(c(x)),
    "to symmetric": lambda x: r(torch.fft.ihfft2(x, norm="forward") + torch.fft.ihfft(x)),
    "shifts": lambda x: torch.fft.fftshift(x, dim=1) + torch.fft.ifftshift(x, dim=(1,)),
    "shifts of numbers": lambda x: torch.fft.ifftshift(torch.fft.fft2(x)).abs(),
    "stft": lambda x: _spectrum(x, center=False).abs(),
    "stft, short window": lambda x: r(
        torch.stft(
            _signal(x), 16, 5, 12, torch.hamming_window(12), normalized=True, return_complex=True
        )
    ),
    "stft, no window": lambda x: r(
        torch.stft(_signal(x), 16, onesided=False, return_complex=True, center=False)
    ),
    "istft": lambda x: torch.istft(_spectrum(x), 16, window=torch.hann_window(16)),
    "istft, other hop": lambda x: torch.istft(
        _spectrum(x, hop_length=6, normalized=True), 16, 6, window=torch.hann_window(16),
        length=50, normalized=True,
    ),
    "istft, as long as its signal": lambda x: torch.istft(
        _spectrum(x), 16, window=torch.hann_window(16), length=_signal(x).shape[-1]
    ),
    "istft, to other lengths": lambda x: (
        torch.istft(
            _spectrum(x, hop_length=6, normalized=True), 16, 6, window=torch.hann_window(16),
            normalized=True, length=3 * x.shape[1] + 1,
        ),
        torch.istft(
            torch.stft(_signal(x), 16, 5, 12, torch.hamming_window(12), onesided=False,
                       return_complex=True),
            16, 5, 12, torch.hamming_window(12), length=9 * x.shape[1],
        ),
        r(torch.istft(
            _spectrum(x, onesided=False), 16, window=torch.hann_window(16), return_complex=True,
            onesided=False, length=8 * x.shape[1] - 5,
        )),
    ),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("name", CASES)
def test_one_trace_for_all_sizes(name: str) -> None:
    others = [(torch.randn(b, n, 8),) for b, n in ((1, 2), (3, 16), (2, 37), (1, 7))]
    args = (torch.randn(2, 9, 8),)
    check(Apply(CASES[name]), args, (({0: "b", 1: "n"},),), others, tolerance=5e-5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("n", [1024, 1155, 2 * 1031, 1031, 6000])
def test_long(n: int) -> None:
    """Of shorter ones, where the length is no prime."""

    def transforms(x: Tensor) -> tuple[Tensor, ...]:
        half = torch.fft.rfft(x)
        whole = torch.fft.ifft(torch.fft.fft(x * 1j, dim=-1).conj())
        return r(half), r(whole), torch.fft.irfft(half * (1 + 2j), n=n), torch.fft.irfft(half)

    check(Apply(transforms), (torch.randn(2, n),))


def test_compiled() -> None:
    """Symbolic lengths, whose roots are made when called."""
    for name in ("rotary embedding", "spectral layer", "fft along a symbol", "istft"):
        f = pliant.compile(
            Apply(CASES[name]), (torch.randn(2, 9, 8),), dynamic_shapes=(({0: "b", 1: "n"},),)
        )
        for n in (2, 9, 31):
            x = torch.randn(3, n, 8)
            torch.testing.assert_close(f(x), CASES[name](x), rtol=1e-4, atol=1e-5)
        assert f.stats()["compiles"] == 1


def test_weights() -> None:
    """Complex parameters and buffers are two weights each."""

    class Weighted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat))
            self.register_buffer("turns", torch.polar(torch.ones(9, 4), torch.rand(9, 4)))

        def forward(self, x: Tensor) -> Tensor:
            return r((c(x) * self.turns[: x.shape[1]]) @ self.weight.conj())

    check(Weighted(), (torch.randn(2, 5, 8),), ({1: "n"},), [(torch.randn(2, 8, 8),)])


def test_large_and_small_numbers() -> None:
    """No square overflows on the way, or vanishes."""
    x = torch.tensor([1e30, -2e30, 1e-30, 3e-30, 0.0, 0.0, torch.inf, 1.0])[None, None]
    check(Apply(lambda x: c(x).abs()), (x,))
    x = torch.tensor([1e30, -2e30, 1e-30, 3e-30, 1.0, 0.0, -3.0, 1.0])[None, None]
    check(Apply(lambda x: r(c(x) / (c(x) * 2))), (x,))


def test_refused() -> None:
    x = torch.randn(1, 2, 8)
    with pytest.raises(UnsupportedError, match=r"a result is complex; return torch\.view_as_real"):
        pliant.compile(Apply(c), (x,))
    with pytest.raises(UnsupportedError, match=r"argument 'input': .*; take torch\.view_as_real"):
        pliant.compile(torch.nn.Identity(), (torch.zeros(2, dtype=torch.cfloat),))
    with pytest.raises(UnsupportedError, match=r"sinh.*no import rule for it with complex"):
        pliant.compile(Apply(lambda x: torch.fft.irfft(torch.fft.fft(x).sinh() * 2)), (x,))
    with pytest.raises(UnsupportedError, match=r"sinh.*no import rule for it with complex"):
        pliant.compile(Apply(lambda x: r(c(x).sinh())), (x,))
