"""Vectors whose elements lie within one vector of memory, in any order: a load and a shuffle.

    offset of lane l       16 lanes
    4*(l//4) + 1           x1 x1 x1 x1 x5 x5 x5 x5 x9 …      the second channel of groups of four
    2*(l//2) + 1 - l%2     x1 x0 x3 x2 …

Elements that are no lane's are read, too: it must be known that they are there. Loads that differ
in the number that is added alone are of the same vector, which is loaded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pliant.ir.expr import Expr, Index
from pliant.loop.stmt import Buffer, Flat
from pliant.sym.expr import Int, as_int

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter


class Within(NamedTuple):
    """`size` elements from `first` on, along a dimension, and which of them each lane has."""

    first: Int
    size: int
    lanes: tuple[int, ...]


def within_vector(
    e: Emitter, buffer: Buffer | Flat, indices: tuple[Expr, ...]
) -> tuple[tuple[Expr, ...], Within] | None:
    """The indices of the first element, and where the lanes are from there; None for what lies
    further apart, in different rows, or may end before the vector does."""
    if isinstance(buffer, Flat) or e.lanes == 1:
        return None
    varying = [d for d, i in enumerate(indices) if e.may_vary(i)]
    if len(varying) != 1 or buffer.strides[varying[0]] != 1:
        return None
    along, index = varying[0], indices[varying[0]]
    if not isinstance(index, Index):
        return None
    found = _within(e, e.resolve(index.int_), e.resolve(buffer.shape[along]))
    if found is None:
        return None
    return (*indices[:along], Index(found.first), *indices[along + 1 :]), found


def _within(e: Emitter, index: Int, extent: Int) -> Within | None:
    if index.linear(e.lane_var) is not None:
        return None
    at = [e.facts.simplify(index.subs({e.lane_var: as_int(k)})) for k in range(e.lanes)]
    apart = [x - at[0] for x in at]
    if not all(x.is_const for x in apart):
        return None
    least = min(x.value for x in apart)
    span = max(x.value for x in apart) - least + 1
    if span == 1:
        return None  # one element for all
    first = at[0] + least
    beside = sum(c for c, factors in first.terms() if not factors) % e.lanes
    if beside + span > e.lanes:
        beside = 0
    size = 1 << (beside + span - 1).bit_length()
    first = first - beside
    if size > e.lanes or not (e.facts.nonneg(first) and e.facts.le(first + size, extent)):
        return None
    return Within(first, size, tuple(x.value - least + beside for x in apart))
