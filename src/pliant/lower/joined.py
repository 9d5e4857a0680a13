"""Concatenations that nothing copies: their parts are written where the whole lies.

    a = conv(x)    b = conv(y)    c = concat(a, b)    z = conv(c)

`c` has memory, and `a` and `b` lie in it: their strides are those of `c`, so that a gap follows
each of their rows, and they begin so many elements behind its beginning. What `c` has of values
that cannot lie there (inputs, what has to be compact) is copied to its place. A concatenation that
maps read element by element is left to their kernel, which reads the parts themselves, unless these
are many.

Likewise a value of which a result has all elements in the order in which they lie (with other
dimensions, or these in another order) is written where the result lies.

Source: the virtual tensors of "VTC" (arXiv 2604.09558, OSDI 2026), here for what writes a value
instead of what reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from pliant.base.spans import Span
from pliant.ir.expr import Index, Load
from pliant.ir.mapping import likely_value
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input
from pliant.loop.stmt import PAGE
from pliant.lower.access import classify, is_copy, reads_many
from pliant.lower.contraction import contraction
from pliant.lower.gaps import compact_values
from pliant.lower.layout import Gap, Order, strides_in
from pliant.lower.pack import product
from pliant.lower.pieces import Piece, Pieces, pieces_of
from pliant.lower.stages import Stage, Stages, readers_of
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts

FEW: Final = 4  # pieces that a kernel may as well read apart
SHORTEST: Final = 16  # elements of a part between gaps: shorter ones do not fill a vector


@dataclass(frozen=True)
class Part:
    """A value that lies in another one, so many elements behind its beginning."""

    whole: str
    offset: Int


@dataclass(frozen=True)
class _Concatenation(Pieces):
    """A stage that puts pieces one after another along an axis, its dimensions in this order."""

    name: str
    order: Order

    @property
    def dims(self) -> int:
        """The axis and those inside of it: rows of so many dimensions lie in one piece each."""
        return len(self.order) - self.order.index(self.axis)

    @property
    def step(self) -> Int:
        """Elements from one place along the axis to the next."""
        inner = self.order[len(self.order) - self.dims + 1 :]
        return product([self.tensor.shape[d] for d in inner])

    @property
    def row(self) -> Int:
        return self.tensor.shape[self.axis] * self.step

    @property
    def is_apart(self) -> bool:
        """Whether there are several rows, so that those of a piece are not next to one another."""
        outer = self.order[: len(self.order) - self.dims]
        return any(self.tensor.shape[d] is not as_int(1) for d in outer)


@dataclass
class Joined:
    """Which values lie in others, and which stages are silent, without a kernel: all that they read
    lies in them, or where they do."""

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
        self.wholes = {part.whole for part in self.parts.values()}
        self.compact = compact_values(s, constants)
        self.readers = readers_of(s)
        self.copies: dict[str, list[Stage]] = {}

    def look_at(self, stage: Stage) -> None:
        """Join the stage's pieces, if it is a concatenation and that is worth it, or what it is a
        view of, if it is a result."""
        if stage.name in self.s.results:
            viewed = self._viewed(stage)
            if viewed:
                self._lay(viewed, Part(stage.name, as_int(0)))
                self.silent.add(stage.name)
            return
        if stage.name in self.constants or stage.name in self.compact:
            return
        c = _concatenation(stage, self.orders, self.s.facts)
        if c is None:
            return
        own = [self._value(c, piece) for piece in c.pieces]
        lies = self._lies(c, own)
        if lies is not None:
            self._leave(c, lies, own[0])
            return
        own = ["" if self._is_taken(n) else n for n in own]
        if not self._is_taken(c.name) and self._is_worth_it(c, own):
            self._join(c, stage, own)

    def _is_taken(self, name: str) -> bool:
        """Whether it is decided where the value lies."""
        return any(name in x for x in (self.compact, self.gaps, self.parts, self.wholes))

    def _lay(self, name: str, part: Part) -> None:
        self.parts[name] = part
        self.wholes.add(part.whole)

    def _viewed(self, stage: Stage) -> str:
        """The intermediate value of which a result has all elements, one after another as it has
        them; or nothing."""
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or not is_copy(tensor):
            return ""
        load = tensor.body
        assert isinstance(load, Load)
        name, facts = load.source.name, self.s.facts.copy()
        if name not in self.s.stages or self._is_taken(name):
            return ""
        if not facts.equal(product(load.source.shape), product(tensor.shape)):
            return ""
        for axis in tensor.axes:
            facts.declare_index(axis.var, axis.extent)
        there, here = as_int(0), as_int(0)
        for i, step in zip(load.indices, self._steps(name, load.source.shape), strict=True):
            assert isinstance(i, Index)
            there = there + i.int_ * step
        for a, step in zip(tensor.axes, self._steps(stage.name, tensor.shape), strict=True):
            here = here + var(a.var) * step
        return name if facts.equal(there, here) else ""

    def _steps(self, name: str, shape: tuple[Int, ...]) -> tuple[Int, ...]:
        return strides_in(name, shape, self.orders, self.gaps)

    def _lies(self, c: _Concatenation, own: Sequence[str]) -> Part | None:
        """Where all pieces lie already as they do here; None if they do not, or if others want the
        stage at another place, to which it is copied then."""
        places = [self.parts.get(n) for n in own]
        first, gap = places[0], self.gaps.get(own[0])
        if first is None or (gap is None) is c.is_apart or (gap and gap.dims != c.dims):
            return None
        for place, piece in zip(places, c.pieces, strict=True):
            if place is None or place.whole != first.whole:
                return None
            if not self.s.facts.equal(place.offset, first.offset + piece.begin * c.step):
                return None
        wanted = Part(c.name, as_int(0)) if first.whole == c.name else self.parts.get(c.name)
        free = wanted is None and c.name not in self.gaps
        return first if free or wanted == first else None

    def _leave(self, c: _Concatenation, lies: Part, first: str) -> None:
        """The stage lies where its pieces do."""
        self.silent.add(c.name)
        if lies.whole == c.name or c.name in self.parts:
            return
        self._lay(c.name, lies)
        if first in self.gaps:
            gap = self.gaps[first]
            rest = gap.elements + c.pieces[0].extent * c.step - c.row
            self.gaps[c.name] = Gap(gap.dims, rest)

    def _is_worth_it(self, c: _Concatenation, own: Sequence[str]) -> bool:
        """Whether all who read it want it in one place, or its pieces are so many that a kernel
        which reads them had too many loops; and most of it can be written there."""
        stages, reading = self.s.stages, self.readers.get(c.name, ())
        wanted = all(_takes_all(c.name, stages[r], self.constants) for r in reading)
        if not wanted and len(c.pieces) <= FEW:
            return False
        sizes = [likely_value(p.extent * c.step, self.s.facts) for p in c.pieces]
        # Rows of a product had better not push one another out of the cache.
        collide = (c.row * c.tensor.dtype.bytes) % PAGE == 0
        if c.is_apart and (collide or min(sizes) < SHORTEST):
            return False
        named = [n for n in own if n]
        written = sum(n for n, name in zip(sizes, own, strict=True) if name)
        return 2 * written >= sum(sizes) and len(set(named)) == len(named)

    def _join(self, c: _Concatenation, stage: Stage, own: Sequence[str]) -> None:
        moved: dict[Node, Node] = {}
        for piece, found in zip(c.pieces, own, strict=True):
            name = found or self._copied(c, piece, stage.spans)
            self._lay(name, Part(c.name, piece.begin * c.step))
            if c.is_apart:
                self.gaps[name] = Gap(c.dims, c.row - piece.extent * c.step)
            if not found:
                moved[piece.value] = self.s.types[name][c.places(piece)]
        body = transform(c.tensor.body, lambda n: n, moved)
        self.s.stages[c.name] = replace(stage, tensor=c.tensor.replace(body=body))
        self.silent.add(c.name)

    def _copied(self, c: _Concatenation, piece: Piece, spans: tuple[Span, ...]) -> str:
        """A new stage that makes the piece."""
        name = self.s.fresh(f"{c.name}.part")
        self.copies.setdefault(c.name, []).append(Stage(name, c.alone(piece), "copy", spans))
        self.s.types[name] = Input(name, c.tensor.dtype, c.shape(piece))
        self.orders[name] = c.order
        return name

    def _value(self, c: _Concatenation, piece: Piece) -> str:
        """The intermediate value that the piece is all of; or nothing."""
        load = piece.value
        if not isinstance(load, Load):
            return ""
        name = load.source.name
        stage = self.s.stages.get(name)
        if stage is None or not isinstance(stage.tensor, Compute) or self.orders[name] != c.order:
            return ""
        here = all(
            isinstance(i, Index) and i.int_ is place
            for i, place in zip(load.indices, c.places(piece), strict=True)
        )
        extents = zip(load.source.shape, c.shape(piece), strict=True)
        return name if here and all(self.s.facts.equal(a, b) for a, b in extents) else ""


def _concatenation(
    stage: Stage, orders: Mapping[str, Order], facts: Facts
) -> _Concatenation | None:
    """The stage as one; None if it does something else."""
    found = pieces_of(stage.tensor, facts)
    if found is None:
        return None
    return _Concatenation(found.tensor, found.axis, found.pieces, stage.name, orders[stage.name])
