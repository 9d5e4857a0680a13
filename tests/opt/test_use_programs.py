"""Tensor programs in graphs: called by name, given for operators, tried against definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant.base.dtypes import f32 as f32_type
from pliant.graph.builder import Builder
from pliant.graph.interpret import interpret as run_graph
from pliant.graph.verify import verify_function
from pliant.language import alloc, boolean, exp, f32, f64, grid, sizes
from pliant.loop.interpret import interpret as run_loops
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var
from pliant.text import parse_function, to_text

n, k, m = sizes("n k m")


@pliant.program
def my_relu(x: f32[n, k], y: f32[n, k]):
    for i, j in grid(n, k):
        y[i, j] = max(x[i, j], 0.0)


@pliant.program
def my_softmax(x: f32[n, k], y: f32[n, k]):
    e = alloc(f32[k], scope="scratch")
    top = alloc(f32[1])
    total = alloc(f32[1])
    for i in grid(n):
        top[0] = max(x[i, r] for r in grid(k))
        for j in grid(k):
            e[j] = exp(x[i, j] - top[0])
        total[0] = sum(e[r] for r in grid(k))
        for j in grid(k):
            y[i, j] = e[j] / total[0]


@pliant.program
def my_product(a: f32[n, k], b: f32[k, m], c: f32[n, m]):
    for i, j in grid(n, m):
        c[i, j] = sum(a[i, r] * b[r, j] for r in grid(k))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x)) + 1.0
        return torch.softmax(self.second(h), -1) * 2.0


MODEL = Net().eval()
EXAMPLE = {"args": (torch.randn(4, 8),), "dynamic_shapes": ({0: "batch"},)}


def scheduled_relu() -> object:
    return my_relu.split("j", 16).vectorize("j_1").parallel("i")


def test_programs_are_given_for_operators_of_a_model() -> None:
    programs = {"relu": scheduled_relu(), "softmax": my_softmax}
    f = pliant.compile(MODEL, **EXAMPLE, programs=programs, check_programs=True)
    text = f.explain()
    assert "[serial] relu" in text and "[serial] softmax" in text
    for batch in (0, 1, 7):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(f(x), MODEL(x).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(pliant.ShapeError):
        f(torch.randn(3, 9))


def test_a_function_may_choose_by_types_and_attributes() -> None:
    seen = []

    def choose(x: object, **attributes: object) -> object:
        seen.append((str(x), attributes))
        return my_softmax if attributes["axis"] == 1 else None

    f = pliant.compile(MODEL, **EXAMPLE, programs={"softmax": choose})
    assert seen == [("f32[batch, 6]", {"axis": 1})]
    assert "[serial] softmax" in f.explain()
    left = pliant.compile(MODEL, **EXAMPLE, programs={"softmax": lambda x, **attrs: None})
    assert "[serial]" not in left.explain()


class Convolved(nn.Module):
    """A convolution likes its channels last; the program reads its result row-major."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)) + 1.0


@pliant.program
def relu_by_address(x: f32[n, k, m, m], y: f32[n, k, m, m]):
    for i, j, a, b in grid(n, k, m, m):
        y[i, j, a, b] = max(x.flat[((i * k + j) * m + a) * m + b], 0.0)


def test_operands_lie_row_major() -> None:
    model, x = Convolved().eval(), torch.randn(2, 8, 5, 5)
    f = pliant.compile(model, (x,), programs={"relu": relu_by_address})
    torch.testing.assert_close(f(x), model(x).detach(), rtol=1e-4, atol=1e-5)


@pliant.program
def wrong_relu(x: f32[n, k], y: f32[n, k]):
    for i, j in grid(n, k):
        y[i, j] = max(x[i, j], 0.25)


@pliant.program
def beyond(x: f32[n, k], y: f32[n, k]):
    for i, j in grid(n, k):
        y[i, j] = x[i, min(j + 1, k)]


@pliant.program
def three(x: f32[n, k, m], y: f32[n, k, m]):
    for i, j, t in grid(n, k, m):
        y[i, j, t] = x[i, j, t]


@pliant.program
def of_doubles(x: f32[n, k], y: f64[n, k]):
    for i, j in grid(n, k):
        y[i, j] = f64(x[i, j])


@pliant.program
def of_rows(x: f32[n, 16], y: f32[16, 16]):
    for i, j in grid(16, 16):
        y[i, j] = max(x[i, j], 0.0)


@pliant.program
def wide(x: f32[n, 32], y: f32[n, 32]):
    for i, j in grid(n, 32):
        y[i, j] = x[i, j]


@pliant.program
def masked(x: f32[n, k], mask: boolean[n, k], y: f32[n, k]):
    for i, j in grid(n, k):
        y[i, j] = x[i, j] if mask[i, j] else 0.0


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        (
            {"relu": wrong_relu},
            r"wrong_relu is not relu at batch = \d: result 0 at \[\d",
        ),
        (
            {"relu": beyond},
            r"beyond is not relu at batch = \d: beyond: x\[0, 16\] is outside its shape",
        ),
        ({"relu": three}, "three: x is f32 of rank 3, not f32 of rank 2"),
        ({"relu": of_doubles}, r"of_doubles: y is f64\[batch, 16\], relu gives f32\[batch, 16\]"),
        ({"relu": wide}, "wide: dim 1 of x must be 32"),
        ({"relu": masked}, r"masked takes 2 tensors \(x, mask\), not 1"),
        ({"rleu": my_relu}, r"programs: there is no operator 'rleu' \(.*relu"),
        ({"relu": lambda x: 3}, r"programs\['relu'\] is a pliant.program, or a function"),
        ({"relu": 3}, r"programs\['relu'\] is a pliant.program, or a function"),
    ],
)
def test_programs_that_do_not_fit_are_refused(programs: dict[str, object], message: str) -> None:
    with pytest.raises(pliant.InvalidModelError, match=message):
        pliant.compile(MODEL, **EXAMPLE, programs=programs, check_programs=True)


def test_extents_that_cannot_be_compared_are_checked_in_calls() -> None:
    """of_rows gives [16, 16], relu [batch, 16]: the same where batch is 16."""
    f = pliant.compile(MODEL, **EXAMPLE, programs={"relu": of_rows})
    f(torch.randn(16, 8))
    with pytest.raises(pliant.ShapeError, match="dim 0 of y is 16, relu gives batch"):
        f(torch.randn(17, 8))
    with pytest.raises(pliant.ShapeError, match=r"dim 0 of x must be at least 16 \(batch is 5\)"):
        f(torch.randn(5, 8))


def test_demands_of_a_program_are_checked_in_calls() -> None:
    @pliant.program(dims={"n": pliant.Dim(min=2, max=8, multiple=2)})
    def even_relu(x: f32[n, k], y: f32[n, k]):
        for i, j in grid(n, k):
            y[i, j] = max(x[i, j], 0.0)

    p = even_relu.split("i", 2, tail="exact")
    f = pliant.compile(MODEL, **EXAMPLE, programs={"relu": p}, check_programs=True)
    f(torch.randn(4, 8))
    for batch, message in ((3, "multiple of 2"), (0, "at least 2"), (10, "at most 8")):
        with pytest.raises(pliant.ShapeError, match=message):
            f(torch.randn(batch, 8))


def test_a_graph_that_is_built_calls_programs() -> None:
    b = Builder("main", OPERATORS)
    x = b.param("x", f32_type, (var("b"), 4))
    w = b.weight("w", np.arange(12, dtype=np.float32).reshape(4, 3))
    h = my_product.call(b, x, w)
    y = scheduled_relu().call(b, b.call("neg", h))
    function, weights = b.finish([y])
    verify_function(function, OPERATORS, weights)
    assert parse_function(to_text(function)) is function
    a = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    want = np.maximum(-(a @ next(iter(weights.values()))), 0)
    (got,) = run_graph(function, weights, {"x": a}, OPERATORS, run_loops)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pliant.compile((function, weights))(a), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(pliant.InvalidModelError, match="my_product: dim 0 of b must be k"):
        my_product.call(b, x, b.weight("v", np.zeros((3, 3), np.float32)))


MODULE = """\
{program}


@graph
def main(x: f32["b", 5]):
    h: f32["b", 5] = my_relu(x)
    y: f32["b", 5] = neg(h)
    return y
"""


def test_a_graph_function_calls_a_program_of_its_module(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(MODULE.format(program=scheduled_relu()))
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_allclose(pliant.compile(file)(x), -np.maximum(x, 0))
    file.write_text(MODULE.format(program=three))
    with pytest.raises(pliant.InvalidModelError, match="no such operator"):
        pliant.compile(file)
    wrong = MODULE.replace('h: f32["b", 5]', 'h: f32["b", 4]')
    file.write_text(wrong.format(program=my_relu))
    with pytest.raises(pliant.InvalidModelError, match="my_relu: dim 1 of y is 5, my_relu gives 4"):
        pliant.compile(file)
