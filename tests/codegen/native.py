"""Calls of micro-kernels in this process."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np

from tests.codegen.tiles import Tile


def entry(address: int) -> Callable[..., int]:
    """The function `int32 symbol(ctx, a, offsets, other, b, c, m, P, K, ldc, turn)`."""
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 5)(address)


def run(call: Callable[..., int], tile: Tile) -> None:
    """The tile is right; reading beyond the end of an operand ends the process."""
    *operands, c = tile.arrays
    with guarded(operands) as addresses:
        out = c.copy()
        turn = sum(tile.sizes)  # any, it changes no result
        assert call(None, *addresses, out.ctypes.data, *tile.sizes, turn) == 0
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
