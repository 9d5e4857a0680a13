"""Matrix products and einsum: sums of products over shared dimensions."""

from __future__ import annotations

from typing import Final

from pliant.base.dtypes import DType, i32
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Compute, Tensor, compute, reduce
from pliant.ops.common import (
    Requirement,
    Shape,
    accumulator,
    aligned,
    broadcast,
    broadcast_to,
    cast_tensor,
    check_rank,
    equal,
    same_type,
)
from pliant.ops.einsum import einsum
from pliant.ops.gather import checked, needs_indices
from pliant.sym.expr import Int, as_int


def contraction(a: Tensor, b: Tensor) -> Compute:
    """a @ b by NumPy's rules, in the accumulation type."""
    if a.dtype.kind == "bool":
        raise InvalidModelError("matmul of bool: cast first")
    if a.rank == 0 or b.rank == 0:
        raise InvalidModelError("matmul of a scalar")
    wide = accumulator(same_type(a, b))
    rows: Shape = a.shape[-2:-1]
    cols: Shape = b.shape[-1:] if b.rank > 1 else ()
    inner, other = a.shape[-1], b.shape[-2] if b.rank > 1 else b.shape[0]
    message = f"the inner dims of a matmul must be equal: {inner} and {other}"
    requires: tuple[Requirement, ...] = equal(inner, other, message)
    batch, meet = broadcast((a.shape[:-2], b.shape[:-2]))
    n = len(batch)

    def body(*i: Int) -> Expr:
        row, col = i[n : n + len(rows)], i[n + len(rows) :]

        def term(k: Int) -> Expr:
            left = a[(*aligned(i[:n], a.shape[:-2], batch), *row, k)]
            right = b[(*aligned(i[:n], b.shape[:-2], batch), k, *col)]
            return left.cast(wide) * right.cast(wide)

        return reduce("sum", [other if other.is_const else inner], term)

    return compute((*batch, *rows, *cols), body, "matmul", requires + meet)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b by NumPy's rules."""
    return cast_tensor(contraction(a, b), a.dtype)


def with_bias(product: Tensor, bias: Tensor | None, dtype: DType) -> Tensor:
    """A product in its accumulation type plus a bias that broadcasts to it, rounded once."""
    if bias is None:
        return cast_tensor(product, dtype)
    shape, wide = product.shape, product.dtype

    def body(*i: Int) -> Expr:
        return (product[i] + bias[aligned(i, bias.shape, shape)].cast(wide)).cast(dtype)

    return compute(shape, body, "bias", broadcast_to(bias.shape, shape))


def linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in] times w [out, in] transposed, plus bias [out]."""
    check_rank(w, 2, "weight")
    if x.rank == 0:
        raise InvalidModelError("linear of a scalar")
    wide = accumulator(same_type(x, w, bias))
    size, inner = w.shape
    message = f"the last dim of the input, {x.shape[-1]}, must be the {inner} of the weight"

    def body(*i: Int) -> Expr:
        def term(k: Int) -> Expr:
            return x[(*i[:-1], k)].cast(wide) * w[i[-1], k].cast(wide)

        return reduce("sum", [inner], term)

    shape = (*x.shape[:-1], size)
    product = compute(shape, body, "linear", equal(x.shape[-1], inner, message))
    return with_bias(product, bias, x.dtype)


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:
    """alpha * a' @ b' + beta * c, c broadcast to the product, rounded once (ONNX Gemm; torch's
    addmm, addmv and baddbmm). What is transposed, and the other with it, is a matrix."""
    same_type(a, b, c)
    product: Tensor = (
        _of_turned(a, b, trans_a, trans_b) if trans_a or trans_b else contraction(a, b)
    )
    return with_bias(scaled(product, alpha), None if c is None else scaled(c, beta), a.dtype)


def _of_turned(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Tensor:
    """a' @ b' in the accumulation type, of matrices."""
    check_rank(a, 2, "first operand")
    check_rank(b, 2, "second operand")
    wide = accumulator(a.dtype)
    m, inner = reversed(a.shape) if trans_a else a.shape
    other, n = reversed(b.shape) if trans_b else b.shape
    message = f"the inner dims of a matrix product must be equal: {inner} and {other}"

    def body(i: Int, j: Int) -> Expr:
        def term(k: Int) -> Expr:
            left = a[k, i] if trans_a else a[i, k]
            right = b[j, k] if trans_b else b[k, j]
            return left.cast(wide) * right.cast(wide)

        return reduce("sum", [other if other.is_const else inner], term)

    return compute((m, n), body, "gemm", equal(inner, other, message))


def scaled(x: Tensor, factor: float) -> Tensor:
    """factor * x in the accumulation type; x itself where the factor is 1."""
    if factor == 1:
        return x
    wide = accumulator(x.dtype)
    return compute(x.shape, lambda *i: x[i].cast(wide) * as_expr(factor, wide), "scale")


def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """(a - a_zero) @ (b - b_zero) in i32; a zero point is one number, one a row of a or one a
    column of b."""
    rows = a_zero is not None and a_zero.rank == 1 and a.rank > 1
    left = shifted(a, a_zero, axis=a.rank - 2 if rows else None)
    return contraction(left, shifted(b, b_zero))


def shifted(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """x - zero in i32; a zero point of rank 1 lies along `axis`, otherwise it broadcasts."""
    if not x.dtype.is_int:
        raise InvalidModelError(f"needs integers, not {x.dtype}")
    if zero is None:
        return cast_tensor(x, i32)
    same_type(x, zero)
    meant: Shape = zero.shape
    if axis is not None and zero.rank == 1:
        meant = (zero.shape[0], *(as_int(1) for _ in range(x.rank - axis - 1)))

    def body(*i: Int) -> Expr:
        place = aligned(i, meant, x.shape)
        return x[i].cast(i32) - zero[place[: zero.rank]].cast(i32)

    return compute(x.shape, body, "shifted", broadcast_to(meant, x.shape))


def matmul_of_groups(a: Tensor, b: Tensor, group: Tensor) -> Tensor:
    """Each row of `a` [m, k] times the matrix of its group: out[i, j] = sum over k of
    a[i, k] * b[group[i], k, j], with `b` [groups, k, n] and `group` [m] of integers. A mixture of
    experts' product."""
    check_rank(a, 2, "first operand")
    check_rank(b, 3, "second operand")
    check_rank(group, 1, "groups of the rows")
    wide = accumulator(same_type(a, b))
    needs_indices(group)
    (rows, inner), (count, other, columns) = a.shape, b.shape
    message = f"the inner dims of a product of groups must be equal: {inner} and {other}"
    requires = equal(inner, other, message)
    each = f"each of the {rows} rows has a group, not {group.shape[0]}"
    requires += equal(rows, group.shape[0], each)

    def body(i: Int, j: Int) -> Expr:
        at = checked(group[i], count, "matmul_of_groups", negative=False)

        def term(k: Int) -> Expr:
            return a[i, k].cast(wide) * b[at, k, j].cast(wide)

        return reduce("sum", [other if other.is_const else inner], term)

    product = compute((rows, columns), body, "matmul_of_groups", requires)
    return cast_tensor(product, a.dtype)


MATMUL: Final[tuple[Operator, ...]] = (
    Operator("matmul", matmul),
    Operator("linear", linear),
    Operator("gemm", gemm),
    Operator("matmul_integer", matmul_integer),
    Operator("matmul_of_groups", matmul_of_groups),
    Operator("einsum", einsum, variadic=True),
)
