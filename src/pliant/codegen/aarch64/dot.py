"""Steps of micro-kernels by AArch64's instructions for products of bytes.

A factor may be any lane of a register, so a row's words are loaded four at a time and never spread:
LLVM makes `sdot v0.4s, v1.16b, v2.4b[3]` of a word that is taken out of a register and put into
every lane, and `fmla v0.4s, v1.4s, v2.s[3]` of an f32.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.base.dtypes import DType, i32
from pliant.codegen.dot import Values, splat
from pliant.codegen.llvm.writer import FunctionText


@dataclass(frozen=True)
class ByteDot:
    """Bytes in fours: sdot and udot, where both operands have the same sign, and usdot. Exact; the
    sum wraps."""

    op: str
    a: DType
    b: DType
    c: DType = i32
    group: int = 4
    biased: bool = False
    parts: int = 1

    @property
    def name(self) -> str:
        return f"{self.a}{self.b}_{self.op}"

    def left(self, t: FunctionText, lanes: int, word: str) -> Values:
        return self.right(t, lanes, splat(t, lanes, "i32", word))

    def right(self, t: FunctionText, lanes: int, words: str) -> Values:
        return (t.assign(f"bitcast <{lanes} x i32> {words} to <{4 * lanes} x i8>"),)

    def step(self, t: FunctionText, lanes: int, acc: str, a: Values, b: Values) -> str:
        sums, bytes_ = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        # The factor that is a lane comes last where the order is free; usdot's first is unsigned.
        x, y = (a[0], b[0]) if self.op == "usdot" else (b[0], a[0])
        args = [(sums, acc), (bytes_, x), (bytes_, y)]
        name = f"llvm.aarch64.neon.{self.op}.v{lanes}i32.v{4 * lanes}i8"
        return t.intrinsic(name, sums, args)
