"""Call one kernel's loop program in this process, on one thread: for what no model reaches.

A kernel gets the least context that it needs. Its scratch memory is a stack, as in the runtime, or,
to test it, blocks full of garbage that notice what is written beside them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pliant.codegen.build import Image, build_with_micro_kernels
from pliant.codegen.llvm.target import Target
from pliant.loop.stmt import Function
from pliant.runtime.abi import ALIGNMENT, CTX, OK

_P, _N = ctypes.c_void_p, ctypes.c_int64
_BODY = ctypes.CFUNCTYPE(ctypes.c_int32, _P, _P, _N, _N)
_FUNCTIONS: Final = {
    "parallel": ctypes.CFUNCTYPE(ctypes.c_int32, _P, _P, _P, _N, _N),
    "scratch": ctypes.CFUNCTYPE(_P, _P, _N),
    "mark": ctypes.CFUNCTYPE(_N, _P),
    "release": ctypes.CFUNCTYPE(None, _P, _N),
}
_CONTEXT: Final = 64  # words of it, more than there are
_ROOM: Final = 1 << 28  # bytes of a stack
GUARD: Final = 64  # bytes around each block that is watched
GARBAGE: Final = 0xA5


class Kernel:
    """A compiled loop program with the micro-kernels that it calls. With `watched`, a call raises
    AssertionError where scratch memory is misused, and parallel loops run in two pieces, the later
    one first."""

    def __init__(self, f: Function, t: Target, *, watched: bool = False) -> None:
        self._image = Image(build_with_micro_kernels(f, t), [f.name], t)
        kinds = [_P] * (1 + len(f.buffers)) + [_N] * len(f.sizes)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(self._image.entries[f.name])
        self._memory = _Blocks() if watched else _Stack()
        self._context = (_N * _CONTEXT)()
        functions: dict[str, Callable[..., Any]] = {
            "parallel": _in_pieces if watched else _at_once,
            "scratch": self._memory.take,
            "mark": self._memory.mark,
            "release": self._memory.release,
        }
        self._kept = {name: _FUNCTIONS[name](fn) for name, fn in functions.items()}
        for name, fn in self._kept.items():
            self._context[CTX[name] // 8] = ctypes.cast(fn, _P).value or 0

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int]) -> None:
        """Run it; the arrays are the program's buffers, in order, outputs among them. Raises
        RuntimeError with the code of a failure."""
        assert all(a.flags.c_contiguous for a in arrays)
        self._memory.begin()
        addresses = [a.ctypes.data for a in arrays]
        code = self._call(ctypes.addressof(self._context), *addresses, *sizes)
        if code != OK:
            raise RuntimeError(f"the kernel returned {code}")
        self._memory.check()


def _at_once(ctx: int, body: int, closure: int, n: int, grain: int) -> int:
    return int(_BODY(body)(ctx, closure, 0, n)) if n else OK


def _in_pieces(ctx: int, body: int, closure: int, n: int, grain: int) -> int:
    run = _BODY(body)
    return int(run(ctx, closure, n // 2, n) or run(ctx, closure, 0, n // 2))


class _Stack:
    """Memory as the runtime has it."""

    def __init__(self) -> None:
        self._room = np.zeros(_ROOM + ALIGNMENT, np.uint8)
        self._base = -(-self._room.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._used = 0

    def begin(self) -> None:
        self._used = 0

    def take(self, _: int, size: int) -> int | None:
        at = self._used
        if at + size > _ROOM:
            return None
        self._used = -(-(at + size) // ALIGNMENT) * ALIGNMENT
        return self._base + at

    def mark(self, _: int) -> int:
        return self._used

    def release(self, _: int, mark: int) -> None:
        self._used = mark

    def check(self) -> None:
        """Nothing is known of what is beside a block."""


class _Blocks:
    """Every block by itself, kept to the end of the call. What a kernel does not write it may not
    read."""

    def __init__(self) -> None:
        self._blocks: list[tuple[np.ndarray[Any, Any], int, int]] = []
        self._faults: list[str] = []

    def begin(self) -> None:
        self._blocks, self._faults = [], []

    def take(self, _: int, size: int) -> int:
        """A call with a negative size has failed: an exception does not leave it."""
        if size < 0:
            self._faults.append(f"{size} bytes of scratch memory are asked for")
            size = 0
        memory = np.full(size + 2 * GUARD + ALIGNMENT, GARBAGE, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT + GUARD
        self._blocks.append((memory, start, size))
        return int(memory.ctypes.data + start)

    def mark(self, _: int) -> int:
        return 0

    def release(self, _: int, mark: int) -> None:
        """Blocks stay, to be looked at."""

    def check(self) -> None:
        assert not self._faults, self._faults
        for memory, start, size in self._blocks:
            beside = np.concatenate([memory[:start], memory[start + size :]])
            assert (beside == GARBAGE).all(), f"written beside a block of {size} bytes"
