"""Code of the intrinsics that turn squares (`schedule.recipes.square`).

A vector is a line; each step pairs lines that differ in one bit of their number, and makes two of
the two:

    a0 a1 a2 a3      a0 b0 a1 b1       neighbours, within 16 bytes: bits of the place in a line
    b0 b1 b2 b3  ->  a2 b2 a3 b3       become bits of the line's number, from the highest on

    a0 a1 a2 a3      a0 a2 b0 b2       16 bytes each: the same from the lowest bit on
    b0 b1 b2 b3  ->  a1 a3 b1 b3

Both are one instruction on x86 (unpack, shuffle), where other ways to take the same bits need two
or a table of places. After the last step every bit of a place was one of a line's number.

`transpose` asks for the lines to the right of the square: who goes on there finds them in the
second cache. In the first they would push one another out where they lie a power of two apart.
`turn` asks for nothing.
"""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import DTYPES, DType
from pliant.codegen.llvm.types import memory_type, vector_type
from pliant.codegen.llvm.writer import FunctionText, ModuleText

PART: Final = 16  # bytes within which neighbours are interleaved by one instruction


def define(module: ModuleText, symbol: str) -> bool:
    """Have the module contain the code of an intrinsic; False where it is none of these."""
    found = _square(symbol)
    if found is not None and symbol not in module.defined:
        module.defined.add(symbol)
        module.functions.append(_text(module, symbol, *found))
    return found is not None


def is_square(symbol: str) -> bool:
    """Whether that is the name of such an intrinsic."""
    return _square(symbol) is not None


def _square(symbol: str) -> tuple[DType, int, bool] | None:
    """The type and the lines of the square that a name stands for, and whether it asks."""
    word, _, rest = symbol.partition("_")
    dtype, _, lines = rest.rpartition("_")
    if word not in ("transpose", "turn") or dtype not in DTYPES or not lines.isdecimal():
        return None
    return DTYPES[dtype], int(lines), word == "transpose"


def _text(module: ModuleText, symbol: str, dtype: DType, n: int, asks: bool) -> str:
    t, element = FunctionText(module), memory_type(dtype)
    kind = vector_type(element, n)
    rows = []
    for k in range(n):
        at = t.assign(f"mul i64 {k}, %ldx")
        line = t.assign(f"getelementptr {element}, ptr %x, i64 {at}")
        rows.append(t.assign(f"load {kind}, ptr {line}, align {dtype.bytes}"))
        if asks:
            right = t.assign(f"getelementptr {element}, ptr {line}, i64 {n}")
            t.prefetch(right, cache=2)
    for j, row in enumerate(_turned(t, rows, kind, n, min(n, PART // dtype.bytes))):
        line = t.assign(f"getelementptr {element}, ptr %y, i64 {j * n}")
        t.line(f"store {kind} {row}, ptr {line}, align {dtype.bytes}")
    t.line("ret i32 0")
    header = f"define internal i32 @{symbol}(ptr %ctx, ptr %x, ptr %y, i64 %ldx) alwaysinline"
    return t.render(header)


def _turned(t: FunctionText, rows: list[str], kind: str, n: int, part: int) -> list[str]:
    """The columns of the square."""
    bits, low = n.bit_length() - 1, part.bit_length() - 1
    for bit in range(bits):
        first = _interleaved(n, part, 1 << bit) if bit < low else _parted(n, part)
        half = part >> 1 if bit < low else part
        second = [k + half for k in first]
        new = list(rows)
        for a in range(n):
            if not a >> bit & 1:
                b = a | 1 << bit
                for to, mask in ((a, first), (b, second)):
                    places = ", ".join(f"i32 {k}" for k in mask)
                    new[to] = t.assign(
                        f"shufflevector {kind} {rows[a]}, {kind} {rows[b]}, <{n} x i32> <{places}>"
                    )
        rows = new
    reverse = [sum((j >> (low - 1 - k) & 1) << k for k in range(low)) for j in range(part)]
    return [rows[j // part * part + reverse[j % part]] for j in range(n)]


def _interleaved(n: int, part: int, unit: int) -> list[int]:
    """Places, of those of two lines one after the other, that make the first of the two new lines:
    by turns a unit of each, of the first half of every part."""
    return [
        start + turn * n + k
        for p in range(0, n, part)
        for start in range(p, p + part // 2, unit)
        for turn in (0, 1)
        for k in range(unit)
    ]


def _parted(n: int, part: int) -> list[int]:
    """Likewise: the parts at even places of one line, then those of the other."""
    return [turn * n + p + k for turn in (0, 1) for p in range(0, n, 2 * part) for k in range(part)]
