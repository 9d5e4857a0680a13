"""ATen interpolation and sampling."""

from __future__ import annotations

from typing import Any, Final

from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.graph.function import Value


def resize(ctx: Context, x: Value, scales: list[Any], **attrs: Any) -> Any:
    """The sizes are those that torch derived; a scale that the user gave places the samples."""
    out = ctx.out_shape()
    exact = attrs["coordinate"] != "align_corners"  # torch uses the sizes' ratio there
    given = tuple(s if exact and isinstance(s, int | float) else None for s in scales)
    return ctx.call(
        "resize", x, sizes=(*x.shape[:2], *out[2:]), scales=(None, None, *given), **attrs
    )


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
    return rows


RESIZE: Final[Table] = {**_rows(), "aten.grid_sampler_2d.default": grid_sample,
                        "aten.grid_sampler.default": grid_sample}  # fmt: skip
