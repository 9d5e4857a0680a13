"""Fourier transforms, by NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.case import Case, arg

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 18, 25, 32, 48, 60, 98, 100, 120, 256)
AROUND: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...] = (
    ((), ()), (("a",), ()), ((), ("a",)), ((20,), ()), ((2,), (17,)), (("a", 3), (2,)),
    ((), (5, "a")), ((3, "a"), (4, 5)),
)  # fmt: skip
"""The dimensions before and after that of a transform."""

SIZES = ({"a": 3}, {"a": 1}, {"a": 0})
Parts = tuple[np.ndarray, ...]


def _parts(y: np.ndarray) -> Parts:
    return y.real, y.imag


def whole(re: np.ndarray, im: np.ndarray | None = None, *, axis: int, inverse: bool) -> Parts:
    x = re if im is None else re + 1j * im
    turn = np.fft.ifft if inverse else np.fft.fft
    return _parts(turn(x, axis=axis, norm="forward" if inverse else "backward"))


def of_reals(x: np.ndarray, *, axis: int) -> Parts:
    return _parts(np.fft.rfft(x, axis=axis))


def to_reals(re: np.ndarray, im: np.ndarray, *, axis: int, n: int) -> np.ndarray:
    return np.fft.irfft(re + 1j * im, n, axis=axis, norm="forward")


def _case(op: str, oracle: Any, length: int, k: int, **attrs: Any) -> Case:
    before, after = AROUND[k]
    given = length // 2 + 1 if op == "fourier_to_reals" else length
    dims = (*before, given, *after)
    many = 1 if attrs.pop("real", op == "fourier_of_reals") else 2
    named = any(isinstance(d, str) for d in dims)
    return Case(
        op, tuple(arg("f64", *dims) for _ in range(many)), oracle,
        {"axis": len(before), **attrs}, SIZES if named else ({},),
        note="-".join(map(str, (length, k, many, *attrs.values()))), numpy=True,
    )  # fmt: skip


CASES = [
    case
    for place, n in enumerate(LENGTHS)
    for k in {place % len(AROUND), (3 * place + 1) % len(AROUND)}
    for case in (
        _case("fourier", whole, n, k, inverse=False),
        _case("fourier", whole, n, k, inverse=True),
        _case("fourier", whole, n, k, inverse=False, real=True),
        _case("fourier_of_reals", of_reals, n, k),
        _case("fourier_to_reals", to_reals, n, k, n=n),
    )
]
