"""Micro-kernels of the feature sets that this machine has, against NumPy."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import pytest

from pliant.codegen.build import Image, build_micro_kernel
from pliant.codegen.llvm.target import FEATURE_SETS, Target, target
from pliant.codegen.micro_kernels import micro_kernels
from pliant.codegen.microkernel import MatrixKernel
from pliant.runtime.features import host_machine, missing_features
from tests.codegen.tiles import Tile, extremes, tails

# Each under the smallest feature set that has it.
KERNELS = {
    mk: target(name)
    for name in reversed(FEATURE_SETS)
    for numerics in ("fast", "batch_invariant")
    for mk in micro_kernels(target(name), numerics)
    if target(name).architecture == host_machine()
}
PARAMS = [pytest.param(mk, t, id=f"{t.name}-{mk.symbol}") for mk, t in KERNELS.items()]


class Code:
    """A micro-kernel in this process."""

    def __init__(self, mk: MatrixKernel, t: Target) -> None:
        self._image = Image([build_micro_kernel(mk, t).object], [mk.symbol], t)
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 4)
        self._call = kind(self._image.entries[mk.symbol])

    def run(self, tile: Tile) -> None:
        """The tile is right; reading beyond the end of an operand ends the process."""
        *operands, c = tile.arrays
        with guarded(operands) as addresses:
            out = c.copy()
            assert self._call(None, *addresses, out.ctypes.data, *tile.sizes) == 0
            tile.check(out)


class guarded:  # noqa: N801  (a verb: with guarded(…))
    """Copies of arrays whose last byte is followed by a page that cannot be read."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays = arrays

    def __enter__(self) -> list[int]:
        libc = ctypes.CDLL(None, use_errno=True)
        self._libc, self._maps, out = libc, [], []
        libc.mmap.restype = ctypes.c_void_p
        for array in self._arrays:
            page = mmap.PAGESIZE
            room = -(-max(array.nbytes, 1) // page) * page
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            start = libc.mmap(
                None, ctypes.c_size_t(room + page), mmap.PROT_READ | mmap.PROT_WRITE, flags, -1,
                ctypes.c_long(0),
            )  # fmt: skip
            assert libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0) == 0
            self._maps.append((start, room + page))
            address = start + room - array.nbytes
            ctypes.memmove(address, array.tobytes(), array.nbytes)
            out.append(address)
        return out

    def __exit__(self, *_: object) -> None:
        for start, size in self._maps:
            self._libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))


@pytest.fixture
def code(mk: MatrixKernel, t: Target) -> Code:
    missing = missing_features(t.features)
    if missing:
        pytest.skip(f"this CPU lacks {', '.join(missing)}: {mk.symbol} of {t.name} was not run")
    return Code(mk, t)


def _run(code: Code, tiles: Iterator[Tile]) -> None:
    for tile in tiles:
        code.run(tile)


@pytest.mark.parametrize(("mk", "t"), PARAMS)
def test_tails(code: Code, mk: MatrixKernel) -> None:
    _run(code, tails(mk))


@pytest.mark.parametrize(("mk", "t"), PARAMS)
def test_extremes(code: Code, mk: MatrixKernel) -> None:
    _run(code, extremes(mk))
