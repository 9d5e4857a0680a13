"""A product with one vector is a reduction like others: there is nothing to fill a tile with.

    y[i, j] = sum_k x[i, k] * w[j, k]      j < 1      ->      y[i, j] = sum_k x[i, k] * w[0, k]

A panel would hold one column of numbers and zeros beside it. Where the matrix is what would be
packed, it is read where it lies. A vector times a constant matrix stays a product: that is packed
when the model is compiled.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.ir.expr import substitute
from pliant.ir.tensor import Compute
from pliant.lower.access import classify
from pliant.lower.constants import constant_values
from pliant.lower.contraction import contraction
from pliant.lower.stages import Stages


def vector_products(s: Stages) -> None:
    """Rewrite in place; what was packed already stays."""
    constants = constant_values(s)
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and stage.notes == () and classify(tensor) == "contraction":
            once = _of_vector(tensor, constants)
            if once:
                body = substitute(tensor.body, dict.fromkeys(once, 0))
                s.stages[name] = replace(stage, tensor=tensor.replace(body=body))


def _of_vector(tensor: Compute, constants: frozenset[str]) -> tuple[str, ...]:
    """The axes of the vector, all of one element; none if both operands are matrices."""
    c = contraction(tensor, constants)
    assert c is not None
    extents = {a.var: a.extent for a in tensor.axes}
    if all(extents[v] == 1 for v in c.n):
        return c.n
    repacked = c.b.source.name not in constants
    return c.m if repacked and all(extents[v] == 1 for v in c.m) else ()
