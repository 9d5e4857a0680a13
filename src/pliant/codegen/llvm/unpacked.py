"""Sums that registers hold in the order in which unpacking brings what is added to them.

    32 lanes, in two registers of four parts with four sums each

    lanes of the first register     0 1 2 3   8 9 10 11   16 17 18 19   24 25 26 27
    of the second                   4 5 6 7  12 13 14 15   20 21 22 23   28 29 30 31

The instructions that interleave two vectors do so within parts of 128 bits: of pairs of bf16
(`pairs`) they bring those of the lower halves of all parts, and those of the upper halves. In this
order pairs cost nothing else; brought into that of the lanes they would take the units that
multiply. It is that of the lanes again once all is added, for what uses the sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import f32
from pliant.codegen.llvm import exprs, pieces
from pliant.codegen.llvm.types import vector_type
from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Binary, Expr, Index, Load, Reduce
from pliant.ir.node import walk
from pliant.loop.stmt import Alloc, Buffer, BufferRef, For, Stmt, Store
from pliant.sym.expr import var

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

LANES: Final = 32
HALF: Final = LANES // 2
_PART: Final = 4  # words of 128 bits

ORDER: Final = tuple(
    2 * _PART * (at % HALF // _PART) + _PART * (at // HALF) + at % _PART for at in range(LANES)
)
"""The lane whose sum is at each place."""

PLACES: Final = tuple(ORDER.index(lane) for lane in range(LANES))
"""Where each lane's sum is."""


def is_unpacked(s: Alloc) -> bool:
    """Whether the buffer holds sums of products of bf16, and every access to it is to one whole row
    of so many lanes."""
    buffer = s.buffer
    if buffer.dtype is not f32 or not buffer.shape or buffer.shape[-1] != LANES:
        return False
    return _in_rows(buffer, s.body, "") and any(
        isinstance(x, Store) and x.buffer is buffer and _adds_products(x) for x in walk(s.body)
    )


def _in_rows(buffer: Buffer, s: Stmt, lane: str) -> bool:
    """Whether each access has the variable of a vectorized loop of that many lanes, which is `lane`
    where it is around, for its last index, and nowhere else."""
    for x in s.children():
        if isinstance(x, For) and x.kind == "vectorized":
            whole = x.extent == LANES
            if not _in_rows(buffer, x.body, x.var if whole else ""):
                return False
        elif isinstance(x, Stmt):
            if not _in_rows(buffer, x, lane):
                return False
        else:
            for n in walk(x):
                if isinstance(n, BufferRef) and n.buffer is buffer:
                    return False
                if isinstance(n, Load) and n.source is buffer and not _is_row(n.indices, lane):
                    return False
    return not isinstance(s, Store) or s.buffer is not buffer or _is_row(s.indices, lane)


def _is_row(indices: tuple[Expr, ...], lane: str) -> bool:
    *others, last = indices
    along = all(isinstance(i, Index) and lane not in i.int_.names for i in others)
    return bool(lane) and along and last is Index(var(lane))


def _adds_products(s: Store) -> bool:
    match s.value:
        case Binary("add", Load(source=source), more) if source is s.buffer:
            body = more.body if isinstance(more, Reduce) else more
            return factors_in_bf16(body) is not None
    return False


def load(e: Emitter, address: str) -> exprs.Val:
    """The sums of a row, by lanes."""
    kind = vector_type("float", HALF)
    low, high = (
        e.text.assign(f"load {kind}, ptr {at}, align {4 * HALF}") for at in _addresses(e, address)
    )
    return exprs.Val(pieces.shuffle(e, "float", HALF, low, high, PLACES), f32, LANES)


def store(e: Emitter, address: str, value: exprs.Val) -> None:
    """Keep the sums of a row, which are by lanes."""
    kind = vector_type("float", HALF)
    for at, start in zip(_addresses(e, address), (0, HALF), strict=True):
        lanes = ORDER[start : start + HALF]
        half = pieces.shuffle(e, "float", LANES, value.text, "poison", lanes)
        e.text.line(f"store {kind} {half}, ptr {at}, align {4 * HALF}")


def _addresses(e: Emitter, address: str) -> tuple[str, str]:
    return address, e.text.assign(f"getelementptr float, ptr {address}, i64 {HALF}")
