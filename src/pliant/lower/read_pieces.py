"""Who reads a part of a concatenation reads the piece that is there.

    c1 = [u, c0[1:]]                           what `c[0] = u; c[1] = f(c[0])` makes of c
    c2 = [c1[:1], f(c1[0]), c1[2:]]      ->    c2 = [u, f(u), c0[2:]]

Of what is written element by element, as recurrences of plain Python write their results, one
concatenation is left of as many pieces as there are elements. Without that each would copy all that
is there and, in one kernel, each choice would read the choices of the one before twice.

A concatenation that others want as a whole, too, is read as it lies, as is one whose pieces had to
be computed once more for each reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pliant.ir.expr import Expr, Index, Load, substitute
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, own_nodes
from pliant.lower.access import cost_of, takes_long
from pliant.lower.inline_copies import MAX_FREE_COST, simplify_indices
from pliant.lower.pieces import Piece, Pieces, chosen, pieces_of
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.expr import Int
from pliant.sym.facts import Facts

MOST: Final = 64  # pieces of a stage: a kernel reads a limited number of values


def read_pieces(s: Stages) -> None:
    """Rewrite readers in place and drop concatenations that nobody reads any more.

    The last come first: what lies between is gone, mostly, when it is its turn."""
    reading = _Reading(s)
    for stage in reversed(list(s.stages.values())):
        reading.look_at(stage)
    made = reading.made
    s.stages = {m.name: m for st in s.stages.values() for m in (*made.get(st.name, ()), st)}
    remove_dead(s)


class _Reading:
    def __init__(self, s: Stages) -> None:
        self.s = s
        self.wanted = Counter(s.results)  # how often stages that are needed read each
        self.wholes: dict[str, Pieces | None] = {}
        self.made: dict[str, list[Stage]] = {}

    def look_at(self, stage: Stage) -> None:
        if not self.wanted[stage.name]:
            return
        if isinstance(stage.tensor, Compute) and stage.note("plan") is None:
            stage = self._through(stage, stage.tensor)
        self.wanted.update(stage.inputs)

    def _through(self, stage: Stage, tensor: Compute) -> Stage:
        """The stage, reading pieces."""
        if not any(map(self._whole, stage.inputs)):
            return stage
        own = self._whole(stage.name)
        pieces = None if own is None else self._cut(own)
        found = tensor
        if own is not None and pieces is not None and pieces != own.pieces:
            found = self._put_together(stage, own, pieces)
        found = self._inside(found)
        if found is tensor:
            return stage
        stage = self.s.stages[stage.name] = replace(
            stage, tensor=simplify_indices(found, self.s.facts)
        )
        return stage

    def _whole(self, name: str) -> Pieces | None:
        """The stage of that name as a concatenation whose pieces cost nothing to read."""
        if name not in self.wholes:
            stage = self.s.stages.get(name)
            found = None if stage is None else pieces_of(stage.tensor, self.s.facts)
            if found is not None and not all(map(_is_free, found.pieces)):
                found = None
            self.wholes[name] = found
        return self.wholes[name]

    def _read(self, load: Load) -> tuple[Pieces, Int] | None:
        """The concatenation that a load reads, at places that are known, and where along it."""
        whole = self._whole(load.source.name)
        if whole is None or not all(isinstance(i, Index) for i in load.indices):
            return None
        at = load.indices[whole.axis]
        assert isinstance(at, Index)
        return whole, at.int_

    def _cut(self, own: Pieces) -> tuple[Piece, ...]:
        """The pieces, with those of other concatenations for what reads them."""
        reads = Counter(p.value.source.name for p in own.pieces if isinstance(p.value, Load))
        found: list[Piece] = []
        left = list(reversed(own.pieces))
        while left:
            piece = left.pop()
            parts = self._parts(piece, own, reads)
            if parts is not None:
                reads.update(p.value.source.name for p in parts if isinstance(p.value, Load))
                left += reversed(parts)
            elif found and found[-1].value is piece.value:
                found[-1] = Piece(found[-1].begin, piece.end, piece.value)
            else:
                found.append(piece)
        return tuple(found)

    def _parts(self, piece: Piece, own: Pieces, reads: Counter[str]) -> list[Piece] | None:
        """A piece as pieces of the concatenation that it reads; None if it stays as it is."""
        load, facts = piece.value, self.s.facts
        read = self._read(load) if isinstance(load, Load) else None
        if read is None:
            return None
        assert isinstance(load, Load)
        whole, at = read
        distance = at - own.along
        if distance.names & {a.var for a in own.tensor.axes}:
            return None
        begin, end = piece.begin + distance, piece.end + distance
        if facts.equal(begin, 0) and facts.equal(end, whole.extent):
            name = load.source.name
            if self.wanted[name] or reads[name] > 1:
                return None
        found: list[Piece] = []
        for p in whole.pieces:
            first, last = _more(begin, p.begin, facts), _less(end, p.end, facts)
            if first is None or last is None:
                return None
            if facts.le(last, first):
                continue
            if not facts.le(first, last):
                return None
            value = _at(whole, p, load)
            found.append(Piece(first - distance, last - distance, value))
        return found or None

    def _inside(self, tensor: Compute) -> Compute:
        """With what lies in one piece, wherever a loop is, read from there."""
        facts = self.s.facts.copy()
        for axis in (*tensor.axes, *tensor.reduce_axes):
            facts.declare_index(axis.var, axis.extent)
        while True:
            body = transform(tensor.body, partial(self._of_one_piece, facts))
            if body is tensor.body:
                return tensor
            tensor = tensor.replace(body=body)

    def _of_one_piece(self, facts: Facts, node: Node) -> Node:
        while isinstance(node, Load) and (found := self._found(facts, node)) is not None:
            node = found
        return node

    def _found(self, facts: Facts, load: Load) -> Expr | None:
        """What a load finds, where all that it reads is of one piece."""
        read = self._read(load)
        if read is None:
            return None
        whole, at = read
        for p in whole.pieces:
            if facts.le(p.begin, at) and facts.lt(at, p.end):
                return _at(whole, p, load)
        return None

    def _put_together(self, stage: Stage, own: Pieces, pieces: Sequence[Piece]) -> Compute:
        """The stage's tensor of these pieces; of many, of stages for some of them each."""
        while len(pieces) > MOST:
            chunks = [pieces[k : k + MOST] for k in range(0, len(pieces), MOST)]
            pieces = [self._chunk(stage, own, c) if len(c) > 1 else c[0] for c in chunks]
        return own.tensor.replace(body=chosen(own.along, pieces))

    def _chunk(self, stage: Stage, own: Pieces, pieces: Sequence[Piece]) -> Piece:
        """A piece that reads a stage of its own, of these pieces."""
        piece = replace(pieces[-1], begin=pieces[0].begin)
        name = self.s.fresh(f"{stage.name}.pieces")
        tensor = self._inside(simplify_indices(own.alone(*pieces), self.s.facts))
        self.s.types[name] = Input(name, tensor.dtype, tensor.shape)
        made = Stage(name, tensor, stage.op, stage.spans)
        self.made.setdefault(stage.name, []).append(made)
        self.wanted.update(made.inputs)
        return replace(piece, value=self.s.types[name][own.places(piece)])


def _is_free(piece: Piece) -> bool:
    """Whether it may as well be read, or computed, by each reader."""
    loads = [n for n in own_nodes(piece.value) if isinstance(n, Load)]
    if len(loads) > 1 or takes_long(piece.value):
        return False
    return isinstance(piece.value, Load) or cost_of(piece.value) <= MAX_FREE_COST


def _at(whole: Pieces, piece: Piece, load: Load) -> Expr:
    """What a load of the concatenation finds in one of its pieces."""
    axes = whole.tensor.axes
    places = {
        a.var: i.int_ for a, i in zip(axes, load.indices, strict=True) if isinstance(i, Index)
    }
    value: Expr = substitute(piece.value, places)
    return value


def _more(a: Int, b: Int, facts: Facts) -> Int | None:
    """The greater of two; None where it depends."""
    return b if facts.le(a, b) else a if facts.le(b, a) else None


def _less(a: Int, b: Int, facts: Facts) -> Int | None:
    return a if facts.le(a, b) else b if facts.le(b, a) else None
