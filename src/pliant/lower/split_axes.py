"""An output axis that a sum runs through in steps becomes two: quotients and remainders.

    y[o] = sum_k f(o, k)            ->  y.split[q, p] = sum_j f(s*q + p, position(p, j))
    z[o] = max(y[o] + b, 0)             z.split[q, p] = max(y.split[q, p] + b, 0)
                                        z[o] = z.split[o // s, o % s]

What makes a sum worth splitting is said in `phases` and `channel_groups`. The maps that follow it
run over the split axes too, so that they can share its kernel; what is left to the others is a
copy, through which they read. Since a split value lies in memory as the whole one would, reading
it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pliant.base.dtypes import f32
from pliant.ir.einsum import names_in
from pliant.ir.expr import Axis, Binary, Expr, Index, Load, Reduce, Select, const, substitute
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, all_of, compute, own_nodes, within
from pliant.lower.access import is_copy, is_identity
from pliant.lower.channel_groups import ChannelGroups, channel_groups
from pliant.lower.conditions import assuming, needed
from pliant.lower.contraction import KINDS, Factors
from pliant.lower.layout import Order, own_wish, runs_in_rows
from pliant.lower.phases import Phase, phases
from pliant.lower.stages import Stage, Stages, readers_of
from pliant.sym.expr import Int, as_int, ceildiv, var
from pliant.sym.facts import Facts

BETTER: Final = 1.5  # times as full, for rows to be better than panels, which wait for less


@dataclass(frozen=True)
class Split:
    """o + shift = step*q + p with 0 <= p < step. `exact`: every (q, p) is an o."""

    step: Int
    shift: Int
    exact: bool


@dataclass(frozen=True)
class Halves:
    """A value with some of its axes (by position) split."""

    source: Input
    splits: tuple[Split | None, ...]


def split_axes(s: Stages, columns: int, kinds: Sequence[Factors] = KINDS) -> dict[str, Order]:
    """Split what gains by it; the orders that the split values want, by stage name. `columns` is
    the usual width of a packed panel, `kinds` are what the factors of products may be."""
    wishes: dict[str, Order] = {}
    halves: dict[str, Halves] = {}
    stages: dict[str, Stage] = {}
    readers = readers_of(s)
    for name, stage in s.stages.items():
        made = _split(stage, s, readers, halves, columns, kinds)
        if made is None:
            stages[name] = stage
            continue
        tensor, splits = made
        inner = f"{name}.split"
        stages[inner] = Stage(inner, tensor, stage.op, stage.spans)
        s.types[inner] = source = Input(inner, tensor.dtype, tensor.shape)
        halves[name] = Halves(source, splits)
        stages[name] = Stage(name, joined(s.types[name], halves[name]), "join", stage.spans)
        assert isinstance(stage.tensor, Compute)
        order = own_wish(stage.tensor, {}, frozenset())
        if order is not None and tensor.reduce_axes:
            wishes[inner] = _split_order(order, splits)
    s.stages = stages
    return wishes


def _split(
    stage: Stage,
    s: Stages,
    readers: Mapping[str, list[str]],
    halves: Mapping[str, Halves],
    columns: int,
    kinds: Sequence[Factors],
) -> tuple[Compute, tuple[Split | None, ...]] | None:
    tensor = stage.tensor
    if not isinstance(tensor, Compute):
        return None
    if isinstance(tensor.body, Reduce):
        return _split_sum(stage.name, tensor, s, readers, columns, kinds)
    return None if stage.name in s.results else _split_map(tensor, halves)


# -- sums ----------------------------------------------------------------------------------------


def _split_sum(
    name: str,
    tensor: Compute,
    s: Stages,
    readers: Mapping[str, list[str]],
    columns: int,
    kinds: Sequence[Factors],
) -> tuple[Compute, tuple[Split | None, ...]] | None:
    facts = s.facts
    found = phases(tensor, aligned=_is_narrow(tensor, columns))
    groups = channel_groups(tensor, columns, kinds)
    if groups is not None and _better_in_rows(tensor, groups, columns):
        elsewhere = dict.fromkeys(s.stages, ())  # what is made here may lie in any order
        if runs_in_rows(name, s, readers, elsewhere):
            groups = None
    by_axis = {f.outer: _phase_split(f, tensor, facts) for f in found}
    if groups is not None:
        by_axis[groups.outer] = Split(as_int(groups.each * groups.together), as_int(0), True)
    splits = tuple(by_axis.get(a.var) for a in tensor.axes)
    if not by_axis or not all(
        s is None or s.exact or _stays_inside(tensor, a.var)
        for s, a in zip(splits, tensor.axes, strict=True)
    ):
        return None
    body = tensor.body
    assert isinstance(body, Reduce)
    axes, where = split_space(tensor.axes, splits)
    parts = {a.var: p for a, p in zip(tensor.axes, _remainders(splits), strict=True)}
    term = assuming(body.body, [f.condition for f in found])
    extents = {f.inner: f.extent for f in found}
    for f in found:
        where[f.inner] = f.position.subs({f.outer: parts[f.outer]})
    if groups is not None:
        extents[groups.inner] = groups.members * groups.together
        skipped = parts[groups.outer] // groups.each * groups.members
        where[groups.inner] = var(groups.inner) - skipped
    term = substitute(term, where)
    if groups is not None and groups.together > 1:
        term = _own_channels(term, where[groups.inner], groups)
    bounds = [
        Binary("lt", Index(var(f.inner)), Index(f.count.subs({f.outer: parts[f.outer]})))
        for f in found
        if f.count is not None
    ]
    if bounds:
        term = Select(all_of(bounds), term, const(0, term.dtype))
    reduced = tuple(Axis(a.var, extents.get(a.var, a.extent)) for a in body.axes)
    return Compute("t", axes, Reduce("sum", reduced, term)), splits


def _better_in_rows(tensor: Compute, groups: ChannelGroups, columns: int) -> bool:
    """Whether a window over images fills vectors along its rows better than its groups fill panels:
    of those that share one, each multiplies zeros for all others. (`schedule.recipes.windowed`)"""
    body, lanes = tensor.body, columns // 2
    assert isinstance(body, Reduce)
    if len(tensor.axes) < 3 or body.dtype is not f32 or groups.each > lanes:
        return False
    high, wide = tensor.axes[-2:]
    window = {a.var for a in body.axes if a.extent != 1}
    loads = [n for n in own_nodes(body.body) if isinstance(n, Load)]
    indices = [i.int_.names for n in loads for i in n.indices if isinstance(i, Index)]
    if not any(high.var in names and names & window for names in indices):
        return False
    width = wide.extent.value if wide.extent.is_const else lanes
    filled = width / (-(-width // lanes) * lanes)
    return filled > BETTER * groups.each / groups.columns


def _own_channels(term: Expr, channel: Int, groups: ChannelGroups) -> Expr:
    """A product with zeros for the channels of other groups, in the factor that has outputs."""
    assert isinstance(term, Binary)
    inside = within(channel, groups.members)
    sides = [
        Select(inside, x, const(0, x.dtype)) if names_in(x) & channel.names - {groups.inner} else x
        for x in (term.a, term.b)
    ]
    return Binary("mul", *sides)


def _phase_split(phase: Phase, tensor: Compute, facts: Facts) -> Split:
    step = as_int(phase.step)
    (extent,) = (a.extent for a in tensor.axes if a.var == phase.outer)
    exact = phase.shift == 0 and facts.divisible(extent, step)
    return Split(step, phase.shift, exact)


def _is_narrow(tensor: Compute, columns: int) -> bool:
    """A product with few columns: one factor has less than a panel of output axes to itself."""
    body = tensor.body
    assert isinstance(body, Reduce)
    if not (isinstance(body.body, Binary) and body.body.op == "mul"):
        return False
    sides = [names_in(body.body.a), names_in(body.body.b)]
    own = [[a.extent for a in tensor.axes if a.var in x - y] for x, y in (sides, sides[::-1])]
    return any(
        len(extents) == 1 and extents[0].is_const and extents[0].value < columns for extents in own
    )


def _stays_inside(tensor: Compute, name: str) -> bool:
    """Whether the conditions of a sum keep every access within its source that moves along an
    output axis, so that the axis may run beyond its extent."""
    body = tensor.body
    assert isinstance(body, Reduce)
    known = set(needed(body.body))
    for load in own_nodes(body.body):
        if not isinstance(load, Load):
            continue
        for index, extent in zip(load.indices, load.source.shape, strict=True):
            if not isinstance(index, Index):
                return False
            low = Binary("le", Index(as_int(0)), index)
            high = Binary("lt", index, Index(extent))
            if name in index.int_.names and not {low, high} <= known:
                return False
    return True


# -- maps ----------------------------------------------------------------------------------------


def _split_map(
    tensor: Compute, halves: Mapping[str, Halves]
) -> tuple[Compute, tuple[Split | None, ...]] | None:
    """A map over the same elements as a split value that it reads, split alike."""
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load) and n.source.name in halves]
    loads = [n for n in loads if is_identity(n, tensor)]
    if not loads or is_copy(tensor):
        return None
    splits = halves[loads[0].source.name].splits
    axes, where = split_space(tensor.axes, splits)
    here = tuple(Index(var(a.var)) for a in axes)
    memo: dict[Node, Any] = {
        n: Load(h.source, here) for n in loads if (h := halves[n.source.name]).splits == splits
    }
    beyond = {a.var for a, s in zip(tensor.axes, splits, strict=True) if s and not s.exact}
    if _mentions(tensor.body, beyond, memo):
        return None

    def visit(node: Node) -> Node:
        return Index(node.int_.subs(where)) if isinstance(node, Index) else node

    return Compute("t", axes, transform(tensor.body, visit, memo)), splits


def _mentions(root: Expr, names: set[str], without: Mapping[Node, Any]) -> bool:
    """Whether an index below `root`, but not in the nodes `without`, has one of the names."""
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if node in without:
            continue
        if isinstance(node, Index) and node.int_.names & names:
            return True
        stack += node.indices if isinstance(node, Load) else node.children()
    return False


# -- both ----------------------------------------------------------------------------------------


def split_space(
    axes: tuple[Axis, ...], splits: Sequence[Split | None]
) -> tuple[tuple[Axis, ...], dict[str, Int]]:
    """The axes after splitting, and the old ones in terms of them."""
    extents: list[Int] = []
    where: dict[str, Int] = {}
    for axis, split in zip(axes, splits, strict=True):
        at = var(f"_i{len(extents)}")
        if split is None:
            where[axis.var] = at
            extents.append(axis.extent)
            continue
        where[axis.var] = at * split.step + var(f"_i{len(extents) + 1}") - split.shift
        extents += [ceildiv(axis.extent + split.shift, split.step), split.step]
    return tuple(Axis(f"_i{k}", e) for k, e in enumerate(extents)), where


def _remainders(splits: Sequence[Split | None]) -> list[Int]:
    """The remainder of every split axis (of others: the axis)."""
    out: list[Int] = []
    at = 0
    for split in splits:
        at += 1 if split is None else 2
        out.append(var(f"_i{at - 1}"))
    return out


def joined(type_: Input, halves: Halves) -> Compute:
    """The whole value, read from its halves."""

    def element(*at: Int) -> Expr:
        indices: list[Int] = []
        for i, split in zip(at, halves.splits, strict=True):
            if split is None:
                indices.append(i)
            else:
                indices += [(i + split.shift) // split.step, (i + split.shift) % split.step]
        return halves.source[tuple(indices)]

    return compute(type_.dims, element)


def _split_order(order: Order, splits: Sequence[Split | None]) -> Order:
    """Remainders next to their quotients."""
    starts: dict[int, int] = {}
    at = 0
    for dim, split in enumerate(splits):
        starts[dim] = at
        at += 1 if split is None else 2
    out: list[int] = []
    for dim in order:
        out.append(starts[dim])
        if splits[dim] is not None:
            out.append(starts[dim] + 1)
    return tuple(out)
