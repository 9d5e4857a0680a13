"""ATen linear algebra: inverses, determinants, equations, Cholesky factors."""

from __future__ import annotations

from typing import Any, Final

from pliant.base.dtypes import i32
from pliant.frontend.torch.context import Context, Table
from pliant.frontend.torch.lower_shape import expand, matrix_transpose
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def _identity(ctx: Context, a: Value) -> Value:
    """The unit matrix for each of these."""
    n = a.shape[-1]
    unit = ctx.call("eye", rows=n, cols=n, offset=0, dtype=a.dtype)
    return unit if len(a.shape) == 2 else ctx.call("expand", unit, shape=a.shape)  # type: ignore[no-any-return]


def _solved(ctx: Context, a: Value, b: Value) -> Value:
    """x with a x = b, matrices whose leading dims broadcast."""
    lead = _joined_lead(ctx, a, b)
    a, b = (expand(ctx, v, (*lead, *v.shape[-2:])) for v in (a, b))
    return ctx.call("solve", a, b)[0]  # type: ignore[no-any-return]


def _joined_lead(ctx: Context, *values: Value) -> tuple[Any, ...]:
    rank = max(len(v.shape) for v in values) - 2
    shapes = [(*[as_int(1)] * (rank - len(v.shape) + 2), *v.shape[:-2]) for v in values]
    return tuple(b if a == 1 else a for a, b in zip(*shapes, strict=True))


def inverse(ctx: Context, a: Value) -> Any:
    return _solved(ctx, a, _identity(ctx, a))


def inverse_and_info(ctx: Context, a: Value, *, check_errors: bool = False) -> Any:
    return inverse(ctx, a), _no_error(ctx, a)


def _no_error(ctx: Context, a: Value) -> Any:
    """Torch's code for success, a matrix each."""
    zero = ctx.scalar(0, i32)
    return ctx.call("expand", zero, shape=a.shape[:-2]) if len(a.shape) > 2 else zero


def solve(ctx: Context, a: Value, b: Value, *, left: bool = True) -> Any:
    """Vectors are columns; with `left` off, x a = b."""
    vectors = len(b.shape) == 1 or (
        len(b.shape) == len(a.shape) - 1
        and all(map(ctx.builder.facts.equal, b.shape, a.shape[:-1]))
    )
    if vectors:
        x = _solved(ctx, a, ctx.call("unsqueeze", b, axes=(len(b.shape),)))
        return ctx.call("squeeze", x, axes=(len(x.shape) - 1,))
    if left:
        return _solved(ctx, a, b)
    turned = _solved(ctx, matrix_transpose(ctx, a), matrix_transpose(ctx, b))
    return matrix_transpose(ctx, turned)


def _triangle(ctx: Context, a: Value, upper: bool, unit: bool) -> Value:
    """What of a matrix a triangular solver reads."""
    kept = ctx.call("triu" if upper else "tril", a, diagonal=0)
    if not unit:
        return kept  # type: ignore[no-any-return]
    strict = ctx.call("triu" if upper else "tril", a, diagonal=1 if upper else -1)
    return ctx.call("add", strict, _identity(ctx, a))  # type: ignore[no-any-return]


def solve_triangular(
    ctx: Context, a: Value, b: Value, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Any:  # fmt: skip
    triangle = _triangle(ctx, a, upper, unitriangular)
    if left:
        return _solved(ctx, triangle, b)
    turned = _solved(ctx, matrix_transpose(ctx, triangle), matrix_transpose(ctx, b))
    return matrix_transpose(ctx, turned)


def triangular_solve(
    ctx: Context, b: Value, a: Value, upper: bool = True, transposed: bool = False,
    unitriangular: bool = False,
) -> Any:  # fmt: skip
    triangle = _triangle(ctx, a, upper, unitriangular)
    triangle = matrix_transpose(ctx, triangle) if transposed else triangle
    return _solved(ctx, triangle, b), a


def _pivots(ctx: Context, a: Value) -> Value:
    """Numbers whose product is the determinant."""
    nothing = ctx.call("full", shape=(*a.shape[:-1], 0), value=0.0, dtype=a.dtype)
    return ctx.call("solve", a, nothing)[1]  # type: ignore[no-any-return]


def determinant(ctx: Context, a: Value) -> Any:
    return ctx.call("prod", _pivots(ctx, a), axes=(len(a.shape) - 2,), keepdims=False)


def sign_and_log(ctx: Context, a: Value) -> Any:
    """Of the determinant."""
    pivots, along = _pivots(ctx, a), {"axes": (len(a.shape) - 2,), "keepdims": False}
    sign = ctx.call("prod", ctx.call("sign", pivots), **along)
    return sign, ctx.call("sum", ctx.call("log", ctx.call("abs", pivots)), **along)


def log_determinant(ctx: Context, a: Value) -> Any:
    """NaN of what is negative."""
    sign, log = sign_and_log(ctx, a)
    negative = ctx.call("lt", sign, ctx.scalar(0, a.dtype))
    return ctx.call("where", negative, ctx.scalar(float("nan"), a.dtype), log)


def cholesky(ctx: Context, a: Value, upper: bool = False) -> Any:
    """Of the triangle that is asked for."""
    factor = ctx.call("cholesky", matrix_transpose(ctx, a) if upper else a)
    return matrix_transpose(ctx, factor) if upper else factor


def cholesky_and_info(
    ctx: Context, a: Value, *, upper: bool = False, check_errors: bool = False
) -> Any:
    return cholesky(ctx, a, upper), _no_error(ctx, a)


def cholesky_solve(ctx: Context, b: Value, factor: Value, upper: bool = False) -> Any:
    """x with l l' x = b."""
    lower = _triangle(ctx, factor, upper, False)
    first, second = matrix_transpose(ctx, lower), lower
    if not upper:
        first, second = second, first
    return _solved(ctx, second, _solved(ctx, first, b))


def cholesky_inverse(ctx: Context, factor: Value, upper: bool = False) -> Any:
    return cholesky_solve(ctx, _identity(ctx, factor), factor, upper)


def matrix_power(ctx: Context, a: Value, n: int) -> Any:
    """By squaring."""
    if n == 0:
        return _identity(ctx, a)
    square, result, left = (inverse(ctx, a) if n < 0 else a), None, abs(n)
    while left:
        if left % 2:
            result = square if result is None else ctx.call("matmul", result, square)
        left //= 2
        square = ctx.call("matmul", square, square) if left else square
    return result


LINALG: Final[Table] = {
    "aten.linalg_inv.default": inverse,
    "aten.inverse.default": inverse,
    "aten.linalg_inv_ex.default": inverse_and_info,
    "aten.linalg_solve.default": solve,
    "aten.linalg_solve_triangular.default": solve_triangular,
    "aten.triangular_solve.default": triangular_solve,
    "aten.linalg_det.default": determinant,
    "aten.det.default": determinant,
    "aten.linalg_slogdet.default": sign_and_log,
    "aten.slogdet.default": sign_and_log,
    "aten.logdet.default": log_determinant,
    "aten.linalg_cholesky.default": cholesky,
    "aten.cholesky.default": cholesky,
    "aten.linalg_cholesky_ex.default": cholesky_and_info,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.cholesky_inverse.default": cholesky_inverse,
    "aten.linalg_matrix_power.default": matrix_power,
    "aten.matrix_power.default": matrix_power,
}
