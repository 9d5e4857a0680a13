"""Convolutions: sums of products over channels and kernel positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.base.dtypes import i32
from pliant.base.errors import InvalidModelError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Compute, Tensor, all_of, compute, reduce, select, within
from pliant.ops.common import (
    Requirement,
    accumulator,
    at_least,
    cast_tensor,
    check_rank,
    equal,
    nonnegative,
    positive,
    same_type,
    shape_of,
)
from pliant.ops.matmul import shifted
from pliant.ops.window import Pads, windows
from pliant.sym.expr import Int, IntLike, as_int


def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: IntLike,
) -> Tensor:
    """out[n, o, p] = sum over (c, k) of x[n, g(o)*C/groups + c, p*stride + k*dilation - lo] *
    w[o, c, k], with zeros in the padding. x [N, C, ...], w [O, C/groups, ...]."""
    same_type(x, w, bias)
    product = convolution(x, w, strides, pads, dilations, groups)
    return with_channel_bias(product, bias, x)


def convolution(
    x: Tensor,
    w: Tensor,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: IntLike,
) -> Compute:
    """The contraction of `conv`, in the accumulation type."""
    check_rank(w, x.rank, "weight")
    box = windows(x, w.shape[2:], strides, pads, dilations)
    wide = accumulator(x.dtype)
    channels, outputs = w.shape[1], w.shape[0]
    message = f"the input has {x.shape[1]} channels, the weight wants {channels * groups}"
    requires = equal(x.shape[1], channels * groups, message) + _whole_groups(outputs, groups)
    requires += box.fit()

    def body(n: Int, o: Int, *p: Int) -> Expr:
        def term(c: Int, *k: Int) -> Expr:
            position = box.at(p, k)
            channel = c if groups == 1 else o // positive(outputs // groups) * channels + c
            value = x[(n, channel, *position)].cast(wide)
            inside = box.inside(position)
            if inside is not None:
                value = select(inside, value, as_expr(0, wide))
            return value * w[(o, c, *k)].cast(wide)

        return reduce("sum", w.shape[1:], term)

    return compute((x.shape[0], outputs, *box.counts()), body, "conv", requires)


def _whole_groups(channels: Int, groups: IntLike) -> tuple[Requirement, ...]:
    groups = as_int(groups)
    if groups.is_const and groups.value < 1:
        raise InvalidModelError(f"{groups} groups")
    message = f"the {channels} channels must be a multiple of {groups} groups"
    some = at_least(groups, 1, "there must be a group")
    return some + equal(channels // groups * groups, channels, message)


def with_channel_bias(product: Compute, bias: Tensor | None, x: Tensor) -> Tensor:
    """A product in its accumulation type plus a bias per channel (dim 1), rounded once."""
    if bias is None:
        return cast_tensor(product, x.dtype)
    check_rank(bias, 1, "bias")
    size, channels = bias.shape[0], product.shape[1]
    return compute(
        product.shape,
        lambda *i: (product[i] + bias[i[1]].cast(product.dtype)).cast(x.dtype),
        "bias",
        equal(size, channels, f"the bias has {size} elements, the result {channels} channels"),
    )


def conv_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Sequence[int],
    pads: Pads,
    output_padding: Sequence[IntLike],
    dilations: Sequence[int],
    groups: IntLike,
) -> Tensor:
    """The transpose of `conv` as a linear map, gathered: out[n, o, p] sums x[n, c, q] * w[c, o, k]
    over all q with q*stride + k*dilation - lo == p. x [N, C, ...], w [C, O/groups, ...]."""
    same_type(x, w, bias)
    check_rank(w, x.rank, "weight")
    rank = x.rank - 2
    windows(x, w.shape[2:], strides, pads, dilations)  # the same conditions on the numbers
    wide = accumulator(x.dtype)
    each, kernel = w.shape[1], w.shape[2:]
    message = f"the input has {x.shape[1]} channels, the weight {w.shape[0]}"
    requires = equal(x.shape[1], w.shape[0], message) + _whole_groups(x.shape[1], groups)
    members = w.shape[0] // groups
    spatial = [
        nonnegative(
            x.shape[2 + d] * strides[d] - strides[d] - pads[d][0] - pads[d][1]
            + (kernel[d] - 1) * dilations[d] + 1 + shape_of(output_padding)[d]
        )
        for d in range(rank)
    ]  # fmt: skip

    def body(n: Int, o: Int, *p: Int) -> Expr:
        group = as_int(0) if groups == 1 else o // positive(each)

        def term(c: Int, *k: Int) -> Expr:
            channel = group * members + c
            at: list[Int] = []
            conditions: list[Expr] = []
            for d, s in enumerate(strides):
                scaled = p[d] + pads[d][0] - k[d] * dilations[d]
                at.append(scaled // s)
                if s > 1:
                    conditions.append(as_expr(scaled % s).eq(0))
                conditions.append(within(scaled // s, x.shape[2 + d]))
            value = x[(n, channel, *at)].cast(wide)
            value = select(all_of(conditions), value, as_expr(0, wide)) if conditions else value
            return value * w[(channel, o - group * each, *k)].cast(wide)

        return reduce("sum", (members, *kernel), term)

    shape = (x.shape[0], each * groups, *spatial)
    product = compute(shape, body, "conv_transpose", requires)
    return with_channel_bias(product, bias, x)


def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    groups: IntLike,
) -> Tensor:
    """The convolution of x - x_zero and w - w_zero in i32; w_zero may be one an output channel."""
    left = shifted(x, x_zero)
    right = shifted(w, w_zero, axis=0)
    assert left.dtype is i32
    return convolution(left, right, strides, pads, dilations, groups)


CONV: Final[tuple[Operator, ...]] = (
    Operator("conv", conv),
    Operator("conv_transpose", conv_transpose),
    Operator("conv_integer", conv_integer),
)
