"""What a loop program takes and gives, seen as a function of arrays.

    @loop(notes={"outputs": ("y",)})                 y = row_sums(x)        y: f32[n]
    def row_sums(y: f32["n"], x: f32["n", "k"], n: i64, k: i64): …

Outputs are the buffers that it stores into, inputs all others. The note says which, where calls
leave that open. Sizes follow from the inputs' extents. What a program asks of them is that its
indices lie inside (`demands`): where that is not so for all sizes, calls check it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Select
from pliant.ir.node import walk
from pliant.loop.bounds import Span, declare_loops, span
from pliant.loop.boxes import touched_box
from pliant.loop.regions import Access, accesses, without_names
from pliant.loop.stmt import (
    Block,
    Buffer,
    Check,
    For,
    Function,
    If,
    Invoke,
    Stmt,
    While,
    compact_strides,
    statements,
    stored,
)
from pliant.sym.expr import Int, const, maximum, minimum
from pliant.sym.extents import solve_extents
from pliant.sym.facts import Facts

OUTPUTS: Final = "outputs"  # the note that names them
_CONDITIONAL: Final = (Check, If, Invoke, Select, While)


@dataclass(frozen=True)
class Signature:
    """`function` takes the inputs' buffers, then the outputs'."""

    function: Function
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]


def signature(function: Function) -> Signature:
    """Raises InvalidModelError, with the reason, where the program is no function of arrays: it
    stores nothing, an output's old contents matter, part of an output is never stored or an index
    lies outside whatever the sizes (but for 0 and 1), memory is not compact or a size is left open.
    """
    said = dict(function.notes).get(OUTPUTS)
    stored = stored_buffers(function.body)
    outputs = tuple(b for b in function.buffers if (b.name in said if said else b in stored))
    inputs = tuple(b for b in function.buffers if b not in outputs)

    def refuse(reason: str) -> InvalidModelError:
        return InvalidModelError(f"{function.name}: {reason}")

    if not outputs:
        raise refuse("it stores into none of its parameters, so it has no result")
    for b in function.buffers:
        if b.strides != compact_strides(b.shape):
            raise refuse(f"{b.name} has strides of its own; arrays that are passed are compact")
    _check_inside(function, refuse)
    _check_started(function, outputs, refuse)
    _check_filled(function, outputs, refuse)
    unknown = set(function.sizes) - solve_extents([(e, e) for b in inputs for e in b.shape]).keys()
    if unknown:
        raise refuse(f"the size {min(unknown)} does not follow from the shapes of its inputs")
    return Signature(function.replace(buffers=(*inputs, *outputs)), inputs, outputs)


def stored_buffers(body: Stmt) -> frozenset[Buffer]:
    """Buffers that something stores into (not by a call)."""
    return frozenset(place.buffer for place in stored(body))


def _check_inside(function: Function, refuse: Callable[[str], InvalidModelError]) -> None:
    """Indices that some iteration certainly has, where nothing depends on a condition."""
    for x in walk(function.body):
        if isinstance(x, _CONDITIONAL) or (isinstance(x, Block) and x.where is not None):
            return
    facts = _facts(function)
    for a in accesses(function.body):
        for d, extent in enumerate(a.buffer.shape):
            ends = _reached(a, a.index(d), facts)
            if ends is None or a.buffer not in function.buffers:
                continue
            for end, beyond in zip(ends, (-1 - ends[0], ends[1] - extent), strict=True):
                if facts.nonneg(beyond):
                    at = facts.simplify(end)
                    raise refuse(
                        f"index {at} of dim {d} of {a.buffer.name} is outside of 0 to {extent - 1}"
                    )


def _reached(a: Access, index: Int | None, facts: Facts) -> Span | None:
    """The least and the greatest value of an index over the loops around it, both of which it has;
    None where that is not certain."""
    loops = {x.var: x.extent for x in a.loops}
    if index is None or not all(facts.positive(e) for e in loops.values()):
        return None
    for name in index.names & loops.keys():
        line = index.linear(name)
        if line is None or not line[0].is_const or not loops[name].names.isdisjoint(loops):
            return None
    return span(index, loops, facts)


Demand = tuple[Int, Int, str]
"""What must be at least a number, that number, and both in words."""


def demands(function: Function, facts: Facts) -> tuple[Demand, ...]:
    """What must hold of the sizes for indices to lie inside, where it is not proved:

        for i in grid(n):                  dim 0 of z must be at least n
            y[i] = x[i] + z[i]

    Asked of each index that is linear in its loops, so that the ends of its range are reached. What
    happens only under conditions is for them to keep inside.
    """
    found: dict[tuple[Buffer, int, bool], list[Demand]] = {}
    for a in map(without_names, accesses(function.body)):
        if not a.sure:
            continue
        loops = [x for x in a.loops if x.var not in a.before]
        inside = declare_loops(facts, loops)
        for d, extent in enumerate(a.buffer.shape):
            index = a.index(d)
            reached = None if index is None else _ends(index, loops, facts)
            if index is None or reached is None:
                continue
            (low, high), runs = reached
            names = extent.names.union(low.names, high.names, *(x.names for x in runs))
            if not names <= set(function.sizes):
                continue
            if not (inside.lt(index, extent) or facts.lt(high, extent)):
                end = facts.simplify(high + 1)
                text = f"dim {d} of {a.buffer.name} must be at least {end}"
                need = end * _counts(runs, end)
                _ask(found.setdefault((a.buffer, d, True), []), extent, need, text, facts)
            if not (inside.nonneg(index) or facts.nonneg(low)):
                text = f"index {low} of dim {d} of {a.buffer.name} must be at least 0"
                need = -low * _counts(runs, low)
                _ask(found.setdefault((a.buffer, d, False), []), const(0), need, text, facts)
    return tuple(x for same in found.values() for x in same)


def _counts(runs: Sequence[Int], number: Int) -> Int:
    """1 where loops of all these extents run, or where the number is 0 anyway; else 0."""
    each = [x for x in runs if not (x.names == {str(x)} and number.subs({str(x): 0}) == 0)]
    return reduce(lambda a, b: a * minimum(1, b), each, const(1))


def _ask(found: list[Demand], least: Int, number: Int, text: str, facts: Facts) -> None:
    """Add a demand to others of the same, if none asks for as much."""
    if not any(facts.le(number, other) for _, other, _ in found):
        found[:] = [x for x in found if not facts.le(x[1], number)]
        found.append((least, number, text))


def _ends(index: Int, loops: Sequence[For], facts: Facts) -> tuple[Span, list[Int]] | None:
    """The least and the greatest value of an index over its loops, both of which it has where none
    of the extents that come with them is 0. None where that is not certain."""
    ranges = {x.var: x.extent for x in loops}
    used = [name for name in ranges if name in index.names]
    runs, inside = list[Int](), facts
    for loop in loops:
        extent = loop.extent
        if not extent.names.isdisjoint(ranges):
            if not _is_linear(extent, ranges):
                return None
            if used == [loop.var]:  # it is longest, and runs, for some of those around
                ends = span(extent, ranges, facts)
                if ends is None:
                    return None
                ranges[loop.var] = extent = ends[1]
            elif loop.var in used or not inside.positive(extent):
                return None
        if not inside.positive(extent):
            runs.append(extent if inside.nonneg(extent) else maximum(extent, 0))
        inside = inside.copy()
        inside.declare_index(loop.var, extent)
    if not _is_linear(index, ranges):
        return None
    ends = span(index, ranges, facts)
    return None if ends is None else (ends, runs)


def _is_linear(x: Int, names: Collection[str]) -> bool:
    lines = [x.linear(name) for name in names if name in x.names]
    return all(line is not None and line[0].is_const for line in lines)


def _facts(function: Function) -> Facts:
    """Sizes 0 and 1 are left out."""
    facts = Facts()
    for size in function.sizes:
        facts.declare(size, min=2)
    return facts


def _check_started(
    function: Function,
    outputs: tuple[Buffer, ...],
    refuse: Callable[[str], InvalidModelError],
) -> None:
    if any(isinstance(s, Invoke) for s in statements(function.body)):
        return  # what calls read and write is not known here; the program was checked before
    begun: set[Buffer] = set()
    found = accesses(function.body)
    for a in found:
        if a.buffer not in outputs or a.buffer in begun:
            continue
        own = [w for w in found if w.write and w.buffer is a.buffer and w.block == a.block]
        # A block may read what other iterations of it have stored.
        if not a.write and (not own or any(w.indices == a.indices for w in own)):
            raise refuse(
                f"{a.buffer.name} is read before it is written: an output begins with nothing in it"
            )
        begun.add(a.buffer)


def _check_filled(
    function: Function,
    outputs: tuple[Buffer, ...],
    refuse: Callable[[str], InvalidModelError],
) -> None:
    """What lies outside of the box that all stores stay in keeps whatever was in memory."""
    if any(isinstance(s, Invoke) for s in statements(function.body)):
        return
    facts, found = _facts(function), accesses(function.body)
    for b in outputs:
        stores = [a for a in found if a.write and a.buffer is b]
        if not stores:
            raise refuse(f"{b.name} is never written")
        box = touched_box(stores, frozenset(function.sizes), facts)
        for d, ((low, high), extent) in enumerate(zip(box, b.shape, strict=True)):
            if facts.positive(low):
                raise refuse(f"{b.name} is written from index {low} of dim {d} on, not before")
            if facts.lt(high + 1, extent):
                end = facts.simplify(high + 1)
                raise refuse(f"{b.name} is written up to {end} of the {extent} along dim {d}")
