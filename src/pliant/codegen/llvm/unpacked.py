"""Sums that registers hold in the order in which unpacking brings what is added to them.

    32 lanes, in two registers of four parts with four sums each

    lanes of the first register     0 1 2 3   8 9 10 11   16 17 18 19   24 25 26 27
    of the second                   4 5 6 7  12 13 14 15   20 21 22 23   28 29 30 31

The instructions that interleave two vectors do so within parts of 128 bits: of pairs of bf16
(`pairs`) they bring those of the lower halves of all parts, and those of the upper halves. In this
order pairs cost nothing else; brought into that of the lanes they would take the units that
multiply. What is computed of the sums stays in it, too, where the result is of 16 bits: that is
brought into the order of the lanes by one shuffle, the sums by two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import boolean, f32
from pliant.codegen.llvm import exprs, pieces
from pliant.codegen.llvm.types import memory_type, vector_type
from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Binary, Cast, Const, Expr, Index, Load, Reduce, Select, Unary, Var
from pliant.ir.node import walk
from pliant.loop.stmt import Alloc, Buffer, BufferRef, For, Stmt, Store
from pliant.sym.expr import var

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

LANES: Final = 32
HALF: Final = LANES // 2
_PART: Final = 4  # words of 128 bits
_SHORT: Final = 16  # bits of a result that is cheaper to bring into another order than the sums

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


def stays(e: Emitter, s: Store) -> bool:
    """Whether a value that is stored is computed in this order: of sums that are kept in it, and of
    what else is read."""
    value = s.value
    if e.lanes != LANES or e.mask is not None or value.dtype.bits != _SHORT:
        return False
    if e.place(s.buffer).lanes > 1 or e.place(s.buffer).unpacked:
        return False
    return _is_of_lanes(e, value) and any(
        isinstance(x, Load) and e.place(x.source).unpacked for x in walk(value)
    )


def _is_of_lanes(e: Emitter, value: Expr) -> bool:
    """Whether each lane of a value is computed of what that lane reads, and of nothing else that
    differs between lanes."""
    pending, seen = [value], set[Expr]()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        match x:
            case Load(source=source, indices=indices) if x.dtype is not boolean:
                if e.place(source).lanes > 1 or not all(isinstance(i, Index) for i in indices):
                    return False
            case Index(i) if not e.is_varying(i):
                pass
            case Select() if e.has_effects(x.a) or e.has_effects(x.b):
                return False  # a mask would say which lanes read
            case Const() | Var() | Binary() | Unary() | Cast() | Select():
                pending += (part for part in x.children() if isinstance(part, Expr))
            case _:
                return False
    return True


def in_order(e: Emitter, v: exprs.Val) -> exprs.Val:
    """What was read by lanes, in this order where values are computed in it."""
    return v if v.lanes == 1 or not e.unpacked else _moved(e, v, ORDER)


def by_lanes(e: Emitter, v: exprs.Val) -> exprs.Val:
    """A value that was computed in this order."""
    return v if v.lanes == 1 else _moved(e, v, PLACES)


def _moved(e: Emitter, v: exprs.Val, lanes: tuple[int, ...]) -> exprs.Val:
    text = pieces.shuffle(e, memory_type(v.dtype), LANES, v.text, "poison", lanes)
    return exprs.Val(text, v.dtype, LANES)


def load(e: Emitter, address: str) -> exprs.Val:
    """The sums of a row, by lanes where values are."""
    kind = vector_type("float", HALF)
    low, high = (
        e.text.assign(f"load {kind}, ptr {at}, align {4 * HALF}") for at in _addresses(e, address)
    )
    lanes = range(LANES) if e.unpacked else PLACES
    return exprs.Val(pieces.shuffle(e, "float", HALF, low, high, lanes), f32, LANES)


def store(e: Emitter, address: str, value: exprs.Val) -> None:
    """Keep the sums of a row, which are by lanes."""
    kind = vector_type("float", HALF)
    for at, start in zip(_addresses(e, address), (0, HALF), strict=True):
        lanes = ORDER[start : start + HALF]
        half = pieces.shuffle(e, "float", LANES, value.text, "poison", lanes)
        e.text.line(f"store {kind} {half}, ptr {at}, align {4 * HALF}")


def _addresses(e: Emitter, address: str) -> tuple[str, str]:
    return address, e.text.assign(f"getelementptr float, ptr {address}, i64 {HALF}")
