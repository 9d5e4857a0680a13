"""Loop functions compiled and called on arrays, with the least context that a kernel needs, in
memory that notices what is written beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pliant.codegen.build import Image, build_with_micro_kernels
from pliant.codegen.llvm.target import Target, target
from pliant.loop.stmt import Function
from pliant.runtime.abi import CTX

GUARD: Final = 64  # bytes around each block of scratch memory
MARK: Final = 0xA5
_P, _N = ctypes.c_void_p, ctypes.c_int64
_BODY = ctypes.CFUNCTYPE(ctypes.c_int32, _P, _P, _N, _N)
_PARALLEL = ctypes.CFUNCTYPE(ctypes.c_int32, _P, _P, _P, _N, _N)
_SCRATCH = ctypes.CFUNCTYPE(_P, _P, _N)
_MARK = ctypes.CFUNCTYPE(_N, _P)
_RELEASE = ctypes.CFUNCTYPE(None, _P, _N)


class _Context:
    """One thread; parallel loops run in two pieces, the later one first."""

    def __init__(self) -> None:
        self.memory: list[tuple[np.ndarray, int, int]] = []
        self.faults: list[str] = []
        self.words = (_N * 64)()
        self.calls: list[Any] = []
        for name, kind, fn in (
            ("parallel", _PARALLEL, self._parallel),
            ("scratch", _SCRATCH, self._scratch),
            ("mark", _MARK, lambda ctx: 0),
            ("release", _RELEASE, lambda ctx, mark: None),
        ):
            self.calls.append(kind(fn))
            self.words[CTX[name] // 8] = ctypes.cast(self.calls[-1], _P).value or 0

    def _parallel(self, ctx: int, body: int, closure: int, n: int, grain: int) -> int:
        run = _BODY(body)
        return int(run(ctx, closure, n // 2, n) or run(ctx, closure, 0, n // 2))

    def _scratch(self, ctx: int, size: int) -> int:
        """Garbage: what a kernel does not write it may not read. A call with a negative size has
        failed: an exception does not leave it."""
        if size < 0:
            self.faults.append(f"{size} bytes of scratch memory are asked for")
            size = 0
        memory = np.full(size + 2 * GUARD + 64, MARK, np.uint8)
        start = -memory.ctypes.data % 64 + GUARD
        self.memory.append((memory, start, size))
        return int(memory.ctypes.data + start)

    def check(self) -> None:
        assert not self.faults, self.faults
        for memory, start, size in self.memory:
            assert (memory[:start] == MARK).all() and (memory[start + size :] == MARK).all()


def native(
    function: Function, arrays: Sequence[np.ndarray], sizes: Mapping[str, int],
    t: Target | None = None,
) -> None:  # fmt: skip
    """As `interpret`, in machine code. Fails where scratch memory is written outside of what was
    asked for."""
    t = t or target()
    f = function.replace(name="test_entry")
    image = Image(build_with_micro_kernels(f, t), ["test_entry"], t)
    kinds = [_P, *[_P] * len(arrays), *[_N] * len(f.sizes)]
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(image.entries["test_entry"])
    context = _Context()
    assert all(a.flags.c_contiguous for a in arrays)
    code = entry(
        ctypes.addressof(context.words),
        *[a.ctypes.data for a in arrays],
        *[sizes[n] for n in f.sizes],
    )
    assert code == 0
    context.check()
