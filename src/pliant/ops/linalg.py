"""Linear algebra of matrices in the last two dims: equations, determinants, Cholesky factors."""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import f32, f64
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.tensor import Opaque, OpaqueOutput, Tensor
from pliant.ops import eliminate
from pliant.ops.common import Requirement, equal, same_type


def _square(a: Tensor) -> tuple[Requirement, ...]:
    """Raise, or require, unless these are square matrices of f32 or f64."""
    if a.dtype not in (f32, f64):
        raise InvalidModelError(f"linear algebra of {a.dtype}: cast first")
    if a.rank < 2:
        raise InvalidModelError(f"no matrices: rank {a.rank}")
    rows, columns = a.shape[-2:]
    return equal(rows, columns, f"matrices must be square, not {rows} by {columns}")


def solve(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """x with a x = b, of a [..., n, n] and b [..., n, m], and the pivots [..., n] of a, whose
    product is its determinant. Not finite where a is singular."""
    same_type(a, b)
    requires = _square(a)
    if a.rank != b.rank:
        raise InvalidModelError(f"matrices of ranks {a.rank} and {b.rank}")
    for d, (n, m) in enumerate(zip(a.shape[:-1], b.shape[:-1], strict=True)):
        requires += equal(n, m, f"dim {d} of the right hand side must be {n}, not {m}")
    program = eliminate.eliminate(a.rank - 2, a.dtype)
    results = ((a.dtype, b.shape), (a.dtype, a.shape[:-1]))
    both = Opaque("solve", (a, b), results, program, requires)
    return OpaqueOutput(both, 0), OpaqueOutput(both, 1)


def cholesky(a: Tensor) -> Tensor:
    """The lower triangle l with l l' = a, of which the lower triangle is read."""
    program = eliminate.cholesky(a.rank - 2, a.dtype)
    return OpaqueOutput(Opaque("cholesky", (a,), ((a.dtype, a.shape),), program, _square(a)), 0)


LINALG: Final[tuple[Operator, ...]] = (
    Operator("solve", solve),
    Operator("cholesky", cholesky),
)
