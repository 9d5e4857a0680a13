"""A small ONNX model, and the command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
SOURCE = Path(__file__).parents[2] / "src"


def environment(cache: Path, **more: str) -> dict[str, str]:
    """Of a child process whose cache is `cache`."""
    path = f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PLIANT_")}
    return kept | {"PYTHONPATH": path, "PLIANT_CACHE_DIR": str(cache)} | more


@pytest.fixture
def cli(tmp_path: Path) -> Run:
    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pliant.cli", *map(str, arguments)]
        env = environment(tmp_path / "cache", **more)
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = relu(x @ w), x: f32[batch, 8]."""
    return make_model(tmp_path / "small.onnx", "Relu")


def make_model(path: Path, op: str, domain: str = "") -> Path:
    """A matmul, then `op`."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    w = onnx.numpy_helper.from_array(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), "w")
    graph = h.make_graph(
        [h.make_node("MatMul", ["x", "w"], ["h"]), h.make_node(op, ["h"], ["y"], domain=domain)],
        "small",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 8])],
        [h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [w],
    )
    opsets = [h.make_opsetid("", 17)] + ([h.make_opsetid(domain, 1)] if domain else [])
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path
