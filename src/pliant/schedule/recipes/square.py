"""Squares of a matrix, turned in registers.

    for i, j in grid(n, n):
        y[j, i] = x[i, j]

The lines of `x` are `ldx` elements apart, those of `y` follow one another. Their code
(`codegen.llvm.square`) becomes part of a kernel that calls it, so that a `y` in registers never
comes to memory.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from pliant.base.dtypes import DTYPES, DType
from pliant.ir.expr import Index
from pliant.loop.stmt import Function, Store, buffer, for_
from pliant.schedule.intrinsic import Intrinsic
from pliant.sym.expr import var

LARGEST: Final = 32  # lines, each a vector in registers


def square_of(dtype: DType, lanes: int) -> int:
    """Lines of the square for a processor whose vectors hold `lanes` numbers of 32 bits."""
    return min(LARGEST, lanes * 4 // dtype.bytes)


def square_name(dtype: DType, lines: int, *, asks: bool = True) -> str:
    """What the intrinsic is called that asks for the square to the right, or for nothing."""
    return f"{'transpose' if asks else 'turn'}_{dtype}_{lines}"


@cache
def squares(lanes: int) -> tuple[Intrinsic, ...]:
    """The intrinsics for such a processor."""
    sides = ((t, square_of(t, lanes)) for t in DTYPES.values())
    return tuple(_square(t, n, asks) for t, n in sides if n > 1 for asks in (True, False))


def _square(dtype: DType, lines: int, asks: bool) -> Intrinsic:
    x = buffer("x", (lines, lines), dtype, strides=(var("ldx"), 1))
    y = buffer("y", (lines, lines), dtype)
    i, j = var("i"), var("j")
    body = for_([("i", lines), ("j", lines)], Store(y, (Index(j), Index(i)), x[i, j]))
    name = square_name(dtype, lines, asks=asks)
    return Intrinsic(name, Function(name, (x, y), ("ldx",), body))
