"""A product with one of several matrices, which each row chooses, is one with all of them.

    y[i, j] = sum_k  x[i, k] * w[g[i], k, j]
 ->
    y[i, j] = sum_e,k  (x[i, k] if g[i] == e else 0) * w[e, k, j]

Rows of a tile that choose another matrix are absent, and a matrix that no row of a tile chooses is
passed over (`codegen.microkernel`): where rows are sorted by what they choose, as those of a
mixture of experts are, few tiles meet two. (What is not finite in a matrix spreads to other rows of
a tile.)
"""

from __future__ import annotations

from dataclasses import replace

from pliant.ir.chosen_matrix import ChosenMatrix, chosen_matrix
from pliant.ir.expr import Axis, Binary, Expr, Index, Reduce, Select, const
from pliant.ir.node import transform
from pliant.ir.tensor import Compute
from pliant.lower.contraction import is_contraction
from pliant.lower.stages import Stages
from pliant.sym.expr import var


def choose_matrices(s: Stages) -> None:
    """Rewrite the stages in place."""
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and tensor.reduce_axes:
            made = _with_all(tensor)
            if made is not None and is_contraction(made):
                s.stages[name] = replace(stage, tensor=made)


def _with_all(tensor: Compute) -> Compute | None:
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum" or not body.dtype.is_float:
        return None
    match body.body:
        case Binary("mul", a, b):
            for value, matrix in ((a, b), (b, a)):
                chosen = chosen_matrix(tensor, value, matrix)
                if chosen is not None:
                    return _summed(tensor, body, value, matrix, chosen)
    return None


def _summed(
    tensor: Compute, body: Reduce, value: Expr, matrix: Expr, chosen: ChosenMatrix
) -> Compute:
    load, dim, at, extent = chosen
    taken = {a.var for a in (*tensor.axes, *body.axes)}
    name = next(n for k in range(len(taken) + 1) if (n := f"_r{k}") not in taken)
    each = Index(var(name))
    one = load.replace(indices=(*load.indices[:dim], each, *load.indices[dim + 1 :]))
    others = transform(matrix, lambda n: one if n is load else n)
    kept = Select(Binary("eq", at, each.cast(at.dtype)), value, const(0, value.dtype))
    axes = (Axis(name, extent), *body.axes)
    return tensor.replace(body=body.replace(body=Binary("mul", kept, others), axes=axes))
