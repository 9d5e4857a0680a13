"""The part of a buffer that accesses touch, as a box: for each dimension its least and greatest
index, in terms of what is outside."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.loop.bounds import Span, span, union
from pliant.loop.regions import Access
from pliant.sym.expr import const
from pliant.sym.facts import Facts


def touched_box(found: Sequence[Access], known: frozenset[str], facts: Facts) -> tuple[Span, ...]:
    """The smallest box that holds all these accesses to one buffer; at most the whole buffer.

    The accesses' loops are the inner ones, run through; ends mention `known` names only.
    """
    shape = found[0].buffer.shape
    box: list[Span] = []
    for d, extent in enumerate(shape):
        whole = const(0), extent - 1
        spans = [_span(a, d, known, facts) for a in found]
        ends = [s for s in spans if s is not None]
        if len(ends) < len(spans):
            box.append(whole)
            continue
        low, high = union(ends, facts)
        low, high = facts.simplify(low), facts.simplify(high)
        if facts.le(extent, high - low + 1):
            low, high = whole
        box.append((low, high))
    return tuple(box)


def _span(a: Access, d: int, known: frozenset[str], facts: Facts) -> Span | None:
    index = a.index(d)
    if index is None:
        return None
    ends = span(index, {x.var: x.extent for x in a.loops}, facts)
    if ends is None or not (ends[0].names | ends[1].names) <= known:
        return None
    return ends
