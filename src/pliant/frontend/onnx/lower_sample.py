"""Values of images at positions that other tensors hold: regions of interest, deformed windows.

Channels come last, so that a position is a row of a table [images*height*width, channels]:

    value = sum over the four neighbours of weight * table[row of the neighbour]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pliant.base.dtypes import DType, f32, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.heads import places
from pliant.frontend.onnx.lower_nn import Window, window
from pliant.frontend.onnx.site import Lowering, Site, product
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int

_HALF_PIXEL_SINCE: Final = 16


@dataclass(frozen=True)
class Images:
    """A table of rows of channels, and the images' size."""

    table: Value  # [images*height*width, channels]
    height: Int
    width: Int

    def taps(
        self, s: Site, image: Value, y: Value, x: Value, *, zeros: bool = False
    ) -> list[Value]:  # fmt: skip
        """The four neighbours of each position, times their weights, [..., channels]: bilinear
        interpolation is their sum. `image`, `y` and `x` broadcast. A neighbour outside is the one
        at the edge, or 0 if `zeros`."""
        found = []
        along = [
            [_neighbour(s, v, size, far, zeros=zeros) for far in (False, True)]
            for v, size in ((y, self.height), (x, self.width))
        ]
        for place_y, weight_y in along[0]:
            for place_x, weight_x in along[1]:
                row = image
                for place, size in ((place_y, self.height), (place_x, self.width)):
                    row = s.call("add", s.call("mul", row, s.size(size)), place)
                value = s.call("gather", self.table, row, axis=0)
                weight = s.call("mul", weight_y, weight_x)
                found.append(s.call("mul", value, _column(s, weight)))
        return found

    def inside(self, s: Site, y: Value, x: Value) -> Value:
        """Whether positions are less than one element outside."""
        kept = None
        for v, size in ((y, self.height), (x, self.width)):
            for op, bound in (("gt", s.scalar(-1.0, v.dtype)), ("lt", s.size(size, v.dtype))):
                one = s.call(op, v, bound)
                kept = one if kept is None else s.call("and", kept, one)
        assert kept is not None
        return kept


def _neighbour(s: Site, at: Value, size: Int, far: bool, *, zeros: bool) -> tuple[Value, Value]:
    """The place of the lower or the upper neighbour along a dim, and its weight."""
    low = s.call("floor", at)
    above = s.call("sub", at, low)
    weight = above if far else s.call("sub", s.scalar(1.0, at.dtype), above)
    place = s.cast(low, i64)
    if far:
        place = s.call("add", place, s.scalar(1, i64))
    last = s.call("sub", s.size(size), s.scalar(1, i64))
    held = s.call("clamp", place, s.scalar(0, i64), last)
    if zeros:
        there = s.call("eq", place, held)
        weight = s.call("where", there, weight, s.scalar(0.0, at.dtype))
    return held, weight


def _column(s: Site, v: Value) -> Value:
    return s.call("unsqueeze", v, axes=(len(v.shape),))


def _total(s: Site, terms: list[Value], op: str = "add") -> Value:
    result = terms[0]
    for t in terms[1:]:
        result = s.call(op, result, t)
    return result


def _images(s: Site, x: Value, dtype: DType) -> Images:
    """Of [N, C, H, W]."""
    n, c, h, w = x.shape
    last = s.cast(s.call("transpose", x, perm=(0, 2, 3, 1)), dtype)
    return Images(s.reshape(last, (n * h * w, c)), h, w)


def lower_roi_align(s: Site) -> Value:
    """Each bin of a region is the mean, or the maximum, of samples on a grid in it."""
    x, rois, batch = s.x(0), s.x(1), s.x(2)
    count = s.int_attr("sampling_ratio", 0)
    if count < 1:
        raise s.unsupported(
            "sampling_ratio 0, as many samples as a region is large, is not supported"
        )
    size = [s.int_attr(f"output_{n}", 1) for n in ("height", "width")]
    half = s.str_attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    half = half and s.opset >= _HALF_PIXEL_SINCE
    dtype = f32 if x.dtype.bits == 16 else x.dtype
    images, regions = _images(s, x, dtype), rois.shape[0]
    scale = s.scalar(s.float_attr("spatial_scale", 1.0), dtype)
    corners = s.call("mul", s.cast(rois, dtype), scale)  # x1 y1 x2 y2
    if half:
        corners = s.call("sub", corners, s.scalar(0.5, dtype))
    along = []
    for axis, bins in ((1, size[0]), (0, size[1])):
        first, last = (s.part(corners, 1, k, k + 1) for k in (axis, axis + 2))
        extent = s.call("sub", last, first)
        if not half:
            extent = s.call("max", extent, s.scalar(1.0, dtype))
        step = s.call("div", extent, s.scalar(bins * count, dtype))
        middle = s.call("add", s.cast(places(s, as_int(bins * count), 2, 1), dtype),
                        s.scalar(0.5, dtype))  # fmt: skip
        along.append(s.call("add", first, s.call("mul", middle, step)))  # [regions, samples]
    y = s.reshape(along[0], (regions, size[0] * count, 1))
    x_at = s.reshape(along[1], (regions, 1, size[1] * count))
    kept = images.inside(s, y, x_at)
    ends = [s.size(n - 1, dtype) for n in (images.height, images.width)]
    held = [s.call("clamp", v, s.scalar(0.0, dtype), e) for v, e in zip((y, x_at), ends)]
    image = s.reshape(s.cast(batch, i64), (regions, 1, 1))
    best = s.str_attr("mode", "avg") == "max"
    taps = images.taps(s, image, *held)
    samples = _total(s, taps, "max" if best else "add")
    samples = s.call("where", _column(s, kept), samples, s.scalar(0.0, dtype))
    apart = s.reshape(samples, (regions, size[0], count, size[1], count, x.shape[1]))
    pooled = s.call("max" if best else "mean", apart, axes=(2, 4), keepdims=False)
    return s.cast(s.call("transpose", pooled, perm=(0, 3, 1, 2)), x.dtype)


def lower_max_roi_pool(s: Site) -> Value:
    """The maximum of each bin of a region, in whole elements; an empty bin is 0."""
    x, rois = s.x(0), s.x(1)
    size = s.ints_attr("pooled_shape")
    if len(size) != 2 or len(x.shape) != 4:
        raise InvalidModelError(f"{s.span}: pools images of two dims to two sizes")
    dtype = f32 if x.dtype.bits == 16 else x.dtype
    scale = s.scalar(s.float_attr("spatial_scale", 1.0), dtype)
    regions = rois.shape[0]
    image = s.reshape(s.cast(s.part(rois, 1, 0, 1), i64), (regions,))
    corners = s.call("mul", s.cast(s.part(rois, 1, 1, 5), dtype), scale)
    half = s.scalar(0.5, dtype)  # round half away from zero: no coordinate is negative
    corners = s.call("floor", s.call("add", corners, half))
    lowest = s.scalar(float("-inf"), dtype)
    values = s.call("gather", s.cast(x, dtype), image, axis=0)  # [regions, C, H, W]
    for d, bins in enumerate(size):  # rows, then columns: bins of a dim are alike for the other
        first, last = (s.part(corners, 1, k, k + 1) for k in (1 - d, 3 - d))
        one = s.scalar(1.0, dtype)
        extent = s.call("max", s.call("add", s.call("sub", last, first), one), one)
        step = s.call("div", extent, s.scalar(bins, dtype))
        bin_ = s.cast(places(s, as_int(bins), 2, 1), dtype)
        begin = s.call("add", s.call("floor", s.call("mul", bin_, step)), first)
        after = s.call("ceil", s.call("mul", s.call("add", bin_, one), step))
        after = s.call("add", after, first)
        extents = values.shape[2 + d]
        at = s.cast(places(s, extents, 3, 2), dtype)
        shape = (regions, bins, 1)
        within = s.call("and", s.call("ge", at, s.reshape(begin, shape)),
                        s.call("lt", at, s.reshape(after, shape)))  # fmt: skip
        place = 3 + d  # values [regions, C, (bins,) extents …] with the bins before the extents
        spread = s.call("unsqueeze", values, axes=(place - 1,))
        mask = (regions, 1, bins, extents, 1) if d == 0 else (regions, 1, 1, bins, extents)
        hidden = s.call("where", s.reshape(within, mask), spread, lowest)
        values = s.call("max", hidden, axes=(place,), keepdims=False)
    empty = s.call("eq", values, lowest)
    return s.cast(s.call("where", empty, s.scalar(0.0, dtype), values), x.dtype)


def lower_deform_conv(s: Site) -> Value:
    """A convolution whose windows' elements are moved by offsets, and scaled by a mask."""
    x, w, offset = s.x(0), s.x(1), s.x(2)
    if len(x.shape) != 4:
        raise s.unsupported(f"{len(x.shape) - 2} spatial dims are not supported: two are")
    n, c, h, wide = x.shape
    kernel = w.shape[2:]
    if not all(k.is_const for k in kernel):
        raise s.unsupported("the size of its kernel must be known")
    move = window(s, kernel, (h, wide))
    groups, apart = s.int_attr("group", 1), s.int_attr("offset_group", 1)
    taken = product(kernel).value
    rows, columns = offset.shape[2:]
    dtype = f32 if x.dtype.bits == 16 else x.dtype
    each = s.sizes.divide(c, as_int(apart))
    table = s.call("transpose", s.reshape(x, (n, apart, each, h, wide)), perm=(0, 1, 3, 4, 2))
    images = Images(s.reshape(s.cast(table, dtype), (n * apart * h * wide, each)), h, wide)
    moved = s.reshape(s.cast(offset, dtype), (n * apart, taken, 2, rows, columns))
    at = [
        s.call("add", s.call("squeeze", s.part(moved, 2, d, d + 1), axes=(2,)),
               _window_places(s, d, move, (rows, columns), dtype))
        for d in (0, 1)
    ]  # fmt: skip
    image = s.reshape(places(s, n * apart, 1, 0), (n * apart, 1, 1, 1))
    values = _total(s, images.taps(s, image, *at, zeros=True))  # [n*apart, taken, …, each]
    if s.has(4):
        mask = s.reshape(s.cast(s.x(4), dtype), (n * apart, taken, rows, columns, 1))
        values = s.call("mul", values, mask)
    turned = s.call("transpose", values, perm=(0, 4, 1, 2, 3))
    deep = s.sizes.divide(c, as_int(groups)) * taken
    cols = s.reshape(turned, (n, groups, deep, rows * columns))
    out = s.sizes.divide(w.shape[0], as_int(groups))
    y = s.call("matmul", s.reshape(s.cast(w, dtype), (groups, out, deep)), cols)
    y = s.reshape(y, (n, w.shape[0], rows, columns))
    if s.has(3):
        y = s.call("add", y, s.reshape(s.cast(s.x(3), dtype), (w.shape[0], 1, 1)))
    return s.cast(y, x.dtype)


def _window_places(
    s: Site, d: int, move: Window, size: tuple[Int, Int], dtype: DType
) -> Value:  # fmt: skip
    """Where the windows' elements lie along a dim, [elements of a window, rows, columns]."""
    across = move.kernel[1].value
    places_of = np.arange(product(move.kernel).value)
    inside = (places_of // across, places_of % across)[d] * move.dilations[d]
    first = s.weight(inside.astype(np.int64).reshape(-1, 1, 1), "window")
    begins = s.call("mul", places(s, size[d], 3, 1 + d), s.scalar(move.strides[d], i64))
    at = s.call("sub", s.call("add", first, begins), s.size(move.pads[d][0]))
    return s.cast(at, dtype)


SAMPLE: Final[Mapping[str, Lowering]] = {
    "DeformConv": lower_deform_conv,
    "MaxRoiPool": lower_max_roi_pool,
    "RoiAlign": lower_roi_align,
}
