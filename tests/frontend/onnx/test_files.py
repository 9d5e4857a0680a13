"""Models as files have them: old operator sets, odd names, what is missing or too much."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pliant
from pliant.base.errors import UnsupportedError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.against import Case, by_runtime, check, one_node
from tests.frontend.onnx.models import imported, parsed, shapes_of
from tests.frontend.onnx.run import run

X = np.random.default_rng(31).standard_normal((1, 3, 4, 4)).astype(np.float32)

OLD = {
    "Upsample": "y = Upsample<scales = [1.0, 1.0, 2.0, 1.5], mode = \"linear\">(x)",
    "nearest": "y = Upsample<scales = [1.0, 1.0, 2.0, 3.0]>(x)",
    "BatchNormalization": "y = BatchNormalization<spatial = 1>(x, w, w, w, w)",
    "PRelu": "s = Constant<value = float[3, 1, 1] {0.1, 0.2, 0.3}>() y = PRelu(x, s)",
    "Clip": "y = Clip<min = -0.5, max = 0.25>(x)",
    "Pad": "y = Pad<pads = [0, 0, 1, 1, 0, 0, 2, 0], value = 3.0>(x)",
    "Slice": "y = Slice<starts = [1, -3], ends = [3, 10], axes = [1, 3]>(x)",
    "Softmax": "y = Softmax(x)",
    "Squeeze": "a = ReduceSum<axes = [1, 2], keepdims = 1>(x) y = Squeeze<axes = [1]>(a)",
    "Dropout": "y, m = Dropout<ratio = 0.3>(x)",
    "MaxPool": "y = MaxPool<kernel_shape = [2, 2], auto_pad = \"SAME_UPPER\">(x)",
    "TopK": "y, i = TopK<k = 2, axis = 1>(x)",
    "Gemm": "f = Flatten(x) y = Gemm<transB = 1>(f, f, b)",
}  # fmt: skip


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize("name", OLD)
def test_operator_sets_of_old(opset: int, name: str) -> None:
    text = (
        f"g (float[n, 3, h, w] x) => (y) <float[3] w = {{0.5, 1.5, 2.0}}, float[1] b = {{1.0}}> "
        f"{{ {OLD[name]} }}"
    )
    case = Case(parsed(text, opset), {"x": X})
    check(case, by_runtime(case))


def test_statistics_of_each_pixel_are_refused() -> None:
    text = (
        "g (float[n, 3] x, float[3] w) => (y) { "
        "y = BatchNormalization<spatial = 0>(x, w, w, w, w) }"
    )
    with pytest.raises(UnsupportedError, match="spatial = 0"):
        imported(text, opset=8)


ODD = ["batch size", "unk__123", "past_sequence_length + 1", "0", "数", "-1", "?", "N x M", "min",
       "lambda", "a.b/c:0", " ", "x_d0", "Batch Size"]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_dims_of_odd_names(name: str) -> None:
    """Each is a symbol of its own, or no name."""
    model = parsed("g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = name
    x = X.reshape(-1, 2)
    f = pliant.compile(model)
    np.testing.assert_array_equal(f(x), np.maximum(x, 0))
    np.testing.assert_array_equal(f(x[:1]), np.maximum(x[:1], 0))


def test_names_that_differ_only_where_symbols_do_not() -> None:
    model = parsed(
        "g (float[n] x, float[m] z) => (float[n] y, float[m] v) { y = Relu(x) v = Relu(z) }"
    )
    for value, name in zip(model.graph.input, ("a b", "a_b"), strict=True):
        value.type.tensor_type.shape.dim[0].dim_param = name
    results = import_onnx(model, OPERATORS).function.results
    assert results[0].shape != results[1].shape


def test_a_name_twice_is_one_size() -> None:
    f = pliant.compile(parsed("g (float[n, n] x) => (float[n, n] y) { y = Transpose(x) }"))
    with pytest.raises(pliant.PliantError, match="n"):
        f(np.zeros((2, 3), np.float32))


def test_dims_with_neither_number_nor_name() -> None:
    model = parsed("g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.Clear()
    assert shapes_of(import_onnx(model, OPERATORS)) == ["f32[x_d0, x_d1]"]


def weighted(*, listed: bool) -> onnx.ModelProto:
    model = parsed("g (float[n, 3] x) => (float[n, 2] y) { y = MatMul(x, x) }")
    model.graph.node[0].input[1] = "w"
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    if listed:
        model.ir_version = 3
        info = helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 2])
        model.graph.input.insert(0, info)
    return model


@pytest.mark.parametrize("listed", [False, True])
def test_weights_among_the_inputs_or_not(listed: bool) -> None:
    model = import_onnx(weighted(listed=listed), OPERATORS)
    assert model.inputs == ("x",)
    x = X.reshape(-1, 3)
    np.testing.assert_allclose(run(model, [x])[0], x @ np.arange(6).reshape(3, 2), rtol=1e-5)


def test_a_weight_that_nobody_reads_may_be_of_any_type() -> None:
    model = weighted(listed=False)
    model.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [1], [b"a"]))
    assert len(import_onnx(model, OPERATORS).weights) == 1


def test_nodes_of_one_name_and_without() -> None:
    model = parsed("g (float[n] x) => (float[n] y) { a = Relu(x) b = Neg(a) y = Exp(b) }")
    for node in model.graph.node[:2]:
        node.name = "same"
    assert shapes_of(import_onnx(model, OPERATORS)) == ["f32[n]"]


@pytest.mark.parametrize("body", ["y = Relu(x)", "y = Identity(x)", "y = Identity(w)"])
def test_results_twice_and_results_that_are_inputs(body: str) -> None:
    text = f"g (float[n] x) => (y, y, x, w) <float[1] w = {{2.0}}> {{ {body} }}"
    case = Case(parsed(text), {"x": X.ravel()})
    model = import_onnx(case.model, OPERATORS)
    have = run(model, [X.ravel()])
    np.testing.assert_array_equal(have[0], have[1])
    np.testing.assert_array_equal(have[2], X.ravel())
    f = pliant.compile(case.model)
    for a, b in zip(f(X.ravel()), have, strict=True):
        np.testing.assert_array_equal(a, b)


def test_empty_names_for_operands_and_results_that_are_left_out() -> None:
    case = one_node("Clip", [X, None, np.asarray(0.5, np.float32)], version=13)
    check(case, by_runtime(case))
    model = parsed("g (float[n, 4] x) => (float[n, 4] y) { y = LayerNormalization(x, w) }")
    model.graph.node[0].input[1] = "s"
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "s"))
    model.graph.node[0].input.append("")
    model.graph.node[0].output.extend(["", ""])
    case = Case(model, {"x": X.reshape(-1, 4)})
    check(case, by_runtime(case))


def test_a_domain_that_the_file_does_not_list() -> None:
    model = parsed("g (float[n] x) => (float[n] y) { y = com.microsoft.QuickGelu(x) }")
    assert shapes_of(import_onnx(model, OPERATORS)) == ["f32[n]"]


def test_what_is_refused_says_why() -> None:
    cases = {
        "y = RandomNormalLike(x)": "random numbers are not supported",
        "y = NonZero(x)": r"operands, which say how large the result of NonZero is \('x'\)",
        "y = StringNormalizer(x)": "strings are not supported",
    }
    for body, message in cases.items():
        with pytest.raises(UnsupportedError, match=message):
            imported(f"g (float[n] x) => (y) {{ {body} }}", opset=18)


def test_what_is_data_is_computed_of_constants() -> None:
    text = """g (float[n] x) => (a, b, c) <float[5] v = {3.0, 1.0, 3.0, 0.0, 1.0},
        float[1, 2, 4] boxes = {0.0, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1},
        float[1, 1, 2] scores = {0.5, 0.9}, int64 most = {2}, float over = {0.5}> {
      u, i, j, k = Unique(v) z = NonZero(v) s = NonMaxSuppression(boxes, scores, most, over)
      a = Add(x, u) b = Identity(z) c = Identity(s) }"""
    case = Case(parsed(text), {"x": np.float32([1, 2, 3])})
    check(case, by_runtime(case))
