"""Regions of interest, deformed windows and determinants, against ONNX Runtime or torchvision's
formulas in ONNX's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import by_reference, by_runtime, check, one_node

RANDOM = np.random.default_rng(19)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def rois(count: int, size: float) -> np.ndarray:
    """Some of them partly outside."""
    corners = RANDOM.uniform(-2, size, (count, 2))
    return np.concatenate([corners, corners + RANDOM.uniform(0.1, size, (count, 2))], 1).astype(
        np.float32
    )


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_regions_sampled(mode: str, corners: str, count: int) -> None:
    operands = [floats(3, 2, 7, 9), rois(count, 12), RANDOM.integers(0, 3, count)]
    case = one_node(
        "RoiAlign", operands, version=16, mode=mode, coordinate_transformation_mode=corners,
        output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.5,
    )  # fmt: skip
    check(case, by_runtime(case), native=count == 5, rtol=1e-4, atol=1e-4)


def test_regions_before_they_had_half_pixels() -> None:
    operands = [floats(1, 2, 6, 6), rois(4, 6), np.zeros(4, np.int64)]
    case = one_node("RoiAlign", operands, version=10, output_height=2, sampling_ratio=3)
    check(case, by_runtime(case), rtol=1e-4, atol=1e-4)


def test_as_many_samples_as_a_region_is_large() -> None:
    operands = [floats(1, 2, 6, 6), rois(4, 6), np.zeros(4, np.int64)]
    case = one_node("RoiAlign", operands, version=16)
    with pytest.raises(UnsupportedError, match="sampling_ratio 0"):
        import_onnx(case.model, OPERATORS)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_regions_pooled(scale: float) -> None:
    places = np.abs(np.round(rois(5, 12)))
    images = RANDOM.integers(0, 3, (5, 1)).astype(np.float32)
    operands = [floats(3, 2, 7, 9), np.concatenate([images, places], 1)]
    case = one_node("MaxRoiPool", operands, pooled_shape=[3, 2], spatial_scale=scale)
    check(case, by_runtime(case))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("groups", "apart", "attributes"),
    [
        (1, 1, {}), (2, 1, {"strides": [2, 1]}), (1, 2, {"pads": [1, 0, 2, 1]}),
        (4, 4, {"dilations": [1, 2], "pads": [1, 1, 1, 1]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_deformed_windows(
    groups: int, apart: int, attributes: dict[str, Any], masked: bool
) -> None:
    n, c, height, width, kernel = 2, 4, 5, 4, (3, 2)
    pads = attributes.get("pads", [0] * 4)
    strides, dilations = (attributes.get(k, [1, 1]) for k in ("strides", "dilations"))
    size = [
        (e + pads[d] + pads[d + 2] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1
        for d, e in enumerate((height, width))
    ]
    operands = [
        floats(n, c, height, width), floats(8, c // groups, *kernel),
        floats(n, apart * 12, *size) * 2, floats(8),
    ]  # fmt: skip
    operands += [floats(n, apart * 6, *size)] if masked else []
    case = one_node(
        "DeformConv", operands, weights=[1, 3], version=19, group=groups, offset_group=apart,
        known=[(0, 1), (2, 1)], **attributes,
    )  # fmt: skip
    check(case, by_reference(case), native=masked, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [0, 1, 2, 5, 13])
def test_determinants(size: int) -> None:
    case = one_node("Det", [floats(2, 3, size, size)])
    check(case, by_reference(case), rtol=1e-4, atol=1e-4)


def test_determinants_of_what_is_not_square() -> None:
    with pytest.raises(InvalidModelError, match="matrices must be square, not 3 by 4"):
        import_onnx(one_node("Det", [floats(3, 4)]).model, OPERATORS, input_shapes={"x0": (3, 4)})
