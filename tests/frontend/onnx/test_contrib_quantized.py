"""Quantised operators of com.microsoft, against ONNX Runtime or the formula."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from pliant.base.errors import PliantError, UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import Case, by_runtime, check, one_node
from tests.targets import multiplies_bytes

RANDOM = np.random.default_rng(5)


def node(op: str, operands: list[Any], **options: Any) -> Case:
    return one_node(op, operands, domain="com.microsoft", **options)


def floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def data(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Along the last dim, low bits first, zeros behind them."""
    each = 8 // bits
    rest = -values.shape[-1] % each
    wide = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, rest)])
    apart = wide.reshape(*wide.shape[:-1], -1, each).astype(np.uint32)
    return (apart << (np.arange(each) * bits)).sum(-1).astype(np.uint8)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "real"])
@pytest.mark.parametrize(("n", "k"), [(3, 32), (5, 100), (16, 64), (1, 7)])
def test_matrices_of_few_bits(bits: int, zeros: str, n: int, k: int) -> None:
    block = 32
    count = -(-k // block)
    q = RANDOM.integers(0, 1 << bits, (n, count, block))
    q.reshape(n, -1)[:, k:] = 0
    scale = floats(n, count)
    zero: np.ndarray = np.full((n, count), 1 << bits - 1)
    operands = [floats(2, 3, k), packed(q, bits), scale, None]
    if zeros == "packed":
        zero = RANDOM.integers(0, 1 << bits, (n, count))
        operands[3] = packed(zero, bits)
    elif zeros == "real":
        zero = operands[3] = floats(n, count, scale=4)
    w = ((q - zero[..., None]) * scale[..., None]).reshape(n, -1)[:, :k]
    case = node(
        "MatMulNBits", [*operands, None, floats(n)], weights=[1, 2, 3, 5], K=k, N=n, bits=bits,
        block_size=block,
    )  # fmt: skip
    bias = numpy_helper.to_array(case.model.graph.initializer[-1])
    want = (operands[0].astype(np.float64) @ w.T + bias).astype(np.float32)
    check(case, [want], rtol=1e-4, atol=1e-4)
    if bits == 4 and zeros == "packed":
        np.testing.assert_allclose(by_runtime(case)[0], want, rtol=1e-3, atol=1e-3)
        check(case, [want], rtol=1e-4, atol=1e-4, native=True)


def test_a_matrix_of_four_bits_whose_blocks_are_not_in_order() -> None:
    q, scale, group = RANDOM.integers(0, 16, (3, 2, 16)), floats(3, 2), data(32) % 2
    w = (q.reshape(3, -1) - 8.0) * scale[:, group]
    x = floats(4, 32)
    case = node(
        "MatMulNBits", [x, packed(q, 4), scale, None, group.astype(np.int32)],
        weights=[1, 2, 4], K=32, N=3, bits=4, block_size=16,
    )  # fmt: skip
    check(case, [(x @ w.T).astype(np.float32)], rtol=1e-4, atol=1e-4)


def test_halves_times_a_matrix_of_four_bits() -> None:
    x, scale = floats(4, 32).astype(np.float16), floats(3, 2, scale=0.1).astype(np.float16)
    case = node(
        "MatMulNBits", [x, data(3, 2, 8), scale], weights=[1, 2], K=32, N=3, bits=4, block_size=16
    )
    check(case, by_runtime(case), rtol=1e-2, atol=1e-2)


def test_three_bits_are_refused() -> None:
    case = node(
        "MatMulNBits", [floats(4, 16), data(3, 1, 6), floats(3)], weights=[1, 2], K=16, N=3,
        bits=3, block_size=16,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="3 bits in u8 are not supported"):
        import_onnx(case.model, OPERATORS)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_packed_table(bits: int, zeros: bool) -> None:
    table, scale = data(5, 32 * bits // 8), floats(5, 2)
    operands = [table, np.int64([[0, -1, 3], [2, 2, 4]]), scale]
    if zeros:
        operands.append(data(5, 2 * bits // 8))
    case = node(
        "GatherBlockQuantized", operands, weights=[0, 2, 3], bits=bits, block_size=16,
        quantize_axis=1, gather_axis=0,
    )  # fmt: skip
    check(case, by_runtime(case))


@pytest.mark.parametrize(("gathered", "along"), [(0, 1), (1, 2), (2, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_slices_of_a_table_of_four_bits(kind: str, gathered: int, along: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind))
    shape = [19, 5, 3]
    shape[along] = 35
    w = RANDOM.integers(0, 7, shape).astype(dtype)
    shape[along] = 3
    zero = RANDOM.integers(0, 7, shape).astype(dtype)
    case = node(
        "GatherBlockQuantized",
        [numpy_helper.from_array(w), np.int32([[0, 2], [1, -1]]), floats(*shape),
         numpy_helper.from_array(zero)],
        weights=[2], block_size=16, quantize_axis=along, gather_axis=gathered,
    )  # fmt: skip
    check(case, by_runtime(case))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("each", [False, True])
def test_products_of_bytes_made_real(dtype: type, each: bool) -> None:
    part = dtype(1 if multiplies_bytes() else 2)
    b, scale = data(7, 5, dtype=dtype) // part, np.abs(floats(5 if each else 1)) + 0.01
    zero = data(5 if each else 1, dtype=dtype) // part
    a = floats(2, 3, 7)
    case = node("DynamicQuantizeMatMul", [a, b, scale, zero, floats(5)], weights=range(1, 5))
    check(case, by_runtime(case), rtol=1e-4, atol=1e-3)
    one = np.float32([0.02])
    case = node(
        "MatMulIntegerToFloat", [data(2, 3, 7), b, one, scale, np.uint8([7]), zero, floats(5)],
        weights=range(1, 7),
    )  # fmt: skip
    check(case, by_runtime(case), rtol=1e-4, atol=1e-3)


S, Z = np.float32(0.05), np.uint8(130)
T, Y = np.float32(0.07), np.uint8(90)


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        ("QLinearAdd", [data(3, 1, 5), S, Z, data(4, 5), T, Y, np.float32(0.1), Z], {}),
        ("QLinearAdd", [data(3, 0), S, Z, data(1, 1), T, Y, np.float32(0.1), Z], {}),
        ("QLinearMul", [data(3, 5), S, Z, data(5), T, Y, np.float32(0.3), Z], {}),
        ("QLinearSigmoid", [data(3, 5), S, Z, np.float32(1 / 256), np.uint8(0)], {}),
        ("QLinearLeakyRelu", [data(3, 5), S, Z, T, Y], {"alpha": 0.2}),
        ("QLinearSoftmax", [data(3, 5), S, Z, np.float32(1 / 256), np.uint8(0)],
         {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", [data(3, 5, 2), S, Z, np.float32(1 / 256), np.uint8(0)],
         {"axis": 1, "opset": 12}),
        ("QLinearSoftmax", [data(3, 5, 2), S, Z, np.float32(1 / 256), np.uint8(0)],
         {"axis": 1, "opset": 13}),
        ("QLinearGlobalAveragePool", [data(2, 3, 4, 5), S, Z, T, Y], {"channels_last": 0}),
        ("QLinearGlobalAveragePool", [data(2, 3, 4, 5), S, Z, T, Y], {"channels_last": 1}),
        ("QLinearAveragePool", [data(2, 3, 7, 5), S, Z, T, Y],
         {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
        ("QLinearAveragePool", [data(2, 7, 5, 3), S, Z, T, Y],
         {"kernel_shape": [3, 2], "channels_last": 1}),
        ("QLinearConcat", [T, Y, data(2, 3), S, Z, data(2, 1), T, Z], {"axis": 1}),
        ("QLinearWhere", [data(3, 1) > 128, data(3, 5), S, Z, data(5), T, Y, S, Y], {}),
        ("QGemm", [data(3, 7), S, Z, data(7, 5), T, Y, data(5).astype(np.int32), np.float32(3.0),
                   Z], {}),
        ("QGemm", [data(7, 3), S, Z, data(5, 7), T, Y], {"transA": 1, "transB": 1, "alpha": 0.5}),
    ],
)  # fmt: skip
def test_operators_of_bytes(op: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    constants = [k for k, a in enumerate(operands) if np.ndim(a) == 0]
    operands = [np.asarray(a) for a in operands]
    case = node(op, operands, weights=constants, **attributes)
    check(case, by_runtime(case), within=1, rtol=1e-4, atol=1e-4)


def test_sixteen_bits_before_the_standard_had_them() -> None:
    x, scale, zero = floats(3, 5, scale=50), np.abs(floats(5)) + 0.01, data(5, dtype=np.int16)
    case = node("QuantizeLinear", [x, scale, zero], axis=1, version=17)
    check(case, by_runtime(case))
    case = node("DequantizeLinear", [data(3, 5, dtype=np.int16), scale, zero], axis=1, version=17)
    check(case, by_runtime(case))


def test_a_table_gathered_along_its_packed_dim_is_an_error() -> None:
    case = node(
        "GatherBlockQuantized", [data(5, 16), np.int64([0]), floats(5, 2)], weights=[0, 2],
        bits=4, block_size=16, quantize_axis=0, gather_axis=0,
    )  # fmt: skip
    with pytest.raises(PliantError, match="along the axis of blocks or of bits"):
        import_onnx(case.model, OPERATORS)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("ways", [1, 2])
def test_recurrent_weights_of_bytes(each: bool, ways: int) -> None:
    """ONNX Runtime rounds the states to bytes, too."""
    steps, batch, width, inner = 5, 3, 8, 6
    scale = (ways, 4 * inner) if each else (ways,)
    operands = [
        floats(steps, batch, width), data(ways, width, 4 * inner), data(ways, inner, 4 * inner),
        floats(ways, 8 * inner), None, None, None, None,
    ]  # fmt: skip
    for _ in range(2):
        operands += [np.abs(floats(*scale)) * 0.002 + 0.001, np.full(scale, 128, np.uint8)]
    case = node(
        "DynamicQuantizeLSTM", operands, weights=[1, 2, 3, 8, 9, 10, 11], outputs=3,
        hidden_size=inner, direction="bidirectional" if ways == 2 else "forward",
    )  # fmt: skip
    check(case, by_runtime(case), atol=0.03)


def test_embeddings_of_bytes() -> None:
    words, segments = np.int32([[1, 0, 6], [2, 2, 3]]), np.int32([[0, 1, 1], [0, 0, 1]])
    tables = [data(7, 8), data(5, 8), data(2, 8), data(8), data(8)]
    scales = [np.asarray(0.01 * (k + 1), np.float32) for k in range(5)]
    zeros = [np.asarray(120 + k, np.uint8) for k in range(5)]
    mask = np.int32([[1, 1, 0], [1, 1, 1]])
    case = node(
        "QEmbedLayerNormalization", [words, segments, *tables, mask, *scales, *zeros],
        weights=[*range(2, 7), *range(8, 18)], outputs=2,
    )  # fmt: skip
    check(case, by_runtime(case), rtol=1e-4, atol=1e-4)
