"""Which stages share a kernel.

Greedy and linear: each stage joins one of the kernels that it reads from, if its accesses allow and
none of the others comes after that one, else begins a kernel of its own. Maps that it reads from
another kernel join with it, where nobody wants them before. At the end the kernels are put in order
(`precedence`).

    map           elementwise work over one space
    row           a space split in rows: reductions along the trailing dimensions, maps over the
                  space and over the rows (softmax, normalisations), row by row
    contraction   a product and the maps that follow it
    attention     two products, what lies between them of rows, and the maps that follow
    patches       a map of patches, a product, a map of its results, and the maps that follow
    reduction     any other reduction and the maps that follow it
    serial        scans, scatters, opaque programs
    joined        nothing: its parts lie where it does (`lower.joined`)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Final, Literal

from pliant.ir.expr import Axis, Index, Load, Reduce
from pliant.ir.tensor import Compute, OpaqueOutput, Tensor, own_nodes
from pliant.lower.access import ROW_COMBINERS, Kind, bare_name, classify, is_identity
from pliant.lower.attention import Attention, find_attention
from pliant.lower.layout import Order, order_in, strides_of
from pliant.lower.pack import Plan
from pliant.lower.patches import find_patches
from pliant.lower.precedence import Precedence
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import Int, as_int, var

MAX_MEMBERS: Final = 64  # stages of a kernel
LEAST_COLUMNS: Final = 16  # of a view that is taken for rows
RESULT: Final = ""  # reads what the model gives back

GroupKind = Literal[
    "map", "row", "contraction", "attention", "patches", "reduction", "serial", "joined"
]


@dataclass
class Group:
    """Stages of one kernel, in order. `space` is the shape that its maps run over, `order` the
    order of these dimensions in memory, `rows` how many leading ones (in that order) are rows; of
    attention `row_dims` says which are, in the order in which values of rows have them.

    `after` is the group that the first stage could not join, and `obstacle` why not. `uncached`
    computes the same, and is faster where no cache keeps what is read and written."""

    kind: GroupKind
    space: tuple[Int, ...]
    order: Order
    members: list[Stage] = field(default_factory=list)
    rows: int = -1
    outputs: tuple[str, ...] = ()
    after: int = -1
    obstacle: str = ""
    row_dims: Order = ()
    uncached: Group | None = None

    def names(self) -> set[str]:
        return {m.name for m in self.members}


def form_groups(
    s: Stages,
    orders: dict[str, Order],
    plans: Mapping[str, Plan] = MappingProxyType({}),
    *,
    silent: Collection[str] = (),
    in_order: bool = False,
) -> list[Group]:
    """Partition the stages. With `in_order`, sums and products keep the order of their indices, and
    become no kernel that splits them into lanes. `plans` are those of the packed products, `silent`
    stages whose results are there already."""
    attention: dict[str, Attention] = {}
    apart: dict[str, str] = {}
    for name, found in find_attention(s, plans):
        if isinstance(found, str):
            apart[name] = found
        elif any(m in a.members for a in attention.values() for m in found.members):
            apart[name] = "the first is in a kernel with another"
        else:
            attention[name] = found
    patches: dict[str, tuple[str, ...]] = {}
    for name, members in find_patches(s, plans, orders):
        if isinstance(members, str):
            apart[name] = members
        else:
            patches[members[-1]] = members
    while True:
        groups = _grouped(s, orders, plans, attention, patches, apart, silent, in_order)
        wanted = [g for g in groups if g.kind == "attention" and _keeps_rows(g, attention)]
        if not wanted:
            return groups
        for g in wanted:  # their kernels have no place for that
            (last,) = (m.name for m in g.members if m.name in attention)
            apart[last] = "a value for each row is wanted elsewhere"
            del attention[last]


def _grouped(
    s: Stages,
    orders: dict[str, Order],
    plans: Collection[str],
    attention: Mapping[str, Attention],
    patches: Mapping[str, tuple[str, ...]],
    apart: Mapping[str, str],
    silent: Collection[str],
    in_order: bool,
) -> list[Group]:
    """The groups, of which those of `attention` and `patches` are known; `apart` says why a product
    is in none of `attention`, by its name."""
    forming = _Forming(s, orders)
    whole = {name: a.members for name, a in attention.items()} | dict(patches)
    later = {m for name, members in whole.items() for m in members if m != name}
    for stage in s.stages.values():
        if stage.name in later:
            continue
        if stage.name in attention:
            forming.add(_attention_group(s, stage, attention[stage.name], orders))
        elif stage.name in silent:
            shape = stage.tensor.shape
            forming.add(Group("joined", shape, orders[stage.name], [stage]))
        elif stage.name in patches:
            forming.add(_patches_group(s, stage, patches[stage.name], orders))
        else:
            # A packed product is one, whatever else it looks like.
            kind = "contraction" if stage.name in plans else _kind(stage.tensor, in_order)
            forming.place(stage, kind, apart.get(stage.name, ""))
    groups = forming.in_order()
    _find_outputs(s, groups)
    return groups


class _Forming:
    """Groups while stages join them."""

    def __init__(self, s: Stages, orders: dict[str, Order]) -> None:
        self.orders = orders
        self.readers: dict[str, set[str]] = {name: {RESULT} for name in s.results}
        for name, stage in s.stages.items():
            for source in stage.inputs:
                self.readers.setdefault(source, set()).add(name)
        self.groups: list[Group] = []
        self.precedence = Precedence()
        self.owner: dict[str, int] = {}

    def add(self, g: Group) -> None:
        """A group of its own, with its members."""
        inputs = {i for m in g.members for i in m.inputs} - g.names()
        at = self.precedence.add({self.owner[i] for i in inputs if i in self.owner})
        self.groups.append(g)
        self.owner |= dict.fromkeys(g.names(), at)

    def place(self, stage: Stage, kind: Kind, apart: str) -> None:
        """Let the stage join one of the groups that it reads from, or begin another. Those that do
        more than maps come first, then the latest."""
        sources = {self.owner[n] for n in stage.inputs if n in self.owner}
        obstacle = ""
        for at in sorted(sources, key=lambda k: (self.groups[k].kind != "map", k), reverse=True):
            others = sources - {at}
            if any(self.precedence.is_before(at, o) for o in others):
                continue
            refused = _obstacle(self.groups[at], stage, kind, self.orders)
            if not refused:
                self._join(stage, at, others)
                return
            obstacle = obstacle or refused
        g = _new_group(stage, kind, self.orders)
        g.members.append(stage)
        g.after, g.obstacle = max(sources, default=-1), apart or obstacle
        self.add(g)

    def _join(self, stage: Stage, at: int, others: Set[int]) -> None:
        g = self.groups[at]
        g.members.append(stage)
        self.owner[stage.name] = at
        for other in sorted(others):
            self.precedence.require(other, at)
        for other in sorted(others):
            if self._fits_in(other, at):
                h = self.groups[other]
                g.members[-1:-1] = h.members
                self.owner |= dict.fromkeys(h.names(), at)
                self.precedence.absorb(other, at)

    def _fits_in(self, other: int, at: int) -> bool:
        """Whether maps that the last stage of a group reads can be made there too: nobody between
        wants them, and all read their own element. Where they are no part of what the group is
        about, nobody else may want them at all."""
        h, g = self.groups[other], self.groups[at]
        *earlier, last = g.members
        between = self.precedence.next_to(other) - {at}
        if h.kind != "map" or g.kind not in ("map", "row", "contraction", "reduction"):
            return False
        if len(g.members) + len(h.members) > MAX_MEMBERS:
            return False
        if any(self.precedence.is_before(k, at) for k in between):
            return False
        if any(i in h.names() for m in earlier for i in m.inputs):
            return False
        own = h.names() | {last.name}
        if g.kind != "map" and not all(self.readers[n] <= own for n in h.names()):
            return False
        both = replace(g, members=[*earlier, *h.members])
        return all(
            isinstance(m.tensor, Compute) and not _map_obstacle(both, m, m.tensor, self.orders)
            for m in (*h.members, last)
        )

    def in_order(self) -> list[Group]:
        """The groups, each after all that it reads."""
        order = self.precedence.order()
        places = {k: place for place, k in enumerate(order)}
        groups = [self.groups[k] for k in order]
        for g in groups:
            g.after = places[self.precedence.number(g.after)] if g.after >= 0 else -1
        return groups


def _keeps_rows(g: Group, attention: Mapping[str, Attention]) -> bool:
    """Whether others read what lies between the products."""
    inside = {m for a in attention.values() for m in a.members[:-1]}
    return any(name in inside for name in g.outputs)


def _attention_group(s: Stages, last: Stage, found: Attention, orders: dict[str, Order]) -> Group:
    order = order_in(last.name, last.tensor.shape, orders)
    assert isinstance(last.tensor, Compute)
    axes = [a.var for a in last.tensor.axes]
    dims = tuple(axes.index(v) for v in found.rows)
    members = [s.stages[n] for n in found.members]
    return Group("attention", last.tensor.shape, order, members, len(dims), row_dims=dims)


def _patches_group(
    s: Stages, last: Stage, members: Sequence[str], orders: dict[str, Order]
) -> Group:
    order = order_in(last.name, last.tensor.shape, orders)
    return Group("patches", last.tensor.shape, order, [s.stages[n] for n in members])


def _kind(tensor: Tensor, in_order: bool) -> Kind:
    kind = classify(tensor)
    if in_order and isinstance(tensor, Compute) and isinstance(tensor.body, Reduce):
        return "in order" if tensor.body.combiner in ("sum", "prod") else kind
    return kind


def _new_group(stage: Stage, kind: Kind, orders: dict[str, Order]) -> Group:
    tensor = stage.tensor
    order = order_in(stage.name, tensor.shape, orders)
    if kind in ("copy", "map"):
        return Group("map", tensor.shape, order)
    if kind == "contraction":
        return Group("contraction", tensor.shape, order)
    if kind == "in order":
        return Group("reduction", tensor.shape, order)
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
    """The space of a reduction along the trailing dimensions of one of its operands, or of a view
    of it whose rows lie one after the other (the pixels of an image as rows of channels)."""
    body = tensor.body
    assert isinstance(body, Reduce)
    if body.combiner not in ROW_COMBINERS:
        return None
    outer, inner = [a.var for a in tensor.axes], {a.var for a in tensor.reduce_axes}
    axes = (*tensor.axes, *tensor.reduce_axes)
    for load in own_nodes(body.body):
        if not isinstance(load, Load):
            continue
        names = [bare_name(i) for i in load.indices]
        order = orders.get(load.source.name, tuple(range(len(names))))
        leading, trailing = order[: len(outer)], order[len(outer) :]
        if {names[d] for d in trailing} == inner and [names[d] for d in leading] == outer:
            extents = {a.var: a.extent for a in axes}  # there may be more that are not read
            return tuple([extents[n] for n in names if n]), order, len(outer)
        if _lies_as(load, order, axes) and not _is_few(tensor.reduce_axes):
            return tuple(a.extent for a in axes), tuple(range(len(axes))), len(outer)
    return None


def _is_few(axes: tuple[Axis, ...]) -> bool:
    """Whether they are known to be fewer elements than are worth a row: windows side by side."""
    total = prod((a.extent for a in axes), start=as_int(1))
    return total.is_const and total.value < LEAST_COLUMNS


def _lies_as(load: Load, order: Order, axes: tuple[Axis, ...]) -> bool:
    """Whether the load goes through memory, element by element, as the axes do."""
    strides = strides_of(load.source.shape, order)
    place = as_int(0)
    for index, stride in zip(load.indices, strides, strict=True):
        if not isinstance(index, Index):
            return False
        place = place + index.int_ * stride
    extents = tuple(a.extent for a in axes)
    for axis, stride in zip(axes, strides_of(extents, tuple(range(len(axes)))), strict=True):
        place = place - var(axis.var) * stride
    return place is as_int(0)


def _obstacle(g: Group, stage: Stage, kind: Kind, orders: dict[str, Order]) -> str:
    """Why the stage cannot run in the group's kernel; empty if it can, and then `g` is one that
    it fits in."""
    tensor = stage.tensor
    if isinstance(tensor, OpaqueOutput):
        return "" if any(m.tensor is tensor.of for m in g.members) else "another program's result"
    if g.kind == "joined":
        return "there is no kernel: its parts are written where it lies"
    if g.kind == "serial":
        return "scans, scatters and programs run by themselves"
    if not isinstance(tensor, Compute):
        return f"a {kind} runs by itself"
    if len(g.members) >= MAX_MEMBERS:
        return f"that kernel has {MAX_MEMBERS} stages already"
    if kind in ("map", "copy"):
        return _map_obstacle(g, stage, tensor, orders)
    if kind == "reduction" and g.kind in ("map", "row"):
        return _reduction_obstacle(g, tensor)
    if kind == "in order":
        return "numerics='strict': a sum in order of its indices runs by itself"
    return f"a {kind} cannot follow in a {g.kind} kernel"


def _map_obstacle(g: Group, stage: Stage, tensor: Compute, orders: dict[str, Order]) -> str:
    inside = {m.name: m.tensor for m in g.members}
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load) and n.source.name in inside]
    if g.kind == "row" and _is_row_shape(g, tensor):
        for n in loads:
            if not (is_identity(n, tensor) and _is_row_shape(g, inside[n.source.name])):
                return f"a value per row that reads {n.source.name} elsewhere"
        return ""
    if tensor.shape != g.space:
        return f"its shape is {_text(tensor.shape)}, the kernel runs over {_text(g.space)}"
    if not _lie_alike(orders[stage.name], g.order, g.space):
        return "its dimensions lie in another order"
    for n in loads:
        rows = g.kind in ("row", "attention")
        fits = _fits_row(g, n, tensor, inside) if rows else is_identity(n, tensor)
        if not fits:
            return f"it reads {n.source.name} at other places than it writes"
    return ""


def _row_dims(g: Group) -> tuple[int, ...]:
    return g.row_dims or g.order[: g.rows]


def _lie_alike(a: Order, b: Order, shape: tuple[Int, ...]) -> bool:
    """Whether both orders are the same in memory: where a dimension of one element is, is not
    seen there."""
    return [d for d in a if shape[d] != 1] == [d for d in b if shape[d] != 1]


def _is_row_shape(g: Group, tensor: Tensor) -> bool:
    """A value per row. A space without columns is never taken for rows."""
    shape = tuple(g.space[d] for d in _row_dims(g))
    return g.rows < len(g.space) and tensor.shape == shape


def _fits_row(g: Group, load: Load, tensor: Compute, inside: Mapping[str, Tensor]) -> bool:
    """The load reads its own element of the space, or the value of its own row."""
    if is_identity(load, tensor):
        return True
    if not _is_row_shape(g, inside[load.source.name]):
        return False
    rows = [tensor.axes[d].var for d in _row_dims(g)]
    return [bare_name(i) for i in load.indices] == rows


def _reduction_obstacle(g: Group, tensor: Compute) -> str:
    """A reduction along the columns of the group's space, or its first: then it gets rows."""
    body = tensor.body
    assert isinstance(body, Reduce)
    if body.combiner not in ROW_COMBINERS:
        return f"{body.combiner} is no reduction of rows"
    inside = g.names()
    rows = len(tensor.axes)
    axes = (*tensor.axes, *tensor.reduce_axes)
    if g.kind == "row" and rows != g.rows:
        return f"the kernel's rows have {g.rows} dimensions, its have {rows}"
    leading = tuple(g.space[d] for d in g.order[:rows])
    if rows >= len(g.space) or len(axes) != len(g.space) or tensor.shape != leading:
        return (
            f"it reduces to {_text(tensor.shape)}, which are no rows of {_text(g.space)} "
            "in the order in which they lie"
        )
    columns = tuple(g.space[d] for d in g.order[rows:])
    if tuple(a.extent for a in tensor.reduce_axes) != columns:
        return f"it is over another number of columns than {_text(columns)}"
    names = [""] * len(g.space)
    for k, d in enumerate(g.order):
        names[d] = axes[k].var
    row_names = [a.var for a in tensor.axes]
    for load in own_nodes(body.body):
        if isinstance(load, Load) and load.source.name in inside:
            at = [bare_name(i) for i in load.indices]
            if at == names and load.source.shape == g.space:
                continue
            if g.kind == "row" and at == row_names:
                continue
            return f"it reads {load.source.name} in another order"
    if g.kind == "map":
        g.kind, g.rows = "row", rows
    return ""


def _text(shape: tuple[Int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _find_outputs(s: Stages, groups: list[Group]) -> None:
    """What a kernel must store: results, and values that other kernels read."""
    owner = {m.name: k for k, g in enumerate(groups) for m in g.members}
    wanted: dict[str, None] = dict.fromkeys(s.results)
    for name, stage in s.stages.items():
        for source in stage.inputs:
            if source in owner and owner[source] != owner[name]:
                wanted[source] = None
    for g in groups:
        g.outputs = tuple(m.name for m in g.members if m.name in wanted)
