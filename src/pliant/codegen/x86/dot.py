"""Steps of micro-kernels by x86's instructions for products of short numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, bf16, f32, i8, i32, u8
from pliant.codegen.dot import Instruction, Values
from pliant.codegen.llvm.writer import FunctionText

# u8 times s8 in fours: vpdpbusd, of AVX-512 VNNI or AVX-VNNI. Exact; the sum wraps.
VNNI: Final = Instruction("u8i8_vnni", "llvm.x86.avx512.vpdpbusd.{bits}", "i8", u8, i8, i32, 4)

# bf16 in pairs, added up in f32: vdpbf16ps of AVX-512 BF16. It rounds to nearest even whatever the
# mode, takes denormal operands for zeros and flushes denormal results. How it rounds inside of a
# pair is the processor's: after each of two additions, or once. So a sum of K products differs from
# that in exact arithmetic by as much as any sum in f32 of K terms may, and by what was flushed.
BF16: Final = Instruction(
    "bf16_dot", "llvm.x86.avx512bf16.dpbf16ps.{bits}", "bfloat", bf16, bf16, f32, 2,
    latency=6,
)  # fmt: skip

# Multiplies 16-bit integers and adds the products in pairs, by lanes of the result.
_MADD: Final = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


@dataclass(frozen=True)
class WidenedBytes:
    """8-bit integers of any signs in pairs, made 16 bits wide: pmaddwd. Exact; the sum wraps.

    (pmaddubsw would take bytes as they are, but its sums of two saturate at 16 bits.)
    """

    a: DType
    b: DType
    c: DType = i32
    group: int = 2
    biased: bool = False
    parts: int = 1
    latency: int = 4

    @property
    def name(self) -> str:
        return f"{self.a}{self.b}"

    def left(self, t: FunctionText, lanes: int, words: str) -> Values:
        return _widened(t, lanes, words, self.a)

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        return _widened(t, lanes, words, self.b)

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        sums, pairs = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
        products = t.intrinsic(f"llvm.x86.{_MADD[lanes]}", sums, [(pairs, a[0]), (pairs, b[0])])
        return t.assign(f"add {sums} {acc}, {products}")


def _widened(t: FunctionText, lanes: int, words: str, dtype: DType) -> Values:
    bytes_ = t.assign(f"bitcast <{lanes} x i16> {words} to <{2 * lanes} x i8>")
    extend = "sext" if dtype.is_signed else "zext"
    return (t.assign(f"{extend} <{2 * lanes} x i8> {bytes_} to <{2 * lanes} x i16>"),)
