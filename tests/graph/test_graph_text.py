"""Graph functions and modules round-trip through text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pliant.graph.function import Function, Module
from pliant.ir.parser import ParseError
from pliant.text import parse_function, parse_module, to_text
from tests.generate import graphs
from tests.share import draws

MODULE = """\
weights = {
    "9f86": f32[384, 384],
}


@graph(dims={"s": dim(min=1, max=4096, likely=(1, 128))}, equal=(("t", "s", "t is s"),))
def main(x: f32["b", "s", 384], v_in: named("in", f32["b", "t"])):
    w: f32[384, 384] = weight("9f86")
    h: f32["b", "s", 384] = matmul(x, w) @ at("model.py", 12)
    values: f32["b", "s", 5]
    places: i64["b", "s", 5]
    values, places = topk(h, axis=2, k=5, largest=True)
    c: f32["b", "2*s", 384] = concat((h, h), axis=1) @ at("a.py", 3) @ at("b", 0, "C_1")
    r: f32["2*b*s", 384] = reshape(h, shape=(2*b*s, 384))
    z: bool["b"] = and_(h, None, **{"lambda": -0.5})
    return values, z


@loop
def copy(x: f32["n"], y: f32["n"], n: i64):
    for i in grid(n):
        y[i] = x[i]
"""


def test_text_is_stable() -> None:
    store = {"9f86": np.zeros((384, 384), np.float32), "unused": np.zeros(3)}
    module = parse_module(MODULE, store)
    assert to_text(module) == MODULE
    assert list(module.weights) == ["9f86"]
    assert parse_module(MODULE, store) == module


@settings(max_examples=draws(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_round_trip(made: tuple[Function, dict[str, np.ndarray]]) -> None:
    function, weights = made
    text = to_text(function)
    assert parse_function(text) is function, text
    module = Module({"main": function}, weights)
    assert parse_module(to_text(module), weights) == module


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("matmul(x, w)", "matmul(x, q)", "line 9: q is not defined"),
        ('f32["b", "s", 5]', 'f99["b", "s", 5]', "line 10: f99 is not an element type"),
        ("return values, z", "pass", "line 16: not a binding"),
        ("@loop", "@magic", "a function begins with one of @graph, @loop, @host"),
        ("f32[384, 384],", "f32[384, 385],", "line 2: the weight '9f86' in the store is float32"),
        ("dim(min=1", "dim(mim=1", "line 6: .*mim"),
    ],
)
def test_errors_name_the_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_module(MODULE.replace(old, new), {"9f86": np.zeros((384, 384), np.float32)})
