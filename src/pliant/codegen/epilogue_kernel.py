"""Micro-kernels that end with what follows the product (`codegen.epilogue`).

    int32 symbol(ctx, a, offsets, other, b, operands…, m, P, K, turn, steps…)

For m from `least_rows` to all that fit. The sums go to a buffer of one function, that LLVM keeps in
registers, and the epilogue runs on it without loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

from pliant.codegen.epilogue import COLUMN, ROW, TILE, Epilogue, least_rows
from pliant.codegen.llvm.emitter import Options, emit_inside
from pliant.codegen.llvm.types import memory_type, value_type
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.codegen.microkernel import LINE, MicroKernel, Row, dispatch, variant
from pliant.loop.rewrite import subst
from pliant.loop.stmt import For, Function, Store, for_, seq, statements
from pliant.sym.expr import as_int, var


@dataclass(frozen=True)
class EpilogueKernel:
    """A micro-kernel with an epilogue, for a processor with these features."""

    kernel: MicroKernel
    epilogue: Epilogue
    features: frozenset[str]

    @property
    def symbol(self) -> str:
        return self.epilogue.symbol

    def text(self) -> str:
        """LLVM IR."""
        return _text(self)


@lru_cache(64)
def _text(k: EpilogueKernel) -> str:
    module, kernel, body = ModuleText(), k.kernel, k.epilogue.body
    _, *operands = body.buffers
    noalias = dict(body.notes)["noalias"]
    params = ", ".join(
        (
            "ptr %ctx, ptr noalias readonly %a, ptr noalias readonly %offsets",
            "ptr noalias readonly %other, ptr noalias readonly %b",
            *(f"ptr{' noalias' * (x.name in noalias)} %{x.name}" for x in operands),
            "i64 %m, i64 %P, i64 %K, i64 %turn",
            *(f"i64 %{name}" for name in body.sizes[1:]),
        )
    )
    least = least_rows(kernel)
    names = {m: f"{k.symbol}_m{m}" for m in range(least, kernel.rows + 1)}
    for m, name in names.items():
        begin, end = partial(_begin, k=k, m=m), partial(_end, k=k)
        variant(module, kernel, name, params, m, end, begin)
    dispatch(module, k.symbol, params, [names[least]] * least + list(names.values()))
    return module.render()


def _begin(t: FunctionText, k: EpilogueKernel, m: int) -> None:
    """Ask for the rows that are read in the end: they come while the tile is multiplied."""
    body = k.epilogue.body
    written = {s.buffer for s in statements(body.body) if isinstance(s, Store)}
    for x in body.buffers[1:]:
        if x in written or x.rank < 2:
            continue
        step = t.assign(f"mul i64 %{x.strides[0]}, {x.dtype.bytes}")
        row = f"%{x.name}"
        for i in range(m):
            if i:
                row = t.assign(f"getelementptr i8, ptr {row}, i64 {step}")
            for line in range(0, k.kernel.columns * x.dtype.bytes, LINE):
                at = t.assign(f"getelementptr i8, ptr {row}, i64 {line}")
                t.prefetch(at, cache=1)


def _end(t: FunctionText, sums: list[Row], k: EpilogueKernel) -> None:
    kernel, m = k.kernel, len(sums)
    body = k.epilogue.body
    tile = t.alloca(f"[{m * kernel.columns} x {memory_type(kernel.c)}]", 64)
    parts = list[int]()
    for i, row in enumerate(sums):
        vectors, column = _joined(t, k, row), 0
        for total, count in vectors:
            at = f"getelementptr {memory_type(kernel.c)}, ptr {tile}, i64"
            at = t.assign(f"{at} {i * kernel.columns + column}")
            t.line(f"store {value_type(kernel.c, count)} {total}, ptr {at}, align 4")
            column += count
        parts = [count for _, count in vectors]
    pointers = {x.name: f"%{x.name}" for x in body.buffers} | {TILE: tile}
    sizes = {name: f"%{name}" for name in body.sizes[1:]}
    emit_inside(t, _unrolled(body, m, parts), pointers, sizes, Options.of(body, k.features))


def _joined(t: FunctionText, k: EpilogueKernel, row: Row) -> Row:
    """Vectors of a row, of which two become one of results that are half as wide."""
    least = min(
        s.buffer.dtype.bytes for s in statements(k.epilogue.body.body) if isinstance(s, Store)
    )
    if 2 * least != k.kernel.c.bytes:
        return row
    out: Row = []
    for total, count in row:
        if out and out[-1][1] == count == k.kernel.lanes:
            kind = value_type(k.kernel.c, count)
            every = ", ".join(f"i32 {x}" for x in range(2 * count))
            both = f"{kind} {out[-1][0]}, {kind} {total}, <{2 * count} x i32> <{every}>"
            out[-1] = (t.assign(f"shufflevector {both}"), 2 * count)
        else:
            out.append((total, count))
    return out


def _unrolled(f: Function, m: int, parts: list[int]) -> Function:
    """The epilogue for so many rows, in vectors of so many columns."""
    f = subst(f, {"m": m})
    rows = f.body
    assert isinstance(rows, For) and isinstance(rows.body, For)
    here, vectors, first = rows.body.body, [], 0
    for lanes in parts:
        column = {COLUMN: var(COLUMN) + first}
        vectors.append(for_([(COLUMN, lanes)], subst(here, column), "vectorized"))
        first += lanes
    return f.replace(body=For(ROW, as_int(m), seq(*vectors), "unrolled"))
