"""Resampling against torch and the ONNX reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from torch.nn import functional

from tests.ops.case import FLOATS, Case, arg, between, with_types
from tests.ops.data.matmul import in_f64

SIZES = (
    {"b": 2, "h": 4, "w": 6, "p": 8, "q": 3},
    {"b": 1, "h": 1, "w": 1, "p": 3, "q": 1},
    {"b": 1, "h": 5, "w": 7, "p": 1, "q": 7},
    {"b": 0, "h": 3, "w": 3, "p": 5, "q": 2},
    {"b": 1, "h": 6, "w": 10, "p": 4, "q": 17},
)
X = arg("f32", "b", 2, "h", "w")


def interpolate(
    x: torch.Tensor, sizes: Any, mode: str, coordinate: str, antialias: bool = False, **_: Any
) -> torch.Tensor:
    if x.numel() == 0:
        return x.new_zeros(tuple(sizes))
    if mode == "nearest":
        how = "nearest" if coordinate == "asymmetric" else "nearest-exact"
        return functional.interpolate(x, tuple(sizes[2:]), mode=how)
    how = {"linear": "bilinear", "cubic": "bicubic"}[mode]
    corners = coordinate == "align_corners"
    return functional.interpolate(
        x, tuple(sizes[2:]), mode=how, align_corners=corners, antialias=antialias
    )


def torch_cases() -> list[Case]:
    found: list[Case] = []
    choices = (
        ("nearest", "asymmetric", "floor"),
        ("nearest", "half_pixel", "round_prefer_ceil"),
        ("linear", "half_pixel", "floor"),
        ("linear", "align_corners", "floor"),
        ("cubic", "half_pixel", "floor"),
        ("cubic", "align_corners", "floor"),
    )
    for mode, coordinate, nearest in choices:

        def attrs(d: Any, m: str = mode, c: str = coordinate, n: str = nearest) -> dict[str, Any]:
            return {"sizes": (d("b"), 2, d("p"), d("q")), "mode": m, "coordinate": c, "nearest": n}

        base = Case("resize", (X,), in_f64(interpolate), attrs, SIZES, 8, f"{mode}-{coordinate}")
        found += with_types(base, *(FLOATS if coordinate != "align_corners" else ("f32",)))

        def double(d: Any, m: str = mode, c: str = coordinate, n: str = nearest) -> dict[str, Any]:
            return {
                "sizes": (d("b"), 2, d("2*h"), d("2*w")),
                "mode": m,
                "coordinate": c,
                "nearest": n,
            }

        found.append(
            Case(
                "resize", (X,), in_f64(interpolate), double, SIZES, 8, f"double-{mode}-{coordinate}"
            )
        )
    for mode in ("linear", "cubic"):  # as PIL does it

        def spread(d: Any, m: str = mode) -> dict[str, Any]:
            sizes = {"sizes": (d("b"), 2, d("p"), d("q")), "coordinate": "half_pixel", "mode": m}
            return sizes | {"antialias": True, "exclude_outside": True, "cubic_coeff": -0.5}

        found.append(
            Case("resize", (X,), in_f64(interpolate), spread, SIZES, 8, f"antialias-{mode}")
        )
    return found


def onnx_resize(
    x: np.ndarray,
    sizes: Any,
    mode: str,
    coordinate: str,
    nearest: str = "round_prefer_floor",
    scales: Any = None,
    exclude_outside: bool = False,
    cubic_coeff: float = -0.75,
    antialias: bool = False,
    parts: Any = None,
    outside: float = 0.0,
) -> np.ndarray:
    roi = "" if parts is None else "roi"
    names = ["x", roi, "", "sizes"] if scales is None else ["x", roi, "scales"]
    node = onnx.helper.make_node(
        "Resize",
        names,
        ["y"],
        mode=mode,
        coordinate_transformation_mode=coordinate,
        nearest_mode=nearest,
        exclude_outside=int(exclude_outside),
        cubic_coeff_a=cubic_coeff,
        antialias=int(antialias),
        extrapolation_value=outside,
    )
    info = onnx.helper.make_tensor_value_info
    ins = [info("x", 1, None)]
    feeds: dict[str, np.ndarray] = {"x": x}
    if parts is not None:
        feeds["roi"] = np.float32(parts).T.ravel()
        ins.append(info("roi", 1, None))
    if scales is None:
        feeds["sizes"] = np.array(sizes, np.int64)
        ins.append(info("sizes", 7, None))
    else:
        feeds["scales"] = np.array([1 if s is None else s for s in scales], np.float32)
        ins.append(info("scales", 1, None))
    graph = onnx.helper.make_graph([node], "g", ins, [info("y", 1, None)])
    found = ReferenceEvaluator(onnx.helper.make_model(graph)).run(None, feeds)[0]
    return np.asarray(found, x.dtype)


def onnx_cases() -> list[Case]:
    found: list[Case] = []
    sizes = tuple(s for s in SIZES if s["b"])
    # The reference computes coordinates in floats: integer and half ratios only, where it is exact.
    ratios = ({"b": 1, "h": 4, "w": 6, "p": 8, "q": 3}, {"b": 1, "h": 2, "w": 8, "p": 6, "q": 4})
    for coordinate in (
        "half_pixel",
        "asymmetric",
        "align_corners",
        "pytorch_half_pixel",
        "half_pixel_symmetric",
    ):
        for nearest in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
            if coordinate == "align_corners":
                continue
            found.append(one("nearest", coordinate, ratios, nearest=nearest))
        for mode in ("linear", "cubic"):
            more = {"cubic_coeff": -0.5} if mode == "cubic" else {}
            # Of one element the reference differs from the specification and ONNX Runtime.
            odd = coordinate in ("align_corners", "pytorch_half_pixel")
            found.append(one(mode, coordinate, sizes[:1] if odd else sizes, **more))
    found.append(one("cubic", "half_pixel", sizes, exclude_outside=True))
    found.append(one("linear", "half_pixel", sizes, exclude_outside=True))
    for mode in ("linear", "cubic"):
        found.append(one(mode, "half_pixel", sizes, antialias=True))
        found.append(one(mode, "half_pixel", sizes, antialias=True, exclude_outside=True))
    parts = ((0.0, 1.0), (0.0, 1.0), (0.25, 1.5), (1.0, 0.0))  # beyond the end, and backwards
    for mode in ("nearest", "linear"):
        found.append(one(mode, "tf_crop_and_resize", ratios[1:], parts=parts, outside=9.0))
    for mode in ("nearest", "linear", "cubic"):
        first = {"sizes": (1, 1, 7), "mode": mode, "coordinate": "pytorch_half_pixel"}
        found.append(
            Case(
                "resize",
                (arg("f32", 1, 5, 7),),
                lambda x, **_: x[:, :1],
                first,
                note=f"first-{mode}",
            )
        )
        for coordinate in ("asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners"):
            x = arg("f32", 1, 1, 5, 8)
            attrs: dict[str, Any] = {
                "sizes": (1, 1, 7, 12),
                "scales": (None, None, 1.5, 1.5),
                "mode": mode,
                "coordinate": coordinate,
            }
            found.append(
                Case(
                    "resize",
                    (x,),
                    onnx_resize,
                    attrs,
                    note=f"scales-{mode}-{coordinate}",
                    numpy=True,
                    tol=8,
                )
            )
    return found


def one(mode: str, coordinate: str, sizes: Any, **more: Any) -> Case:
    def attrs(d: Any) -> dict[str, Any]:
        return {
            "sizes": (d("b"), 2, d("p"), d("q")),
            "mode": mode,
            "coordinate": coordinate,
            **more,
        }

    said = "-".join(name if value is True else str(value) for name, value in more.items())
    note = f"onnx-{mode}-{coordinate}-{said}"
    return Case("resize", (X,), onnx_resize, attrs, sizes, 16, note, numpy=True)


def grid_sample(
    x: torch.Tensor, grid: torch.Tensor, mode: str, padding: str, align_corners: bool
) -> torch.Tensor:
    found = functional.grid_sample(
        x.double(), grid.double(), mode=mode, padding_mode=padding, align_corners=align_corners
    )
    return found.to(x.dtype)


def sampling_cases() -> list[Case]:
    found: list[Case] = []
    sizes = tuple(s for s in SIZES if s["b"])
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            for mode in ("bilinear", "nearest", "bicubic"):
                grid = arg("f32", "b", "p", "q", 2, fill=between(-1.7, 1.7))
                attrs = {"mode": mode, "padding": padding, "align_corners": align}
                base = Case(
                    "grid_sample",
                    (X, grid),
                    grid_sample,
                    attrs,
                    sizes,
                    40,
                    f"{mode}-{padding}{align:d}",
                )
                found += with_types(base, "f32", "f64")
            x = arg("f32", "b", 2, 3, "h", "w")
            grid = arg("f32", "b", 2, "p", "q", 3, fill=between(-1.5, 1.5))
            attrs = {"mode": "bilinear", "padding": padding, "align_corners": align}
            found.append(
                Case(
                    "grid_sample",
                    (x, grid),
                    grid_sample,
                    attrs,
                    sizes,
                    40,
                    f"3d-{padding}{align:d}",
                )
            )
    return found


CASES = [*torch_cases(), *onnx_cases(), *sampling_cases()]
