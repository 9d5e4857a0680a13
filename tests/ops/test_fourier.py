"""Fourier transforms in steps."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.base.dtypes import bf16, f32
from pliant.base.errors import InvalidModelError
from pliant.ir.tensor import placeholder
from pliant.ops.fourier import MOST, fourier, fourier_to_reals, has_steps, radices
from pliant.sym.expr import as_int, var
from tests.compiled.torch_run import Apply
from tests.ops.case import Case, check
from tests.ops.data.fourier import CASES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_fourier(case: Case) -> None:
    check(case)


def test_steps() -> None:
    for n in range(1, 5000):
        assert has_steps(as_int(n)) == (max(_primes(n), default=1) <= 7)
        if has_steps(as_int(n)):
            assert prod(radices(n)) == n and all(2 <= a <= 8 for a in radices(n))
    for n in (as_int(0), as_int(2 * MOST), var("n")):
        assert not has_steps(n)
    assert radices(512) == [8, 8, 8] and radices(32) == [8, 4] and radices(400) == [5, 5, 4, 4]


def _primes(n: int) -> set[int]:
    found, p = set[int](), 2
    while n > 1:
        while n % p == 0:
            found.add(p)
            n //= p
        p += 1
    return found


def test_what_is_refused() -> None:
    for x, axis in [
        (placeholder("x", (4, 11), f32), 1),
        (placeholder("x", (4, var("n")), f32), 1),
        (placeholder("x", (4, 8), bf16), 1),
        (placeholder("x", (4, 8), f32), 2),
    ]:
        with pytest.raises(InvalidModelError):
            fourier(x, axis=axis)
    x = placeholder("x", (4, 9), f32)
    with pytest.raises(InvalidModelError, match="9 elements of a transform of 14"):
        fourier_to_reals(x, x, axis=1, n=14)


def _frames(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 400, 160, window=torch.hann_window(400).to(x), return_complex=True)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("function", "shape", "kernels"),
    [
        (lambda x: torch.fft.rfft(x, dim=1), (3, 64, 20), 4),
        (lambda x: torch.fft.rfft(x), (50, 512), 6),
        (lambda x: torch.fft.fft(x), (4096,), 8),
        (lambda x: torch.fft.ifft(torch.fft.rfft2(x), dim=1), (2, 60, 96), 14),
        (_frames, (2, 4000), 7),
    ],
)
def test_compiled(function: Callable[[Any], Any], shape: tuple[int, ...], kernels: int) -> None:
    """No more kernels than steps and what turns; and as exact as a fast transform is."""
    x = torch.randn(shape)
    f = pliant.compile(Apply(lambda x: torch.view_as_real(function(x))), (x,))
    want = torch.view_as_real(function(x.double()))
    assert (f(x) - want).norm() <= 3e-7 * want.norm()
    assert int(f.explain().split(" launches")[0].split()[-1]) <= kernels


def test_signals_of_any_number() -> None:
    back = Apply(lambda x: torch.fft.irfft2(torch.fft.rfft2(x).conj(), s=x.shape[-2:]))
    f = pliant.compile(back, (torch.randn(3, 24, 40),), dynamic_shapes=(({0: "n"},),))
    for n in (0, 1, 2, 17):
        x = torch.randn(n, 24, 40)
        want = back(x) if n else x  # MKL has no transforms of nothing
        np.testing.assert_allclose(f(x), want, atol=1e-5)
