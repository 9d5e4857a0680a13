"""Reductions that keep their dimensions lose them again: a value per row is a value per row.

    m[i, 1] = sum_k x[i, k]                     m[i] = sum_k x[i, k]
    s[i, 1] = rsqrt(m[i, 0])           ->       s[i] = rsqrt(m[i])
    y[i, j] = x[i, j] * s[i, 0]                 y[i, j] = x[i, j] * s[i]

The maps over such values follow. A dimension that merely has one element, such as a batch of one,
is read through its axis, so it stays. What something other than a comprehension reads keeps its
dimensions, and so do products and sliding windows: theirs say which way an image lies. The one row
that a constant matrix is multiplied by keeps one, without which it were a vector
(`vector_products`). A result that is a reduction is a copy of one that may lose them.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import replace
from typing import Any

from pliant.ir.einsum import names_in, product_factors, product_sides
from pliant.ir.expr import Expr, Index, Load, index_names, substitute
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, own_nodes
from pliant.lower.access import classify, slides
from pliant.lower.constants import constant_values
from pliant.lower.stages import Stage, Stages


def drop_units(s: Stages, keep: Collection[str] = ()) -> None:
    """Rewrite in place; not those stages of which somebody has decided how they lie."""
    _set_results_apart(s, keep)
    fixed, constants = {*s.results, *keep}, constant_values(s)
    rows: dict[str, tuple[int, ...]] = {}
    for stage in s.stages.values():
        if not isinstance(stage.tensor, Compute):
            fixed.update(stage.inputs)
        else:
            rows |= _only_row(stage.tensor, constants)
        fixed.update(_read_by_data(stage))
    kept: dict[str, tuple[int, ...]] = {}  # dimensions that are left, of stages that lost some
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if not isinstance(tensor, Compute):
            continue
        free = name not in fixed and stage.notes == ()
        is_row = free and _is_row_value(tensor, s, kept)
        tensor = _reading(tensor, kept, s)
        used = names_in(tensor.body)
        left = tuple(d for d, a in enumerate(tensor.axes) if a.extent != 1 or a.var in used)
        if rows.get(name) and {*rows[name]}.isdisjoint(left):
            left = tuple(sorted((*left, rows[name][0])))
        drop = is_row and len(left) < len(tensor.axes)
        if drop:
            gone = {a.var: 0 for d, a in enumerate(tensor.axes) if d not in left}
            body = substitute(tensor.body, gone)
            tensor = tensor.replace(axes=tuple(tensor.axes[d] for d in left), body=body)
            kept[name] = left
            s.types[name] = Input(name, tensor.dtype, tensor.shape)
        if tensor is not stage.tensor:
            s.stages[name] = replace(stage, tensor=tensor)


def _set_results_apart(s: Stages, keep: Collection[str]) -> None:
    stages: dict[str, Stage] = {}
    moved: dict[Node, Any] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and moved:
            tensor = tensor.replace(body=transform(tensor.body, lambda n: n, dict(moved)))
            stage = replace(stage, tensor=tensor)
        free = name in s.results and name not in keep and stage.notes == ()
        if free and isinstance(tensor, Compute) and _is_row_of_units(tensor):
            row, stage = s.apart(stage, f"{name}.row")
            stages[row.name] = row
            moved[s.types[name]] = s.types[row.name]
        stages[name] = stage
    s.stages = stages


def _is_row_of_units(tensor: Compute) -> bool:
    """A reduction over rows of what it reads."""
    used, reduced = names_in(tensor.body), {a.var for a in tensor.reduce_axes}
    units = any(a.extent == 1 and a.var not in used for a in tensor.axes)
    loads = (n for n in own_nodes(tensor.body) if isinstance(n, Load) and n.indices)
    ends = (n.indices[-1] for n in loads)
    along = any(isinstance(i, Index) and not reduced.isdisjoint(i.int_.names) for i in ends)
    return units and along and classify(tensor) == "reduction"


def _only_row(tensor: Compute, constants: Set[str]) -> dict[str, tuple[int, ...]]:
    """The values that are the one row of a matrix that a constant one is multiplied by, with the
    dimensions that may be its rows."""
    factors, outer = product_factors(tensor), {a.var: a.extent for a in tensor.axes}
    for row, matrix in () if factors is None else (factors, factors[::-1]):
        here = names_in(row) & outer.keys()
        fixed = {n.source.name for n in own_nodes(matrix) if isinstance(n, Load)}
        if here and all(outer[v] == 1 for v in here) and fixed and fixed <= constants:
            loads = [n for n in own_nodes(row) if isinstance(n, Load)]
            return {
                n.source.name: tuple(d for d, i in enumerate(n.indices) if index_names(i) & here)
                for n in loads
            }
    return {}


def _read_by_data(stage: Stage) -> set[str]:
    """Stages that are read at places that depend on data: an index of a unit dimension may be out
    of range, which fails the call."""
    if not isinstance(stage.tensor, Compute):
        return set()
    loads = (n for n in own_nodes(stage.tensor.body) if isinstance(n, Load))
    return {x.source.name for x in loads if not all(isinstance(i, Index) for i in x.indices)}


def _is_row_value(tensor: Compute, s: Stages, kept: dict[str, Any]) -> bool:
    """A reduction, or a map of nothing but values that lost their unit dimensions and what has
    other shapes."""
    kind = classify(tensor)
    if kind == "reduction":
        return not slides(tensor) and not product_sides(tensor)
    if kind not in ("map", "copy"):
        return False
    names = {n.source.name for n in own_nodes(tensor.body) if isinstance(n, Load)}
    stored = {n for n in names if n in s.stages and n not in kept}
    return bool(names & kept.keys()) and all(s.types[n].dims != tensor.shape for n in stored)


def _reading(tensor: Compute, kept: dict[str, tuple[int, ...]], s: Stages) -> Compute:
    """The comprehension, reading what has lost dimensions without them."""

    def visit(node: Node) -> Node:
        if isinstance(node, Load) and node.source.name in kept:
            name = node.source.name
            indices: tuple[Expr, ...] = tuple(node.indices[d] for d in kept[name])
            return Load(s.types[name], indices)
        return node

    body = transform(tensor.body, visit)
    return tensor if body is tensor.body else tensor.replace(body=body)
