"""Calls of kernels and micro-kernels in this process."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence

import numpy as np

from pliant.runtime import abi
from tests.codegen.tiles import Tile


def entry(address: int) -> Callable[..., int]:
    """The function `int32 symbol(ctx, a, offsets, zeros, b, c, m, P, K, ldc)`."""
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 4)(address)


def run(call: Callable[..., int], tile: Tile) -> None:
    """The tile is right; reading beyond the end of an operand ends the process."""
    *operands, c = tile.arrays
    with guarded(operands) as addresses:
        out = c.copy()
        assert call(None, *addresses, out.ctypes.data, *tile.sizes) == 0
        tile.check(out)


def call_kernel(address: int, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
    """Call `int32 kernel(ctx, buffers…, sizes…)` with a context that has scratch memory."""
    kept: list[np.ndarray] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    def scratch(_: int, size: int) -> int:
        kept.append(np.empty(size + 64, np.uint8))
        return -(-kept[-1].ctypes.data // 64) * 64

    mark = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: 0)
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(lambda *_: None)
    context = np.zeros(256, np.uint8)
    for name, fn in (("scratch", scratch), ("mark", mark), ("release", release)):
        at = context[abi.CTX[name] : abi.CTX[name] + 8]
        at.view(np.int64)[0] = ctypes.cast(fn, ctypes.c_void_p).value
    kinds = [ctypes.c_void_p] * (1 + len(arrays)) + [ctypes.c_int64] * len(sizes)
    kernel = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(address)
    assert kernel(context.ctypes.data, *(a.ctypes.data for a in arrays), *sizes) == 0


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
