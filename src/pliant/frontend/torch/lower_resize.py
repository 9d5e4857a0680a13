"""ATen interpolation and sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from pliant.base.dtypes import DType, f32, f64, i64, u8
from pliant.frontend.torch.context import Context, Lowering, Table, size_of
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int, maximum


def resize(ctx: Context, x: Value, scales: list[Any], **attrs: Any) -> Any:
    """The sizes are those that torch derived; a scale that the user gave places the samples."""
    out = ctx.out_shape()
    exact = attrs["coordinate"] != "align_corners"  # torch uses the sizes' ratio there
    given = tuple(s if exact and isinstance(s, int | float) else None for s in scales)
    sizes, ratios = (*x.shape[:2], *out[2:]), (None, None, *given)
    if x.dtype is u8 and attrs["mode"] != "nearest":
        return _of_bytes(ctx, x, sizes, ratios, attrs)
    return ctx.call("resize", x, sizes=sizes, scales=ratios, **attrs)


def _of_bytes(
    ctx: Context, x: Value, sizes: Sequence[Any], scales: Sequence[Any], attrs: dict[str, Any]
) -> Any:
    """One dimension after the other, the last first, each rounded to bytes as torch does it."""
    half, ends = ctx.scalar(0.5, f32), (ctx.scalar(0, f32), ctx.scalar(255, f32))
    for d in range(len(sizes) - 1, 1, -1):
        one = tuple(sizes[k] if k == d else n for k, n in enumerate(x.shape))
        given = tuple(s if k == d else None for k, s in enumerate(scales))
        y = ctx.call("resize", ctx.cast(x, f32), sizes=one, scales=given, **attrs)
        y = ctx.call("floor", ctx.call("add", y, half))
        x = ctx.cast(ctx.call("clamp", y, *ends), u8)
    return x


def vector(mode: str, align: bool) -> Lowering:
    """`upsample_*.vec(x, output_size, [align_corners], scale_factors)`."""

    def lower(ctx: Context, x: Value, output_size: Any, *rest: Any) -> Any:
        corners = bool(rest[0]) if align else False
        factors = rest[-1] if rest else None
        scales = list(factors) if factors else [None] * (len(x.shape) - 2)
        return resize(ctx, x, scales, **_attributes(mode, corners))

    return lower


def plain(mode: str, align: bool) -> Lowering:
    """`upsample_*.default(x, output_size, [align_corners], scale…)`."""

    def lower(ctx: Context, x: Value, output_size: Any, *rest: Any, **named: Any) -> Any:
        corners = bool(rest[0]) if align else False
        scales = [*(rest[1:] if align else rest), *named.values()]
        scales += [None] * (len(x.shape) - 2 - len(scales))
        return resize(ctx, x, scales, **_attributes(mode, corners))

    return lower


def antialiased(mode: str) -> Lowering:
    """`_upsample_*_aa.vec(x, output_size, align_corners, scale_factors)`, and `.default`, which has
    the factors one by one: the weights of PIL."""

    def lower(ctx: Context, x: Value, output_size: Any, corners: bool, *factors: Any) -> Any:
        flat = factors[0] if factors and isinstance(factors[0], Sequence) else factors
        scales = list(flat) if len(flat) == len(x.shape) - 2 else [None] * (len(x.shape) - 2)
        if corners:  # by the ratio of all but one of the elements, from the same start
            scales = [_all_but_one(ctx, *nm) for nm in zip(x.shape[2:], ctx.out_shape()[2:])]
        attrs = {"mode": mode, "coordinate": "half_pixel", "cubic_coeff": -0.5}
        return resize(ctx, x, scales, **attrs, exclude_outside=True, antialias=True)

    return lower


def _all_but_one(ctx: Context, n: Int, m: Int) -> float | None:
    """The scale (m - 1) / (n - 1)."""
    if not n.is_const or not m.is_const:
        raise ctx.unsupported("antialias with align_corners of a symbolic size")
    return (m.value - 1) / (n.value - 1) if m.value > 1 and n.value > 1 else None


def _attributes(mode: str, corners: bool) -> dict[str, Any]:
    if mode == "nearest":
        return {"mode": "nearest", "coordinate": "asymmetric", "nearest": "floor"}
    if mode == "nearest-exact":
        return {"mode": "nearest", "coordinate": "half_pixel", "nearest": "round_prefer_ceil"}
    coordinate = "align_corners" if corners else "half_pixel"
    if mode == "cubic":
        return {"mode": "cubic", "coordinate": coordinate, "cubic_coeff": -0.75}
    return {"mode": "linear", "coordinate": coordinate}


def grid_sample(
    ctx: Context, x: Value, grid: Value, mode: int, padding: int, align_corners: bool
) -> Any:
    modes = ("bilinear", "nearest", "bicubic")
    paddings = ("zeros", "border", "reflection")
    return ctx.call(
        "grid_sample", x, grid, mode=modes[mode], padding=paddings[padding],
        align_corners=align_corners,
    )  # fmt: skip


def affine_grid(ctx: Context, theta: Value, size: Sequence[Any], align: bool) -> Any:
    """The coordinates of an image's or a volume's elements, with a 1, times each matrix."""
    n, _, *spatial = map(size_of, size)
    rank, dtype = len(spatial), theta.dtype
    columns = []
    for d in reversed(range(rank)):
        row = tuple(spatial[d] if k == d else as_int(1) for k in range(rank))
        along = ctx.call("reshape", _from_edge_to_edge(ctx, spatial[d], align, dtype), shape=row)
        columns.append(ctx.call("expand", along, shape=tuple(spatial)))
    columns.append(ctx.call("full", shape=tuple(spatial), value=1.0, dtype=dtype))
    count = math.prod(spatial, start=as_int(1))
    base = ctx.call("reshape", ctx.call("stack", tuple(columns), axis=rank),
                    shape=(count, rank + 1))  # fmt: skip
    grid = ctx.call("matmul", base, ctx.call("transpose", theta, perm=(0, 2, 1)))
    return ctx.call("reshape", grid, shape=(n, *spatial, rank))


def _from_edge_to_edge(ctx: Context, count: Int, align: bool, dtype: DType) -> Value:
    """From -1 to 1: the middles of the outer elements, or else their edges; 0 of one alone."""
    at = ctx.call("iota", size=count, start=1 - count, step=2, dtype=i64)
    span = maximum(count - 1, 1) if align else maximum(count, 1)
    wide = ctx.call("div", ctx.cast(at, f64), ctx.tensor(span, f64))
    return ctx.cast(wide, dtype)


def _rows() -> dict[str, Lowering]:
    rows: dict[str, Lowering] = {}
    names = [(f"upsample_nearest{n}d", "nearest", False) for n in (1, 2, 3)]
    names += [(f"_upsample_nearest_exact{n}d", "nearest-exact", False) for n in (1, 2, 3)]
    names += [
        ("upsample_linear1d", "linear", True),
        ("upsample_bilinear2d", "linear", True),
        ("upsample_trilinear3d", "linear", True),
        ("upsample_bicubic2d", "cubic", True),
    ]
    for name, mode, align in names:
        rows[f"aten.{name}.vec"] = vector(mode, align)
        rows[f"aten.{name}.default"] = plain(mode, align)
    for name, mode in (("bilinear2d", "linear"), ("bicubic2d", "cubic")):
        for overload in ("vec", "default"):
            rows[f"aten._upsample_{name}_aa.{overload}"] = antialiased(mode)
    return rows


RESIZE: Final[Table] = {**_rows(), "aten.grid_sampler_2d.default": grid_sample,
                        "aten.grid_sampler.default": grid_sample,
                        "aten.grid_sampler_3d.default": grid_sample,
                        "aten.affine_grid_generator.default": affine_grid}  # fmt: skip
