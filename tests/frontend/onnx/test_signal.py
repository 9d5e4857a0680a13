"""Fourier transforms and mel filters, against NumPy, ONNX's evaluator and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import by_reference, by_runtime, check, one_node

RANDOM = np.random.default_rng(17)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 12])
@pytest.mark.parametrize(
    ("parts", "attributes"),
    [(1, {}), (2, {}), (1, {"inverse": 1}), (2, {"inverse": 1}), (1, {"onesided": 1})],
)
def test_transforms(length: int, parts: int, attributes: dict[str, int]) -> None:
    """Of a length that is known, and of any."""
    x = floats(2, length, 3, parts)
    case = one_node("DFT", [x, None, np.int64(1)], weights=[2], known=[(0, 3)], **attributes)
    check(case, by_reference(case), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [4, 5, 9])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_transform_of_another_length(length: int, parts: int) -> None:
    operands = [floats(3, 5, parts), np.int64(length)]
    case = one_node("DFT", operands, weights=[1], version=20, known=[(0, 2)])
    check(case, by_reference(case), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [6, 7])
def test_back_to_reals(length: int) -> None:
    x = floats(2, length // 2 + 1, 2)
    case = one_node(
        "DFT", [x, np.int64(length)], weights=[1], known=[(0, 2)], inverse=1, onesided=1
    )
    wanted = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, axis=1)[..., None]
    check(case, [wanted.astype(np.float32)], rtol=1e-4, atol=1e-4)


def test_a_transform_runs_natively_at_any_length() -> None:
    case = one_node("DFT", [floats(2, 1, 1)], known=[(0, 2)], version=20)
    f = pliant.compile(case.model)
    for length in (1, 2, 13, 64):
        x = floats(3, length, 1)
        want = np.fft.fft(x[..., 0], axis=1)
        np.testing.assert_allclose(f(x)[..., 0] + 1j * f(x)[..., 1], want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("length", "size", "step"), [(16, 8, 4), (17, 5, 3), (6, 6, 1)])
def test_transforms_of_frames(
    windowed: bool, onesided: int, length: int, size: int, step: int
) -> None:
    operands: list[Any] = [floats(2, length, 1), np.int64(step)]
    operands += [np.hanning(size).astype(np.float32)] if windowed else [None]
    operands += [np.int64(size)]
    case = one_node(
        "STFT", operands, weights=[1, 2, 3], known=[(0, 2)], version=17, onesided=onesided
    )
    check(case, by_runtime(case), rtol=1e-3, atol=1e-4)


def test_transforms_of_complex_frames() -> None:
    x = floats(1, 12, 2)
    case = one_node(
        "STFT", [x, np.int64(2), None, np.int64(4)], weights=[1, 3], known=[(0, 2)], onesided=0
    )
    signal = x[0, :, 0] + 1j * x[0, :, 1]
    want = np.stack([np.fft.fft(signal[k : k + 4]) for k in range(0, 9, 2)])[None]
    parts = np.stack([want.real, want.imag], -1).astype(np.float32)
    check(case, [parts], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mels", "length"), [(8, 16), (1, 4), (20, 64)])
def test_mel_filters(mels: int, length: int) -> None:
    numbers = [np.int64(mels), np.int64(length), np.int64(8192), np.float32(0), np.float32(4000)]
    case = one_node("MelWeightMatrix", numbers, weights=range(5))
    check(case, by_reference(case))


def test_what_must_be_known_of_a_transform() -> None:
    case = one_node("STFT", [floats(1, 8, 1), np.int64(2), floats(4)], weights=[1], known=[(0, 2)])
    with pytest.raises(UnsupportedError, match="the frame length and whether"):
        import_onnx(case.model, OPERATORS)
    case = one_node("DFT", [floats(1, 8, 1), np.int64(1 << 40)], weights=[1], known=[(0, 2)])
    with pytest.raises(UnsupportedError, match="is too large"):
        import_onnx(case.model, OPERATORS)
    case = one_node("DFT", [floats(1, 8, 3)], known=[(0, 2)])
    with pytest.raises(InvalidModelError, match="is 1 or 2"):
        import_onnx(case.model, OPERATORS)
