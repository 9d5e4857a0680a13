"""Concatenations among the stages: what lies where along an axis.

    t[i, j] = select(j < 3, x[i, j], y[i, j - 3])     pieces  [0, 3) of x,  [3, n) of y

The conditions say where pieces begin; each value is in terms of the whole's places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pliant.ir.expr import Binary, Expr, Index, Select, as_expr, substitute
from pliant.ir.tensor import Compute, Tensor, compute, select
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts


@dataclass(frozen=True)
class Piece:
    """What a concatenation has from `begin` to `end`: an expression of its axes."""

    begin: Int
    end: Int
    value: Expr

    @property
    def extent(self) -> Int:
        return self.end - self.begin


@dataclass(frozen=True)
class Pieces:
    """A tensor of pieces, one after another along an axis."""

    tensor: Compute
    axis: int
    pieces: tuple[Piece, ...]

    @property
    def along(self) -> Int:
        """The place along the axis."""
        return var(self.tensor.axes[self.axis].var)

    @property
    def extent(self) -> Int:
        return self.tensor.shape[self.axis]

    def places(self, piece: Piece) -> tuple[Int, ...]:
        """Where an element lies in a value that is the piece."""
        axes = enumerate(self.tensor.axes)
        return tuple([var(a.var) - piece.begin * (d == self.axis) for d, a in axes])

    def shape(self, piece: Piece) -> tuple[Int, ...]:
        return tuple(
            [piece.extent if d == self.axis else n for d, n in enumerate(self.tensor.shape)]
        )

    def alone(self, *pieces: Piece) -> Compute:
        """A piece, or some that follow each other, as a tensor of its own. Where they begin in the
        whole is not seen: others of the same lengths are made by the same kernel."""
        begin = pieces[0].begin

        def element(*at: Int) -> Expr:
            places = {a.var: i for a, i in zip(self.tensor.axes, at, strict=True)}
            places[self.tensor.axes[self.axis].var] = at[self.axis] + begin
            moved = (
                Piece(p.begin - begin, p.end - begin, substitute(p.value, places)) for p in pieces
            )
            return chosen(at[self.axis], list(moved))

        return compute(self.shape(replace(pieces[-1], begin=begin)), element)


def pieces_of(tensor: Tensor, facts: Facts) -> Pieces | None:
    """The tensor as pieces; None if it is something else."""
    if not isinstance(tensor, Compute):
        return None
    match tensor.body:
        case Select(Binary("lt", Index(int_=along), Index())):
            axes = [d for d, a in enumerate(tensor.axes) if along is var(a.var)]
        case _:
            return None
    for axis in axes:
        pieces = tuple(_from(tensor.body, along, tensor.shape[axis]))
        if all(facts.nonneg(p.extent) for p in pieces):
            return Pieces(tensor, axis, pieces)
    return None


def _from(value: Expr, along: Int, extent: Int) -> Iterator[Piece]:
    left = [(value, as_int(0), extent)]
    while left:
        value, begin, end = left.pop()
        match value:
            case Select(Binary("lt", Index(int_=i), Index(int_=middle)), a, b) if i is along:
                left += [(b, middle, end), (a, begin, middle)]
            case _:
                yield Piece(begin, end, value)


def chosen(along: Int, pieces: Sequence[Piece]) -> Expr:
    """The value at a place of one or more pieces, found by halves."""
    if len(pieces) == 1:
        return pieces[0].value
    middle = len(pieces) // 2
    before = as_expr(along) < as_expr(pieces[middle].begin)
    return select(before, chosen(along, pieces[:middle]), chosen(along, pieces[middle:]))
