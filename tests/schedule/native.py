"""Loop functions as machine code, called as the interpreter is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from bench.kernel_calls import Kernel
from pliant.codegen.llvm.target import Target, target
from pliant.loop.stmt import Function


def native(
    function: Function, arrays: Sequence[np.ndarray], sizes: Mapping[str, int],
    t: Target | None = None,
) -> None:  # fmt: skip
    """As `interpret`, in machine code. Fails where scratch memory is written outside of what was
    asked for."""
    _kernel(function, t or target())(arrays, [sizes[n] for n in function.sizes])


@lru_cache(8)
def _kernel(function: Function, t: Target) -> Kernel:
    """Tests call one function at many sizes, one after the other."""
    return Kernel(function.replace(name="test_entry"), t, watched=True)
