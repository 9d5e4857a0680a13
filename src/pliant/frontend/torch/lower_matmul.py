"""ATen matrix products and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import boolean, i64
from pliant.frontend.torch.context import Context, Table, constant
from pliant.frontend.torch.in_f32 import all_in_f32
from pliant.frontend.torch.lower_index import rank_among
from pliant.frontend.torch.lower_reduce import vector_norm
from pliant.frontend.torch.promote import from_torch
from pliant.graph.function import Value


def linear(ctx: Context, x: Value, weight: Value, bias: Value | None = None) -> Any:
    return ctx.call("linear", x, weight, bias)


def matmul(ctx: Context, a: Value, b: Value) -> Any:
    return ctx.call("matmul", a, b)


def matmul_as(ctx: Context, a: Value, b: Value, dtype: Any) -> Any:
    """mm, bmm whose result keeps what 16-bit floats are summed in."""
    to = from_torch(dtype)
    return ctx.call("matmul", ctx.cast(a, to), ctx.cast(b, to))


def of_bytes(ctx: Context, a: Value, b: Value) -> Any:
    """_int_mm: sums in i32."""
    return ctx.call("matmul_integer", a, b, None, None)


def pairwise(ctx: Context, x: Value, p: float = 2.0) -> Any:
    """pdist: of each pair of rows once. Which they are depends on the number of rows alone."""
    if not x.shape[0].is_const:
        raise ctx.unsupported("pdist of a symbolic number of rows; use cdist")
    pairs = np.triu_indices(x.shape[0].value, 1)
    a, b = (ctx.call("gather", x, ctx.builder.weight("rows", k), axis=0) for k in pairs)
    return vector_norm(ctx, ctx.call("sub", a, b), p, -1)


def added(ctx: Context, base: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * base + alpha * (a @ b): addmm, addmv, baddbmm."""
    factors = [constant(f, "a factor of a product") for f in (alpha, beta)]
    if a.dtype.is_float:
        factors = [float(f) for f in factors]
    return ctx.call(
        "gemm", a, b, None if factors[1] == 0 else base, alpha=factors[0], beta=factors[1]
    )


def added_product(ctx: Context, base: Value, product: Value, beta: Any, alpha: Any) -> Any:
    """beta * base + alpha * product; what is times 0 does not count, NaN or not."""
    if alpha != 1:
        product = ctx.call("mul", product, ctx.tensor(alpha, product.dtype))
    if beta == 0:
        return product
    if beta != 1:
        base = ctx.call("mul", base, ctx.tensor(beta, base.dtype))
    return ctx.call("add", base, product)


def added_batches(
    ctx: Context, base: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1
) -> Any:
    """addbmm: the products are summed over the batch."""
    product = ctx.call("sum", ctx.call("matmul", a, b), axes=(0,), keepdims=False)
    return added_product(ctx, base, product, beta, alpha)


def added_outer(
    ctx: Context, base: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1
) -> Any:
    """addr."""
    return added_product(ctx, base, outer(ctx, a, b), beta, alpha)


def outer(ctx: Context, a: Value, b: Value) -> Any:
    a, b = ctx.promoted(a, b)
    return ctx.call("mul", ctx.call("unsqueeze", a, axes=(1,)), ctx.call("unsqueeze", b, axes=(0,)))


def einsum(ctx: Context, equation: str, operands: Sequence[Value], path: Any = None) -> Any:
    values = ctx.promoted(*operands)
    return ctx.call("einsum", values, equation=equation.replace(" ", ""))


def scaled_dot_product_attention(
    ctx: Context,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: Any = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise ctx.unsupported("attention with dropout; call model.eval() before exporting")
    rank = max(len(q.shape), len(k.shape), len(v.shape))
    lift = max(3 - rank, 0)
    q, k, v = (_with_rank(ctx, t, rank + lift) for t in (q, k, v))
    if mask is not None and mask.dtype is not boolean:
        mask = ctx.cast(mask, q.dtype)
    q, k, v = _same_batch(ctx, q, k, v)
    number = None if scale is None else float(constant(scale, "the scale of attention"))
    out = ctx.call("attention", q, k, v, mask, scale=number, causal=bool(is_causal))
    return ctx.call("squeeze", out, axes=tuple(range(lift))) if lift else out


def _with_rank(ctx: Context, x: Value, rank: int) -> Value:
    missing = rank - len(x.shape)
    return ctx.call("unsqueeze", x, axes=tuple(range(missing))) if missing else x  # type: ignore[no-any-return]


def _same_batch(ctx: Context, q: Value, k: Value, v: Value) -> tuple[Value, Value, Value]:
    """Broadcast the dims before the heads, where torch's would differ."""
    lead = q.shape[:-3]
    for t in (k, v):
        lead = tuple(b if a == 1 else a for a, b in zip(lead, t.shape[:-3], strict=True))
    heads = k.shape[-3] if q.shape[-3] == 1 else q.shape[-3]

    def spread(t: Value, head: Any) -> Value:
        shape = (*lead, head, *t.shape[-2:])
        same = all(a == b or a != 1 for a, b in zip(t.shape, shape, strict=True))
        return t if same else ctx.call("expand", t, shape=shape)  # type: ignore[no-any-return]

    return spread(q, heads), spread(k, k.shape[-3]), spread(v, v.shape[-3])


def chained(ctx: Context, matrices: Sequence[Value]) -> Any:
    result = matrices[0]
    for m in matrices[1:]:
        result = ctx.call("matmul", result, m)
    return result


def inner(ctx: Context, a: Value, b: Value) -> Any:
    """Over the last dims of both."""
    if not a.shape or not b.shape:
        return ctx.call("mul", a, b)
    if len(b.shape) > 2:
        raise ctx.unsupported("inner of tensors of rank 3 and more; use einsum")
    turned = ctx.call("transpose", b, perm=(1, 0)) if len(b.shape) == 2 else b
    return ctx.call("matmul", a, turned)


def bilinear(ctx: Context, a: Value, b: Value, w: Value, bias: Value | None = None) -> Any:
    """sum over i, j of a[…, i] * w[o, i, j] * b[…, j]: a product with `b`, then one with `a`."""
    outputs, left, right = w.shape
    rows = ctx.call("linear", b, ctx.call("reshape", w, shape=(outputs * left, right)), None)
    rows = ctx.call("reshape", rows, shape=(*b.shape[:-1], outputs, left))
    column = ctx.call("unsqueeze", a, axes=(len(a.shape),))
    y = ctx.call("squeeze", ctx.call("matmul", rows, column), axes=(len(a.shape),))
    return y if bias is None else ctx.call("add", y, bias)


def trilinear(
    ctx: Context, a: Value, b: Value, c: Value, of_a: Sequence[int], of_b: Sequence[int],
    of_c: Sequence[int], summed: Sequence[int], unrolled: int = 1,
) -> Any:  # fmt: skip
    """A product of three, each given dims of size 1, summed over some."""
    product: Value | None = None
    for x, dims in ((a, of_a), (b, of_b), (c, of_c)):
        wide = ctx.call("unsqueeze", x, axes=tuple(dims)) if dims else x
        product = wide if product is None else ctx.call("mul", product, wide)
    return ctx.call("sum", product, axes=tuple(sorted(summed)), keepdims=False)


def distances(ctx: Context, a: Value, b: Value, p: Any = 2.0, mode: Any = None) -> Any:
    """cdist: norms of the differences of all rows of `a` and `b`."""
    left = ctx.call("unsqueeze", a, axes=(len(a.shape) - 1,))
    right = ctx.call("unsqueeze", b, axes=(len(b.shape) - 2,))
    return vector_norm(ctx, ctx.call("sub", left, right), p, -1)


def of_groups(
    ctx: Context, a: Value, b: Value, ends: Value | None = None, bias: Value | None = None,
    out_dtype: Any = None,
) -> Any:  # fmt: skip
    """Rows of `a` in groups, of which `ends` says where they end, each times a matrix of `b`; 0
    behind the last group."""
    if ends is None and (len(a.shape), len(b.shape)) == (3, 3):
        return matmul(ctx, a, b)
    if ends is None or (len(a.shape), len(b.shape)) != (2, 3) or bias is not None:
        raise ctx.unsupported("groups of other than rows of a matrix, or with a bias")
    rows, count = a.shape[0], b.shape[0]
    at = ctx.call("iota", size=rows, start=0, step=1, dtype=i64)
    group = rank_among(ctx, ctx.indices(ends), at, True, i64)
    last = ctx.tensor(count - 1, i64)
    product = ctx.call("matmul_of_groups", a, b, ctx.call("min", group, last))
    beyond = ctx.call("unsqueeze", ctx.call("gt", group, last), axes=(1,))
    kept = ctx.call("where", beyond, ctx.tensor(0, product.dtype), product)
    return ctx.cast(kept, ctx.out_dtype())


_COMPOSED: Final[Table] = {
    "aten.bilinear.default": bilinear,
    "aten._trilinear.default": trilinear,
    "aten.addbmm.default": added_batches,
    "aten.addr.default": added_outer,
    "aten.cdist.default": distances,
    "aten._cdist_forward.default": distances,
}

MATMUL: Final[Table] = {
    **{f"aten.{name}.default": added for name in ("addmm", "addmv", "baddbmm")},
    "aten.linear.default": linear,
    "aten.matmul.default": matmul,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten._grouped_mm.default": of_groups,
    "transformers.grouped_mm_fallback.default": of_groups,
    "aten.mm.dtype": matmul_as,
    "aten._int_mm.default": of_bytes,
    "aten.bmm.dtype": matmul_as,
    "aten.pdist.default": pairwise,
    "aten._pdist_forward.default": pairwise,
    "aten.mv.default": matmul,
    "aten.dot.default": matmul,
    "aten.vdot.default": matmul,
    "aten.inner.default": inner,
    "aten.outer.default": outer,
    "aten.ger.default": outer,
    "aten.einsum.default": einsum,
    **all_in_f32(_COMPOSED),
    "aten.chain_matmul.default": chained,
    "aten.linalg_multi_dot.default": chained,
    "aten.scaled_dot_product_attention.default": scaled_dot_product_attention,
}
