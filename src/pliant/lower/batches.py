"""Products over two dimensions in one, as a batched product of matrices takes them, run over both.

    s[n, i, j] = sum_k x[n//h, n%h, i, k] * y[n//h, n%h, j, k]     n < b*h
    e[p, q, i, j] = exp(s[h*p + q, i, j])
 ->
    s.split[p, q, i, j] = sum_k x[p, q, i, k] * y[p, q, j, k]      p < b, q < h
    e[p, q, i, j] = exp(s.split[p, q, i, j])

So do the maps and reductions that follow, where they run over the one dimension, until all that
lies between two products (`attention`) has the same ones. A split value lies in memory as the whole
one would.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Final

from pliant.ir.einsum import names_in, product_sides
from pliant.ir.expr import Axis, Expr, Index, Load, substitute
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import bare_name, is_copy
from pliant.lower.constants import constant_values
from pliant.lower.inline_copies import simplify_indices, through
from pliant.lower.split_axes import Halves, Split, joined, split_space
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.digits import Digit, terms
from pliant.sym.divide import exact_quotient
from pliant.sym.expr import Int, as_int, const, var
from pliant.sym.facts import Facts

_FIRST: Final = Index(as_int(0))


def split_batches(s: Stages) -> None:
    """Rewrite in place."""
    wishes, constants = _wishes(s), constant_values(s)  # what is made of weights alone, too
    whole: dict[str, Compute] = {}  # what was split, in one
    follow = set[str]()  # what is made of split values, over the dimensions they have
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        stages[name] = stage
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or stage.notes:
            continue
        here = {i: whole[i] for i in stage.inputs if i in whole}
        if here:
            tensor = _along_units(simplify_indices(through(tensor, here), s.facts))
            stages[name] = stage = replace(stage, tensor=tensor)
        after = not follow.isdisjoint(stage.inputs)
        split = None
        if name not in s.results and not is_copy(tensor):
            split = _split(tensor, follow if after else None, wishes.get(name), constants, s.facts)
        if split is None:
            if after and not is_copy(tensor) and not product_sides(tensor):
                follow.add(name)
            continue
        apart, axis, inner = split
        made = s.added(f"{name}.split", apart, stage.op, stage.spans)
        halves = Halves(s.types[made.name], _splits(tensor, axis, inner))
        whole[name] = joined(s.types[name], halves)
        del stages[name]
        stages[made.name] = made
        stages[name] = Stage(name, whole[name], "join", stage.spans)
        follow.add(made.name)
    if whole:
        s.stages = stages
        remove_dead(s)


Wish = tuple[int, Int]
"""Which dimension is read as two, and the extent of the inner one."""


def _wishes(s: Stages) -> dict[str, Wish]:
    """Values of which all that reads them takes one dimension for two, or follows what does."""
    wishes: dict[str, Wish | None] = dict.fromkeys(s.results)
    for name, stage in reversed(s.stages.items()):
        tensor = stage.tensor
        if not isinstance(tensor, Compute):
            wishes |= dict.fromkeys(stage.inputs)
            continue
        own = None if product_sides(tensor) else wishes.get(name)
        for load in own_nodes(tensor.body):
            if isinstance(load, Load) and load.source.name in s.stages:
                found = _wish(tensor, load, own)
                if wishes.setdefault(load.source.name, found) != found:
                    wishes[load.source.name] = None
    return {name: wish for name, wish in wishes.items() if wish is not None}


def _wish(tensor: Compute, load: Load, own: Wish | None) -> Wish | None:
    """Where the load reads one dimension at two neighbouring axes, or at that which others will
    read so."""
    read = names_in(load)
    for d, index in enumerate(load.indices):
        extent = load.source.shape[d]
        if own is not None and bare_name(index) == tensor.axes[own[0]].var:
            return d, own[1]
        if index == _FIRST and extent == 1:  # one sample, of one head
            two = tensor.axes[d : d + 2]
            if len(two) == 2 and all(a.extent == 1 and a.var not in read for a in two):
                return d, as_int(1)
        for outer, inner in pairwise(tensor.axes):
            at = var(outer.var) * inner.extent + var(inner.var)
            if outer.extent == 1 and outer.var not in read:
                at = var(inner.var)
            elif inner.extent == 1 and inner.var not in read:
                at = var(outer.var)
            if index == Index(at) and extent == outer.extent * inner.extent:
                return d, inner.extent
    return None


def _split(
    tensor: Compute,
    follow: Container[str] | None,
    wish: Wish | None,
    constants: Container[str],
    facts: Facts,
) -> tuple[Compute, Axis, Int] | None:
    """With two axes for one that is read in two digits, here or, as a `wish`, by others; that axis,
    and the extent of the inner one. Of a product, or what reads values that `follow` one."""
    for d, axis in enumerate(tensor.axes):
        is_batch = _is_batch(tensor, axis, constants)
        if not is_batch and (follow is None or product_sides(tensor)):
            continue
        inner = wish[1] if is_batch and wish and wish[0] == d else _inner(tensor, axis, follow)
        outer = None if inner is None else exact_quotient(axis.extent, inner)
        if inner is not None and outer is not None:
            found = _apart(tensor, axis, outer, inner, facts)
            if found is not None:
                return found, axis, inner
    return None


def _is_batch(tensor: Compute, axis: Axis, constants: Container[str]) -> bool:
    """Whether there is a product of matrices, none of which is constant, for each value of an
    iterator. (One value may be said of one factor alone, or of none.)"""
    sides = product_sides(tensor)
    if axis.extent != 1:
        return bool(sides) and all(axis.var in side for side in sides)
    loads = (n for n in own_nodes(tensor.body) if isinstance(n, Load))
    return bool(sides) and not any(n.source.name in constants for n in loads)


def _inner(tensor: Compute, axis: Axis, follow: Container[str] | None) -> Int | None:
    """The extent of the inner one of two dimensions that an axis runs through in some load; of
    values that `follow` the outer one may have one element."""
    own = frozenset((axis.var,))
    whole = var(axis.var)
    for load in own_nodes(tensor.body):
        if not isinstance(load, Load):
            continue
        if follow is not None and load.source.name in follow:
            at = [bare_name(i) for i in load.indices]
            if axis.var in at:
                d = at.index(axis.var)
                if d > 0 and _is_unit(load, d - 1):
                    return axis.extent
                if d + 1 < len(at) and _is_unit(load, d + 1):
                    return as_int(1)
            here = tensor.axes.index(axis)
            if axis.extent == 1 and here + 1 < len(at) and _is_unit(load, here, here + 1):
                return axis.extent
        digits = list[Digit]()
        for index in load.indices:
            if isinstance(index, Index) and axis.var in index.int_.names:
                read = terms(index.int_, own)
                digits += [t.digit for t in read[0]] if read is not None else []
        for digit in digits:
            low = digit.low
            if digit == Digit(whole, low) and Digit(whole, const(1), low) in digits:
                return low
    return None


def _apart(tensor: Compute, axis: Axis, outer: Int, inner: Int, facts: Facts) -> Compute | None:
    """With the axis as two; None where something still reads them in parts."""
    at = tensor.axes.index(axis)
    axes, where = split_space(tensor.axes, _splits(tensor, axis, inner))
    axes = (*axes[:at], axes[at].replace(extent=outer), *axes[at + 1 :])
    apart = tensor.replace(axes=axes, body=substitute(tensor.body, where))
    found = _along_units(simplify_indices(apart, facts))
    names = {a.var for a in found.axes[at : at + 2]}
    loads = [n for n in own_nodes(found.body) if isinstance(n, Load)]
    plain = {i for load in loads for i in load.indices if _is_plain(load, i, names)}
    read = (n for n in own_nodes(found.body) if isinstance(n, Index))
    return found if all(i in plain or _is_linear(i, names) for i in read) else None


def _is_unit(load: Load, *dims: int) -> bool:
    """Whether dimensions have one element, whose place no axis says."""
    return all(load.indices[d] == _FIRST and load.source.shape[d] == 1 for d in dims)


def _along_units(tensor: Compute) -> Compute:
    """A dimension of one element, beside another, is read along the axis of one element beside that
    other's: they are the same two. So are the first ones of values with as many dimensions."""
    before = {b.var: a.var for a, b in pairwise(tensor.axes) if a.extent == 1}
    after = {a.var: b.var for a, b in pairwise(tensor.axes) if b.extent == 1}
    leading = [a.var for a in takewhile(lambda a: a.extent == 1, tensor.axes)]
    ranks = {len(tensor.axes), len(tensor.axes) + len(tensor.reduce_axes)}

    def visit(node: Node) -> Node:
        if not isinstance(node, Load):
            return node
        indices, names = list(node.indices), ["", *(bare_name(i) or "" for i in node.indices), ""]
        read = set(names_in(node))
        for d in range(len(indices)):
            unit = before.get(names[d + 2]) or after.get(names[d])
            if d < len(leading) and len(indices) in ranks:
                unit = leading[d]
            if unit and unit not in read and _is_unit(node, d):
                indices[d] = Index(var(unit))
                read.add(unit)
        return Load(node.source, tuple(indices))

    body = transform(tensor.body, visit)
    return tensor if body is tensor.body else tensor.replace(body=body)


def _is_linear(index: Index, names: set[str]) -> bool:
    return all(index.int_.linear(x) is not None for x in index.int_.names & names)


def _is_plain(load: Load, index: Expr, names: set[str]) -> bool:
    """Whether an index is one dimension of several in groups, each of which is there for a whole
    group: keys and values that several heads share."""
    if not isinstance(index, Index) or len(here := index.int_.names & names) != 1:
        return False
    others = (i for i in load.indices if i is not index and isinstance(i, Index))
    if any(i.int_.names & here for i in others):
        return False
    read = terms(index.int_, frozenset(here))
    return read is not None and len(read[0]) == 1 and read[0][0].digit.modulus is None


def _splits(tensor: Compute, axis: Axis, inner: Int) -> tuple[Split | None, ...]:
    """The axis in two, of which the inner one has so many elements."""
    return tuple(Split(inner, as_int(0), exact=True) if a is axis else None for a in tensor.axes)
