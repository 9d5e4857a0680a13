"""Which extents of a kernel stay constants, where it is worth a kernel for each.

A kernel takes its sizes as arguments, so that layers of other sizes share it (`canonical`). Rows of
few elements are another matter: known, they are as many vectors as it takes, and the kernel has no
loop over blocks of them and no mask at run time. So are the sides of windows that slide: they are
run through in steps that are code. What is known of a model's symbols is no less shared for it:
these are channels, not lengths.

Small constants stay, too, for windows, strides and the like are such. But the sides of a small
image whose places are the rows of a product are sizes as those of a large one are, and so is how
many panels weights are packed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from pliant.ir.bf16 import factors_in_bf16
from pliant.ir.expr import Expr, Index, Load, Reduce, Select, index_names, loads_of
from pliant.ir.tensor import Compute, Tensor, own_nodes
from pliant.ir.windows import is_small
from pliant.lower.access import slid_axes
from pliant.lower.groups import Group
from pliant.lower.pack import Plan
from pliant.lower.pair_filters import BLOCK, reads_pairs
from pliant.lower.sizes_apart import Spot
from pliant.sym.expr import Int, as_int

SHORT: Final = 192  # elements of a row; longer ones have blocks of vectors enough before the mask
PASSED: Final = 1025  # and of one that a kernel passes through several times
DIGITS: Final = 3  # dimensions that an axis goes through
MANY: Final = 16  # rows of a product; of fewer it is worth knowing how many there are


def columns_of(group: Group) -> tuple[Int, ...]:
    """The extents along a row of the group."""
    return tuple(group.space[d] for d in group.order[group.rows :])


def extents_to_keep(group: Group) -> frozenset[int]:
    """The constants that stay such in the group's kernel wherever they appear."""
    if group.kind == "row":
        return _short(columns_of(group), [], PASSED)
    if group.kind == "map" and group.order:
        tensors = [m.tensor for m in group.members if isinstance(m.tensor, Compute)]
        ends = [end for t in tensors for end in _ends(t, t.axes[group.order[-1]].var)]
        row = (group.space[group.order[-1]],)
        short = _short(row, ends, SHORT) if ends else frozenset()
        return short.union(*map(_in_digits, tensors))
    if group.kind == "reduction":
        return _windows(group)
    return frozenset()


def small_sides(tensors: Mapping[str, Tensor], plans: Mapping[str, Plan]) -> Iterator[Spot]:
    """Where constants are sizes however small: the rows of the products that have `plans`, and
    what they go along."""
    for name, plan in plans.items():
        tensor = tensors[name]
        assert isinstance(tensor, Compute)
        rows = {a.var: a.extent for a in tensor.axes if a.var in plan.m}
        if plan.positions or prod(x.value for x in rows.values() if x.is_const) < MANY:
            continue
        yield from ((name, along) for along in rows)
        for load in loads_of(plan.a_side):
            for d, index in enumerate(load.indices):
                if (found := index_names(index)) and found <= rows.keys():
                    yield load.source.name, d


def sides_of_weights(tensors: Mapping[str, Tensor]) -> Iterator[Spot]:
    """The same in maps that run once, when a model is compiled: all axes but those of which each
    place has a formula of its own. How fast they run matters less than how many there are."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Compute):
            choices = [n.cond for n in own_nodes(tensor.body) if isinstance(n, Select)]
            chosen = {x for cond in choices for i in _indices(cond) for x in i.names}
            yield from ((name, a.var) for a in tensor.axes if a.var not in chosen)


def _windows(group: Group) -> frozenset[int]:
    """The sides of windows that slide along results; how many channels images have along which
    windows of weights do, and how many are a block of pairs; and how wide they are, where tiles of
    a large one had better leave no rest of it."""
    found = set()
    for tensor in (m.tensor for m in group.members):
        if isinstance(tensor, Compute):
            slid = slid_axes(tensor)
            sides = [a.extent for a in tensor.reduce_axes if a.var in slid]
            if reads_pairs(tensor):
                sides.append(as_int(BLOCK))
            if sides and len(list(loads_of(tensor.body))) > 1:
                sides.append(group.space[group.order[-1]])
                if _in_wide_tiles(tensor) and len(group.order) > 1:
                    sides.append(group.space[group.order[-2]])
            found |= {x.value for x in sides if x.is_const}
    return frozenset(found)


def _in_wide_tiles(tensor: Compute) -> bool:
    """Whether sums of pairs of bf16 are made of a large window (`schedule.recipes.windowed`)."""
    body = tensor.body
    summed = isinstance(body, Reduce) and factors_in_bf16(body.body) is not None
    return summed and not is_small(tensor)


def _short(extents: tuple[Int, ...], ends: list[Int], limit: int) -> frozenset[int]:
    total = prod(extents, start=as_int(1))
    if not total.is_const or total.value >= limit:
        return frozenset()
    return frozenset(abs(x.value) for x in (*extents, *ends) if x.is_const)


def _in_digits(tensor: Compute) -> frozenset[int]:
    """The extents of axes that go through several dimensions of what is read: known, that is seen
    to be one run through memory."""
    extents = {a.var: a.extent.value for a in tensor.axes if a.extent.is_const}
    found = set[int]()
    for load in loads_of(tensor.body):
        at = Counter(name for i in load.indices for name in index_names(i))
        found |= {extents[n] for n, many in at.items() if many >= DIGITS and n in extents}
    return frozenset(found)


def _ends(tensor: Compute, along: str) -> list[Int]:
    """Where parts begin that are joined along an axis, and how many elements they have: what its
    index is compared to, and moved by, and what that runs over. Nothing where none are joined."""
    choices = [n for n in own_nodes(tensor.body) if isinstance(n, Select)]
    compared = [list(_indices(c.cond)) for c in choices]
    ends = [x for at in compared if any(along in x.names for x in at) for x in at]
    if not ends:
        return []
    for load in own_nodes(tensor.body):
        if isinstance(load, Load):
            for index, extent in zip(load.indices, load.source.shape, strict=True):
                if isinstance(index, Index) and along in index.int_.names:
                    ends += [as_int(c) for c, factors in index.int_.terms() if not factors]
                    ends.append(extent)
    return ends


def _indices(x: Expr) -> Iterator[Int]:
    return (n.int_ for n in own_nodes(x) if isinstance(n, Index))
