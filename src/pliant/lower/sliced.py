"""What a kernel reads at known places of a dimension, it is given from the first of these on.

    t[i, j] = tanh(h[i, j] + x[i, 5, j])    ->    a kernel of x' [n, 1, m], called with &x[0, 5, 0]

The steps of a recurrence, and layers that share a table, differ in the place alone: so they are one
kernel, compiled once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pliant.ir.expr import Index, Load, loads_of
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input
from pliant.lower.groups import Group
from pliant.lower.layout import Gap, Order
from pliant.lower.pack import Plan
from pliant.sym.expr import as_int
from pliant.sym.facts import Facts

Place = tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """The value of which this is a part, and where it begins there."""

    whole: Input
    place: Place


def by_slices(
    group: Group,
    plans: Mapping[str, Plan],
    facts: Facts,
    orders: Mapping[str, Order],
    gaps: Mapping[str, Gap],
) -> tuple[Group, dict[str, Plan], dict[str, Slice]]:
    """The group with its plans, reading slices, and what these are, by the names they have now.

    Of values whose dimensions lie in order: inputs, and most of what models stack.
    """
    own = {m.name: plans[m.name] for m in group.members if m.name in plans}
    bodies = [m.tensor.body for m in group.members if isinstance(m.tensor, Compute)]
    if len(bodies) < len(group.members):
        return group, own, {}
    inside = group.names() | {p.packed for p in own.values()} | gaps.keys()
    by_source: dict[Input, list[Load]] = {}
    for load in (x for body in bodies for x in loads_of(body)):
        if isinstance(load.source, Input) and load.source.name not in inside:
            by_source.setdefault(load.source, []).append(load)
    slices: dict[str, Slice] = {}
    moved: dict[Node, Node] = {}
    for source, loads in by_source.items():
        order = orders.get(source.name, ())
        known = frozenset[int].intersection(*(_known(x, facts) for x in loads))
        if known and list(order) == sorted(order):
            part, place, indices = _part(source, loads, known)
            slices[part.name] = Slice(source, place)
            moved |= {x: Load(part, at) for x, at in zip(loads, indices, strict=True)}
    if not slices:
        return group, own, {}

    def through(x: Any) -> Any:
        return transform(x, lambda n: n, dict(moved))

    members = [
        replace(m, tensor=m.tensor.replace(body=through(m.tensor.body)))
        for m in group.members
        if isinstance(m.tensor, Compute)
    ]
    own = {n: replace(p, a_side=through(p.a_side)) for n, p in own.items()}
    return replace(group, members=members), own, slices


def _known(load: Load, facts: Facts) -> frozenset[int]:
    """The dimensions along which the load is of one place, which there is."""
    return frozenset(
        d
        for d, (i, n) in enumerate(zip(load.indices, load.source.shape, strict=True))
        if isinstance(i, Index) and i.int_.is_const and n is not as_int(1)
        and i.int_.value >= 0 and facts.lt(i.int_, n)
    )  # fmt: skip


def _part(
    source: Input, loads: list[Load], known: Collection[int]
) -> tuple[Input, Place, list[tuple[Any, ...]]]:
    """What of the source is read, where it begins, and the indices of the loads in it."""
    places = {d: [_place(x, d) for x in loads] for d in known}
    place = tuple([min(places[d]) if d in known else 0 for d in range(len(source.dims))])
    dims = list(source.dims)
    for d, at in places.items():
        dims[d] = as_int(max(at) - min(at) + 1)
    name = f"{source.name}[{', '.join(map(str, place))}]"
    indices = [
        tuple([
            Index(as_int(_place(x, d) - place[d])) if d in known else i
            for d, i in enumerate(x.indices)
        ])
        for x in loads
    ]  # fmt: skip
    return Input(name, source.dtype, tuple(dims)), place, indices


def _place(load: Load, dim: int) -> int:
    index = load.indices[dim]
    assert isinstance(index, Index)
    return index.int_.value
