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


def apart(a: Access, b: Access, facts: Facts) -> bool:
    """Whether no element is touched by both, for equal values of what is outside of their loops."""
    inner = {x.var for x in (*a.loops, *b.loops)}
    boxes: list[tuple[Span, ...]] = []
    for x in (a, b):
        at = [x.index(d) for d in range(x.buffer.rank)]
        names = [i.names for i in at if i is not None] + [loop.extent.names for loop in x.loops]
        boxes.append(touched_box([x], frozenset[str]().union(*names) - inner, facts))
    return any(
        facts.lt(high, first) or facts.lt(last, low)
        for (low, high), (first, last) in zip(*boxes, strict=True)
    )


def _span(a: Access, d: int, known: frozenset[str], facts: Facts) -> Span | None:
    index = a.index(d)
    if index is None:
        return None
    ends = span(index, {x.var: x.extent for x in a.loops}, facts)
    if ends is None or not (ends[0].names | ends[1].names) <= known:
        return None
    return ends
