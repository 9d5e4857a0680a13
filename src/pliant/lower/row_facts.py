"""What is known of the rows of a kernel, and what may turn out in a call.

A schedule of rows asks how much memory is read and written, how long rows are, and whether they
fill cache lines. With sizes that are known only at run time some of it is not known; where that
costs time, a kernel of its own serves the calls in which it holds. Softmax of r rows of c columns:

    known                   where this is 0, the first that is
    in lines, long, large   c * 4 % LINE + max(0, LONG - c * 4) + max(0, LARGE - r * c * 4)
    in lines                c * 4 % LINE
    large                   max(0, LARGE - r * c * 4)
    moderate                max(0, SHORT - c) + max(0, c * 4 - LONG + 1)
    nothing                 0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from pliant.ir.expr import Load
from pliant.ir.tensor import Compute, own_nodes
from pliant.loop.stmt import LINE
from pliant.lower.access import takes_long
from pliant.lower.constant_sizes import columns_of
from pliant.lower.groups import Group
from pliant.sym.expr import Int, as_int, maximum, minimum
from pliant.sym.facts import Facts

# Bytes of outputs that no cache keeps beside what they are made of (Zen 4, a last level of 32 MB:
# softmax of 13 MB takes 0.56 as long past it, with a kernel that reads it next 0.84).
LARGE: Final = 12 << 20
NEAR: Final = 32 << 10  # bytes of a first cache
LONG: Final = NEAR // 4  # … of rows of which four leave no room in it
LONGER: Final = 12 << 10  # … nor in one of 48 KB
SHORT: Final = 128  # columns, of which those before a cache line are not divided from the rest


@dataclass(frozen=True)
class Rows:
    """What is known of rows. `large`: that the outputs have at least LARGE bytes, or twice as many
    are read; `long`, `longer`: that a row of some output has at least LONG or LONGER bytes;
    `moderate`: that of none it has LONG, and at least SHORT columns; `in_lines`: that the rows of
    all outputs fill cache lines."""

    large: bool = False
    long: bool = False
    moderate: bool = False
    in_lines: bool = False
    longer: bool = False


NOTHING: Final = Rows()


def rows_of(group: Group, facts: Facts) -> tuple[Rows, tuple[tuple[Int, Rows], ...]]:
    """What is known in every call; and what more where a formula of sizes is 0, the first that is.
    Formulas are never negative."""
    base = Rows(
        _is_zero(facts, _lacks(group)),
        _is_zero(facts, _to_long(group)),
        _is_zero(facts, _from_moderate(group)),
        all(facts.divisible(row, LINE) for row in _bytes(group)),
        _is_zero(facts, _to_long(group, LONGER)),
    )
    found: list[tuple[Int, Rows]] = []
    for guard, rows in _candidates(group, base):
        least, _ = facts.bounds(guard)
        if rows != base and (least is None or least <= 0):
            found.append((facts.simplify(guard), rows))
    return base, tuple(found)


def exceeds_long(group: Group) -> bool:
    """Whether it is known that rows have more than LONG bytes."""
    return any(row.is_const and row.value > LONG for row in _bytes(group))


def _is_zero(facts: Facts, x: Int) -> bool:
    _, most = facts.bounds(x)
    return most is not None and most <= 0


def _candidates(group: Group, base: Rows) -> Iterator[tuple[Int, Rows]]:
    """What may be known besides. Of rows whose length is a symbol more is asked where functions as
    dear as exp are computed (Zen 4: softmax of rows in lines takes 0.6 to 0.9 as long, of others
    0.85 to 0.95)."""
    lacks = _lacks(group)
    dear = any(takes_long(m.tensor.body) for m in group.members if isinstance(m.tensor, Compute))
    if _columns(group).is_const or not dear:
        yield lacks, replace(base, large=True)
        return
    straddles = sum((row % LINE for row in _bytes(group)), as_int(0))
    in_lines = replace(base, in_lines=True)
    yield straddles + _to_long(group) + lacks, replace(in_lines, long=True, large=True)
    yield straddles, in_lines
    yield lacks, replace(base, large=True)
    if not base.in_lines:
        yield _from_moderate(group), replace(base, moderate=True)


def _lacks(group: Group) -> Int:
    """The bytes by which what is written and read falls short of being large."""
    members = [m.tensor for m in group.members if m.name in group.outputs]
    written = sum((prod(t.shape, start=as_int(t.dtype.bytes)) for t in members), as_int(0))
    over = [m.tensor for m in group.members if isinstance(m.tensor, Compute)]
    widths = [x.source.dtype.bytes for t in over for x in own_nodes(t.body) if isinstance(x, Load)]
    read = [
        prod((a.extent for a in (*t.axes, *t.reduce_axes)), start=as_int(min(widths)))
        for t in over if widths
    ]  # fmt: skip
    return maximum(0, minimum(LARGE - written, *(2 * LARGE - n for n in read)))


def _to_long(group: Group, long: int = LONG) -> Int:
    rows = _bytes(group)
    return maximum(0, long - maximum(*rows)) if rows else as_int(long)


def _from_moderate(group: Group) -> Int:
    over = maximum(0, *(row - LONG + 1 for row in _bytes(group)))
    return maximum(0, SHORT - _columns(group)) + over


def _columns(group: Group) -> Int:
    return prod(columns_of(group), start=as_int(1))


def _bytes(group: Group) -> list[Int]:
    """What a row of each output takes."""
    outputs = [m.tensor for m in group.members if m.name in group.outputs]
    return [_columns(group) * t.dtype.bytes for t in outputs]
