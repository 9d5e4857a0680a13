"""Resize, upsampling and sampling at a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType, f32, i64
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.site import Lowering, Site
from pliant.frontend.onnx.symbolic import Ratio, ratio_of
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int

_COORDINATES: Final = {
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
}  # fmt: skip


def lower_resize(s: Site) -> Value:
    """To sizes, or by scales."""
    x = s.x()
    if s.opset < 11:
        return _resize(s, x, *_scaled(s, x, 1), "asymmetric", "floor")
    coordinate = s.str_attr("coordinate_transformation_mode", "half_pixel")
    if coordinate not in _COORDINATES:
        raise s.unsupported(f"coordinate_transformation_mode {coordinate!r} is not supported")
    if s.has(3) and s.item(3).shape[0] != 0:
        sizes, scales = _sized(s, x)
    else:
        sizes, scales = _scaled(s, x, 2)
    nearest = s.str_attr("nearest_mode", "round_prefer_floor")
    return _resize(s, x, sizes, scales, coordinate, nearest)


def lower_upsample(s: Site) -> Value:
    """The older form; before opset 9 the scales are an attribute."""
    x = s.x()
    given = s.floats_attr("scales", None) if s.opset < 9 else None
    return _resize(s, x, *_scaled(s, x, 1, given), "asymmetric", "floor")


def _resize(
    s: Site, x: Value, sizes: tuple[Int, ...], scales: tuple[float | None, ...], coordinate: str,
    nearest: str,
) -> Value:  # fmt: skip
    mode = s.str_attr("mode", "nearest")
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic"):
        raise InvalidModelError(f"{s.span}: mode {mode!r}")
    more: dict[str, Any] = {}
    if s.int_attr("antialias", 0):
        more["antialias"] = True
    if coordinate == "tf_crop_and_resize":
        more["parts"] = _parts(s, len(x.shape))
        more["outside"] = s.float_attr("extrapolation_value", 0.0)
    return s.call(
        "resize", x, sizes=sizes, scales=scales, mode=mode, coordinate=coordinate,
        nearest=nearest, cubic_coeff=s.float_attr("cubic_coeff_a", -0.75),
        exclude_outside=bool(s.int_attr("exclude_outside", 0)), **more,
    )  # fmt: skip


def _parts(s: Site, rank: int) -> tuple[tuple[float, float], ...]:
    """The part of each dim that is resampled."""
    roi = s.const(1, "roi").ravel().tolist()
    axes = _resized_axes(s, rank)
    if len(roi) != 2 * len(axes):
        raise InvalidModelError(f"{s.span}: {len(roi)} bounds of a part of {len(axes)} dims")
    parts = [(0.0, 1.0)] * rank
    for k, axis in enumerate(axes):
        first, last = roi[k], roi[k + len(axes)]
        parts[axis] = (_decimal(first), _decimal(last))
    return tuple(parts)


def _decimal(value: float) -> float:
    """The number that was meant by an f32."""
    return float(str(np.float32(value)))


def _resized_axes(s: Site, rank: int) -> tuple[int, ...]:
    return tuple(s.positive_axis(a, rank) for a in s.ints_attr("axes", range(rank)))


def _scaled(
    s: Site, x: Value, index: int, numbers: Sequence[float] | None = None
) -> tuple[tuple[Int, ...], tuple[float | None, ...]]:
    """Sizes and scales from operand `index`, or of these numbers."""
    known = s.known(index, "scales").ravel().tolist() if numbers is None else list(numbers)
    axes = _resized_axes(s, len(x.shape))
    if len(known) != len(axes):
        raise InvalidModelError(f"{s.span}: {len(known)} scales for {len(axes)} dims")
    sizes, scales = list(x.shape), [1.0] * len(x.shape)
    given: list[float | None] = list(scales)
    for axis, scale in zip(axes, known, strict=True):
        ratio = ratio_of(scale, f32)
        sizes[axis] = (x.shape[axis] * ratio.num) // ratio.den
        given[axis] = _exact(scale)
    return tuple(sizes), tuple(given)


def _exact(scale: float | Ratio) -> float | None:
    return scale.number if isinstance(scale, Ratio) else float(scale)


def _sized(s: Site, x: Value) -> tuple[tuple[Int, ...], tuple[float | None, ...]]:
    wanted = s.ints(3, "sizes")
    axes = _resized_axes(s, len(x.shape))
    if len(wanted) != len(axes):
        raise InvalidModelError(f"{s.span}: {len(wanted)} sizes for {len(axes)} dims")
    policy = s.str_attr("keep_aspect_ratio_policy", "stretch")
    sizes = list(x.shape)
    scales: list[float | None] = [1.0 if k not in axes else None for k in range(len(sizes))]
    if policy == "stretch":
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = size
        return tuple(sizes), tuple(scales)
    if not all(d.is_const for d in (*wanted, *(x.shape[a] for a in axes))):
        raise s.unsupported(f"keep_aspect_ratio_policy {policy!r} needs fixed sizes")
    ratios = [Fraction(w.value, x.shape[a].value) for w, a in zip(wanted, axes, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        sizes[axis] = as_int(int(ratio * x.shape[axis].value + Fraction(1, 2)))
        scales[axis] = float(ratio)
    return tuple(sizes), tuple(scales)


def lower_affine_grid(s: Site) -> Value:
    """Where an affine map takes the middles of an image's elements, or its corners: [N, …, k] for
    theta [N, k, k + 1]. The last dim comes first among coordinates."""
    theta, (_, _, *extents) = s.x(0), s.ints(1, "size")
    count = len(extents)
    if count not in (2, 3) or len(theta.shape) != 3:
        raise InvalidModelError(f"{s.span}: a grid of {count} spatial dims")
    s.builder.equal(theta.shape[0], s.ints(1, "size")[0], f"{s.span}: the batch size")
    corners = bool(s.int_attr("align_corners", 0))
    total: Value | None = None
    for k in range(count + 1):
        factor = s.part(theta, 2, k, k + 1)  # [N, coordinates, 1]
        ones = (as_int(1),) * count
        term = s.reshape(factor, (theta.shape[0], *ones, theta.shape[1]))
        if k < count:
            d = count - 1 - k
            at = _middles(s, extents[d], theta.dtype, corners)
            along = tuple(extents[d] if e == d else as_int(1) for e in range(count))
            term = s.call("mul", term, s.reshape(at, (as_int(1), *along, as_int(1))))
        total = term if total is None else s.call("add", total, term)
    assert total is not None
    return total


def _middles(s: Site, size: Int, dtype: DType, corners: bool) -> Value:
    """Of so many elements of [-1, 1], or as many points from one end to the other; 0 if one."""
    at = s.cast(s.call("iota", size=size, start=0, step=1, dtype=i64), dtype)
    two = s.scalar(2.0, dtype)
    if corners:
        last = s.size(size - 1, dtype)
        step = s.call("div", two, s.call("max", last, s.scalar(1.0, dtype)))
        first = s.call("min", last, s.scalar(1.0, dtype))  # 0 of one element
        return s.call("sub", s.call("mul", at, step), first)
    middle = s.call("add", s.call("mul", at, two), s.scalar(1.0, dtype))
    return s.call("sub", s.call("div", middle, s.size(size, dtype)), s.scalar(1.0, dtype))


def lower_grid_sample(s: Site) -> Value:
    """Values at positions in [-1, 1]."""
    mode = s.str_attr("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return s.call(
        "grid_sample", s.x(0), s.x(1), mode=mode, padding=s.str_attr("padding_mode", "zeros"),
        align_corners=bool(s.int_attr("align_corners", 0)),
    )  # fmt: skip


RESIZE: Final[Mapping[str, Lowering]] = {
    "AffineGrid": lower_affine_grid,
    "GridSample": lower_grid_sample,
    "Resize": lower_resize,
    "Upsample": lower_upsample,
}
