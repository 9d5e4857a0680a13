"""Matrix products, convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Lowering, Site, product
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, ceildiv, maximum

Pads = tuple[tuple[Int, Int], ...]


@dataclass(frozen=True)
class Window:
    """How a kernel moves over the spatial dims."""

    kernel: tuple[Int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads

    def moves(self) -> dict[str, Any]:
        """The attributes shared by convolution and pooling."""
        return {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}


def window(s: Site, kernel: Sequence[Int], spatial: Sequence[Int]) -> Window:
    """Strides, dilations and padding from the attributes."""
    rank = len(spatial)
    strides = s.ints_attr("strides", (1,) * rank)
    dilations = s.ints_attr("dilations", (1,) * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise InvalidModelError(f"{s.span}: kernel, strides or dilations do not have rank {rank}")
    if min(strides, default=1) < 1 or min(dilations, default=1) < 1:
        raise InvalidModelError(f"{s.span}: strides and dilations must be at least 1")
    return Window(tuple(kernel), strides, dilations, _pads(s, kernel, spatial, strides, dilations))


def _pads(
    s: Site, kernel: Sequence[Int], spatial: Sequence[Int], strides: Sequence[int],
    dilations: Sequence[int],
) -> Pads:  # fmt: skip
    mode = s.str_attr("auto_pad", "NOTSET")
    rank = len(spatial)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out: list[tuple[Int, Int]] = []
        for k, size, stride, dilation in zip(kernel, spatial, strides, dilations, strict=True):
            covered = (ceildiv(size, stride) - 1) * stride + (k - 1) * dilation + 1
            total = s.sizes.greatest(s.builder.facts.simplify(covered - size), as_int(0))
            less = s.sizes.divide(total, as_int(2))
            more = total - less
            out.append((less, more) if mode == "SAME_UPPER" else (more, less))
        return tuple(out)
    if mode == "VALID":
        return ((as_int(0), as_int(0)),) * rank
    if mode not in ("NOTSET", ""):
        raise InvalidModelError(f"{s.span}: auto_pad {mode!r}")
    pads = s.ints_attr("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise InvalidModelError(f"{s.span}: {len(pads)} pads for {rank} spatial dims")
    return tuple((as_int(pads[k]), as_int(pads[k + rank])) for k in range(rank))


def _kernel(s: Site, w: Value) -> tuple[Int, ...]:
    given = s.ints_attr("kernel_shape", ())
    kernel = w.shape[2:]
    if not given:
        return kernel
    if len(given) != len(kernel):
        raise InvalidModelError(f"{s.span}: kernel_shape {list(given)} does not fit the weight")
    for size, wanted in zip(kernel, given, strict=True):
        message = f"{s.span}: kernel_shape {list(given)} does not fit the weight"
        s.builder.equal(size, wanted, message)
    return tuple(map(as_int, given))


def _check_spatial(s: Site, x: Value) -> None:
    if len(x.shape) < 3:
        raise InvalidModelError(
            f"{s.span}: needs spatial dims; the operand has rank {len(x.shape)}"
        )


def lower_conv(s: Site) -> Value:
    """Any number of spatial dims."""
    return convolved(s, s.x(0), s.x(1), s.opt(2))


def convolved(s: Site, x: Value, w: Value, bias: Value | None) -> Value:
    """By the node's attributes."""
    _check_spatial(s, x)
    moves = window(s, _kernel(s, w), x.shape[2:]).moves()
    return s.call("conv", x, w, bias, groups=s.int_attr("group", 1), **moves)


def lower_conv_integer(s: Site) -> Value:
    """8-bit operands with zero points, 32-bit sums."""
    x, w = s.x(0), s.x(1)
    _check_spatial(s, x)
    return conv_integer(s, x, w, s.zero_point(2), s.zero_point(3))


def conv_integer(s: Site, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None) -> Value:
    """The sums of an integer convolution, i32."""
    moves = window(s, _kernel(s, w), x.shape[2:]).moves()
    x_zero, w_zero = (None if z is None else _scalar_if_one(s, z) for z in (x_zero, w_zero))
    return s.call("conv_integer", x, w, x_zero, w_zero, groups=s.int_attr("group", 1), **moves)


def _scalar_if_one(s: Site, zero: Value) -> Value:
    return s.reshape(zero, ()) if product(zero.shape) == 1 else zero


def lower_conv_transpose(s: Site) -> Value:
    """`output_shape` and auto_pad decide the padding."""
    x, w = s.x(0), s.x(1)
    _check_spatial(s, x)
    kernel, spatial = _kernel(s, w), x.shape[2:]
    rank = len(spatial)
    strides = s.ints_attr("strides", (1,) * rank)
    dilations = s.ints_attr("dilations", (1,) * rank)
    extra = s.ints_attr("output_padding", (0,) * rank)
    mode = s.str_attr("auto_pad", "NOTSET")
    wanted: tuple[Int, ...] | None = None
    if s.has_attr("output_shape"):
        wanted = tuple(map(as_int, s.ints_attr("output_shape")))[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(d * t for d, t in zip(spatial, strides, strict=True))
    if wanted is None:
        pads = _pads(s, kernel, spatial, strides, dilations)
    else:
        split: list[tuple[Int, Int]] = []
        for k in range(rank):
            full = strides[k] * (spatial[k] - 1) + extra[k] + (kernel[k] - 1) * dilations[k] + 1
            total = s.builder.facts.simplify(full - wanted[k])
            if s.sizes.is_negative(total):  # more than the windows cover: zeros at the end
                split.append((as_int(0), total))
                continue
            if not s.sizes.is_nonneg(total):
                raise s.unsupported("its output_shape may be larger than its windows cover")
            less = s.sizes.divide(total, as_int(2))
            more = total - less
            split.append((less, more) if mode == "SAME_UPPER" else (more, less))
        pads = tuple(split)
    return s.call(
        "conv_transpose", x, w, s.opt(2), strides=strides, pads=pads, output_padding=extra,
        dilations=dilations, groups=s.int_attr("group", 1),
    )  # fmt: skip


def _pool_window(s: Site, x: Value) -> Window:
    _check_spatial(s, x)
    return window(s, tuple(map(as_int, s.ints_attr("kernel_shape"))), x.shape[2:])


def _pooling(s: Site, x: Value) -> tuple[Window, bool]:
    """The windows of a pool, and whether a last one may stick out.

    An operand shorter than its window by less than a stride has one all the same, as far as it
    goes: ONNX's quotient of sizes truncates, -1/2 windows beside the first are none. (So do ONNX
    Runtime and ONNX's shape inference.) Padding at the end says so here.
    """
    w, ceil = _pool_window(s, x), bool(s.int_attr("ceil_mode", 0))
    pads = list(w.pads)
    for d, (size, k, t, dilation) in enumerate(
        zip(x.shape[2:], w.kernel, w.strides, w.dilations, strict=True)
    ):
        lo, hi = pads[d]
        lack = (k - 1) * dilation + 1 - size - lo
        if ceil or t == 1 or s.sizes.is_nonneg(hi - lack):
            continue
        least, message = hi + t - 1, f"{s.span}: dim {2 + d} is too small for the window"
        s.builder.equal(maximum(least, lack), least, message)
        pads[d] = lo, s.sizes.greatest(hi, lack)
    return replace(w, pads=tuple(pads)), ceil


def lower_max_pool(s: Site) -> Value | tuple[Value, Value]:
    """Padding never wins. The indices count the elements of the whole tensor."""
    x = s.x()
    w, ceil = _pooling(s, x)
    values = s.call("max_pool", x, kernel=w.kernel, ceil_mode=ceil, **w.moves())
    if 1 not in s.used:
        return values
    places = s.call("max_pool_places", x, kernel=w.kernel, ceil_mode=ceil, **w.moves())
    images, size = product(x.shape[:2]), product(x.shape[2:])
    if s.int_attr("storage_order", 0):
        places = _column_major(s, places, x.shape[2:])
    first = s.call("iota", size=images, start=0, step=size, dtype=places.dtype)
    shape = (*x.shape[:2], *[as_int(1)] * len(w.kernel))
    return values, s.call("add", places, s.reshape(first, shape))


def _column_major(s: Site, places: Value, extents: Sequence[Int]) -> Value:
    """Places that were counted row by row, counted column by column."""
    moved = s.scalar(0, places.dtype)
    for d in reversed(range(len(extents))):
        along = s.call("floormod", places, s.size(extents[d]))
        places = s.call("floordiv", places, s.size(extents[d]))
        moved = s.call("add", moved, s.call("mul", along, s.size(product(extents[:d]))))
    return moved


def lower_average_pool(s: Site, of: Value | None = None) -> Value:
    """Padding counts only if asked. `of`: what else than the operand."""
    x = s.x() if of is None else of
    w, ceil = _pooling(s, x)
    return s.call(
        "avg_pool", x, kernel=w.kernel, ceil_mode=ceil,
        count_include_pad=bool(s.int_attr("count_include_pad", 0)), **w.moves(),
    )  # fmt: skip


def lower_lp_pool(s: Site) -> Value:
    """The p-norm of each window."""
    x = s.x()
    (w, ceil), p = _pooling(s, x), s.int_attr("p", 2)
    return s.call("lp_pool", x, kernel=w.kernel, ceil_mode=ceil, p=p, **w.moves())


def _spatial_axes(s: Site, x: Value) -> tuple[int, ...]:
    _check_spatial(s, x)
    return tuple(range(2, len(x.shape)))


def _global(op: str) -> Lowering:
    def lower(s: Site) -> Value:
        x = s.x()
        return s.call(op, x, axes=_spatial_axes(s, x), keepdims=True)

    return lower


def lower_global_lp_pool(s: Site) -> Value:
    """The p-norm of all pixels."""
    x, p = s.x(), s.int_attr("p", 2)
    axes = _spatial_axes(s, x)
    if p in (1, 2):
        return s.call("norm", x, p=p, axes=axes, keepdims=True)
    powers = s.call("pow", s.call("abs", x), s.scalar(p, x.dtype))
    total = s.call("sum", powers, axes=axes, keepdims=True)
    return s.call("pow", total, s.scalar(1.0 / p, x.dtype))


def lower_max_unpool(s: Site) -> Value:
    """Puts the maxima back where they came from."""
    x, indices = s.x(0), s.x(1)
    w = _pool_window(s, x)
    sizes = [
        (d - 1) * t + k - lo - hi
        for d, t, k, (lo, hi) in zip(x.shape[2:], w.strides, w.kernel, w.pads, strict=True)
    ]
    inferred = (*x.shape[:2], *sizes)
    flat = s.full((product(inferred),), 0, x.dtype)
    count = (product(x.shape),)
    placed = s.call(
        "scatter_elements", flat, s.reshape(indices, count), s.reshape(x, count), axis=0,
        reduction="none",
    )  # fmt: skip
    result = s.reshape(placed, inferred)
    if not s.has(2):
        return result
    wanted = s.ints(2, "output shape")
    pads = tuple((as_int(0), a - b) for a, b in zip(wanted, inferred, strict=True))
    return s.call("pad", result, pads=pads, mode="constant", value=0)


def lower_col2im(s: Site) -> Value:
    """Overlapping blocks summed into an image: a transposed convolution with an identity."""
    x = s.x()
    image, block = s.ints(1, "image_shape"), s.ints(2, "block_shape")
    w = window(s, block, image)
    n, columns, _ = x.shape
    cells = product(block)
    channels = s.sizes.divide(columns, cells)
    counts = [
        (d + lo + hi - (k - 1) * dil - 1) // t + 1
        for d, k, t, dil, (lo, hi) in zip(image, block, w.strides, w.dilations, w.pads, strict=True)
    ]
    if not cells.is_const:
        raise s.unsupported("its block shape must be constant")
    apart = s.reshape(x, (n * channels, cells, *counts))
    kernel = np.eye(cells.value, dtype=x.dtype.numpy)
    kernel = kernel.reshape(cells.value, 1, *(b.value for b in block))
    ends = [
        d - ((c - 1) * t + (k - 1) * dil + 1 - lo - hi)
        for d, c, k, t, dil, (lo, hi) in zip(
            image, counts, block, w.strides, w.dilations, w.pads, strict=True
        )
    ]
    summed = s.call(
        "conv_transpose", apart, s.weight(kernel, "blocks"), None, strides=w.strides, pads=w.pads,
        output_padding=tuple(ends), dilations=w.dilations, groups=1,
    )  # fmt: skip
    return s.reshape(summed, (n, channels, *image))


def lower_matmul(s: Site) -> Value:
    """NumPy's rules."""
    return s.call("matmul", s.x(0), s.x(1))


def lower_gemm(s: Site) -> Value:
    """alpha * A @ B + beta * C."""
    return s.call(
        "gemm", s.x(0), s.x(1), s.opt(2), alpha=s.float_attr("alpha", 1.0),
        beta=s.float_attr("beta", 1.0), trans_a=bool(s.int_attr("transA", 0)),
        trans_b=bool(s.int_attr("transB", 0)),
    )  # fmt: skip


NN: Final[Mapping[str, Lowering]] = {
    "AveragePool": lower_average_pool,
    "Col2Im": lower_col2im,
    "Conv": lower_conv,
    "ConvInteger": lower_conv_integer,
    "ConvTranspose": lower_conv_transpose,
    "Gemm": lower_gemm,
    "GlobalAveragePool": _global("mean"),
    "GlobalLpPool": lower_global_lp_pool,
    "GlobalMaxPool": _global("max"),
    "LpPool": lower_lp_pool,
    "MatMul": lower_matmul,
    "MaxPool": lower_max_pool,
    "MaxUnpool": lower_max_unpool,
}
