"""Which micro-kernels a target has: for every pair of types the best that its features allow."""

from __future__ import annotations

from pliant.base.dtypes import i8, u8
from pliant.codegen.dot import F32, Dot, Flipped, WidenedBf16
from pliant.codegen.llvm.target import Target
from pliant.codegen.microkernel import MatrixKernel, MicroKernel
from pliant.codegen.x86.dot import Bf16, Vnni, WidenedBytes


def micro_kernel(t: Target, numerics: str = "fast") -> MicroKernel:
    """That for f32."""
    return _tile(t, F32, numerics)


def micro_kernels(t: Target, numerics: str = "fast") -> tuple[MatrixKernel, ...]:
    """One for every pair of operand types, f32 first."""
    return tuple(_tile(t, dot, numerics) for dot in _x86_dots(t))


def _x86_dots(t: Target) -> tuple[Dot, ...]:
    has = frozenset(t.features)
    bf16: Dot = Bf16() if "avx512bf16" in has else WidenedBf16()
    bytes_: tuple[Dot, ...] = tuple(WidenedBytes(a, i8) for a in (u8, i8))
    if has & {"avx512vnni", "avxvnni"}:
        bytes_ = (Vnni(), Flipped(Vnni()))
    return (F32, bf16, *bytes_)


def _tile(t: Target, dot: Dot, numerics: str) -> MicroKernel:
    """As many accumulators as registers allow, two for the panel's vectors and the rest for
    broadcasts."""
    vectors, lanes = 2, t.lanes(32)
    rows = 14 if t.registers == 32 else 6
    if dot.biased:  # a row of accumulators is for the bias
        rows -= 2 if t.registers == 32 else 1
    return MicroKernel(lanes, rows, vectors, numerics == "batch_invariant", dot)
