"""Functions of the model, and operators that ONNX defines by others, come by their bodies."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.models import imported, ops_of, shapes_of

LOCAL = """
<ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
main (float[n, 4] x) => (float[n, 4] y) { y = mine.Twice<slope = 0.25>(x) }
<domain: "mine", opset_import: ["" : 17]>
Twice <slope> (a) => (c) {
  b = LeakyRelu<alpha : float = @slope>(a)
  c = LeakyRelu<alpha : float = @slope>(b)
}
"""

ENDLESS = """
<ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
main (float[n] x) => (float[n] y) { y = mine.Again(x) }
<domain: "mine", opset_import: ["" : 17, "mine" : 1]>
Again (a) => (b) { b = mine.Again(a) }
"""


def test_a_local_function_with_an_attribute() -> None:
    model = import_onnx(onnx.parser.parse_model(LOCAL), OPERATORS)
    assert ops_of(model) == ["leaky_relu", "leaky_relu"]
    for binding in model.function.bindings:
        assert binding.attributes()["alpha"] == 0.25
        assert str(binding.spans[0]) == "main (node 0 (Twice))"


def test_endless_functions() -> None:
    with pytest.raises(InvalidModelError, match="call one another without end"):
        import_onnx(onnx.parser.parse_model(ENDLESS), OPERATORS)


def test_a_constant_condition_chooses_the_branch() -> None:
    model = imported(
        """g (float[n] x) => (float[n] y) {
        s = Shape(x) r = Size(s) one = Constant<value_int = 1>() c = Equal(r, one)
        y = If(c) <then_branch = t () => (float[n] a) { a = Relu(x) },
                   else_branch = e () => (float[n] b) { b = Sigmoid(x) }> }"""
    )
    assert ops_of(model) == ["relu"]


def test_a_definition_with_symbolic_shapes() -> None:
    model = imported(
        """g (float[n, c, h, w] x) => (float[a, b, h2, w2] y) {
        s = Constant<value_ints = [8, 10]>() y = CenterCropPad<axes = [2, 3]>(x, s) }""",
        opset=18,
    )
    assert shapes_of(model) == ["f32[n, c, 8, 10]"]
    assert np.all([b.spans for b in model.function.bindings])
