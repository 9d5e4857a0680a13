"""Quantised operators at all types, axes and blocks, against ONNX's evaluator and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import set_external_data

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import by_reference, by_runtime, check, one_node
from tests.frontend.onnx.models import parsed
from tests.frontend.onnx.run import run

RANDOM = np.random.default_rng(3)
INTS = (np.int8, np.uint8, np.int16, np.uint16)


def floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def ints(dtype: type, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_blocks_of_a_quantized_tensor(dtype: type, size: int) -> None:
    """The last block may be a part of one."""
    count = -(-size // 4)
    x, scale = ints(dtype, 3, size, 2), np.abs(floats(3, count, 2)) + 0.1
    zero = ints(dtype, 3, count, 2)
    case = one_node("DequantizeLinear", [x, scale, zero], axis=1, block_size=4)
    each = np.minimum(np.arange(size) // 4, max(count - 1, 0))
    want = (x.astype(np.float32) - zero[:, each]) * scale[:, each]
    check(case, [want])
    y = floats(3, size, 2, scale=1e4)
    case = one_node("QuantizeLinear", [y, scale, zero], axis=-2, block_size=4)
    limits = np.iinfo(dtype)
    places = np.round(y / scale[:, each]) + zero[:, each]
    check(case, [np.clip(places, limits.min, limits.max).astype(dtype)])


@pytest.mark.parametrize("dtype", INTS)
def test_a_scale_for_each_place_on_an_axis(dtype: type) -> None:
    scale, zero = np.abs(floats(5)) + 0.1, ints(dtype, 5)
    x = floats(2, 5, 3, scale=100)
    x[0, 0, :3] = [np.inf, -np.inf, 1e30]
    case = one_node("QuantizeLinear", [x, scale, zero], axis=1)
    check(case, by_runtime(case))
    case = one_node("DequantizeLinear", [ints(dtype, 2, 5, 3), scale, zero], axis=-2)
    check(case, by_runtime(case))


def test_a_half_is_divided_in_the_precision_of_the_scale() -> None:
    x = floats(4, 7, scale=300).astype(np.float16)
    scale = np.asarray([0.0123], np.float32)
    case = one_node("QuantizeLinear", [x, scale, np.int16([3])], weights=[1, 2], version=23)
    want = np.round(x.astype(np.float32) / scale) + 3
    check(case, [np.clip(want, -32768, 32767).astype(np.int16)])


SMALL = {"INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4, "INT2": ml_dtypes.int2,
         "UINT2": ml_dtypes.uint2}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (4, 8)])
def test_weights_of_less_than_a_byte(name: str, shape: tuple[int, int], tmp_path: Path) -> None:
    """In the model, in another file, and through nodes that move them."""
    code = getattr(TensorProto, name)
    limits = (ml_dtypes.iinfo(SMALL[name]).min, ml_dtypes.iinfo(SMALL[name]).max)
    w = RANDOM.integers(*limits, shape, endpoint=True).astype(np.float32)
    tensor = numpy_helper.from_array(w.astype(SMALL[name]), "w")
    scale = np.asarray(0.5, np.float32)
    model = parsed(
        "g (float[n, m] x) => (float[n, m] y) { t = Transpose(w) u = Transpose(t) "
        "s = Constant<value_float = 0.5>() d = DequantizeLinear(w2, s) y = Add(x, d) }"
        .replace("w2", "x").replace("(w)", "(x)"), 21,
    )  # fmt: skip
    model.graph.node[0].input[0] = "w"
    model.graph.node[3].input[0] = "u"
    model.graph.initializer.append(tensor)
    x = floats(*shape)
    np.testing.assert_array_equal(run(import_onnx(model, OPERATORS), [x])[0], x + w * scale)
    (tmp_path / "data").write_bytes(tensor.raw_data)
    set_external_data(tensor, "data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del model.graph.initializer[:]
    model.graph.initializer.append(tensor)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    imported = import_onnx(tmp_path / "model.onnx", OPERATORS)
    np.testing.assert_array_equal(run(imported, [x])[0], x + w * scale)
    assert code == tensor.data_type


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1"])
def test_weights_of_small_floats(name: str) -> None:
    kinds = {"FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn, "FLOAT8E5M2": ml_dtypes.float8_e5m2,
             "FLOAT4E2M1": ml_dtypes.float4_e2m1fn}  # fmt: skip
    w = floats(3, 5).astype(kinds[name])
    scale = np.abs(floats(5))
    case = one_node("DequantizeLinear", [numpy_helper.from_array(w), scale], axis=1, opset=23)
    check(case, [w.astype(np.float32) * scale])


@pytest.mark.parametrize("name", ["INT4", "UINT4"])
def test_results_of_less_than_a_byte_saturate(name: str) -> None:
    model = parsed(
        "g (float[n] x) => (float[n] y) { s = Constant<value_float = 0.5>() "
        f"q = QuantizeLinear<output_dtype = {getattr(TensorProto, name)}>(x, s) "
        "y = DequantizeLinear(q, s) }", 21,
    )  # fmt: skip
    low, high = (-8, 7) if name == "INT4" else (0, 15)
    x = np.float32([-100, -4.1, -0.3, 0, 0.3, 3.4, 7.4, 99])
    want = np.clip(np.round(x / 0.5), low, high) * 0.5
    np.testing.assert_array_equal(run(import_onnx(model, OPERATORS), [x])[0], want)
    model.graph.node.pop()
    model.graph.output[0].name = "q"
    with pytest.raises(UnsupportedError, match="'q' has elements of a type that there is"):
        import_onnx(model, OPERATORS)


def test_what_there_is_only_for_constants() -> None:
    zero = numpy_helper.from_array(np.zeros(1, ml_dtypes.float8_e4m3fn))
    case = one_node("QuantizeLinear", [floats(3), np.float32([1]), zero], weights=[1])
    with pytest.raises(UnsupportedError, match="results of 8-bit floats"):
        import_onnx(case.model, OPERATORS)
    zero = numpy_helper.from_array(np.zeros(1, ml_dtypes.int4))
    with pytest.raises(UnsupportedError, match="less than a byte"):
        import_onnx(one_node("CastLike", [floats(3), zero]).model, OPERATORS)


def test_a_damaged_weight_of_less_than_a_byte() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[5], raw_data=b"12")
    case = one_node("DequantizeLinear", [tensor, np.asarray(1, np.float32)])
    with pytest.raises(InvalidModelError, match="needs 3 bytes and has 2"):
        import_onnx(case.model, OPERATORS)


def test_a_scale_that_does_not_fit_the_blocks() -> None:
    case = one_node("DequantizeLinear", [ints(np.int8, 2, 9), floats(2, 2)], axis=1, block_size=4)
    shapes = {"x0": (2, 9), "x1": (2, 2)}
    with pytest.raises(InvalidModelError, match="not one for each block"):
        import_onnx(case.model, OPERATORS, input_shapes=shapes)


def test_integers_of_32_bits() -> None:
    x = RANDOM.integers(-(2**31), 2**31, (3, 4), np.int32)
    case = one_node("DequantizeLinear", [x, np.asarray(0.25, np.float32)])
    check(case, by_reference(case))
