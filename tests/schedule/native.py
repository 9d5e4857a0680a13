"""Programs as machine code, in memory that notices what is written beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np

from pliant.codegen.build import Image, build_kernel
from pliant.codegen.llvm.target import target
from pliant.loop.stmt import Function
from pliant.runtime.abi import CTX

GUARD: Final = 64  # bytes around each block of scratch memory
MARK: Final = 0xA5

_scratch = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_mark = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def run_native(f: Function, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
    """Run a program without parallel loops on arrays, which change in place. Fails where scratch
    memory is written outside of what was asked for, or a negative number of bytes is."""
    t = target()
    image = Image([build_kernel(f, t).object], [f.name], t)
    blocks: list[tuple[np.ndarray, int]] = []

    def scratch(_: int, size: int) -> int:
        assert size >= 0
        memory = np.full(size + 2 * GUARD + 64, MARK, np.uint8)
        start = -memory.ctypes.data % 64 + GUARD
        blocks.append((memory, start))
        memory[start : start + size] = 0xFF
        sizes_of.append(size)
        return int(memory.ctypes.data + start)

    sizes_of: list[int] = []
    calls = _scratch(scratch), _mark(lambda _: 0), _release(lambda *_: None)
    ctx = ctypes.create_string_buffer(max(CTX.values()) + 64)
    for name, call in zip(("scratch", "mark", "release"), calls, strict=True):
        ctypes.c_void_p.from_buffer(ctx, CTX[name]).value = ctypes.cast(call, ctypes.c_void_p).value
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (1 + len(arrays)),
                             *[ctypes.c_int64] * len(sizes))(image.entries[f.name])  # fmt: skip
    assert entry(ctypes.addressof(ctx), *pointers, *sizes) == 0
    for (memory, start), size in zip(blocks, sizes_of, strict=True):
        assert (memory[:start] == MARK).all() and (memory[start + size :] == MARK).all()
