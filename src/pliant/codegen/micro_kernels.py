"""Which micro-kernels a target has: for every pair of types the best that its features allow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from pliant.base.dtypes import bf16, i8, u8
from pliant.codegen.aarch64.dot import byte_dot
from pliant.codegen.dot import (
    F32,
    Dot,
    Flipped,
    FloatMultiplyAdd,
    MultiplyAdd,
    WidenedBf16,
    float64,
)
from pliant.codegen.llvm.target import Target
from pliant.codegen.microkernel import MatrixKernel, MicroKernel
from pliant.codegen.x86.dot import BF16, VNNI, WidenedBytes
from pliant.codegen.x86.tiles import TileKernel

LONGEST: Final = 8  # elements along the reduction that are multiplied at once, at most

NARROW: Final = {  # features with which factors of such products are multiplied as they are
    "bf16": frozenset({"avx512bf16", "amx-bf16"}),
    "int8": frozenset({"avx512vnni", "avxvnni", "amx-int8", "dotprod"}),
}

SUMS: Final = 8  # vectors of them in a tile, at least: two a cycle that take four to be added


def micro_kernel(t: Target, numerics: str = "fast") -> MicroKernel:
    """That for f32."""
    return _tile(t, _float(t), numerics)


def _float(t: Target) -> FloatMultiplyAdd:
    return F32 if _fuses(t) else FloatMultiplyAdd(fused=False)


def _fuses(t: Target) -> bool:
    return bool({"fma", "neon"} & set(t.features))


@cache
def micro_kernels(t: Target, numerics: str = "fast") -> tuple[MatrixKernel, ...]:
    """For f32, f64 and bf16, and for every two types of bytes. The first of each takes any number
    of columns, others fit some numbers of them better."""
    has = frozenset(t.features)
    floats = (*_fitting(t, _float(t), numerics), _double(t, numerics))
    if has >= {"amx-int8", "amx-bf16"}:
        bytes_ = tuple(TileKernel(a, b) for b in (i8, u8) for a in (u8, i8))
        return (*floats, TileKernel(bf16, bf16), *bytes_)
    dots = {"x86_64": _x86_dots, "aarch64": _aarch64_dots}[t.architecture](has)
    return (*floats, *(mk for dot in dots for mk in _fitting(t, dot, numerics)))


def multiplies(t: Target, precision: str) -> bool:
    """Whether the target has instructions for products of this precision. Without, factors are
    widened first: products with few rows are still faster than in f32, for there are fewer bytes
    (Zen 4, AVX2: bf16 0.5 of the time for one row, 0.97 for 16, 1.17 for 32 and more; int8 0.28 to
    0.9), windows take longer (bf16 1.1 to 1.7 times, int8 0.9 to 2.3 times)."""
    return not NARROW[precision].isdisjoint(t.features)


def _double(t: Target, numerics: str) -> MicroKernel:
    """That for f64, whose panels are as wide as those of f32: that are twice as many vectors."""
    lanes = t.lanes(64)
    vectors = micro_kernel(t).columns // lanes
    return _tile(t, float64(_fuses(t)), numerics, vectors)


def _fitting(t: Target, dot: Dot, numerics: str) -> Iterator[MicroKernel]:
    """Panels of two vectors, then such of two, three and five, with lanes for several words of a
    column. (Not on AArch64: panels are narrow there, and a factor is taken from a register instead
    of being repeated from memory.)"""
    yield _tile(t, dot, numerics)
    for shares in (1, 2, 4, 8) if t.architecture != "aarch64" else ():
        for vectors in (2, 3, 5):
            fits = t.lanes(32) >= 2 * shares and shares * dot.group <= LONGEST
            found = _tile(t, dot, numerics, vectors, shares)
            if fits and found.rows * vectors >= SUMS and (shares, vectors) != (1, 2):
                yield found


def _x86_dots(has: frozenset[str]) -> tuple[Dot, ...]:
    pairs: Dot = BF16 if "avx512bf16" in has else WidenedBf16("fma" in has)
    signed: tuple[Dot, ...] = tuple(WidenedBytes(a, i8) for a in (u8, i8))
    if has & {"avx512vnni", "avxvnni"}:
        signed = (VNNI, Flipped(VNNI))
    return (pairs, *signed, *(WidenedBytes(a, u8) for a in (u8, i8)))


def _aarch64_dots(has: frozenset[str]) -> tuple[Dot, ...]:
    if "dotprod" not in has:
        return (WidenedBf16(), *(MultiplyAdd(a, b) for b in (i8, u8) for a in (u8, i8)))
    sdot, udot = byte_dot("sdot", i8, i8), byte_dot("udot", u8, u8)
    mixed: Dot = byte_dot("usdot", u8, i8) if "i8mm" in has else Flipped(sdot)
    return (WidenedBf16(), mixed, sdot, udot, Flipped(udot))


def _tile(t: Target, dot: Dot, numerics: str, vectors: int = 2, shares: int = 1) -> MicroKernel:
    """As many rows of sums as registers allow, besides a row of the panel, a word of the first
    operand (on AArch64 every row has its own), and what a step needs: a constant where it masks or
    flips bits, a row of sums for a bias."""
    arm = t.architecture == "aarch64"
    vectors = 4 if arm and dot.c.bits == 32 else vectors
    free = t.registers - vectors * dot.parts - (dot.parts - 1 if arm else dot.parts)
    free -= vectors * dot.biased + (dot.biased or dot.parts > 1)
    rows = free // (vectors + arm)
    # Integers have the same sum in any order.
    in_order, together = numerics == "batch_invariant" and dot.c.is_float, 4 if arm else 1
    return MicroKernel(t.lanes(dot.c.bits), rows, vectors, in_order, dot, together, shares)
