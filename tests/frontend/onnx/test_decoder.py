"""A language model as ONNX Runtime's generator of models writes it: weights of 4 bits, grouped
heads with a cache, rotation by place. One compilation is for the prompt and for what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pliant

WIDTH, HEADS, FEW, SIZE, INNER, WORDS = 64, 4, 2, 16, 96, 50


class Model:
    """Nodes and weights, one after another."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(37)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **more: Any) -> str:
        domain = "" if onnx.defs.has(op) or op.startswith("Simplified") else "com.microsoft"
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **more))
        return outputs[0]

    def product(self, x: str, k: int, n: int, name: str) -> str:
        """x times a matrix of 4 bits."""
        r, blocks = self.random, k // 32
        q = self.weight(f"{name}.q", r.integers(0, 256, (n, blocks, 16), np.uint8))
        scales = (r.random(n * blocks) * 0.02).astype(np.float32)
        s = self.weight(f"{name}.s", scales)
        z = self.weight(f"{name}.z", r.integers(0, 256, n * ((blocks + 1) // 2), np.uint8))
        attributes = {"K": k, "N": n, "bits": 4, "block_size": 32, "accuracy_level": 0}
        return self.node("MatMulNBits", [x, q, s, z], [name], **attributes)

    def lengths(self) -> None:
        one = self.weight("one", np.int64([1]))
        self.node("ReduceSum", ["attention_mask", one], ["counts"], keepdims=0)
        self.node("Cast", [self.node("Sub", ["counts", one], ["last"])], ["ends"], to=6)
        index = self.weight("index", np.asarray(1, np.int64))
        self.node("Gather", [self.node("Shape", ["attention_mask"], ["shape"]), index], ["all"])
        self.node("Cast", ["all"], ["total"], to=TensorProto.INT32)

    def layer(self) -> str:
        turns = np.outer(np.arange(32), 0.1 ** np.arange(SIZE // 2)).astype(np.float32)
        caches = [self.weight("cos", np.cos(turns)), self.weight("sin", np.sin(turns))]
        scale = self.weight("scale", self.random.random(WIDTH).astype(np.float32))
        table = self.random.standard_normal((WORDS, WIDTH)).astype(np.float32)
        x = self.node("Gather", [self.weight("table", table), "input_ids"], ["x"])
        normal = self.node("SimplifiedLayerNormalization", [x, scale], ["n"], epsilon=1e-6)
        widths = (HEADS * SIZE, FEW * SIZE, FEW * SIZE)
        qkv = [self.product(normal, WIDTH, w, n) for w, n in zip(widths, "qkv", strict=True)]
        heads = self.node(
            "GroupQueryAttention", [*qkv, "past.key", "past.value", "ends", "total", *caches],
            ["a", "present.key", "present.value"], num_heads=HEADS, kv_num_heads=FEW, do_rotary=1,
        )  # fmt: skip
        after = self.product(heads, HEADS * SIZE, WIDTH, "o")
        norm = "SkipSimplifiedLayerNormalization"
        self.node(norm, [x, after, scale], ["m", "", "", "sum"], epsilon=1e-6)
        gate, up = (self.product("m", WIDTH, INNER, n) for n in ("gate", "up"))
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], ["s"])], ["silu"])
        down = self.product(self.node("Mul", [silu, up], ["u"]), INNER, WIDTH, "down")
        self.node(norm, ["sum", down, scale], ["last_norm"], epsilon=1e-6)
        return self.product("last_norm", WIDTH, WORDS, "logits")


def decoder() -> onnx.ModelProto:
    model = Model()
    model.lengths()
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
        info("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
        *[info(f"past.{n}", real, ["batch_size", FEW, "past_sequence_length", SIZE])
          for n in ("key", "value")],
    ]  # fmt: skip
    outputs = [info(model.layer(), real, ["batch_size", "sequence_length", WORDS])]
    outputs += [info(f"present.{n}", real, [None, FEW, None, SIZE]) for n in ("key", "value")]
    graph = helper.make_graph(model.nodes, "decoder", inputs, outputs, model.weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_a_prompt_and_the_words_after_it() -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = decoder()
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    f = pliant.compile(model)
    past = [np.zeros((2, FEW, 0, SIZE), np.float32)] * 2
    random, before = np.random.default_rng(0), 0
    for length in (5, 1, 1):
        ids = random.integers(0, WORDS, (2, length))
        mask = np.ones((2, before + length), np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask}
        feeds |= {"past.key": past[0], "past.value": past[1]}
        want = session.run(None, feeds)
        for a, b in zip(f(*feeds.values()), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        past, before = want[1:], before + length
    assert f.stats()["compiles"] == 1
