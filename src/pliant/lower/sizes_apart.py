"""Which constants of a kernel are one size, and which just happen to be equal.

    relu(w x + b),  x [64, 56, 56], 64 filters       channels in, channels out: two sizes

An axis and the dimension that it runs along are one; so are the dimensions of results and of what
is computed on the way, for their loops are. A number that is written where elements are found is
one, wherever it appears: nobody knows what it stands for there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from pliant.ir.expr import Expr, Index, Load
from pliant.ir.tensor import Compute, Input, Tensor, own_nodes
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int

Spot = tuple[str, str | int]  # an axis of a member by its variable, a dimension of a value

SPACE: Final = ""  # the name under which the group's own has places


def places_of_sizes(
    space: Sequence[Int],
    members: Mapping[str, Tensor],
    given: Mapping[str, Input],
    shared: Collection[int],
) -> dict[Spot, Spot]:
    """Each place of a constant in the members of a group and in what they are given, to one that
    stands for all of the same size. Without those of numbers that are `shared` or written in an
    index; without any where members run over other spaces than the group's."""
    tensors = {n: t for n, t in members.items() if isinstance(t, Compute)}
    if any(t.shape != tuple(space) for t in members.values()) or len(tensors) < len(members):
        return {}
    extents: dict[Spot, Int] = {(SPACE, d): x for d, x in enumerate(space)}
    for name, tensor in [*given.items(), *tensors.items()]:
        extents |= {(name, d): x for d, x in enumerate(tensor.shape)}
    same: dict[Spot, Spot] = {}

    def find(place: Spot) -> Spot:
        while place in same:
            place = same[place]
        return place

    def join(a: Spot, b: Spot) -> None:
        a, b = find(a), find(b)
        if a != b:
            same[b] = a

    numbers = set(shared)
    for name, tensor in tensors.items():
        for d, axis in enumerate(tensor.axes):
            join((SPACE, d), (name, d))
            join((name, d), (name, axis.var))
        extents |= {(name, a.var): a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
        for node in own_nodes(tensor.body):
            if isinstance(node, Index):
                numbers.update(_numbers(node.int_))
            elif isinstance(node, Load):
                for d, index in enumerate(node.indices):
                    along = _axis(index)
                    across = (node.source.name, d)
                    if along and extents.get((name, along)) == extents.get(across, -1):
                        join((name, along), across)
    return {
        place: find(place)
        for place, x in extents.items() if x.is_const and x.value not in numbers
    }  # fmt: skip


def _axis(index: Expr) -> str | None:
    """The variable that it is."""
    atom = index.int_.sole_atom if isinstance(index, Index) else None
    return atom.name if isinstance(atom, VarAtom) else None


def _numbers(x: Int) -> Iterator[int]:
    """All that are written in it."""
    for coefficient, factors in x.terms():
        yield abs(coefficient)
        for atom, _ in factors:
            for part in _parts(atom):
                yield from _numbers(part)


def _parts(atom: Atom) -> tuple[Int, ...]:
    match atom:
        case DivAtom() | ModAtom():
            return (atom.num, atom.den)
        case MinAtom() | MaxAtom():
            return atom.args
    return ()
