"""Which micro-kernels a target has: for every pair of types the best that its features allow."""

from __future__ import annotations

from pliant.base.dtypes import bf16, i8, u8
from pliant.codegen.aarch64.dot import byte_dot
from pliant.codegen.dot import F32, Dot, Flipped, FloatMultiplyAdd, MultiplyAdd, WidenedBf16
from pliant.codegen.llvm.target import Target
from pliant.codegen.microkernel import MatrixKernel, MicroKernel
from pliant.codegen.x86.dot import BF16, VNNI, WidenedBytes
from pliant.codegen.x86.tiles import TileKernel


def micro_kernel(t: Target, numerics: str = "fast") -> MicroKernel:
    """That for f32."""
    return _tile(t, _float(t), numerics)


def _float(t: Target) -> FloatMultiplyAdd:
    return F32 if {"fma", "neon"} & set(t.features) else FloatMultiplyAdd(fused=False)


def micro_kernels(t: Target, numerics: str = "fast") -> tuple[MatrixKernel, ...]:
    """One for f32, for bf16, and for every two types of bytes."""
    has = frozenset(t.features)
    if has >= {"amx-int8", "amx-bf16"}:
        bytes_ = tuple(TileKernel(a, b) for b in (i8, u8) for a in (u8, i8))
        return (micro_kernel(t, numerics), TileKernel(bf16, bf16), *bytes_)
    dots = {"x86_64": _x86_dots, "aarch64": _aarch64_dots}[t.architecture](has)
    return (micro_kernel(t, numerics), *(_tile(t, dot, numerics) for dot in dots))


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


def _tile(t: Target, dot: Dot, numerics: str) -> MicroKernel:
    """As many rows of sums as registers allow, besides a row of the panel, a word of the first
    operand (on AArch64 every row has its own), and what a step needs: a constant where it masks or
    flips bits, a row of sums for a bias."""
    arm = t.architecture == "aarch64"
    vectors = 4 if arm else 2
    free = t.registers - vectors * dot.parts - (dot.parts - 1 if arm else dot.parts)
    free -= vectors * dot.biased + (dot.biased or dot.parts > 1)
    rows = free // (vectors + arm)
    in_order, together = numerics == "batch_invariant", 4 if arm else 1
    return MicroKernel(t.lanes(32), rows, vectors, in_order, dot, together)
