"""Products of bf16 added to a sum by one instruction: vdpbf16ps, of AVX-512 BF16.

    s + sum(f32(x[r, c]) * f32(w[r, c]) for r in grid(2))         c: a lane
    s + f32(x[c]) * f32(w[c])

The instruction adds the products of two neighbours. Here each lane's are elements of two vectors,
which shuffles bring together; they are the same for all sums that read the two. An element of one
vector alone has a zero for its neighbour. Sums of two registers are added to in the order in which
unpacking brings their pairs (`unpacked`). What lies in words already is read so (`words`).

It rounds as `codegen.x86.dot` says, and takes subnormal numbers for 0: numerics that allow products
to be contracted allow that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from pliant.base.dtypes import f32
from pliant.codegen.llvm import exprs, pieces, unpacked, words
from pliant.codegen.llvm.types import vector_type
from pliant.codegen.x86.dot import BF16
from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Axis, Expr, Reduce

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter
    from pliant.codegen.llvm.exprs import Val
    from pliant.loop.stmt import Alloc

Lanes = tuple[int, ...]
_FEATURE: Final = "avx512bf16"
_WIDTHS: Final = (8, 16, 32)  # lanes: a part of a register of sums, one, two
_WIDEST: Final = 16  # sums of an instruction


class _Side(NamedTuple):
    """A factor, of two products along an axis or of one."""

    factor: Expr
    axis: Axis | None


def has_pairs(features: Collection[str]) -> bool:
    """Whether a processor with these features has the instruction."""
    return _FEATURE in features


def keeps_unpacked(e: Emitter, s: Alloc) -> bool:
    """Whether the sums in a buffer stay in the order in which unpacking brings their pairs."""
    return _adds(e) and unpacked.is_unpacked(s)


def add_products(e: Emitter, before: Expr, more: Expr) -> Val | None:
    """The sum with a product, or a sum of two, added in every lane; None where these are none of
    bf16, or there is no instruction for it."""
    if e.lanes not in _WIDTHS or not _adds(e):
        return None
    sides = _sides(more)
    if sides is None:
        return None
    total = exprs.widen(e, exprs.emit(e, before))
    width = min(_WIDEST, e.lanes)
    if e.lanes == unpacked.LANES:
        low, high = (_part(e, total, sides, unpacked.ORDER[k : k + width]) for k in (0, width))
        sums = pieces.shuffle(e, "float", width, low, high, unpacked.PLACES)
        return exprs.Val(sums, f32, e.lanes)
    return exprs.Val(_part(e, total, sides, tuple(range(width))), f32, e.lanes)


def _adds(e: Emitter) -> bool:
    return e.options.contract and has_pairs(e.options.features)


def _sides(x: Expr) -> list[_Side] | None:
    """Both factors of one product, or of two that are added."""
    term, axis = x, None
    match x:
        case Reduce("sum", (along,), body) if along.extent.value == BF16.group:
            term, axis = body, along
    factors = factors_in_bf16(term)
    return None if factors is None else [_Side(factor, axis) for factor in factors]


def _part(e: Emitter, total: Val, sides: list[_Side], lanes: Lanes) -> str:
    """The sums of these lanes."""
    before, width = total.text, len(lanes)
    if width < e.lanes:
        before = pieces.shuffle(e, "float", e.lanes, before, "poison", lanes)
    a, b = (BF16.right(e.text, width, _side(e, side, lanes)) for side in sides)
    return BF16.step(e.text, width, before, a, b)


def _side(e: Emitter, side: _Side, lanes: Lanes) -> str:
    """The words of these lanes; once for all steps of an unrolled loop that want them."""
    steady = e.steady.key(e, side.factor) if e.steady else None
    key = side, steady, lanes
    found: str | None = e.cached(key)
    if found is None:
        lie = words.words_of(e, side.factor, side.axis)
        found = words.load(e, lie, lanes) if lie else _words(e, _vectors(e, side), lanes)
        if steady is not None:
            e.cache_steady(key, found)
    return found


def _vectors(e: Emitter, side: _Side) -> list[str]:
    """The elements of all lanes, of both products where there are two."""
    if side.axis is None:
        return [exprs.widen(e, exprs.emit(e, side.factor)).text]
    found = list[str]()
    for k in range(BF16.group):
        with e.bound(side.axis.var, k):
            found.append(exprs.widen(e, exprs.emit(e, side.factor)).text)
    return found


def _words(e: Emitter, vectors: list[str], lanes: Lanes) -> str:
    """The elements of each of the lanes next to each other; a zero next to each of a vector that is
    alone."""
    words = vector_type("i32", len(lanes))
    if len(vectors) == 1 and len(lanes) == e.lanes:
        return e.text.assign(f"zext {vector_type('i16', e.lanes)} {vectors[0]} to {words}")
    first, second = vectors if len(vectors) > 1 else (*vectors, "zeroinitializer")
    order = [k + e.lanes * side for k in lanes for side in range(BF16.group)]
    found = pieces.shuffle(e, "i16", e.lanes, first, second, order)
    return e.text.assign(f"bitcast {vector_type('i16', len(order))} {found} to {words}")
