"""A product with one vector is a reduction like others: there is nothing to fill a tile with.

    y[i, j] = sum_k x[i, k] * w[j, k]      j < 1      ->      y[i, j] = sum_k x[i, k] * w[0, k]

A panel would hold one column of numbers and zeros beside it. Where the matrix is what would be
packed, it is read where it lies. A vector times a constant matrix is a product: that is packed
when the model is compiled. So a vector of which an index was a number, such as a view of an image
of one element, gets its row again:

    y[i, j] = sum_k x[0, k, 0, 0] * w[j, k]      i < 1      ->      … x[i, k, 0, 0] * w[j, k]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pliant.ir.einsum import names_in
from pliant.ir.expr import Index, Load, substitute
from pliant.ir.node import transform
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import classify
from pliant.lower.constants import constant_values
from pliant.lower.contraction import contraction
from pliant.lower.stages import Stages
from pliant.sym.expr import var


def vector_products(s: Stages) -> None:
    """Rewrite in place; what was packed already stays."""
    constants = constant_values(s)
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if not isinstance(tensor, Compute) or stage.notes != ():
            continue
        kind = classify(tensor)
        if kind == "contraction":
            once = _of_vector(tensor, constants)
            made = tensor.replace(body=substitute(tensor.body, dict.fromkeys(once, 0)))
        elif kind == "reduction":
            made = next(_with_row(tensor, constants), tensor)
        else:
            continue
        if made is not tensor:
            s.stages[name] = replace(stage, tensor=made)


def _of_vector(tensor: Compute, constants: frozenset[str]) -> tuple[str, ...]:
    """The axes of the vector, all of one element; none if both operands are matrices."""
    c = contraction(tensor, constants)
    assert c is not None
    extents = {a.var: a.extent for a in tensor.axes}
    if all(extents[v] == 1 for v in c.n):
        return c.n
    repacked = c.b.source.name not in constants
    return c.m if repacked and all(extents[v] == 1 for v in c.m) else ()


def _with_row(tensor: Compute, constants: frozenset[str]) -> Iterator[Compute]:
    """The product of a constant matrix with the row of a matrix of one row, for each axis that the
    row may be."""
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    values = [n for n in loads if n.source.name not in constants]
    if len(loads) != 2 or len(values) != 1:
        return
    (value,), used = values, names_in(tensor.body)
    for unit in (a.var for a in tensor.axes if a.extent == 1 and a.var not in used):
        at = next((d for d, i in enumerate(value.indices) if isinstance(i, Index)), None)
        if at is None:
            return
        first = value.indices[at]
        assert isinstance(first, Index)
        row = Index(first.int_ + var(unit))
        read = Load(value.source, (*value.indices[:at], row, *value.indices[at + 1 :]))
        made = tensor.replace(body=transform(tensor.body, lambda n: n, {value: read}))
        c = contraction(made, constants)
        if c is not None and unit in c.m and c.b.source.name in constants:
            extents = {a.var: a.extent for a in made.axes}
            if any(extents[v] != 1 for v in c.n):
                yield made
