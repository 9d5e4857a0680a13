"""Powers with exponents of the model."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import pliant
from pliant.frontend.select import Request, import_model
from pliant.ops.table import OPERATORS
from pliant.opt.plain_numbers import plain_numbers
from pliant.opt.plain_powers import plain_powers
from tests.compiled.torch_run import Apply

VALUES = (-3.0, -1.5, -0.0, 0.0, 0.3, 1.0, 7.0, 1e30, -1e30, float("inf"), -float("inf"))


def powers_left(fn, *args: torch.Tensor) -> int:
    imported = import_model(Request(Apply(fn), args, None, None), OPERATORS)
    function = plain_powers(plain_numbers(imported.function, imported.weights), OPERATORS)
    return sum(b.op == "pow" for b in function.bindings)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5])
def test_whole(exponent: int, dtype: torch.dtype) -> None:
    x = torch.tensor([*VALUES, float("nan")]) if dtype.is_floating_point else torch.arange(-6, 6)
    x = x.to(dtype)
    assert powers_left(lambda x: x**exponent, x) == (exponent not in (1, 2, 3, 4))
    f = pliant.compile(Apply(lambda x: x**exponent), (x,), dynamic_shapes=(({0: "n"},),))
    for part in (x, x[:5], x[:0]):
        torch.testing.assert_close(f(part), part**exponent, equal_nan=True)


def test_others_stay() -> None:
    x = torch.rand(5)
    assert powers_left(lambda x: x**2.5, x) == 1
    assert powers_left(lambda x, y: x**y, x, x) == 1
    assert powers_left(lambda x: 2.0**x, x) == 1
    assert powers_left(lambda x: torch.full((), 3.0) ** x, x) == 1


def test_onnx(tmp_path) -> None:
    """Squares and cubes as exporters write them; an exponent of more dimensions keeps its shape."""
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["a"]),
        helper.make_node("Pow", ["a", "three"], ["y"]),
        helper.make_node("Pow", ["x", "wide"], ["z"]),
    ]
    weights = [
        numpy_helper.from_array(np.array(2, np.int64), "two"),
        numpy_helper.from_array(np.array(3, np.float32), "three"),
        numpy_helper.from_array(np.full((1, 1), 2, np.float32), "wide"),
    ]
    graph = helper.make_graph(
        nodes, "powers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"]),
         helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, "n"])],
        weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    onnx.save(model, tmp_path / "powers.onnx")
    f = pliant.compile(tmp_path / "powers.onnx")
    x = np.linspace(-2, 2, 37, dtype=np.float32)
    y, z = f.run({"x": x}).values()
    np.testing.assert_allclose(y, x**6, rtol=1e-5)
    np.testing.assert_allclose(z, x[None] ** 2, rtol=1e-6)
