"""`explain()` tells symbols, checks, kernels with their recipes, why they are apart, and places."""

from __future__ import annotations

import re

import numpy as np

import pliant
from pliant.base.dtypes import f32
from pliant.base.spans import Span
from pliant.graph.builder import Builder
from pliant.graph.function import Dim
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var

WANT = """\
main: 3 kernels, 3 launches; 1 more ran when it was compiled, on weights alone
memory for intermediate values: 64*((n + 15)//16) + 128*n bytes
symbol m: 0 <= m
symbol n: 1 <= n <= 64, multiple of 2
checked in every call: x: dim 0 (n) must be at least 1
checked in every call: x: dim 0 (n) must be at most 64
checked in every call: x: dim 0 (n) must be a multiple of 2
checked in every call: x: dim 1 must be 20
checked in every call: y: dim 0 must be n
checked in every call: x and z have as many rows
   0 k_contraction_… [contraction, rows read in place] matmul relu
       -> relu[n, 32]
       from model.py:5 (fc)
       from model.py:6
   1 k_row_… [row] sum add
       -> add[n]
       not in 0: a reduction cannot follow in a contraction kernel
       from model.py:7
   2 k_serial_… [scan] cumsum
       -> cumsum[n]
       not in 1: a scan runs by itself
       from model.py:8"""


def test_explain() -> None:
    b = Builder("main", OPERATORS)
    b.dim("n", Dim(1, 64, 2))
    x = b.param("x", f32, (var("n"), 20))
    y = b.param("y", f32, (var("n"),))
    b.param("z", f32, (var("m"),))
    b.equal(var("n"), var("m"), "x and z have as many rows")
    w = b.weight("w", np.ones((20, 32), np.float32))
    h = b.call("relu", b.call("matmul", x, w, span=Span("model.py", 5, "fc")),
               span=Span("model.py", 6))  # fmt: skip
    h = b.call("sum", h, axes=(1,), keepdims=False, span=Span("model.py", 7))
    h = b.call("add", h, y, span=Span("model.py", 7))
    h = b.call("cumsum", h, axis=0, exclusive=False, reverse=False, span=Span("model.py", 8))
    text = pliant.compile(b.finish([h])).explain()
    assert re.sub(r"(k_[a-z]+_)[0-9a-f]{16}", r"\1…", text) == WANT, text


def test_long_formulas_of_memory_are_told_in_steps() -> None:
    """Several values of sizes that nothing is known of are wanted at once, and others later."""
    names = [f"a_size_of_the_model_{k}" for k in range(6)]
    b = Builder("main", OPERATORS)
    sums = []
    for k, name in enumerate(names):
        x = b.param(f"x{k}", f32, (var(name), 3))
        h = b.call("cumsum", x, axis=0, exclusive=False, reverse=False)
        sums.append(b.call("cumsum", h, axis=1, exclusive=False, reverse=False))
    f = pliant.compile(b.finish(sums))
    lines = f.explain().splitlines()
    (at,) = (k for k, line in enumerate(lines) if line.startswith("memory for intermediate values"))
    total = re.fullmatch(r"memory for intermediate values: (\w+) bytes, where", lines[at])
    assert total, lines[at]
    steps = re.findall(r"^  (\w+) = (.+)$", "\n".join(lines[at + 1 :]), re.MULTILINE)
    assert total[1] == steps[-1][0]
    known: dict[str, int] = {}
    sizes = {name: 5 + k for k, name in enumerate(names)}
    for name, formula in steps:
        known[name] = eval(formula, {"max": max, **sizes, **known})
    whole = f.stats()["peak_memory"]
    assert known[total[1]] == eval(whole, {"max": max, **sizes})
