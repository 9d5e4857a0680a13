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

from dataclasses import replace

from pliant.ir.einsum import names_in
from pliant.ir.expr import Axis, Binary, Expr, Index, Load, Reduce, substitute
from pliant.ir.tensor import Compute, Input, compute, own_nodes
from pliant.lower.access import is_copy
from pliant.lower.inline_copies import simplify_indices, through
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.digits import Digit, terms
from pliant.sym.divide import exact_quotient
from pliant.sym.expr import Int, const, var
from pliant.sym.facts import Facts


def split_batches(s: Stages) -> None:
    """Rewrite in place."""
    joined: dict[str, Compute] = {}
    follow = set[str]()  # what is made of split values, over the dimensions they have
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        stages[name] = stage
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or stage.notes:
            continue
        here = {i: joined[i] for i in stage.inputs if i in joined}
        if here:
            tensor = simplify_indices(through(tensor, here), s.facts)
            stages[name] = stage = replace(stage, tensor=tensor)
        after = not follow.isdisjoint(stage.inputs)
        split = None if name in s.results else _split(tensor, after, s.facts)
        if split is None:
            if after and not is_copy(tensor) and not _sides(tensor):
                follow.add(name)
            continue
        apart, axis, inner = split
        made = s.added(f"{name}.split", apart, stage.op, stage.spans)
        joined[name] = _joined(s.types[name], s.types[made.name], tensor.axes.index(axis), inner)
        del stages[name]
        stages[made.name] = made
        stages[name] = Stage(name, joined[name], "join", stage.spans)
        follow.add(made.name)
    if joined:
        s.stages = stages
        remove_dead(s)


def _split(tensor: Compute, after: bool, facts: Facts) -> tuple[Compute, Axis, Int] | None:
    """With two axes for one that is read in two digits; that axis, and the extent of the inner one.
    Of a product, or `after` one."""
    if is_copy(tensor):
        return None
    for axis in tensor.axes:
        if after or _is_batch(tensor, axis.var):
            inner = _inner(tensor, axis)
            outer = None if inner is None else exact_quotient(axis.extent, inner)
            if inner is not None and outer is not None:
                found = _apart(tensor, axis, outer, inner, facts)
                if found is not None:
                    return found, axis, inner
    return None


def _is_batch(tensor: Compute, name: str) -> bool:
    """Whether there is a product of matrices for each value of an iterator."""
    sides = _sides(tensor)
    return bool(sides) and all(name in side for side in sides)


def _sides(tensor: Compute) -> tuple[frozenset[str], ...]:
    """The output axes that each factor of a product of matrices has; empty for what is none."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum":
        return ()
    term = body.body
    if not isinstance(term, Binary) or term.op != "mul":
        return ()
    outer = {a.var for a in tensor.axes}
    rows, columns = (names_in(side) & outer for side in (term.a, term.b))
    return (rows, columns) if rows - columns and columns - rows else ()


def _inner(tensor: Compute, axis: Axis) -> Int | None:
    """The extent of the inner one of two dimensions that an axis runs through in some load."""
    own = frozenset((axis.var,))
    whole = var(axis.var)
    for load in own_nodes(tensor.body):
        if not isinstance(load, Load):
            continue
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
    shape = [a.extent for a in tensor.axes]
    shape[at : at + 1] = [outer, inner]

    def element(*i: Int) -> Expr:
        places = [*i[:at], i[at] * inner + i[at + 1], *i[at + 2 :]]
        where = {a.var: p for a, p in zip(tensor.axes, places, strict=True)}
        body: Expr = substitute(tensor.body, where)
        return body

    found = simplify_indices(compute(shape, element, "split"), facts)
    names = {a.var for a in found.axes[at : at + 2]}
    loads = [n for n in own_nodes(found.body) if isinstance(n, Load)]
    plain = {i for load in loads for i in load.indices if _is_plain(load, i, names)}
    read = (n for n in own_nodes(found.body) if isinstance(n, Index))
    return found if all(i in plain or _is_linear(i, names) for i in read) else None


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


def _joined(whole: Input, split: Input, at: int, inner: Int) -> Compute:
    """The value with both dimensions in one."""

    def element(*i: Int) -> Expr:
        return split[(*i[:at], i[at] // inner, i[at] % inner, *i[at + 1 :])]

    return compute(whole.dims, element)
