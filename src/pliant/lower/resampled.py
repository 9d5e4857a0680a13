"""Rows are resampled along themselves while they are few.

    a[i, j] = x[f(i), j] * (1 - u(i)) + x[f(i) + 1, j] * u(i)            more rows than x has
    y[i, j] = a[i, g(j)] * (1 - v(j)) + a[i, g(j) + 1] * v(j)
 ->
    a[i, j] = x[i, g(j)] * (1 - v(j)) + x[i, g(j) + 1] * v(j)            as many
    y[i, j] = a[f(i), j] * (1 - u(i)) + a[f(i) + 1, j] * u(i)

Neighbours in memory are gathered, one by one, for every vector; of neighbours among rows whole
vectors are added. Weighted means along two dimensions may come in either order. (Zen 5: images in
eight times their size take 0.5 as long, in twice 0.8.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pliant.ir.einsum import names_in
from pliant.ir.expr import Expr, Load, const
from pliant.ir.mapping import likely_value
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, own_nodes
from pliant.lower.access import bare_name
from pliant.lower.layout import Order
from pliant.lower.stages import Stage, Stages, readers_of
from pliant.sym.expr import Int

RESAMPLED: Final = "resize"


def rows_while_few(s: Stages, orders: dict[str, Order]) -> None:
    """Rewrite such pairs in place; what lies between is ordered as what is made of it."""
    readers = readers_of(s)
    for last in tuple(s.stages):
        name = last
        while (between := _swapped(s, orders, readers, name)) is not None:
            orders[between] = orders[name]
            name = between  # which resamples rows now, perhaps of something that grew before


def _swapped(
    s: Stages, orders: Mapping[str, Order], readers: Mapping[str, list[str]], name: str
) -> str | None:
    """What lies between, if the stage resampled rows along themselves, of which there are more than
    there were, and does so no longer."""
    along = _mean_along(s.stages[name])
    if along is None or orders[name][-1] != along[0]:
        return None
    dim, between = along
    before = s.stages.get(between)
    if before is None or between in s.results or readers[between] != [name]:
        return None
    other = _mean_along(before)
    if other is None or other[0] == dim or not _more_rows(s, before, *other):
        return None
    _swap(s, name, between, dim, *other)
    return between


def _mean_along(stage: Stage) -> tuple[int, str] | None:
    """The one dimension along which a stage resamples, and what: elements that differ from its own
    in that dimension alone, with weights that depend on nothing else."""
    tensor = stage.tensor
    if stage.op != RESAMPLED or not isinstance(tensor, Compute) or tensor.reduce_axes:
        return None
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    sources = {n.source for n in loads}
    axes = [a.var for a in tensor.axes]
    if len(sources) != 1 or any(len(n.indices) != len(axes) for n in loads):
        return None
    moved = {d for n in loads for d, i in enumerate(n.indices) if bare_name(i) != axes[d]}
    (source,) = sources
    if len(moved) != 1 or source.dtype is not tensor.dtype:
        return None
    (dim,) = moved
    places = frozenset[str]().union(*(names_in(n.indices[dim]) for n in loads))
    read = places | names_in(transform(tensor.body, _nothing))
    return None if read & {*axes} - {axes[dim]} else (dim, source.name)


def _nothing(node: Node) -> Node:
    return const(0, node.dtype) if isinstance(node, Load) else node


def _more_rows(s: Stages, stage: Stage, dim: int, source: str) -> bool:
    def count(extent: Int) -> int:
        return likely_value(extent, s.facts)

    return count(stage.tensor.shape[dim]) > count(s.types[source].dims[dim])


def _swap(s: Stages, name: str, between: str, dim: int, other: int, source: str) -> None:
    """`between`, which resamples `source` along `other`, and `name`, which resamples that along
    `dim`, each do what the other did."""
    first, second = s.stages[between], s.stages[name]
    rows, columns = first.tensor, second.tensor
    assert isinstance(rows, Compute) and isinstance(columns, Compute)
    shape = list(columns.shape)
    shape[other] = s.types[source].dims[other]
    few = _resized(columns, shape, s.types[source])
    s.types[between] = Input(between, few.dtype, few.shape)
    many = _resized(rows, columns.shape, s.types[between])
    s.stages[between] = replace(first, tensor=few, spans=second.spans)
    s.stages[name] = replace(second, tensor=many, spans=first.spans)


def _resized(tensor: Compute, shape: Sequence[Int], source: Input) -> Compute:
    """The same means of another source, of this shape (not its own, where two words for a size are
    equal by what is known of it)."""

    def visit(node: Node) -> Node:
        return Load(source, node.indices) if isinstance(node, Load) else node

    axes = [a.replace(extent=n) for a, n in zip(tensor.axes, shape, strict=True)]
    body = transform(tensor.body, visit)
    assert isinstance(body, Expr)
    return tensor.replace(axes=tuple(axes), body=body)
