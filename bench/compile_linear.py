"""Compile time against the number of nodes: it must grow linearly, up to 5,000 nodes in 20 s.

python bench/compile_linear.py [--nodes 5000]

Processor seconds, with an empty cache. Exit code 1 where a graph takes too long, or twice the nodes
take more than `BOUND` times as long.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pliant
from pliant.base.dtypes import f32
from pliant.graph.builder import Builder
from pliant.graph.function import Value
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var

LIMIT = 20.0  # seconds for 5,000 nodes
BOUND = 3.0  # 2 is linear; the rest is noise and what does not depend on the size

Body = Callable[[Builder, Value, int], Value]


def chain(b: Builder, x: Value, nodes: int) -> Value:
    """One elementwise operator after the other."""
    for k in range(nodes):
        x = b.call(("relu", "tanh", "neg", "abs")[k % 4], x)
    return x


def shared(b: Builder, x: Value, nodes: int) -> Value:
    """Every value is read several times, in the same kernel."""
    for _ in range(nodes // 3):
        t = b.call("tanh", x)
        x = b.call("add", b.call("mul", x, t), t)
    return x


def wide(b: Builder, x: Value, nodes: int) -> Value:
    """Half of the nodes side by side, then their sum."""
    values = [b.call("mul", x, b.scalar(float(k), f32)) for k in range(nodes // 2)]
    total = values[0]
    for v in values[1:]:
        total = b.call("add", total, v)
    return total


def residual(b: Builder, x: Value, nodes: int) -> Value:
    """A stack of residual blocks with weights."""
    rng = np.random.default_rng(0)
    for _ in range(nodes // 5):
        w = b.weight("w", rng.standard_normal((64, 64)).astype(np.float32))
        y = b.call("relu", b.call("matmul", x, w))
        x = b.call("layer_norm", b.call("add", x, y), None, None, axes_from=1, eps=1e-5)
        x = b.call("neg", x)
    return x


def deep_concat(b: Builder, x: Value, nodes: int) -> Value:
    """A tensor that grows by a concatenation in each step."""
    y = x
    for _ in range(nodes // 2):
        y = b.call("relu", b.call("concat", (y, x), axis=1))
    return y


def wide_concat(b: Builder, x: Value, nodes: int) -> Value:
    """One concatenation of everything."""
    values = [b.call("mul", x, b.scalar(float(k), f32)) for k in range(nodes - 1)]
    return b.call("concat", tuple(values), axis=1)  # type: ignore[no-any-return]


def graph_of(body: Body, nodes: int) -> Any:
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (var("batch"), 64))
    return b.finish([body(b, x, nodes)])


def onnx_residual(nodes: int) -> Any:
    """The residual stack as an ONNX model."""
    import onnx

    h, rng = onnx.helper, np.random.default_rng(0)
    node, weights, x = [], [], "x"
    for k in range(nodes // 4):
        w = rng.standard_normal((64, 64)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(w, f"w{k}"))
        node += [
            h.make_node("MatMul", [x, f"w{k}"], [f"m{k}"]),
            h.make_node("Relu", [f"m{k}"], [f"r{k}"]),
            h.make_node("Add", [x, f"r{k}"], [f"a{k}"]),
            h.make_node("Tanh", [f"a{k}"], [f"t{k}"]),
        ]
        x = f"t{k}"
    io = [h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", 64]) for n in ("x", x)]
    made = h.make_graph(node, "residual", io[:1], io[1:], weights)
    return h.make_model(made, opset_imports=[h.make_opsetid("", 17)], ir_version=9)


CASES: dict[str, Callable[[int], Any]] = {
    body.__name__: lambda nodes, body=body: graph_of(body, nodes)
    for body in (chain, shared, wide, residual, deep_concat, wide_concat)
} | {"onnx_residual": onnx_residual}


def seconds(make: Callable[[int], Any], nodes: int) -> tuple[float, float]:
    """To build the graph, and to compile it."""
    begun = time.process_time()
    model = make(nodes)
    built = time.process_time()
    pliant.compile(model)
    return built - begun, time.process_time() - built


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    os.environ["PLIANT_CACHE_DIR"] = "off"
    seconds(CASES["chain"], 8)  # imports
    bad = 0
    half = options.nodes // 2
    print(f"{'seconds':16s} {'build':>7s} {half:>8d} {options.nodes:>8d} {'ratio':>6s}")
    for name in options.cases:
        _, first = seconds(CASES[name], half)
        built, second = seconds(CASES[name], options.nodes)
        limit = LIMIT * options.nodes / 5000
        fault = "  too slow" if second > limit else "  not linear" * (second > BOUND * first)
        bad += bool(fault)
        print(f"{name:16s} {built:7.2f} {first:8.2f} {second:8.2f} {second / first:6.2f}{fault}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
