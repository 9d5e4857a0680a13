"""Each fault of a graph function is found and shown where it is."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.dtypes import f32
from pliant.base.errors import InvalidModelError
from pliant.graph.function import Binding, Function, Module, TensorType, Value
from pliant.graph.operator import Operator, operator_table
from pliant.graph.verify import verify_function, verify_module
from pliant.ir.expr import Unary
from pliant.ir.tensor import Tensor, compute
from pliant.text import parse_function


def _add(a: Tensor, b: Tensor) -> Tensor:
    if a.rank != b.rank:
        raise InvalidModelError("ranks differ")
    return compute(a.shape, lambda *i: a[i] + b[i])


def _twice(a: Tensor) -> tuple[Tensor, Tensor]:
    return a, compute((*a.shape, 2), lambda *i: Unary("exp", a[i[:-1]]))


OPERATORS = operator_table((Operator("add", _add), Operator("twice", _twice)))
STORE = {"k1": np.zeros(3, np.float32)}
GOOD = """\
@graph(equal=(("m", "n", "as many"),))
def main(x: f32["n"], y: f32["m"]):
    w: f32[3] = weight("k1")
    s: f32["m"] = add(x, y) @ at("model.py", 3)
    p: f32["n"]
    q: f32["n", 2]
    p, q = twice(s)
    return q
"""


def test_a_good_function_passes() -> None:
    function = parse_function(GOOD)
    verify_module(Module({"main": function}, STORE), OPERATORS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('s: f32["m"]', 's: f32["m", 2]', r"s is .*, but add gives f32\[n\] \(model.py:3\)"),
        ('s: f32["m"]', 's: f64["m"]', r"s is f64\[m\], but add gives f32\[n\]"),
        ('s: f32["m"]', 's: f32["2*m"]', r"s is f32\[2\*m\], but add gives f32\[n\]"),
        ("add(x, y)", "add(x, x, x)", r"add: .*positional"),
        ("add(x, y)", "frob(x, y)", "frob: there is no such operator"),
        ("p, q = twice", "q, = twice", "twice has 2 results, 1 are bound"),
        ("f32[3] =", "f32[4] =", r"the weight w is f32\[4\], but f32\[3\] in the store"),
        ('"k1"', '"k2"', r"the weight w is not in the store \(key k2\)"),
        ('equal=(("m"', 'all_dims={"n": dim()}, equal=(("n"', "the symbol m is not declared"),
        ('equal=(("m"', 'dims={"n": dim(min=3, max=2)}, equal=(("n"', "max=2.* allows no size"),
    ],
)  # fmt: skip
def test_faults(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidModelError, match=message):
        verify_function(parse_function(GOOD.replace(old, new)), OPERATORS, STORE)


def test_what_text_cannot_say() -> None:
    x = Value("x", TensorType(f32, ()))
    y = Value("y", TensorType(f32, ()))
    use = Binding((y,), "add", (y, y))
    with pytest.raises(InvalidModelError) as caught:
        verify_function(Function("f", (x,), (), (use,), (y,)), OPERATORS)
    assert str(caught.value) == (
        "f: y is used but not bound before\n"
        "     1 @graph\n"
        "     2 def f(x: f32[()]):\n"
        ">    3     y: f32[()] = add(y, y)\n"
        "     4     return y"
    )
    with pytest.raises(InvalidModelError, match="y is used but not bound"):
        verify_function(Function("f", (x,), (), (), (y,)), OPERATORS)
    with pytest.raises(InvalidModelError, match="x is bound twice"):
        verify_function(Function("f", (x, x), (), (), ()), OPERATORS)
