"""Products of bf16 added to a sum by one instruction: vdpbf16ps, of AVX-512 BF16.

    s + sum(f32(x[r, c]) * f32(w[r, c]) for r in grid(2))         c: a lane
    s + f32(x[c]) * f32(w[c])

The instruction adds the products of two neighbours. Here each lane's are elements of two vectors,
which one permutation brings together; it is the same for all sums that read the two. An element of
one vector alone has a zero for its neighbour.

It rounds as `codegen.x86.dot` says, and takes subnormal numbers for 0: numerics that allow products
to be contracted allow that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import f32
from pliant.codegen.llvm import exprs
from pliant.codegen.llvm.types import vector_type
from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Expr, Reduce

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter
    from pliant.codegen.llvm.exprs import Val

PAIR: Final = 2
_FEATURE: Final = "avx512bf16"
_WIDTHS: Final = (8, 16, 32)  # lanes: a part of a register of sums, one, two
_WIDEST: Final = 16  # sums of an instruction


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
    match x:
        case Reduce("sum", (axis,), body) if axis.extent.value == PAIR:
            if factors_in_bf16(body) is None:
                return None
            both: list[tuple[Val, Val]] = []
            for k in range(PAIR):
                with e.bound(axis.var, k):
                    both += _products(e, body) or []
            return both
    factors = factors_in_bf16(x)
    if factors is None:
        return None
    a, b = (exprs.widen(e, exprs.emit(e, f)) for f in factors)
    return [(a, b)]


def _part(e: Emitter, total: Val, products: list[tuple[Val, Val]], start: int, width: int) -> str:
    """The sums of so many lanes."""
    sums, pairs = vector_type("float", width), vector_type("bfloat", PAIR * width)
    lanes = range(start, start + width)
    before = total.text
    if width < e.lanes:
        before = _shuffled(e, "float", (before, "poison"), lanes, e.lanes)
    args = [(sums, before)]
    for side in (0, 1):
        vectors = [factors[side].text for factors in products]
        args.append((pairs, _neighbours(e, vectors, lanes, pairs)))
    return e.text.intrinsic(f"llvm.x86.avx512bf16.dpbf16ps.{32 * width}", sums, args)


def _neighbours(e: Emitter, vectors: list[str], lanes: range, kind: str) -> str:
    """Each lane's elements next to each other; a zero next to each of a vector that is alone."""
    if len(vectors) == PAIR:
        order = [k + e.lanes * v for k in lanes for v in range(PAIR)]
        found = _shuffled(e, "i16", (vectors[0], vectors[1]), order, e.lanes)
        return e.text.assign(f"bitcast {vector_type('i16', len(order))} {found} to {kind}")
    (part,) = vectors
    if len(lanes) < e.lanes:
        part = _shuffled(e, "i16", (part, "poison"), lanes, e.lanes)
    short, wide = (vector_type(x, len(lanes)) for x in ("i16", "i32"))
    found = e.text.assign(f"zext {short} {part} to {wide}")
    return e.text.assign(f"bitcast {wide} {found} to {kind}")


def _shuffled(
    e: Emitter, element: str, vectors: tuple[str, str], order: Sequence[int], lanes: int
) -> str:
    """These elements of two vectors of so many lanes."""
    kind, at = vector_type(element, lanes), vector_type("i32", len(order))
    a, b = vectors
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.text.assign(f"shufflevector {kind} {a}, {kind} {b}, {at} <{mask}>")
