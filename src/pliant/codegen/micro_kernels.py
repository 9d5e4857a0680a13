"""Which micro-kernels a target has: for every pair of types the best that its features allow."""

from __future__ import annotations

from pliant.base.dtypes import bf16, i8, u8
from pliant.codegen.aarch64.dot import ByteDot
from pliant.codegen.dot import F32, Dot, Flipped, MultiplyAdd, WidenedBf16
from pliant.codegen.llvm.target import Target
from pliant.codegen.microkernel import MatrixKernel, MicroKernel
from pliant.codegen.x86.dot import Bf16, Vnni, WidenedBytes
from pliant.codegen.x86.tiles import TileKernel


def micro_kernel(t: Target, numerics: str = "fast") -> MicroKernel:
    """That for f32."""
    return _tile(t, F32, numerics)


def micro_kernels(t: Target, numerics: str = "fast") -> tuple[MatrixKernel, ...]:
    """One for f32, for bf16, and for every two types of bytes."""
    has = frozenset(t.features)
    if has >= {"amx-int8", "amx-bf16"}:
        bytes_ = tuple(TileKernel(a, b) for b in (i8, u8) for a in (u8, i8))
        return (micro_kernel(t, numerics), TileKernel(bf16, bf16), *bytes_)
    dots = {"x86_64": _x86_dots, "aarch64": _aarch64_dots}[t.architecture](has)
    return tuple(_tile(t, dot, numerics) for dot in dots)


def _x86_dots(has: frozenset[str]) -> tuple[Dot, ...]:
    pairs: Dot = Bf16() if "avx512bf16" in has else WidenedBf16()
    signed: tuple[Dot, ...] = tuple(WidenedBytes(a, i8) for a in (u8, i8))
    if has & {"avx512vnni", "avxvnni"}:
        signed = (Vnni(), Flipped(Vnni()))
    return (F32, pairs, *signed, *(WidenedBytes(a, u8) for a in (u8, i8)))


def _aarch64_dots(has: frozenset[str]) -> tuple[Dot, ...]:
    if "dotprod" not in has:
        return (F32, WidenedBf16(), *(MultiplyAdd(a, b) for b in (i8, u8) for a in (u8, i8)))
    sdot, udot = ByteDot("sdot", i8, i8), ByteDot("udot", u8, u8)
    mixed: Dot = ByteDot("usdot", u8, i8) if "i8mm" in has else Flipped(sdot)
    return (F32, WidenedBf16(), mixed, sdot, udot, Flipped(udot))


def _tile(t: Target, dot: Dot, numerics: str) -> MicroKernel:
    """As many accumulators as registers allow, besides one row of the panel and what the rows of
    the first operand need: a broadcast at a time or, on AArch64, a register each."""
    in_order = numerics == "batch_invariant"
    if t.architecture == "aarch64":  # a row of accumulators may be for the bias
        return MicroKernel(t.lanes(32), 5 - dot.biased, 4, in_order, dot, together=4)
    rows = 14 - 2 * dot.biased if t.registers == 32 else 6 - dot.biased
    return MicroKernel(t.lanes(32), rows, 2, in_order, dot)
