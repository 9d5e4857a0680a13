"""Workloads for auto-tensorisation, as bare expressions: products and convolutions of every kind.

Each is a function of a type for the operands; sums are in the type that accumulates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F

from pliant.base.dtypes import DType, bf16, f32, i8, i32, u8
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import (
    Compute,
    Input,
    all_of,
    compute,
    placeholder,
    reduce,
    select,
    within,
)
from pliant.loop.from_tensor import unscheduled
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Function
from pliant.sym.expr import Int, IntLike, var


@dataclass(frozen=True)
class Types:
    """Of the two operands and of the sum."""

    a: DType = f32
    b: DType = f32
    sum: DType = f32


F32, BF16, INT8 = Types(), Types(bf16, bf16, f32), Types(u8, i8, i32)


@dataclass(frozen=True)
class Workload:
    """An expression over inputs; its sizes are symbols."""

    result: Compute
    inputs: tuple[Input, ...]
    sizes: tuple[str, ...]
    reference: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def function(self, **known: int) -> Function:
        """The unscheduled program, where some sizes are `known`."""
        f = unscheduled("kernel", [self.result], self.inputs, self.sizes)
        given: dict[str, IntLike] = dict(known)
        sizes = tuple(s for s in f.sizes if s not in known)
        buffers = tuple(subst(x, given) for x in f.buffers)
        return f.replace(buffers=buffers, sizes=sizes, body=subst(f.body, given))


Make = Callable[[Types], Workload]
b, n, m, k = (var(x) for x in "bnmk")


def times(x: Expr, y: Expr, t: Types) -> Expr:
    return x.cast(t.sum) * y.cast(t.sum)


def matmul(at: bool, bt: bool, ct: bool, batch: bool = False) -> Make:
    """c = a @ b with any of the three transposed, perhaps for each of a batch."""

    def make(t: Types) -> Workload:
        lead: tuple[IntLike, ...] = (b,) if batch else ()
        x = placeholder("x", (*lead, *((k, n) if at else (n, k))), t.a)
        y = placeholder("y", (*lead, *((m, k) if bt else (k, m))), t.b)

        def element(*at_: Int) -> Expr:
            *z, p, q = at_
            i, j = (q, p) if ct else (p, q)

            def term(r: Int) -> Expr:
                left = x[(*z, r, i)] if at else x[(*z, i, r)]
                right = y[(*z, j, r)] if bt else y[(*z, r, j)]
                return times(left, right, t)

            return reduce("sum", (k,), term)

        def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            c = (x.mT if at else x) @ (y.mT if bt else y)
            return c.mT if ct else c

        result = compute((*lead, *((m, n) if ct else (n, m))), element, "c")
        names = ("b", "n", "m", "k") if batch else ("n", "m", "k")
        return Workload(result, (x, y), names, reference)

    return make


def window(
    rank: int,
    *,
    last: bool = False,
    stride: int = 1,
    dilation: int = 1,
    kernel: int = 3,
    groups: int = 1,
    channels: int = 4,
    filters: int = 6,
) -> Make:
    """A convolution of symbolic batch and space, channels first or `last`, padded so that stride 1
    keeps the extents."""
    space = (n, m, k)[:rank]
    pad = dilation * (kernel - 1) // 2
    each = channels // groups

    def make(t: Types) -> Workload:
        counts = tuple((s + stride - 1) // stride for s in space)
        kernels = (kernel,) * rank
        x = placeholder("x", (b, *space, channels) if last else (b, channels, *space), t.a)
        ws = (*kernels, each, filters) if last else (filters, each, *kernels)
        w = placeholder("w", ws, t.b)

        def element(z: Int, *at: Int) -> Expr:
            o, p = (at[-1], at[:-1]) if last else (at[0], at[1:])

            def term(c: Int, *q: Int) -> Expr:
                where = [i * stride + j * dilation - pad for i, j in zip(p, q, strict=True)]
                channel = c if groups == 1 else o // (filters // groups) * each + c
                value: Expr = x[(z, *where, channel)] if last else x[(z, channel, *where)]
                if pad:
                    inside = [within(i, extent) for i, extent in zip(where, space, strict=True)]
                    value = select(all_of(inside), value, as_expr(0, t.a))
                return times(value, w[(*q, c, o)] if last else w[(o, c, *q)], t)

            return reduce("sum", (each, *kernels), term)

        def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            if last:
                x, w = x.movedim(-1, 1), w.movedim((-1, -2), (0, 1))
            fn = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
            y = fn(x, w, None, stride, pad, dilation, groups)
            return y.movedim(1, -1) if last else y

        shape = (b, *counts, filters) if last else (b, filters, *counts)
        return Workload(compute(shape, element, "y"), (x, w), ("b", *"nmk"[:rank]), reference)

    return make


def transposed(stride: int, channels: int = 4, filters: int = 6, kernel: int = 3) -> Make:
    """A transposed convolution in two dimensions, as a sum over what reaches an output."""
    pad = kernel // 2

    def make(t: Types) -> Workload:
        x = placeholder("x", (b, channels, n, m), t.a)
        w = placeholder("w", (channels, filters, kernel, kernel), t.b)

        def element(z: Int, o: Int, *p: Int) -> Expr:
            def term(c: Int, *q: Int) -> Expr:
                scaled = [i + pad - j for i, j in zip(p, q, strict=True)]
                known = [as_expr(i % stride).eq(0) for i in scaled] if stride > 1 else []
                known += [within(i // stride, e) for i, e in zip(scaled, (n, m), strict=True)]
                value = select(
                    all_of(known), x[(z, c, *(i // stride for i in scaled))], as_expr(0, t.a)
                )
                return times(value, w[(c, o, *q)], t)

            return reduce("sum", (channels, kernel, kernel), term)

        def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.conv_transpose2d(x, w, None, stride, pad, stride - 1)

        result = compute((b, filters, n * stride, m * stride), element, "y")
        return Workload(result, (x, w), ("b", "n", "m"), reference)

    return make


def products() -> dict[str, Make]:
    marks = list(product((False, True), repeat=3))
    found: dict[str, Make] = {}
    for batch in (False, True):
        for a, c, d in marks:
            name = f"{'batched ' * batch}a{'ᵀ' * a} b{'ᵀ' * c} -> c{'ᵀ' * d}"
            found[name] = matmul(a, c, d, batch)
    return found


def windows(few: int, many: int, filters: int) -> dict[str, Make]:
    """Convolutions of every kind, of so many channels (`few` in three dimensions)."""
    c = {"channels": many, "filters": filters}
    return {
        "conv1d NCW": window(1, **c),
        "conv1d NWC": window(1, last=True, **c),
        "conv2d NCHW": window(2, **c),
        "conv2d NHWC": window(2, last=True, **c),
        "conv2d 1x1 NHWC": window(2, last=True, kernel=1, **c),
        "conv3d NCDHW": window(3, channels=few, filters=filters),
        "conv3d NDHWC": window(3, last=True, channels=few, filters=filters),
        "strided": window(2, stride=2, **c),
        "dilated": window(2, dilation=2, **c),
        "transposed": transposed(1, **c),
        "transposed, stride 2": transposed(2, **c),
        "grouped": window(2, groups=2, **c),
        "grouped NHWC": window(2, last=True, groups=2, **c),
    }


def depthwise(channels: int) -> dict[str, Make]:
    """Convolutions of each channel by itself: no products of matrices."""
    each = {"groups": channels, "channels": channels, "filters": channels}
    return {
        "depthwise NCHW": window(2, **each),
        "depthwise NHWC": window(2, last=True, **each),
        "depthwise NCHW, stride 2": window(2, stride=2, **each),
        "depthwise NHWC, stride 2": window(2, last=True, stride=2, **each),
    }


WORKLOADS: dict[str, Make] = products() | windows(2, 4, 6)
DEPTHWISE = window(2, groups=4, channels=4, filters=4)
