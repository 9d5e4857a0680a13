"""What a kernel reads at one place of a dimension, it is given from there on.

    t[i, j] = tanh(h[i, j] + x[i, 5, j])    ->    a kernel of x' [n, 1, m], called with &x[0, 5, 0]

The steps of a recurrence, and layers that share a table, differ in the place alone: so they are one
kernel, compiled once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pliant.ir.expr import Index, Load, loads_of
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input
from pliant.lower.groups import Group
from pliant.lower.layout import Gap, Order
from pliant.lower.pack import Plan
from pliant.sym.expr import as_int
from pliant.sym.facts import Facts

MOST: Final = 4  # places of a value that a kernel is given: each takes an argument

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

    Values of which every dimension is known to lie in order: inputs, and most of what models stack.
    """
    tensors = [m.tensor for m in group.members]
    own = {m.name: plans[m.name] for m in group.members if m.name in plans}
    if not all(isinstance(t, Compute) for t in tensors):
        return group, own, {}
    inside = group.names() | {p.packed for p in own.values()} | gaps.keys()
    found = _places(tensors, facts, inside, orders)
    if not found:
        return group, own, {}
    slices: dict[str, Slice] = {}
    moved: dict[Node, Node] = {}
    for load, (place, fixed) in found.items():
        whole = load.source
        name = f"{whole.name}[{', '.join(map(str, place))}]"
        dims = tuple([as_int(1) if d in fixed else n for d, n in enumerate(whole.dims)])
        slices[name] = Slice(whole, place)
        at = [Index(as_int(0)) if d in fixed else i for d, i in enumerate(load.indices)]
        moved[load] = Load(Input(name, whole.dtype, dims), tuple(at))

    def through(x: Any) -> Any:
        return transform(x, lambda n: n, dict(moved))

    members = []
    for m in group.members:
        assert isinstance(m.tensor, Compute)
        members.append(replace(m, tensor=m.tensor.replace(body=through(m.tensor.body))))
    own = {n: replace(p, a_side=through(p.a_side)) for n, p in own.items()}
    return replace(group, members=members), own, slices


def _places(
    tensors: Collection[Any], facts: Facts, inside: Collection[str], orders: Mapping[str, Order]
) -> dict[Load, tuple[Place, frozenset[int]]]:
    """Of loads from values that are read at few places only, these, and along which dimensions."""
    by_source: dict[Input, list[Load]] = {}
    for tensor in tensors:
        for load in loads_of(tensor.body):
            if isinstance(load.source, Input) and load.source.name not in inside:
                by_source.setdefault(load.source, []).append(load)
    found: dict[Load, tuple[Place, frozenset[int]]] = {}
    for source, loads in by_source.items():
        order = orders.get(source.name)
        if order is not None and list(order) != sorted(order):
            continue
        fixed = frozenset[int].intersection(*(_fixed(x, facts) for x in loads))
        places = {x: _place(x, fixed) for x in loads}
        if fixed and len(set(places.values())) <= MOST:
            found |= {x: (place, fixed) for x, place in places.items()}
    return found


def _fixed(load: Load, facts: Facts) -> frozenset[int]:
    """The dimensions along which the load is of one place, which there is."""
    return frozenset(
        d
        for d, (i, n) in enumerate(zip(load.indices, load.source.shape, strict=True))
        if isinstance(i, Index) and i.int_.is_const and n is not as_int(1)
        and i.int_.value >= 0 and facts.lt(i.int_, n)
    )  # fmt: skip


def _place(load: Load, fixed: Collection[int]) -> Place:
    at: list[int] = []
    for d, i in enumerate(load.indices):
        at.append(i.int_.value if d in fixed and isinstance(i, Index) else 0)
    return tuple(at)
