"""Steps of micro-kernels by AArch64's instructions for products of bytes.

A factor may be any lane of a register, so a row's words are loaded four at a time and never spread:
LLVM makes `sdot v0.4s, v1.16b, v2.4b[3]` of a word that is taken out of a register and put into
every lane, and `fmla v0.4s, v1.4s, v2.s[3]` of an f32.
"""

from __future__ import annotations

from pliant.base.dtypes import DType, i32
from pliant.codegen.dot import Instruction


def byte_dot(op: str, a: DType, b: DType) -> Instruction:
    """Bytes in fours: sdot and udot, where both operands have the same sign, and usdot. Exact; the
    sum wraps."""
    # The factor that is a lane comes last where the order is free; usdot's first is unsigned.
    intrinsic = f"llvm.aarch64.neon.{op}.v{{lanes}}i32.v{{elements}}i8"
    return Instruction(f"{a}{b}_{op}", intrinsic, "i8", a, b, i32, 4, panel_first=op != "usdot")
