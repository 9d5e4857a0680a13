"""Views cost nothing: a stage that only copies is read through by its readers.

    t[i, j] = x[j, i]                      ->     u[i, j] = exp(x[j, i])
    u[i, j] = exp(t[i, j])

A map of a view that only a copy reads, back to the shape that was viewed, is a map of that shape.
The same for stages that load nothing (constants, iotas), and for padding that a window slides over,
which tests for itself what is outside. A copy that is a result, or that something other than a
comprehension reads, is also kept; so is what a product reads that is planned already (where
compiling goes on from a later stage's file): its panels may be a copy. Channels that lie apart in
what a copy reads, as those that become pixels do, are better copied once than in every window.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from pliant.base.dtypes import i64
from pliant.ir.choices import one_choice
from pliant.ir.expr import (
    Binary,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    Unary,
    index_names,
    substitute,
)
from pliant.ir.node import Node, transform
from pliant.ir.simplify import simplify
from pliant.ir.tensor import Compute, own_nodes, sources
from pliant.lower.access import bare_name, classify, cost_of, is_copy, reads_many, takes_long
from pliant.lower.conditions import always
from pliant.lower.stages import Stages, readers_of, remove_dead
from pliant.sym.expr import as_int, var
from pliant.sym.facts import Facts

MAX_FREE_COST = 12  # arithmetic of a load-free stage that is cheaper to repeat than to store


def inline_copies(s: Stages) -> None:
    """Rewrite readers in place and drop copies that nobody reads any more."""
    bodies: dict[str, Compute] = {}
    padded: dict[str, Compute] = {}
    readers = readers_of(s)
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and stage.note("plan") is None:
            read = [x.name for x in sources(tensor) if x.name in bodies]
            views = {n: bodies[n] for n in read if not _takes_apart(tensor, n, bodies[n])}
            tensor = simplify_indices(through(tensor, views), s.facts)
            read = [x.name for x in sources(tensor) if x.name in padded]
            windows = {n: padded[n] for n in read if _slides_over(tensor, n, padded[n])}
            if windows:
                inside = through(tensor, windows)
                body = transform(inside.body, _in_one)
                tensor = simplify_indices(inside.replace(body=body), s.facts)
            if tensor is not stage.tensor:
                stage = s.stages[name] = replace(stage, tensor=tensor)
            back = _there_and_back(tensor, s, readers)
            if back is not None:
                tensor = back
                s.stages[name] = replace(stage, tensor=back)
            if is_copy(tensor) or _is_free(tensor):
                bodies[name] = tensor
            elif _is_padding(tensor):
                padded[name] = tensor
    remove_dead(s)


def _there_and_back(tensor: Compute, s: Stages, readers: Mapping[str, list[str]]) -> Compute | None:
    """A copy that gives what only it reads, a map of a view, the shape again that the view is of,
    as that map; None for what is none."""
    if not is_copy(tensor) or not isinstance(tensor.body, Load):
        return None
    made = s.stages.get(tensor.body.source.name)
    if made is None or made.name in s.results or len(readers[made.name]) > 1 or made.notes:
        return None
    if not isinstance(made.tensor, Compute) or classify(made.tensor) != "map":
        return None
    viewed = {
        n.source.name
        for n in own_nodes(made.tensor.body)
        if isinstance(n, Load) and n.source.shape == tensor.shape != made.tensor.shape
    }
    inner = readthrough(made.tensor, tensor.body.indices) if viewed else None
    if inner is None:
        return None
    found = simplify_indices(tensor.replace(body=inner), s.facts)
    here = tuple(Index(var(a.var)) for a in found.axes)
    back = False

    def visit(node: Node) -> Node:
        nonlocal back
        if isinstance(node, Load) and node.source.name in viewed and _is_here(node, found):
            back = True
            return Load(node.source, here)
        return node

    body = transform(found.body, visit)
    return found.replace(body=body) if back else None


def _is_here(load: Load, tensor: Compute) -> bool:
    """Whether a load of what has the tensor's shape is of the same place; of one element that is
    the first."""
    return all(
        isinstance(i, Index) and (i.int_ is var(a.var) or (a.extent == 1 and i.int_ == 0))
        for i, a in zip(load.indices, tensor.axes, strict=True)
    )


def _is_padding(tensor: Compute) -> bool:
    """A copy where its indices allow it, a number elsewhere."""
    match tensor.body:
        case Select(cond, Load(indices=at), Const()):
            return all(isinstance(i, Index) for i in at) and not any(
                isinstance(n, Load) for n in own_nodes(cond)
            )
    return False


def _slides_over(tensor: Compute, name: str, padding: Compute) -> bool:
    """Whether the stage reads the padding by windows alone, and has a use for the number in it:
    terms of a sum that are missing are 0."""
    reduction = tensor.body
    assert isinstance(padding.body, Select) and isinstance(padding.body.b, Const)
    if not isinstance(reduction, Reduce):
        return False
    if reduction.combiner == "sum" and padding.body.b.bits != 0:
        return False
    own, reduced = ({a.var for a in axes} for axes in (tensor.axes, tensor.reduce_axes))
    loads = [n for n in own_nodes(reduction.body) if isinstance(n, Load) and n.source.name == name]
    return all(any(_mixes(i, own, reduced) for i in n.indices) for n in loads) and not _takes_apart(
        tensor, name, padding
    )


def _takes_apart(tensor: Compute, name: str, copy: Compute) -> bool:
    """Whether windows of the stage slide over the copy, or each of its elements is made of many,
    and what they read of it along an iterator that weights have too, such as channels, or that
    alone says where, does not lie along one dimension in what was copied."""
    own, reduced = (
        {a.var for a in axes if a.extent is not as_int(1)}
        for axes in (tensor.axes, tensor.reduce_axes)
    )
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    read = [n for n in loads if n.source.name == name]
    if isinstance(tensor.body, Reduce):
        others = [i for n in loads if n.source.name != name for i in n.indices]
        shared = {v for i in others for v in index_names(i)}
        read = [n for n in read if any(_mixes(i, own, reduced) for i in n.indices)]
    elif reads_many(tensor):
        shared = {v for n in read for i in n.indices if (v := bare_name(i)) is not None}
    else:
        return False
    several = own | reduced
    for load in read:
        inner = readthrough(copy, load.indices)
        for n in own_nodes(inner) if inner is not None else ():
            if isinstance(n, Load) and _along(load, shared) & several - _along(n, shared):
                return True
    return False


def _along(load: Load, shared: Set[str]) -> set[str]:
    """Those of some iterators that step through a dimension of what is loaded, alone or in a group
    that others of them choose."""
    found = set[str]()
    for index in (i.int_ for i in load.indices if isinstance(i, Index)):
        for v in index.names & shared:
            line = index.linear(v)
            if line is not None and line[0] == 1 and line[1].names <= shared:
                found.add(v)
    return found


def _mixes(index: Expr, own: Set[str], reduced: Set[str]) -> bool:
    """Whether an index is of a window that slides."""
    return isinstance(index, Index) and bool(index.int_.names & own and index.int_.names & reduced)


def _in_one(node: Node) -> Node:
    return one_choice(node) if isinstance(node, Select) else node


def _is_free(tensor: Compute) -> bool:
    """Whether it costs nothing to compute again, of places alone: a function that takes long does,
    but of one element, which a loop computes in front of it."""
    if any(isinstance(n, Load) for n in own_nodes(tensor.body)) or tensor.reduce_axes:
        return False
    single = all(a.extent == 1 for a in tensor.axes)
    return cost_of(tensor.body) <= MAX_FREE_COST and (single or not takes_long(tensor.body))


def through(tensor: Compute, bodies: dict[str, Compute]) -> Compute:
    """`tensor` with loads from the given stages replaced by what these read."""

    def visit(node: Node) -> Node:
        if isinstance(node, Load) and node.source.name in bodies:
            inner = readthrough(bodies[node.source.name], node.indices)
            return node if inner is None else inner
        return node

    body = transform(tensor.body, visit)
    return tensor if body is tensor.body else tensor.replace(body=body)


def readthrough(producer: Compute, indices: tuple[Expr, ...]) -> Expr | None:
    """The value of `producer` at `indices`; None where an index cannot be expressed."""
    ints = {}
    values = {}
    for axis, index in zip(producer.axes, indices, strict=True):
        if isinstance(index, Index):
            ints[axis.var] = index.int_
        else:
            values[axis.var] = index
    if not values:
        return substitute(producer.body, ints)  # type: ignore[no-any-return]

    failed = False

    def visit(node: Node) -> Node:
        nonlocal failed
        if isinstance(node, Index):
            names = node.int_.names & values.keys()
            if not names:
                return Index(node.int_.subs(ints))
            (name, *more) = sorted(names)
            if more or node.int_ is not var(name):
                failed = True
                return node
            return values[name]
        return node

    body: Any = transform(producer.body, visit)
    return None if failed else body


def simplify_indices(tensor: Compute, facts: Facts) -> Compute:
    """Simplify every index under the ranges of the axes; drop selections that always hold, and
    reductions over a single element. An index that is an axis stays one, even where it can only be
    0: it says which dimension goes along with which."""
    tensor = _without_unit_reductions(tensor)
    local = facts.copy()
    axes = (*tensor.axes, *tensor.reduce_axes)
    for axis in axes:
        local.declare_index(axis.var, axis.extent)
    bare = {var(axis.var) for axis in axes}

    def visit(node: Node) -> Node:
        if isinstance(node, Index):
            return node if node.int_ in bare else Index(local.simplify(node.int_))
        if isinstance(node, Binary) and node.dtype is i64:
            return simplify(node)  # of what were values, which may be indices now
        if isinstance(node, Binary) and node.op in ("lt", "le"):
            return _without_distance(node)
        if isinstance(node, Select):
            verdict = always(node.cond, local)
            if verdict is not None:
                return node.a if verdict else node.b
            return _side_by_side(node, local)
        return node

    body = transform(tensor.body, visit)
    return tensor if body is tensor.body else tensor.replace(body=body)


def _side_by_side(choice: Select, facts: Facts) -> Expr:
    """Of two elements of one value, the first where an index is 0 and the second where it is 1, the
    one at that index: parts of complex numbers that were taken apart and are put together again."""
    match choice:
        case Select(Binary("lt", Index(at), Index(end)), Load() as a, Load() as b):
            pass
        case Select(Binary("eq", Index(at), Index(end)), Load() as a, Load() as b):
            end = end + 1
        case _:
            return choice
    if a.source is not b.source or not (facts.le(end - 1, at) and facts.le(at, end)):
        return choice
    apart = [d for d, (p, q) in enumerate(zip(a.indices, b.indices, strict=True)) if p is not q]
    match [(a.indices[d], b.indices[d]) for d in apart]:
        case [(Index(p), Index(q))] if (q - p).is_const:
            (d,) = apart
            index = Index(facts.simplify(p + (at - end + 1) * (q - p)))
            return Load(a.source, (*a.indices[:d], index, *a.indices[d + 1 :]))
    return choice


def _without_distance(node: Binary) -> Expr:
    """A distance of places compared with a number, as comparisons of places."""
    op, a, b = node.op, node.a, node.b
    match a, b:
        case Unary("abs", Index() as x), Index(most):
            return Binary("and", Binary(op, x, b), Binary(op, Index(-most), x))
        case Index(least), Unary("abs", Index() as x):
            return Binary("or", Binary(op, a, x), Binary(op, x, Index(-least)))
    return node


def _without_unit_reductions(tensor: Compute) -> Compute:
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner in ("argmax", "argmin"):
        return tensor
    one = [a for a in body.axes if a.extent.is_const and a.extent.value == 1]
    if not one:
        return tensor
    inner = substitute(body.body, {a.var: 0 for a in one})
    rest = tuple(a for a in body.axes if a not in one)
    return tensor.replace(body=Reduce(body.combiner, rest, inner) if rest else inner)
