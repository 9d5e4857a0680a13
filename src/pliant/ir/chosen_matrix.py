"""Products of a row with the matrix that it chooses.

    y[i, j] = sum_k  x[i, k] * w[g[i], k, j]

With all matrices instead, where other rows are absent, it is a product as any other
(`lower.chosen_matrices`). What is chosen has rows, which are summed over, and columns, of which the
other factor has none: rows of a table, of which a sum adds up some, are no matrices.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pliant.ir.einsum import names_in
from pliant.ir.expr import Expr, Index, Load, index_names
from pliant.ir.tensor import Compute, own_nodes
from pliant.sym.expr import Int, as_int

MOST: Final = 512  # matrices: each is asked for by every tile of rows
FEWEST: Final = 8  # columns of a matrix


class ChosenMatrix(NamedTuple):
    """Of `load`, index `dim` is the data `at`, which are less than `extent`."""

    load: Load
    dim: int
    at: Expr
    extent: Int


def chosen_matrix(tensor: Compute, value: Expr, matrix: Expr) -> ChosenMatrix | None:
    """The choice, if the tensor sums products of a `value` with elements of such a matrix."""
    found = _choice(matrix)
    if found is None or _choice(value) is not None:
        return None
    summed = {a.var for a in tensor.reduce_axes}
    others = {n for d, i in enumerate(found.load.indices) if d != found.dim for n in index_names(i)}
    if names_in(found.at) & summed or not others & summed:
        return None
    shared = names_in(value) | names_in(found.at)
    columns = as_int(1)
    for axis in tensor.axes:
        if axis.var in others - shared:
            columns = columns * axis.extent
    return None if columns.is_const and columns.value < FEWEST else found


def _choice(side: Expr) -> ChosenMatrix | None:
    """The load of which one index is data."""
    for load in own_nodes(side):
        if not isinstance(load, Load):
            continue
        by_data = [d for d, i in enumerate(load.indices) if not isinstance(i, Index)]
        if len(by_data) == 1 and len(load.indices) > 1:
            (d,) = by_data
            extent = load.source.shape[d]
            if extent.is_const and 1 < extent.value <= MOST:
                return ChosenMatrix(load, d, load.indices[d], extent)
    return None
