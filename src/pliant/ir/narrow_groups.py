"""Convolutions in narrow groups of channels.

    y[i, j, o] = sum_c,r,s x[i + r, j + s, o//4*4 + c] * w[o, c, r, s]            c < 4

As a batch of matrix products a panel is mostly empty, or mostly zeros where groups share one. But
what a vector of outputs reads are channels that lie in one vector of inputs: each is loaded once,
shuffled once for every c, and multiplied lane by lane, as in a depthwise convolution.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pliant.base.dtypes import f32
from pliant.ir.expr import Binary, Expr, Index, Load, Reduce, index_names
from pliant.ir.tensor import Compute
from pliant.ir.windows import loaded
from pliant.sym.expr import Int, var

WIDTHS: Final = (2, 4, 8)
"""Of groups, in inputs and in outputs: they fill vectors, and less than one each."""


class NarrowGroups(NamedTuple):
    """Output axis `outer` in groups, each of which sums over all of reduction axis `inner`."""

    outer: str
    inner: str


def narrow_groups(tensor: Compute) -> NarrowGroups | None:
    """The groups, if the tensor is such a convolution; None if not."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum" or body.dtype is not f32:
        return None
    match body.body:
        case Binary("mul", a, b):
            return _groups(tensor, a, b) or _groups(tensor, b, a)
    return None


def _groups(tensor: Compute, image: Expr, weight: Expr) -> NarrowGroups | None:
    read = loaded(image)
    if read is None or not isinstance(weight, Load):
        return None
    summed = {a.var: a.extent for a in tensor.reduce_axes}
    if len(summed) < 2 or not all(x.is_const for x in summed.values()):
        return None
    there = [index_names(i) for i in read.indices]
    outer = {a.var for a in tensor.axes}
    if not any(names & outer and names & summed.keys() and len(names) == 2 for names in there):
        return None  # quickly, of most
    for axis in tensor.axes:
        for inner, members in summed.items():
            if members.value not in WIDTHS or not axis.extent.is_const:
                continue
            if not _has_outputs(weight, axis.var, inner):
                continue
            wanted = {_channel(axis.var, each, members, inner) for each in WIDTHS}
            found = [i for i in read.indices if isinstance(i, Index) and i.int_ in wanted]
            if len(found) == 1 and _slides(tensor, there, axis.var, inner):
                return NarrowGroups(axis.var, inner)
    return None


def _channel(outer: str, each: int, members: Int, inner: str) -> Int:
    return var(outer) // each * members + var(inner)


def _has_outputs(weight: Load, outer: str, inner: str) -> bool:
    """Whether there is a filter for each output, and none reads along groups as the image does."""
    names = [index_names(i) for i in weight.indices]
    return frozenset((outer,)) in names and not any({outer, inner} <= x for x in names)


def _slides(tensor: Compute, there: list[frozenset[str]], outer: str, inner: str) -> bool:
    """Whether a window slides along the image: what is read for one place is read for others."""
    places = {a.var for a in tensor.axes} - {outer}
    window = {a.var for a in tensor.reduce_axes if a.extent != 1} - {inner}
    return any(names & places and names & window for names in there)
