"""What definitions refuse, at once or in a call, and what they leave to be checked."""

from typing import Any

import numpy as np
import pytest

from pliant.base.dtypes import DType, f32, i32, i64
from pliant.base.errors import InvalidModelError, ShapeError
from pliant.base.spans import Span
from pliant.graph.builder import Builder, requirements
from pliant.graph.interpret import interpret
from pliant.ir.evaluate import evaluate
from pliant.ir.tensor import Input, Tensor, placeholder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var


def tensor(*dims: str | int, dtype: DType = f32, name: str = "x") -> Input:
    return placeholder(name, [var(d) if isinstance(d, str) else d for d in dims], dtype)


def define(op: str, *operands: Any, **attributes: Any) -> tuple[Tensor, ...]:
    result = OPERATORS[op].define(*operands, **attributes)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("add", (tensor(2, 3), tensor(2, 4)), {}, "dims 3 and 4 meet in a broadcast"),
        ("add", (tensor(2), tensor(2, dtype=i32)), {}, "operands of types f32, i32"),
        ("div", (tensor(2, dtype=i32),) * 2, {}, "needs a float"),
        ("matmul", (tensor("m", 3), tensor(4, "n")), {}, "inner dims of a matmul"),
        ("linear", (tensor("m", 3), tensor("n", 4)), {}, "must be the 4 of the weight"),
        ("reshape", (tensor(2, 3),), {"shape": (4,)}, "6 elements cannot be reshaped to 4"),
        ("sum", (tensor(2, 3),), {"axes": (2,), "keepdims": False}, "axis 2 of a tensor of rank 2"),
        ("sum", (tensor(2, 3),), {"axes": (1, 1), "keepdims": False}, "repeat"),
        ("max", (tensor(2),), {}, "needs axes"),
        ("squeeze", (tensor(2, 3),), {"axes": (1,)}, "squeezed dim 1 must be 1"),
        ("split", (tensor(5),), {"sizes": (2, 2), "axis": 0}, "add up to 4"),
        ("topk", (tensor(3),), {"k": 4, "axis": 0, "largest": True}, "fewer elements than k"),
        ("argmax", (tensor(0),), {"axis": 0, "keepdims": False}, "may not be empty"),
        ("not", (tensor(2),), {}, "not of f32"),
        ("gather", (tensor(2), tensor(2)), {"axis": 0}, "indices are integers"),
        ("einsum", ((tensor(2, 3), tensor(4, 5)),), {"equation": "ij,jk"}, "broadcast"),
        ("einsum", ((tensor(2, 3),),), {"equation": "ijk"}, "does not fit"),
        (
            "lrn",
            (tensor(2, 3),),
            {"size": 0, "alpha": 1.0, "beta": 0.5, "bias": 1.0},
            "must be at least 1, got 0",
        ),
        (
            "slice",
            (tensor(3),),
            {"starts": (1,), "stops": (4,), "steps": (1,)},
            r"the slice \[1:4:1\] must lie inside of dim 0, of size 3",
        ),
        (
            "slice",
            (tensor(3),),
            {"starts": (3,), "stops": (0,), "steps": (-1,)},
            r"the slice \[3:0:-1\] must lie inside",
        ),
        ("pad", (tensor(2),), {"pads": ((0, 1),), "mode": "mirror"}, "no padding mode"),
    ],
)
def test_impossible_operands_are_refused(
    op: str, operands: tuple[Any, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidModelError, match=message):
        define(op, *operands, **attributes)


WINDOW: dict[str, Any] = {"strides": (2,), "pads": ((1, 1),), "dilations": (1,)}


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "legal", "illegal"),
    [
        ("add", (("a",), ("b",)), {}, [(3, 3), (1, 4), (4, 1), (0, 1), (0, 0)], [(2, 3), (0, 2)]),
        ("matmul", (("m", "a"), ("b", "n")), {}, [(3, 3), (0, 0)], [(1, 3)]),
        ("expand", (("a",),), {"shape": (var("b"),)}, [(1, 5), (4, 4), (1, 0)], [(2, 4), (4, 1)]),
        ("reshape", (("a", 4),), {"shape": (var("b"), 8)}, [(4, 2), (0, 0)], [(3, 1)]),
        ("squeeze", (("a", "b"),), {"axes": (0,)}, [(1, 3)], [(2, 3), (0, 3)]),
        (
            "topk",
            (("a",),),
            {"k": var("b"), "axis": 0, "largest": True},
            [(3, 3), (3, 0)],
            [(2, 3)],
        ),
        (
            "slice",
            (("a",),),
            {"starts": (var("b"),), "stops": (4,), "steps": (1,)},
            [(4, 0), (5, 4), (9, 2)],
            [(3, 0), (0, 0), (5, 5)],
        ),
        (
            "slice",
            (("a",),),
            {"starts": (var("b"),), "stops": (-1,), "steps": (-1,)},
            [(4, 3), (4, 0)],
            [(4, 4), (0, 0)],
        ),
        (
            "conv",
            ((1, 2, "a"), (4, 2, 3)),
            WINDOW | {"groups": 1},
            [(2, 0), (1, 0), (5, 0)],
            [(0, 0)],
        ),
        ("max_pool", ((1, 2, "a"),), WINDOW | {"kernel": (3,)}, [(1, 0)], [(0, 0)]),
    ],
)
def test_symbolic_sizes_are_checked_in_the_call(
    op: str, operands: tuple[Any, ...], attributes: dict[str, Any], legal: Any, illegal: Any
) -> None:
    inputs = [tensor(*dims, name=f"x{k}") for k, dims in enumerate(operands)]
    demands = requirements(define(op, *inputs, **attributes))
    assert demands
    for choice, expected in [(c, True) for c in legal] + [(c, False) for c in illegal]:
        sizes = dict(zip("ab", choice, strict=True)) | {"m": 2, "n": 2}
        assert all(a.eval(sizes) == b.eval(sizes) for a, b, _ in demands) is expected, choice


def test_shapes_without_names_to_compare_demand_nothing() -> None:
    x = tensor("b", "s", 8)
    for op, operands, attributes in (
        ("add", (x, x), {}),
        ("add", (x, tensor(8)), {}),
        ("linear", (x, tensor(3, 8)), {}),
        ("reshape", (x,), {"shape": (var("b") * var("s"), 2, 4)}),
        ("layer_norm", (x, tensor(8), tensor(8)), {"axes_from": 2, "eps": 1e-5}),
        (
            "conv",
            (tensor("n", 3, 8, 9), tensor(4, 3, 3, 3)),
            {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 1},
        ),
    ):
        assert not requirements(define(op, *operands, **attributes)), op


def run(op: str, arrays: list[np.ndarray], **attributes: Any) -> np.ndarray:
    inputs = [
        placeholder(f"x{k}", a.shape, {"f": f32, "i": i64}[a.dtype.kind])
        for k, a in enumerate(arrays)
    ]
    return evaluate(define(op, *inputs, **attributes), dict(zip(inputs, arrays, strict=True)), {})[
        0
    ]


@pytest.mark.parametrize("bad", [5, -6])
def test_indices_out_of_range_fail_the_call(bad: int) -> None:
    x, at = np.zeros((5, 2), np.float32), np.array([0, bad])
    with pytest.raises(ShapeError, match="out of range of size 5"):
        run("gather", [x, at], axis=0)
    with pytest.raises(ShapeError, match="out of range"):
        run("scatter_nd", [x, at[:, None], np.zeros((2, 2), np.float32)], reduction="add")
    with pytest.raises(ShapeError, match="out of range"):
        run("embedding", [x, np.array([-1])])


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_integer_division_by_zero_fails_the_call(op: str) -> None:
    with pytest.raises(ShapeError, match="division by zero"):
        run(op, [np.array([3, 4]), np.array([1, 0])])


def test_the_builder_records_what_cannot_be_proved() -> None:
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (var("m"), var("k")))
    w = b.param("w", f32, (var("q"), 8))
    y = b.call("matmul", x, w, span=Span("model.py", 7))
    z = b.call("matmul", x, w)  # the same demand is recorded once
    function, weights = b.finish([y, z])
    ((a, c, message),) = function.equalities
    assert {str(a), str(c)} == {"k", "q"}
    assert message.startswith("model.py:7: matmul: the inner dims")
    arrays = {"x": np.ones((2, 3), np.float32), "w": np.ones((3, 8), np.float32)}
    results = interpret(function, weights, arrays, OPERATORS)
    assert [r.shape for r in results] == [(2, 8), (2, 8)]
    assert (results[0] == 3).all()
    arrays["w"] = np.ones((4, 8), np.float32)
    with pytest.raises(ShapeError, match=r"model.py:7: matmul"):
        interpret(function, weights, arrays, OPERATORS)


def test_the_builder_names_the_place_of_an_impossible_shape() -> None:
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (2, 3))
    with pytest.raises(InvalidModelError, match=r"^model.py:3: add: dims"):
        b.call("add", x, b.weight("w", np.ones(4, np.float32)), span=Span("model.py", 3))
    with pytest.raises(InvalidModelError, match="no such operator"):
        b.call("frobnicate", x)


def test_the_interpreter_solves_for_sizes() -> None:
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (2 * var("n") + 1, var("m")))
    function, weights = b.finish([b.call("size_value", value=var("n") * var("m")), x])
    found = interpret(function, weights, {"x": np.zeros((7, 4), np.float32)}, OPERATORS)
    assert found[0] == 12
    with pytest.raises(ShapeError, match="dim 0 is 6"):
        interpret(function, weights, {"x": np.zeros((6, 4), np.float32)}, OPERATORS)
    with pytest.raises(ShapeError, match="missing"):
        interpret(function, weights, {}, OPERATORS)
