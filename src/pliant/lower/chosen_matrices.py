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
from typing import Final

from pliant.ir.einsum import names_in
from pliant.ir.expr import Axis, Binary, Expr, Index, Load, Reduce, Select, const, index_names
from pliant.ir.node import transform
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.contraction import is_contraction
from pliant.lower.stages import Stages
from pliant.sym.expr import Int, as_int, var

MOST: Final = 512  # matrices: each is asked for by every tile
FEWEST: Final = 8  # columns of a matrix


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
                chosen = _choice(matrix)
                if chosen is None or _choice(value) is not None:
                    continue
                if _has_columns(tensor, value, *chosen):
                    return _summed(tensor, body, value, matrix, *chosen)
    return None


def _choice(side: Expr) -> tuple[Load, int, Expr, Int] | None:
    """The load of a side of which an index is data: which one it is, the index, how many there
    are."""
    for load in own_nodes(side):
        if not isinstance(load, Load):
            continue
        by_data = [d for d, i in enumerate(load.indices) if not isinstance(i, Index)]
        if len(by_data) == 1 and len(load.indices) > 1:
            (d,) = by_data
            extent = load.source.shape[d]
            if extent.is_const and 1 < extent.value <= MOST:
                return load, d, load.indices[d], extent
    return None


def _has_columns(tensor: Compute, value: Expr, load: Load, d: int, at: Expr, extent: Int) -> bool:
    """Whether a matrix has columns, so that what a row chooses is more than a row."""
    others = {n for k, i in enumerate(load.indices) if k != d for n in index_names(i)}
    shared = names_in(value) | names_in(at)
    columns = as_int(1)
    for axis in tensor.axes:
        if axis.var in others - shared:
            columns = columns * axis.extent
    return not columns.is_const or columns.value >= FEWEST


def _summed(
    tensor: Compute, body: Reduce, value: Expr, matrix: Expr, load: Load, d: int, at: Expr,
    extent: Int,
) -> Compute:  # fmt: skip
    taken = {a.var for a in (*tensor.axes, *body.axes)}
    name = next(n for k in range(len(taken) + 1) if (n := f"_r{k}") not in taken)
    each = Index(var(name))
    indices = (*load.indices[:d], each, *load.indices[d + 1 :])
    one = load.replace(indices=indices)
    others = transform(matrix, lambda n: one if n is load else n)
    kept = Select(Binary("eq", at, each.cast(at.dtype)), value, const(0, value.dtype))
    product = Binary("mul", kept, others)
    axes = (Axis(name, extent), *body.axes)
    return tensor.replace(body=body.replace(body=product, axes=axes))
