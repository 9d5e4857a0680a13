"""Micro-kernels in AMX tiles: what `codegen.microkernel` computes, with 32 x 32 sums in four tiles.

    for each position, for each 64 bytes of the rows of `a`:
      left[32][64] = the rows, side by side; zeros beyond K
      A0, A1 = left;  B0, B1 = 16 words of the panel            a copy of its last words at K's end
      C00 += A0 B0;  C01 += A0 B1;  C10 += A1 B0;  C11 += A1 B1

A tile's rows must be equally far apart, and those that the table names are not: they are copied.
For 16 rows and fewer there are no A1, C10 and C11. Tiles are configured on entry and given up on
leaving; the process must have asked for them (`runtime.features`).

Sums of bytes are exact and wrap. Those of bf16 are in f32, rounded to nearest even whatever the
mode; denormal operands count as zeros, denormal results are flushed. The order of an output's sum
does not depend on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, f32, i32
from pliant.codegen.dot import splat
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.codegen.microkernel import PARAMS, go_on, row_pointer

ROWS: Final = 16  # of a tile
BYTES: Final = 64  # of a row of a tile
WIDE: Final = 2  # tiles side by side
LEFT: Final = 4  # the first tile for `a`, after those for sums
RIGHT: Final = 6  # the first one for `b`


@dataclass(frozen=True)
class TileKernel:
    """A family of micro-kernels for up to 32 rows and 32 columns."""

    a: DType
    b: DType
    rows: int = 2 * ROWS
    columns: int = WIDE * ROWS
    lanes: int = ROWS

    @property
    def c(self) -> DType:
        return i32 if self.a.is_int else f32

    @property
    def group(self) -> int:
        return 4 // self.a.bytes

    @property
    def symbol(self) -> str:
        types = f"{self.a}{self.b}" if self.a.is_int else f"{self.a}"
        return f"pl_mm_{types}_amx_{self.rows}x{self.columns}"

    @property
    def instruction(self) -> str:
        """Which products: of signed and unsigned bytes, or of bf16."""
        if not self.a.is_int:
            return "tdpbf16ps"
        return f"tdpb{'s' if self.a.is_signed else 'u'}{'s' if self.b.is_signed else 'u'}d"

    def text(self) -> str:
        module = ModuleText()
        for high in (1, 2):
            _body(module, self, high)
        _dispatch(module, self)
        return module.render()


def _dispatch(module: ModuleText, kernel: TileKernel) -> None:
    t = FunctionText(module)
    low, high = t.label("low"), t.label("high")
    t.branch(t.assign(f"icmp ule i64 %m, {ROWS}"), low, high)
    for label, name in ((low, 1), (high, 2)):
        t.start(label)
        go_on(t, f"@{kernel.symbol}_{name}")
    module.functions.append(t.render(f"define i32 @{kernel.symbol}({PARAMS})"))


def _body(module: ModuleText, kernel: TileKernel, high: int) -> None:
    """All of it, with `high` tiles one above the other."""
    t = FunctionText(module)
    left = t.alloca(f"[{high * ROWS * BYTES} x i8]", 64)
    last = t.alloca(f"[{ROWS * WIDE * BYTES} x i8]", 64)
    _configure(t, high)
    sums = [(i, j) for i in range(high) for j in range(WIDE)]
    for i, j in sums:
        _tile(t, "tilezero", _sum(i, j))
    block = ROWS * kernel.group
    words = _ceildiv(t, "%K", kernel.group)
    blocks = _ceildiv(t, "%K", block)
    with _loop(t, "q", "%P") as q, _loop(t, "k", blocks) as k:
        done = t.assign(f"mul i64 {k}, {block}")
        rest = t.assign(f"sub i64 %K, {done}")
        count = t.intrinsic("llvm.umin.i64", "i64", [("i64", rest), ("i64", str(block))])
        _copy_rows(t, kernel, q, done, count, left)
        first = t.assign(f"add i64 {t.assign(f'mul i64 {q}, {words}')}, "
                         f"{t.assign(f'mul i64 {k}, {ROWS}')}")  # fmt: skip
        panel = t.assign(f"getelementptr [{WIDE * BYTES} x i8], ptr %b, i64 {first}")
        right = _whole_words(t, kernel, panel, count, last)
        for i in range(high):
            _load(t, LEFT + i, left, i * ROWS * BYTES, BYTES)
        for j in range(WIDE):
            _load(t, RIGHT + j, right, j * BYTES, WIDE * BYTES)
        for i, j in sums:
            _tile(t, kernel.instruction, _sum(i, j), LEFT + i, RIGHT + j)
    step = t.assign("mul i64 %ldc, 4")
    for i, j in sums:
        at = t.assign(f"add i64 {t.assign(f'mul i64 {step}, {i * ROWS}')}, {j * BYTES}")
        at = t.assign(f"getelementptr i8, ptr %c, i64 {at}")
        args = [("i8", str(_sum(i, j))), ("ptr", at), ("i64", step)]
        t.intrinsic("llvm.x86.tilestored64", "void", args)
    t.intrinsic("llvm.x86.tilerelease", "void", [])
    t.line("ret i32 0")
    header = f"define internal i32 @{kernel.symbol}_{high}({PARAMS})"
    module.functions.append(t.render(header))


def _sum(i: int, j: int) -> int:
    return WIDE * i + j


def _tile(t: FunctionText, name: str, *tiles: int) -> None:
    t.intrinsic(f"llvm.x86.{name}", "void", [("i8", str(x)) for x in tiles])


def _load(t: FunctionText, tile: int, base: str, offset: int, step: int) -> None:
    at = t.assign(f"getelementptr i8, ptr {base}, i64 {offset}")
    args = [("i8", str(tile)), ("ptr", at), ("i64", str(step))]
    t.intrinsic("llvm.x86.tileloadd64", "void", args)


def _configure(t: FunctionText, high: int) -> None:
    """Palette 1: byte 16 + 2*t says how many bytes a row of tile t has, byte 48 + t how many rows.
    All have 64 and 16 but those for the last rows of `a`, which have as many as there are."""
    rows = t.assign(f"sub i64 %m, {(high - 1) * ROWS}")
    rows = t.intrinsic("llvm.umax.i64", "i64", [("i64", rows), ("i64", "1")])
    rows = t.assign(f"trunc i64 {rows} to i8")
    entries = [1, *[0] * 63]
    for tile in range(8):
        entries[16 + 2 * tile], entries[48 + tile] = BYTES, ROWS
    config = t.alloca("[64 x i8]", 64)
    numbers = ", ".join(f"i8 {x}" for x in entries)
    t.line(f"store <64 x i8> <{numbers}>, ptr {config}, align 64")
    for tile in (*(_sum(high - 1, j) for j in range(WIDE)), LEFT + high - 1):
        at = t.assign(f"getelementptr i8, ptr {config}, i64 {48 + tile}")
        t.line(f"store i8 {rows}, ptr {at}, align 1")
    t.intrinsic("llvm.x86.ldtilecfg", "void", [("ptr", config)])


def _copy_rows(
    t: FunctionText, kernel: TileKernel, q: str, done: str, count: str, left: str
) -> None:
    """`count` elements of every row from element `done` on, then zeros."""
    have = t.assign(f"trunc i64 {t.assign(f'mul i64 {count}, {kernel.a.bytes}')} to i8")
    mask = _below(t, have, BYTES, "i8")
    table = t.assign(f"getelementptr i64, ptr %offsets, i64 {t.assign(f'mul i64 {q}, %m')}")
    skip = t.assign(f"mul i64 {done}, {kernel.a.bytes}")
    kind = f"<{BYTES} x i8>"
    with _loop(t, "i", "%m") as i:
        entry = t.assign(f"getelementptr i64, ptr {table}, i64 {i}")
        row = row_pointer(t, kernel.a, t.assign(f"load i64, ptr {entry}, align 8"))
        at = t.assign(f"getelementptr i8, ptr {row}, i64 {skip}")
        args = [("ptr align 1", at), (f"<{BYTES} x i1>", mask), (kind, "zeroinitializer")]
        value = t.intrinsic(f"llvm.masked.load.v{BYTES}i8.p0", kind, args)
        to = t.assign(f"getelementptr {kind}, ptr {left}, i64 {i}")
        t.line(f"store {kind} {value}, ptr {to}, align 64")


def _whole_words(t: FunctionText, kernel: TileKernel, panel: str, count: str, last: str) -> str:
    """Where 16 rows of the panel lie of which the first `count` elements are the panel's and the
    others zeros: in the panel, or in a copy."""
    lanes, bits = WIDE * ROWS, kernel.b.bits
    kind = f"<{lanes} x i32>"
    part, done = t.label("part"), t.label("whole")
    before = t.block
    t.branch(t.assign(f"icmp eq i64 {count}, {ROWS * kernel.group}"), done, part)
    t.start(part)
    with _loop(t, "r", str(ROWS)) as r:
        first = t.assign(f"mul i64 {r}, {kernel.group}")
        here = t.intrinsic("llvm.usub.sat.i64", "i64", [("i64", count), ("i64", first)])
        here = t.intrinsic("llvm.umin.i64", "i64", [("i64", here), ("i64", str(kernel.group))])
        some = t.assign(f"icmp ne i64 {here}, 0")
        ones = t.assign(f"shl i64 1, {t.assign(f'mul i64 {here}, {bits}')}")
        keep = t.assign(f"trunc i64 {t.assign(f'sub i64 {ones}, 1')} to i32")
        at = t.assign(f"getelementptr {kind}, ptr {panel}, i64 {r}")
        mask = splat(t, lanes, "i1", some)
        args = [
            (f"ptr align {kernel.b.bytes}", at),
            (f"<{lanes} x i1>", mask),
            (kind, "zeroinitializer"),
        ]
        words = t.intrinsic(f"llvm.masked.load.v{lanes}i32.p0", kind, args)
        words = t.assign(f"and {kind} {words}, {splat(t, lanes, 'i32', keep)}")
        to = t.assign(f"getelementptr {kind}, ptr {last}, i64 {r}")
        t.line(f"store {kind} {words}, ptr {to}, align 64")
    after = t.block
    t.jump(done)
    t.start(done)
    return t.phi("ptr", (panel, before), (last, after))


def _below(t: FunctionText, limit: str, lanes: int, kind: str) -> str:
    numbers = ", ".join(f"{kind} {x}" for x in range(lanes))
    all_ = splat(t, lanes, kind, limit)
    return t.assign(f"icmp ult <{lanes} x {kind}> <{numbers}>, {all_}")


def _ceildiv(t: FunctionText, value: str, by: int) -> str:
    return t.assign(f"udiv i64 {t.assign(f'add i64 {value}, {by - 1}')}, {by}")


@contextmanager
def _loop(t: FunctionText, name: str, count: str) -> Iterator[str]:
    """for name in [0, count): what is emitted inside."""
    before, head = t.block, t.label(f"{name}head")
    inside, done, latch = t.label(f"{name}body"), t.label(f"{name}done"), t.label(f"{name}latch")
    index, step = t.name(name), t.name("step")
    t.jump(head)
    t.start(head)
    t.line(f"{index} = phi i64 [ 0, %{before} ], [ {step}, %{latch} ]")
    t.branch(t.assign(f"icmp ult i64 {index}, {count}"), inside, done)
    t.start(inside)
    yield index
    t.jump(latch)
    t.start(latch)
    t.line(f"{step} = add nuw nsw i64 {index}, 1")
    t.jump(head)
    t.start(done)
