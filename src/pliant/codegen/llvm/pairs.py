"""Products of bf16 added to a sum by one instruction: vdpbf16ps, of AVX-512 BF16.

    s + sum(f32(x[r, c]) * f32(w[r, c]) for r in grid(2))         c: a lane
    s + f32(x[c]) * f32(w[c])

The instruction adds the products of two neighbours. Here each lane's are elements of two vectors,
which shuffles bring together; they are the same for all sums that read the two. An element of one
vector alone has a zero for its neighbour.

It rounds as `codegen.x86.dot` says, and takes subnormal numbers for 0: numerics that allow products
to be contracted allow that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import f32
from pliant.codegen.llvm import exprs
from pliant.codegen.llvm.types import vector_type
from pliant.codegen.x86.dot import BF16
from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Expr, Reduce

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter
    from pliant.codegen.llvm.exprs import Val

_FEATURE: Final = "avx512bf16"
_WIDTHS: Final = (8, 16, 32)  # lanes: a part of a register of sums, one, two
_WIDEST: Final = 16  # sums of an instruction
_QUAD: Final = 4  # bf16 of 64 bits


def has_pairs(features: Collection[str]) -> bool:
    """Whether a processor with these features has the instruction."""
    return _FEATURE in features


def add_products(e: Emitter, before: Expr, more: Expr) -> Val | None:
    """The sum with a product, or a sum of two, added in every lane; None where these are none of
    bf16, or there is no instruction for it."""
    if not (e.lanes in _WIDTHS and e.options.contract and has_pairs(e.options.features)):
        return None
    products = _products(e, more)
    if products is None:
        return None
    total = exprs.widen(e, exprs.emit(e, before))
    width = min(_WIDEST, e.lanes)
    parts = [_part(e, total, products, start, width) for start in range(0, e.lanes, width)]
    if len(parts) > 1:
        parts = [_shuffled(e, "float", (parts[0], parts[1]), range(e.lanes), width)]
    return exprs.Val(parts[0], f32, e.lanes)


def _products(e: Emitter, x: Expr) -> list[tuple[Val, Val]] | None:
    """The factors of one product, or of two that are added."""
    term, axis = x, None
    match x:
        case Reduce("sum", (along,), body) if along.extent.value == BF16.group:
            term, axis = body, along
    factors = factors_in_bf16(term)
    if factors is None:
        return None
    if axis is None:
        return [_in_lanes(e, factors)]
    both: list[tuple[Val, Val]] = []
    for k in range(BF16.group):
        with e.bound(axis.var, k):
            both.append(_in_lanes(e, factors))
    return both


def _in_lanes(e: Emitter, factors: tuple[Expr, Expr]) -> tuple[Val, Val]:
    a, b = (exprs.widen(e, exprs.emit(e, x)) for x in factors)
    return a, b


def _part(e: Emitter, total: Val, products: list[tuple[Val, Val]], start: int, width: int) -> str:
    """The sums of so many lanes."""
    lanes = range(start, start + width)
    before = total.text
    if width < e.lanes:
        before = _shuffled(e, "float", (before, "poison"), lanes, e.lanes)
    a, b = (
        BF16.right(e.text, width, _words(e, [factors[side].text for factors in products], lanes))
        for side in (0, 1)
    )
    return BF16.step(e.text, width, before, a, b)


def _words(e: Emitter, vectors: list[str], lanes: range) -> str:
    """Each lane's elements next to each other; a zero next to each of a vector that is alone."""
    words = vector_type("i32", len(lanes))
    if len(vectors) > 1:
        if e.lanes == 2 * _WIDEST:
            return _interleaved(e, vectors, upper=lanes.start > 0)
        order = [k + e.lanes * v for k in lanes for v in range(len(vectors))]
        found = _shuffled(e, "i16", (vectors[0], vectors[1]), order, e.lanes)
        return e.text.assign(f"bitcast {vector_type('i16', len(order))} {found} to {words}")
    (part,) = vectors
    if len(lanes) < e.lanes:
        part = _shuffled(e, "i16", (part, "poison"), lanes, e.lanes)
    return e.text.assign(f"zext {vector_type('i16', len(lanes))} {part} to {words}")


def _interleaved(e: Emitter, vectors: list[str], *, upper: bool) -> str:
    """The words of the lower or the upper half of the lanes of two vectors. A permutation of two
    vectors takes the units that multiply; one of each, which brings quads of lanes to where the
    halves want them, and the unpacking of two take others."""
    count = 2 * _WIDEST
    quads = count // _QUAD
    order = [k // 2 + k % 2 * (quads // 2) for k in range(quads)]
    shorts, wide = vector_type("i16", count), vector_type("i64", quads)
    parts = []
    for v in vectors:
        whole = e.text.assign(f"bitcast {shorts} {v} to {wide}")
        moved = _shuffled(e, "i64", (whole, "poison"), order, quads)
        parts.append(e.text.assign(f"bitcast {wide} {moved} to {shorts}"))
    picks = [
        2 * _QUAD * pair + _QUAD * upper + k + count * side
        for pair in range(quads // 2)
        for k in range(_QUAD)
        for side in range(BF16.group)
    ]
    found = _shuffled(e, "i16", (parts[0], parts[1]), picks, count)
    return e.text.assign(f"bitcast {shorts} {found} to {vector_type('i32', _WIDEST)}")


def _shuffled(
    e: Emitter, element: str, vectors: tuple[str, str], order: Sequence[int], lanes: int
) -> str:
    """These elements of two vectors of so many lanes."""
    kind, at = vector_type(element, lanes), vector_type("i32", len(order))
    a, b = vectors
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.text.assign(f"shufflevector {kind} {a}, {kind} {b}, {at} <{mask}>")
