"""Which stages share a kernel.

Greedy and linear: each stage joins the latest of the kernels that it reads from, if its accesses
allow, else begins a kernel of its own. Since all others that it reads from are earlier, no cycle
can arise.

    map           elementwise work over one space
    row           a space split in rows: reductions along the trailing dimensions, maps over the
                  space and over the rows (softmax, normalisations), row by row
    contraction   a product and the maps that follow it
    reduction     any other reduction and the maps that follow it
    serial        scans, scatters, opaque programs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pliant.ir.expr import Index, Load, Reduce
from pliant.ir.tensor import Compute, OpaqueOutput, Tensor, own_nodes
from pliant.lower.access import Kind, classify, is_identity
from pliant.lower.layout import Order
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import Int, var

MAX_MEMBERS: Final = 64  # stages of a kernel

GroupKind = Literal["map", "row", "contraction", "reduction", "serial"]


@dataclass
class Group:
    """Stages of one kernel, in order. `space` is the shape that its maps run over, `order` the
    order of these dimensions in memory, `rows` how many leading ones (in that order) are rows."""

    kind: GroupKind
    space: tuple[Int, ...]
    order: Order
    members: list[Stage] = field(default_factory=list)
    rows: int = -1
    outputs: tuple[str, ...] = ()
    why: str = ""

    def names(self) -> set[str]:
        return {m.name for m in self.members}


def form_groups(s: Stages, orders: dict[str, Order]) -> list[Group]:
    """Partition the stages."""
    groups: list[Group] = []
    owner: dict[str, int] = {}
    for stage in s.stages.values():
        kind = classify(stage.tensor)
        at = max((owner[n] for n in stage.inputs if n in owner), default=-1)
        joined = at >= 0 and _has_room(groups[at]) and _join(groups[at], stage, kind, orders)
        if not joined:
            groups.append(_new_group(stage, kind, orders))
            at = len(groups) - 1
        groups[at].members.append(stage)
        owner[stage.name] = at
    _find_outputs(s, groups, owner)
    return groups


def _new_group(stage: Stage, kind: Kind, orders: dict[str, Order]) -> Group:
    tensor = stage.tensor
    order = orders.get(stage.name, tuple(range(len(tensor.shape))))
    if kind in ("copy", "map"):
        return Group("map", tensor.shape, order)
    if kind == "contraction":
        return Group("contraction", tensor.shape, order)
    if kind == "reduction":
        assert isinstance(tensor, Compute)
        row = _row_space(tensor, orders)
        if row is not None:
            space, space_order, rows = row
            return Group("row", space, space_order, rows=rows)
        return Group("reduction", tensor.shape, order)
    return Group("serial", tensor.shape, order)


def _row_space(
    tensor: Compute, orders: dict[str, Order]
) -> tuple[tuple[Int, ...], Order, int] | None:
    """The space of a reduction along the trailing dimensions of one of its operands."""
    body = tensor.body
    assert isinstance(body, Reduce)
    if body.combiner in ("argmax", "argmin", "any", "all"):
        return None
    outer, inner = [a.var for a in tensor.axes], {a.var for a in tensor.reduce_axes}
    for load in own_nodes(body.body):
        if not isinstance(load, Load):
            continue
        names = [_bare_name(i) for i in load.indices]
        if None in names or sorted(map(str, names)) != sorted([*outer, *inner]):
            continue
        order = orders.get(load.source.name, tuple(range(len(names))))
        trailing = [names[d] for d in order[len(outer) :]]
        if set(trailing) != inner or [names[d] for d in order[: len(outer)]] != outer:
            continue
        return load.source.shape, order, len(outer)
    return None


def _bare_name(index: object) -> str | None:
    if isinstance(index, Index) and len(index.int_.names) == 1:
        (name,) = index.int_.names
        if index.int_ is var(name):
            return name
    return None


def _has_room(g: Group) -> bool:
    """More stages would not get faster in one kernel, only slower to compile. The results of one
    program stay together."""
    return len(g.members) < MAX_MEMBERS or g.kind == "serial"


def _join(g: Group, stage: Stage, kind: Kind, orders: dict[str, Order]) -> bool:
    tensor = stage.tensor
    if isinstance(tensor, OpaqueOutput):
        return any(m.tensor is tensor.of for m in g.members)
    if not isinstance(tensor, Compute) or g.kind == "serial":
        return False
    if kind in ("map", "copy"):
        return _join_map(g, stage, tensor, orders)
    if kind == "reduction" and g.kind in ("map", "row"):
        return _join_reduction(g, tensor)
    return False


def _join_map(g: Group, stage: Stage, tensor: Compute, orders: dict[str, Order]) -> bool:
    inside = {m.name: m.tensor for m in g.members}
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load) and n.source.name in inside]
    if g.kind == "row":
        if _is_row_shape(g, tensor):
            return all(
                is_identity(n, tensor) and _is_row_shape(g, inside[n.source.name]) for n in loads
            )
        if tensor.shape != g.space or orders.get(stage.name) != g.order:
            return False
        return all(_fits_row(g, n, tensor, inside) for n in loads)
    if tensor.shape != g.space or orders.get(stage.name) != g.order:
        return False
    return all(is_identity(n, tensor) for n in loads)


def _is_row_shape(g: Group, tensor: Tensor) -> bool:
    """A value per row. A space without columns is never taken for rows."""
    shape = tuple(g.space[d] for d in g.order[: g.rows])
    return g.rows < len(g.space) and tensor.shape == shape


def _fits_row(g: Group, load: Load, tensor: Compute, inside: Mapping[str, Tensor]) -> bool:
    """The load reads its own element of the space, or the value of its own row."""
    if is_identity(load, tensor):
        return True
    if not _is_row_shape(g, inside[load.source.name]):
        return False
    rows = [tensor.axes[d].var for d in g.order[: g.rows]]
    return [_bare_name(i) for i in load.indices] == rows


def _join_reduction(g: Group, tensor: Compute) -> bool:
    """A reduction along the columns of the group's space, or its first: then it gets rows."""
    body = tensor.body
    assert isinstance(body, Reduce)
    if body.combiner in ("argmax", "argmin", "any", "all"):
        return False
    inside = g.names()
    rows = len(tensor.axes)
    if g.kind == "row" and rows != g.rows:
        return False
    if rows >= len(g.space):
        return False
    names = [""] * len(g.space)
    for k, d in enumerate(g.order):
        axes = (*tensor.axes, *tensor.reduce_axes)
        if k >= len(axes):
            return False
        names[d] = axes[k].var
    if len(tensor.axes) + len(tensor.reduce_axes) != len(g.space):
        return False
    if tuple(a.extent for a in tensor.axes) != tuple(g.space[d] for d in g.order[:rows]):
        return False
    row_names = [a.var for a in tensor.axes]
    for load in own_nodes(body.body):
        if isinstance(load, Load) and load.source.name in inside:
            at = [_bare_name(i) for i in load.indices]
            if at == names and load.source.shape == g.space:
                continue
            if g.kind == "row" and at == row_names:
                continue
            return False
    if g.kind == "map":
        g.kind, g.rows = "row", rows
    return True


def _find_outputs(s: Stages, groups: list[Group], owner: dict[str, int]) -> None:
    """What a kernel must store: results, and values that other kernels read."""
    wanted: dict[str, None] = dict.fromkeys(s.results)
    for name, stage in s.stages.items():
        for source in stage.inputs:
            if source in owner and owner[source] != owner[name]:
                wanted[source] = None
    for g in groups:
        g.outputs = tuple(m.name for m in g.members if m.name in wanted)
