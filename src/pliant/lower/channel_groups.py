"""Groups of channels: a product whose operand depends on the quotient of an output axis.

    y[o] = sum_c  x[o // e * M + c] * w[o, c]                               0 <= c < M
 ->
    t[g, i] = sum_c  x[g*M + c] * w[g*e + i, c]                             a group a batch

Groups narrower than a panel share one, u at a time (`lower.panel_width.sharing`), over all their
channels together, with zeros where a channel is of another group:

    t[g, i] = sum_c  x[g*u*M + c] * (w[g*u*e + i, c - i//e*M] if 0 <= c - i//e*M < M else 0)

which is as much work as panels that are mostly empty, but reads and writes whole vectors. (So a
number that is not finite spoils the outputs of all groups that share its panel.)
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import prod

from pliant.base.dtypes import f32, i8, i32, u8
from pliant.ir.einsum import names_in
from pliant.ir.expr import Axis, Binary, Expr, Index, Load, Reduce
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.contraction import F32, Factors
from pliant.lower.panel_width import sharing
from pliant.sym.atoms import DivAtom
from pliant.sym.expr import Int, var


@dataclass(frozen=True)
class ChannelGroups:
    """Output axis `outer` is `each` outputs of each group, which sum over the `members` of
    reduction axis `inner`; `together` groups share a panel of so many columns."""

    outer: str
    inner: str
    each: int
    members: Int
    together: int
    columns: int

    @property
    def summed(self) -> Int:
        """The channel."""
        return _summed(self.outer, self.inner, self.each, self.members)


def _summed(outer: str, inner: str, each: int, members: Int) -> Int:
    return var(outer) // each * members + var(inner)


def channel_groups(tensor: Compute, columns: int, kinds: Sequence[Factors]) -> ChannelGroups | None:
    """The groups of a product, for panels that are usually of `columns`, of factors of these
    `kinds`; None where there are none."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum" or narrow_groups(tensor):
        return None
    if not (isinstance(body.body, Binary) and body.body.op == "mul"):
        return None
    loaded = {n.dtype for n in own_nodes(body.body) if isinstance(n, Load)}
    if not (body.dtype is f32 or (body.dtype is i32 and loaded <= {u8, i8})):
        return None  # no target has a tile product for them
    kind = next((x for x in kinds if {x.a, x.b} == loaded and x.sums is body.dtype), F32)
    sides = (body.body.a, body.body.b)
    both = names_in(sides[0]) & names_in(sides[1])
    for side, other in (sides, sides[::-1]):
        for index in _indices(side):
            found = _groups(index, tensor, both, columns, kind)
            if found is not None and _has_outputs(other, found):
                return found
    return None


def _indices(side: Expr) -> list[Int]:
    loads = (n for n in own_nodes(side) if isinstance(n, Load))
    return [i.int_ for n in loads for i in n.indices if isinstance(i, Index)]


def _has_outputs(side: Expr, groups: ChannelGroups) -> bool:
    """Whether a factor depends on which output of all groups it is for, not on the channel alone,
    as the other one does: else groups, of two images, are no more than a batch."""
    summed = groups.summed
    return any(groups.outer in (i - summed).names & i.names for i in _indices(side))


def _groups(
    index: Int, tensor: Compute, both: Set[str], columns: int, kind: Factors
) -> ChannelGroups | None:
    """Where `index` is o // e * M + c, for an o that both factors depend on (a window that moves by
    its own size looks the same, but for that)."""
    for outer in tensor.axes:
        each = _divisor(index, outer)
        if outer.var not in both or not outer.extent.is_const or outer.extent.value % each:
            continue
        groups = outer.extent.value // each
        for inner in tensor.reduce_axes:
            depthwise = each == 1 and inner.extent == 1
            if index is _summed(outer.var, inner.var, each, inner.extent) and not depthwise:
                shared = _sharing(tensor, inner, each, groups, columns, kind)
                return ChannelGroups(outer.var, inner.var, each, inner.extent, *shared)
    return None


def _sharing(
    tensor: Compute, inner: Axis, each: int, groups: int, columns: int, kind: Factors
) -> tuple[int, int]:
    """How many groups share a panel, and its width; of sums of unknown length as many as fit."""
    window = [a.extent for a in tensor.reduce_axes if a is not inner]
    if not (inner.extent.is_const and all(x.is_const for x in window)):
        return sharing(F32, columns, each, 1, groups, 1)
    positions = prod(x.value for x in window)
    return sharing(kind, columns, each, inner.extent.value, groups, positions)


def _divisor(index: Int, outer: Axis) -> int:
    """e, where `index` has the quotient of an axis by e; 1 where it has none."""
    for _, factors in index.terms():
        for atom, _ in factors:
            if isinstance(atom, DivAtom) and atom.num is var(outer.var) and atom.den.is_const:
                return atom.den.value
    return 1
