"""Concatenations that nothing copies: their parts are written where the whole lies.

    a = conv(x)    b = conv(y)    c = concat(a, b)    z = conv(c)

`c` has memory, and `a` and `b` lie in it: their strides are those of `c`, so that a gap follows
each of their rows, and they begin so many elements behind its beginning. What `c` has of values
that cannot lie there (inputs, what has to be compact) is copied to its place. A concatenation that
maps read element by element is left to their kernel, which reads the parts themselves, unless these
are many.

Source: the virtual tensors of "VTC" (arXiv 2604.09558, OSDI 2026), here for what writes a value
instead of what reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from pliant.ir.expr import Binary, Expr, Index, Load, Select, substitute
from pliant.ir.mapping import likely_value
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, compute
from pliant.loop.stmt import PAGE
from pliant.lower.access import classify, reads_many
from pliant.lower.contraction import contraction
from pliant.lower.gaps import compact_values
from pliant.lower.layout import Gap, Order, readers_of
from pliant.lower.pack import product
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import Int, as_int, var

FEW: Final = 4  # pieces that a kernel may as well read apart
SHORTEST: Final = 16  # elements of a part between gaps: shorter ones do not fill a vector


@dataclass(frozen=True)
class Part:
    """A value that lies in another one, so many elements behind its beginning."""

    whole: str
    offset: Int


@dataclass(frozen=True)
class _Piece:
    """What a concatenation has from `begin` to `end`: an expression of its axes."""

    begin: Int
    end: Int
    value: Expr

    @property
    def extent(self) -> Int:
        return self.end - self.begin


@dataclass
class Joined:
    """Which values lie in others, and stages that have no kernel: all that they read lies in them,
    or in what they lie in, already."""

    parts: dict[str, Part]
    silent: set[str]


def join_in_place(
    s: Stages, orders: dict[str, Order], gaps: dict[str, Gap], constants: Set[str]
) -> Joined:
    """Join what can be. Adds the gaps that follow, and stages for what is copied.

    The last come first: what an earlier one joins may lie together in a later one, as it does where
    every layer reads the results of all before it.
    """
    joined = Joined(
        {n: Part(*st.note("part")) for n, st in s.stages.items() if st.note("part")}, set()
    )
    joining = _Joining(s, orders, gaps, constants, joined)
    for stage in reversed(list(s.stages.values())):
        joining.look_at(stage)
    copies = joining.copies
    s.stages = {m.name: m for st in s.stages.values() for m in (*copies.get(st.name, ()), st)}
    return joined


def _takes_all(name: str, reader: Stage, constants: Set[str]) -> bool:
    """Whether the reader wants the value in one place: it multiplies its rows, as they lie, with
    weights, reduces it, or makes each element of many."""
    tensor, kind = reader.tensor, classify(reader.tensor)
    if kind == "contraction" and isinstance(tensor, Compute):
        c = contraction(tensor, constants)
        return c is not None and c.a.source.name == name and c.b.source.name in constants
    many = kind == "map" and isinstance(tensor, Compute) and reads_many(tensor)
    return many or kind == "reduction"


class _Joining:
    def __init__(
        self, s: Stages, orders: dict[str, Order], gaps: dict[str, Gap], constants: Set[str],
        joined: Joined,
    ) -> None:  # fmt: skip
        self.s, self.orders, self.gaps, self.constants = s, orders, gaps, constants
        self.parts, self.silent = joined.parts, joined.silent
        self.compact = compact_values(s, constants)
        self.readers = readers_of(s)
        self.wholes = {p.whole for p in self.parts.values()}
        self.copies: dict[str, list[Stage]] = {}

    def look_at(self, stage: Stage) -> None:
        """Join the stage's pieces, if it is a concatenation and that is worth it."""
        tensor, name = stage.tensor, stage.name
        if not isinstance(tensor, Compute) or name in self.constants:
            return
        axis, pieces = _pieces(tensor, self.s)
        if len(pieces) < 2:
            return
        order = self.orders[name]
        at = order.index(axis)
        step = product([tensor.shape[d] for d in order[at + 1 :]])
        row = tensor.shape[axis] * step
        apart = any(tensor.shape[d] is not as_int(1) for d in order[:at])
        own = [_value(self.s, tensor, axis, p, order, self.orders) for p in pieces]
        where = self._together(name, own, [p.begin * step for p in pieces])
        rest = self.gaps.get(own[0])
        if where is not None and (None if rest is None else rest.dims) == (
            len(order) - at if apart else None
        ):
            self.silent.add(name)
            if where.whole != name and name not in self.parts:
                self.parts[name] = where
                if rest is not None:
                    left = rest.elements - row + pieces[0].extent * step
                    self.gaps[name] = Gap(rest.dims, left)
            return
        taken = {*self.compact, *self.gaps, *self.parts, *self.wholes}
        if name in taken or not self._is_wanted_whole(name, len(pieces)):
            return
        if apart and row.is_const and row.value * tensor.dtype.bytes % PAGE == 0:
            return  # the rows of a product would push one another out of the cache
        own = ["" if n in taken else n for n in own]
        sizes = [likely_value(p.extent * step, self.s.facts) for p in pieces]
        written = sum(n for n, source in zip(sizes, own, strict=True) if source)
        named = [n for n in own if n]
        if 2 * written < sum(sizes) or len(set(named)) < len(named):
            return
        if apart and min(sizes) < SHORTEST:
            return
        moved: dict[Node, Node] = {}
        for piece, found in zip(pieces, own, strict=True):
            source = found or self._copied(stage, axis, piece)
            self.parts[source] = Part(name, piece.begin * step)
            if apart:
                self.gaps[source] = Gap(len(order) - at, row - piece.extent * step)
            if not found:
                here = [var(a.var) - piece.begin * (d == axis) for d, a in enumerate(tensor.axes)]
                moved[piece.value] = self.s.types[source][tuple(here)]
        body = transform(tensor.body, lambda n: n, moved)
        self.s.stages[name] = replace(stage, tensor=tensor.replace(body=body))
        self.wholes.add(name)
        self.silent.add(name)

    def _together(self, name: str, own: Sequence[str], begins: Sequence[Int]) -> Part | None:
        """Where the values lie one after another in one already; None if they do not."""
        places = [self.parts.get(n) for n in own]
        first = places[0]
        if first is None or name in self.compact:
            return None
        for place, begin in zip(places, begins, strict=True):
            if place is None or place.whole != first.whole:
                return None
            if not self.s.facts.equal(place.offset, first.offset + begin):
                return None
        return first

    def _is_wanted_whole(self, name: str, pieces: int) -> bool:
        """Whether all who read it want it in one place, or it has many pieces, of which a kernel
        that reads them had as many loops."""
        reading = self.readers.get(name, ())
        stages = self.s.stages
        return pieces > FEW or all(_takes_all(name, stages[r], self.constants) for r in reading)

    def _copied(self, stage: Stage, axis: int, piece: _Piece) -> str:
        """A new stage that makes the piece."""
        tensor = stage.tensor
        assert isinstance(tensor, Compute)
        name = self.s.fresh(f"{stage.name}.part")
        names = [a.var for a in tensor.axes]

        def element(*at: Int) -> Expr:
            places = dict(zip(names, at, strict=True))
            places[names[axis]] = at[axis] + piece.begin
            value: Expr = substitute(piece.value, places)
            return value

        shape = [piece.extent if d == axis else a.extent for d, a in enumerate(tensor.axes)]
        copy = Stage(name, compute(shape, element), "copy", stage.spans)
        self.copies.setdefault(stage.name, []).append(copy)
        self.s.types[name] = Input(name, tensor.dtype, tuple(shape))
        self.orders[name] = self.orders[stage.name]
        return name


def _pieces(tensor: Compute, s: Stages) -> tuple[int, list[_Piece]]:
    """The axis along which the stage puts pieces one after another, and these; none if it does
    something else."""
    match tensor.body:
        case Select(Binary("lt", Index(int_=along), Index())):
            axes = [d for d, a in enumerate(tensor.axes) if along is var(a.var)]
        case _:
            return 0, []
    if not axes:
        return 0, []
    found = list(_from(tensor.body, along, as_int(0), tensor.shape[axes[0]]))
    if all(s.facts.nonneg(p.extent) for p in found):
        return axes[0], found
    return 0, []


def _from(value: Expr, along: Int, begin: Int, end: Int) -> Iterator[_Piece]:
    match value:
        case Select(Binary("lt", Index(int_=i), Index(int_=middle)), a, b) if i is along:
            yield from _from(a, along, begin, middle)
            yield from _from(b, along, middle, end)
        case _:
            yield _Piece(begin, end, value)


def _value(
    s: Stages, tensor: Compute, axis: int, piece: _Piece, order: Order,
    orders: Mapping[str, Order],
) -> str:  # fmt: skip
    """The intermediate value that the piece is all of; or nothing."""
    load = piece.value
    if not isinstance(load, Load):
        return ""
    name, axes = load.source.name, tensor.axes
    stage = s.stages.get(name)
    if stage is None or not isinstance(stage.tensor, Compute):
        return ""
    extents = [piece.extent if d == axis else a.extent for d, a in enumerate(axes)]
    places = [var(a.var) - piece.begin * (d == axis) for d, a in enumerate(axes)]
    same = len(load.indices) == len(axes) and all(
        isinstance(i, Index) and i.int_ is place and s.facts.equal(have, want)
        for i, place, have, want in zip(
            load.indices, places, load.source.shape, extents, strict=True
        )
    )
    return name if same and orders[name] == order else ""
