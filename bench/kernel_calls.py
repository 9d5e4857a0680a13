"""Call one kernel's loop program in this process, on one thread: for what no model reaches."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from pliant.codegen.build import Image, build_with_micro_kernels
from pliant.codegen.llvm.target import Target
from pliant.loop.stmt import Function
from pliant.runtime import abi

_PARALLEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
    ctypes.c_int64,
)  # fmt: skip
_BODY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
_SCRATCH = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_MARK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_ROOM = 1 << 28  # bytes of scratch memory


class Kernel:
    """A compiled loop program with the micro-kernels that it calls."""

    def __init__(self, f: Function, t: Target) -> None:
        self._image = Image(build_with_micro_kernels(f, t), [f.name], t)
        kinds = [ctypes.c_void_p] * (1 + len(f.buffers)) + [ctypes.c_int64] * len(f.sizes)
        entry = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)
        self._call = entry(self._image.entries[f.name])
        self._room = np.zeros(_ROOM + abi.ALIGNMENT, np.uint8)
        self._base = -(-self._room.ctypes.data // abi.ALIGNMENT) * abi.ALIGNMENT
        self._used = 0
        self._context = (ctypes.c_uint8 * 192)()
        self._functions = {
            "parallel": _PARALLEL(lambda c, body, x, n, _: _BODY(body)(c, x, 0, n) if n else 0),
            "scratch": _SCRATCH(self._scratch),
            "mark": _MARK(lambda _: self._used),
            "release": _RELEASE(self._release),
        }
        for name, fn in self._functions.items():
            at = ctypes.addressof(self._context) + abi.CTX[name]
            ctypes.c_void_p.from_address(at).value = ctypes.cast(fn, ctypes.c_void_p).value

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int]) -> None:
        """Run it; the arrays are the program's buffers, in order, outputs among them."""
        self._used = 0
        addresses = [a.ctypes.data for a in arrays]
        code = self._call(ctypes.addressof(self._context), *addresses, *sizes)
        if code != abi.OK:
            raise RuntimeError(f"the kernel returned {code}")

    def _scratch(self, _: int, size: int) -> int | None:
        at = self._used
        if at + size > _ROOM:
            return None
        self._used = -(-(at + size) // abi.ALIGNMENT) * abi.ALIGNMENT
        return self._base + at

    def _release(self, _: int, mark: int) -> None:
        self._used = mark
