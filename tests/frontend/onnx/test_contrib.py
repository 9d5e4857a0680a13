"""Fused operators of com.microsoft, against ONNX Runtime or what they were fused of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import by_runtime, check, one_node
from tests.frontend.onnx.models import ops_of

RANDOM = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def compared(op: str, operands: list[Any], want: Any = None, **options: Any) -> None:
    domain = options.pop("domain", "com.microsoft")
    case = one_node(op, operands, domain=domain, **options)
    check(case, by_runtime(case) if want is None else want, rtol=1e-4, atol=1e-4)


WORDS = np.int32([[1, 0, 6], [2, 2, 3]])


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_embeddings_summed_and_normalised(segments: bool, places: bool) -> None:
    operands = [
        WORDS, np.int32([[0, 1, 1], [0, 0, 1]]) if segments else None, floats(7, 8), floats(5, 8),
        floats(2, 8) if segments else None, floats(8), floats(8), np.int32([[1, 1, 0], [1, 1, 1]]),
        np.int32([[4, 3, 2], [0, 1, 2]]) if places else None,
    ]  # fmt: skip
    if not places:
        operands.pop()
    compared(
        "EmbedLayerNormalization", operands, outputs=3, mask_index_type=1, weights=[2, 3, 4, 5, 6]
    )


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        (((2, 3, 4), (2, 5, 4)), {"transB": 1, "alpha": 0.5}),
        (((4, 3), (2, 4, 5)), {"transA": 1}),
        (((3, 2, 4), (2, 4, 5)), {"transBatchA": 1}),
        (((4, 2, 3), (4, 2, 5)), {"transBatchA": 1, "transA": 1, "transBatchB": 1}),
        (((2, 0, 4), (2, 4, 5)), {}),
    ],
)
def test_products_of_what_is_transposed(shapes: Any, attributes: dict[str, Any]) -> None:
    compared("FusedMatMul", [floats(*t) for t in shapes], **attributes)


@pytest.mark.parametrize(
    ("activation", "numbers"),
    [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 0.7]),
     ("HardSigmoid", [0.3, 0.4])],
)  # fmt: skip
def test_convolutions_with_an_activation(activation: str, numbers: list[float]) -> None:
    more = {"activation_params": numbers} if numbers else {}
    operands = [floats(2, 3, 5, 7), floats(4, 3, 3, 3), floats(4)]
    compared("FusedConv", operands, activation=activation, pads=[1, 1, 1, 1], **more)
    if activation == "Relu":
        operands.append(floats(2, 4, 5, 7))
        compared("FusedConv", operands, activation=activation, pads=[1, 1, 1, 1])


def test_gemm_with_an_activation() -> None:
    operands = [floats(3, 4), floats(5, 4), floats(5)]
    compared("FusedGemm", operands, activation="LeakyRelu", activation_alpha=0.3, transB=1)
    compared("FusedGemm", operands, activation="Relu", transB=1, alpha=0.5, beta=2.0)


def test_the_norm_of_roots_before_it_was_standard() -> None:
    operands = [floats(2, 3, 8), floats(8)]
    compared("SimplifiedLayerNormalization", operands, domain="", outputs=2, epsilon=1e-6)
    compared("SimplifiedLayerNormalization", operands, domain="", axis=-1)


def test_norms_of_sums() -> None:
    x, skip, scale, bias = floats(2, 3, 8), floats(1, 3, 8), floats(8), floats(8)
    operands = [x, skip, scale, bias, floats(8)]
    compared("SkipLayerNormalization", operands, outputs=["y", "", "", "sum"])
    compared("SkipSimplifiedLayerNormalization", [x, skip, scale], outputs=["y", "", "", "sum"])


def test_gelus() -> None:
    x, bias = floats(2, 3, 8), floats(8)
    compared("BiasGelu", [x, bias])
    compared("FastGelu", [x, bias])
    compared("Gelu", [x])
    compared("QuickGelu", [x], alpha=1.3)
    a, gate = np.split(torch.tensor(x + bias), 2, axis=-1)
    compared("BiasSplitGelu", [x, bias], want=[(a * F.gelu(gate)).numpy()])


def test_softmax_of_a_sum() -> None:
    x, bias = floats(2, 3, 4, 5), floats(1, 1, 4, 5)
    want = torch.softmax(torch.tensor(x + bias), -1).numpy()
    compared("BiasSoftmax", [x, bias], want=[want], axis=3, is_inner_broadcast=0)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_norms_of_groups(last: int, activation: int) -> None:
    x, scale, bias = floats(2, 5, 3, 8), floats(8), floats(8)
    skip, more = floats(2, 8), floats(8)
    total = x + skip[:, None, None] + more

    def want(t: np.ndarray) -> np.ndarray:
        y = F.group_norm(torch.tensor(t), 4, torch.tensor(scale), torch.tensor(bias))
        return (F.silu(y) if activation else y).numpy()

    def moved(t: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(t, -1, 1))

    options = {"groups": 4, "activation": activation, "weights": [1, 2]}
    if last:
        normal = np.moveaxis(want(moved(x)), 1, -1)
        compared("GroupNorm", [x, scale, bias], want=[normal], **options)
        wanted = [np.moveaxis(want(moved(total)), 1, -1), total]
        operands = [x, scale, bias, skip, more]
        compared("SkipGroupNorm", operands, want=wanted, outputs=2, **options)
    else:
        options["channels_last"] = 0
        compared("GroupNorm", [moved(x), scale, bias], want=[want(moved(x))], **options)


def test_a_convolution_of_channels_last() -> None:
    x, w, bias = floats(2, 7, 5, 3), floats(4, 3, 2, 3), floats(4)
    apart = [torch.tensor(np.moveaxis(t, -1, 1).copy()) for t in (x, w)]
    want = np.moveaxis(F.conv2d(*apart, torch.tensor(bias), stride=2).numpy(), 1, -1)
    compared("NhwcConv", [x, w, bias], want=[want], weights=[1, 2], strides=[2, 2])


def test_small_ones() -> None:
    x, bias, skip = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    compared("BiasAdd", [x, bias, skip], want=[x + bias + skip])
    compared("ExpandDims", [x, np.asarray(-1, np.int32)], weights=[1])
    compared("GatherND", [floats(3, 4), np.int64([[0, 1], [2, 3]])], known=[(1, 1)])
    compared("Trilu", [floats(4, 5)], upper=0)


def test_a_fused_node_is_what_it_was_fused_of() -> None:
    case = one_node("FusedConv", [floats(1, 3, 5, 5), floats(4, 3, 3, 3)], weights=[1],
                    domain="com.microsoft", activation="Relu")  # fmt: skip
    assert ops_of(import_onnx(case.model, OPERATORS)) == ["conv", "relu"]
