"""Resize in its rarer forms, against ONNX Runtime and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import numpy_helper

import pliant
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import Case, by_runtime, check, one_node
from tests.frontend.onnx.models import parsed

RANDOM = np.random.default_rng(23)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("sizes", [[1, 1], [3, 4], [5, 12], [7, 9], [20, 2]])
def test_smaller_without_aliases(mode: str, exclude: int, sizes: list[int]) -> None:
    case = one_node(
        "Resize", [floats(1, 2, 7, 9), None, None, np.int64(sizes)], weights=[3], version=19,
        antialias=1, mode=mode, exclude_outside=exclude, axes=[2, 3],
    )  # fmt: skip
    check(case, by_runtime(case), native=sizes == [5, 12], rtol=1e-4, atol=1e-4)


def test_smaller_by_scales_without_aliases() -> None:
    scales = np.float32([1, 1, 0.6, 0.3])
    case = one_node(
        "Resize", [floats(1, 1, 10, 10), None, scales], weights=[2], antialias=1, mode="linear"
    )
    check(case, by_runtime(case), rtol=1e-4, atol=1e-4)


def test_any_size_without_aliases() -> None:
    """One compilation; the number of neighbours follows from the sizes."""
    f = pliant.compile(
        parsed(
            "g (float[1, 2, h, w] x, float[p, q] like) => (float[1, 2, a, b] y) { s = Shape(like) "
            'y = Resize<antialias = 1, exclude_outside = 1, axes = [2, 3], mode = "linear"'
            "> (x, , , s) }",
            19,
        )
    )
    for h, w, p, q in ((7, 9, 3, 4), (5, 5, 5, 9), (64, 33, 10, 33), (13, 1, 1, 1)):
        x = floats(1, 2, h, w)
        want = torch.nn.functional.interpolate(
            torch.tensor(x), (p, q), mode="bilinear", antialias=True
        )
        np.testing.assert_allclose(f(x, floats(p, q)), want.numpy(), rtol=1e-4, atol=1e-4)
    assert f(floats(1, 2, 5, 5), floats(0, 3)).shape == (1, 2, 0, 3)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [[1, 1], [3, 4], [9, 12]])
def test_a_part_of_an_image(mode: str, sizes: list[int]) -> None:
    """One that goes beyond the end, and one that goes backwards."""
    more: dict[str, Any] = {"mode": mode, "extrapolation_value": 7.5}
    for roi in ([0, 0, 0.2, 0.4, 1, 1, 0.7, 1.3], [0, 0, 0.9, 0.0, 1, 1, 0.1, 1.0]):
        case = one_node(
            "Resize",
            [floats(1, 1, 8, 6), np.float32(roi), None, np.int64([1, 1, *sizes])],
            weights=[1, 3], version=13, coordinate_transformation_mode="tf_crop_and_resize", **more,
        )  # fmt: skip
        check(case, by_runtime(case), rtol=1e-4, atol=1e-4)


def test_a_part_of_the_wrong_rank() -> None:
    case = one_node(
        "Resize", [floats(1, 1, 8, 6), np.float32([0, 1]), None, np.int64([1, 1, 2, 2])],
        weights=[1, 3], version=13, coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    with pytest.raises(InvalidModelError, match="2 bounds of a part of 4 dims"):
        import_onnx(case.model, OPERATORS)


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("extents", [(3, 4), (1, 1), (5, 1), (3, 4, 2)])
def test_grids_of_affine_maps(corners: int, extents: tuple[int, ...]) -> None:
    """Of a batch of one and of several, by one compilation."""
    names = ", ".join(f"s{k}" for k in range(len(extents)))
    count = len(extents)
    f = pliant.compile(
        parsed(
            f"g (float[n, c, {names}] x, float[n, {count}, {count + 1}] t) => (y) "
            f"{{ s = Shape(x) y = AffineGrid<align_corners = {corners}>(t, s) }}",
            20,
        )
    )
    for n in (1, 3):
        theta = floats(n, count, count + 1)
        if corners and 1 in extents:  # torch has changed its mind since
            theta[..., :-1] = 0
        want = torch.nn.functional.affine_grid(
            torch.tensor(theta), [n, 2, *extents], align_corners=bool(corners)
        )
        np.testing.assert_allclose(f(floats(n, 2, *extents), theta), want, rtol=1e-4, atol=1e-5)


def test_a_number_outside_of_an_image_is_no_linear_map() -> None:
    """A product over channels stays behind it."""
    model = parsed(
        "g (float[1, 64, 4, 4] x) => (y) <float[8] roi = {0, 0, 0, 0, 1, 1, 2, 2}, "
        'int64[4] s = {1, 64, 8, 8}> { r = Resize<mode = "linear", extrapolation_value = 3.0, '
        'coordinate_transformation_mode = "tf_crop_and_resize">(x, roi, , s) y = Conv(r, w) }'
    )
    model.graph.node[1].input[1] = "w"
    model.graph.initializer.append(numpy_helper.from_array(floats(4, 64, 1, 1), "w"))
    case = Case(model, {"x": floats(1, 64, 4, 4)})
    (want,) = by_runtime(case)
    have = pliant.compile(model)(case.feeds["x"])
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
