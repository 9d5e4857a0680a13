"""Micro-kernels in AMX tiles: what `codegen.microkernel` computes, with 32 x 32 sums in four tiles.

    for each position, for each 64 bytes of the rows of `a`:
      A0, A1 = 16 rows each;  B0, B1 = 16 words of the panel    a copy of its last words at K's end
      C00 += A0 B0;  C01 += A0 B1;  C10 += A1 B0;  C11 += A1 B1

A tile's rows must be equally far apart. Where those that the table names are, as in a matrix and
along a row of an image, a tile is loaded from where they lie; others are first copied side by side,
and so is the end of rows, with zeros beyond K. For 16 rows and fewer there are no A1, C10 and C11.

Copying all rows made products take 1.3 to 1.4 times as long on a Xeon of 2023. To copy rows a step
ahead of the products that read them, to prefetch them, to pack them, to keep a part of the panel in
the first cache for several tiles gained nothing there.

Whoever calls such a kernel has configured the tiles for whole ones (`configure`), once for many
calls, since that takes as long as five products, and gives them up in the end (`release`); the
process must have asked for them (`runtime.features`). For a number of rows that is no multiple of
16 they are configured anew, and again as they were.

Sums of bytes are exact and wrap. Those of bf16 are in f32, rounded to nearest even whatever the
mode; denormal operands count as zeros, denormal results are flushed. The order of an output's sum
does not depend on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType, f32, i32
from pliant.codegen.dot import splat
from pliant.codegen.llvm.types import memory_type
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.codegen.microkernel import PARAMS, go_on

ROWS: Final = 16  # of a tile
BYTES: Final = 64  # of a row of a tile
WIDE: Final = 2  # tiles side by side
LEFT: Final = 4  # the first tile for `a`, after those for sums
RIGHT: Final = 6  # the first one for `b`

CONFIG: Final = "@pl_tiles"
WIDTHS: Final = 16  # the byte of a configuration that says how many bytes a row of tile 0 has
HEIGHTS: Final = 48  # … how many rows it has


@dataclass(frozen=True)
class TileKernel:
    """A family of micro-kernels for up to 32 rows and 32 columns."""

    a: DType
    b: DType
    rows: int = 2 * ROWS
    columns: int = WIDE * ROWS
    lanes: int = ROWS
    row_unit: int = ROWS

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


def uses_tiles(symbol: str) -> bool:
    """Whether that is the name of such a kernel: who calls it configures the tiles."""
    return symbol.startswith("pl_mm_") and "_amx_" in symbol


def configure(t: FunctionText) -> None:
    """Tiles of 16 rows of 64 bytes, from here to `release`."""
    t.intrinsic("llvm.x86.ldtilecfg", "void", [("ptr", _whole_tiles(t))])


def _whole_tiles(t: FunctionText) -> str:
    """Where the configuration for such tiles lies."""
    entries = [1, *[0] * 63]  # palette 1
    for tile in range(8):
        entries[WIDTHS + 2 * tile], entries[HEIGHTS + tile] = BYTES, ROWS
    numbers = ", ".join(f"i8 {x}" for x in entries)
    t.module.define(CONFIG, f"{CONFIG} = internal constant <64 x i8> <{numbers}>, align 64")
    return CONFIG


def release(t: FunctionText) -> None:
    t.intrinsic("llvm.x86.tilerelease", "void", [])


def _body(module: ModuleText, kernel: TileKernel, high: int) -> None:
    """All of it, with `high` tiles one above the other."""
    t = FunctionText(module)
    last = t.alloca(f"[{ROWS * WIDE * BYTES} x i8]", 64)
    copies = [t.alloca(f"[{ROWS * BYTES} x i8]", 64) for _ in range(high)]
    places = [t.alloca(f"[{ROWS} x ptr]", 64) for _ in range(high)]
    rows = t.assign(f"sub i64 %m, {(high - 1) * ROWS}")  # of the lowest tiles
    few = t.assign(f"icmp ult i64 {rows}, {ROWS}")
    with _only_if(t, few):
        _configure_part(t, rows, [*(_sum(high - 1, j) for j in range(WIDE)), LEFT + high - 1])
    sums = [(i, j) for i in range(high) for j in range(WIDE)]
    for i, j in sums:
        _tile(t, "tilezero", _sum(i, j))
    block = ROWS * kernel.group
    words = _ceildiv(t, "%K", kernel.group)
    blocks = _ceildiv(t, "%K", block)
    counts = [str(ROWS)] * (high - 1) + [rows]
    with _loop(t, "q", "%P") as q:
        table = t.assign(f"getelementptr i64, ptr %offsets, i64 {t.assign(f'mul i64 {q}, %m')}")
        lefts = [
            _rows(t, kernel, t.assign(f"getelementptr i64, ptr {table}, i64 {i * ROWS}"), *parts)
            for i, parts in enumerate(zip(counts, places, copies, strict=True))
        ]
        with _loop(t, "k", blocks) as k:
            done = t.assign(f"mul i64 {k}, {block}")
            rest = t.assign(f"sub i64 %K, {done}")
            count = t.intrinsic("llvm.umin.i64", "i64", [("i64", rest), ("i64", str(block))])
            whole = t.assign(f"icmp eq i64 {count}, {block}")
            found = [_left(t, kernel, left, done, count, whole) for left in lefts]
            first = t.assign(f"add i64 {t.assign(f'mul i64 {q}, {words}')}, "
                             f"{t.assign(f'mul i64 {k}, {ROWS}')}")  # fmt: skip
            panel = t.assign(f"getelementptr [{WIDE * BYTES} x i8], ptr %b, i64 {first}")
            right = _whole_words(t, kernel, panel, count, whole, last)
            for i, (at, step) in enumerate(found):
                _load(t, LEFT + i, at, 0, step)
            for j in range(WIDE):
                _load(t, RIGHT + j, right, j * BYTES, str(WIDE * BYTES))
            for i, j in sums:
                _tile(t, kernel.instruction, _sum(i, j), LEFT + i, RIGHT + j)
    step = t.assign("mul i64 %ldc, 4")
    for i, j in sums:
        at = t.assign(f"add i64 {t.assign(f'mul i64 {step}, {i * ROWS}')}, {j * BYTES}")
        at = t.assign(f"getelementptr i8, ptr %c, i64 {at}")
        args = [("i8", str(_sum(i, j))), ("ptr", at), ("i64", step)]
        t.intrinsic("llvm.x86.tilestored64", "void", args)
    with _only_if(t, few):
        configure(t)
    t.line("ret i32 0")
    header = f"define internal i32 @{kernel.symbol}_{high}({PARAMS})"
    module.functions.append(t.render(header))


def _sum(i: int, j: int) -> int:
    return WIDE * i + j


def _tile(t: FunctionText, name: str, *tiles: int) -> None:
    t.intrinsic(f"llvm.x86.{name}", "void", [("i8", str(x)) for x in tiles])


def _load(t: FunctionText, tile: int, base: str, offset: int, step: str) -> None:
    at = t.assign(f"getelementptr i8, ptr {base}, i64 {offset}")
    args = [("i8", str(tile)), ("ptr", at), ("i64", step)]
    t.intrinsic("llvm.x86.tileloadd64", "void", args)


def _configure_part(t: FunctionText, rows: str, tiles: Sequence[int]) -> None:
    """These tiles have so many rows, the others 16."""
    config, kind = t.alloca("[64 x i8]", 64), "<64 x i8>"
    whole = t.assign(f"load {kind}, ptr {_whole_tiles(t)}, align 64")
    t.line(f"store {kind} {whole}, ptr {config}")
    rows = t.intrinsic("llvm.umax.i64", "i64", [("i64", rows), ("i64", "1")])  # none is a fault
    height = t.assign(f"trunc i64 {rows} to i8")
    for tile in tiles:
        at = t.assign(f"getelementptr i8, ptr {config}, i64 {HEIGHTS + tile}")
        t.line(f"store i8 {height}, ptr {at}, align 1")
    t.intrinsic("llvm.x86.ldtilecfg", "void", [("ptr", config)])


@dataclass(frozen=True)
class _Rows:
    """Rows of a tile: `count`, where each begins in memory (`places`), the first one and how many
    bytes from one to the next, if they are `even`ly apart; `copy` has room for 64 bytes of each."""

    count: str
    places: str
    copy: str
    first: str
    step: str
    even: str


def _rows(
    t: FunctionText, kernel: TileKernel, table: str, count: str, places: str, copy: str
) -> _Rows:
    """The rows that the table names from here on."""
    words, pointers, ones = f"<{ROWS} x i64>", f"<{ROWS} x ptr>", f"<{ROWS} x i1>"
    inside = _below(t, count, ROWS, "i64")
    args = [("ptr align 8", table), (ones, inside), (words, "zeroinitializer")]
    entries = t.intrinsic(f"llvm.masked.load.v{ROWS}i64.p0", words, args)
    there = t.assign(f"icmp sge {words} {entries}, zeroinitializer")
    kind = memory_type(kernel.a)
    rows = t.assign(f"getelementptr {kind}, ptr %a, {words} {entries}")
    other = splat(t, ROWS, "ptr", "%other")
    rows = t.assign(f"select {ones} {there}, {pointers} {rows}, {pointers} {other}")
    t.line(f"store {pointers} {rows}, ptr {places}, align 64")
    at = t.assign(f"ptrtoint {pointers} {rows} to {words}")
    following = ", ".join(f"i32 {i + 1}" for i in range(ROWS - 1))
    order = f"<{ROWS} x i32> <{following}, i32 {ROWS - 1}>"
    following = t.assign(f"shufflevector {words} {at}, {words} poison, {order}")
    steps = t.assign(f"sub {words} {following}, {at}")
    step = t.assign(f"extractelement {words} {steps}, i64 0")
    right = t.assign(f"icmp eq {words} {steps}, {splat(t, ROWS, 'i64', step)}")
    over = _below(t, t.assign(f"sub i64 {count}, 1"), ROWS, "i64")  # rows with one that follows
    over = t.assign(f"xor {ones} {over}, splat (i1 true)")
    right = t.assign(f"or {ones} {right}, {over}")
    even = t.intrinsic(f"llvm.vector.reduce.and.v{ROWS}i1", "i1", [(ones, right)])
    start = t.assign(f"extractelement {pointers} {rows}, i64 0")
    return _Rows(count, places, copy, start, step, even)


def _left(
    t: FunctionText, kernel: TileKernel, rows: _Rows, done: str, count: str, whole: str
) -> tuple[str, str]:
    """Where a tile of elements `done` to `done` + `count` of the rows is loaded from, and how many
    bytes its rows are apart there: where they are, or a copy."""
    skip = t.assign(f"mul i64 {done}, {kernel.a.bytes}")
    there = t.assign(f"getelementptr i8, ptr {rows.first}, i64 {skip}")
    copied, ready = t.label("copied"), t.label("ready")
    before = t.block
    t.branch(t.assign(f"and i1 {rows.even}, {whole}"), ready, copied)
    t.start(copied)
    have = t.assign(f"trunc i64 {t.assign(f'mul i64 {count}, {kernel.a.bytes}')} to i8")
    mask = _below(t, have, BYTES, "i8")
    kind = f"<{BYTES} x i8>"
    with _loop(t, "i", rows.count) as i:
        entry = t.assign(f"getelementptr ptr, ptr {rows.places}, i64 {i}")
        row = t.assign(f"load ptr, ptr {entry}, align 8")
        at = t.assign(f"getelementptr i8, ptr {row}, i64 {skip}")
        args = [("ptr align 1", at), (f"<{BYTES} x i1>", mask), (kind, "zeroinitializer")]
        value = t.intrinsic(f"llvm.masked.load.v{BYTES}i8.p0", kind, args)
        to = t.assign(f"getelementptr {kind}, ptr {rows.copy}, i64 {i}")
        t.line(f"store {kind} {value}, ptr {to}, align 64")
    after = t.block
    t.jump(ready)
    t.start(ready)
    at = t.phi("ptr", (there, before), (rows.copy, after))
    return at, t.phi("i64", (rows.step, before), (str(BYTES), after))


def _whole_words(
    t: FunctionText, kernel: TileKernel, panel: str, count: str, whole: str, last: str
) -> str:
    """Where 16 rows of the panel lie of which the first `count` elements are the panel's and the
    others zeros: in the panel, or in a copy."""
    lanes, bits = WIDE * ROWS, kernel.b.bits
    kind = f"<{lanes} x i32>"
    part, done = t.label("part"), t.label("whole")
    before = t.block
    t.branch(whole, done, part)
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
def _only_if(t: FunctionText, condition: str) -> Iterator[None]:
    """What is emitted inside runs if that holds."""
    then, after = t.label("then"), t.label("after")
    t.branch(condition, then, after)
    t.start(then)
    yield
    t.jump(after)
    t.start(after)


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
