"""Compiled ONNX recurrences against torch's modules, at many sizes of one compilation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import pliant

IN = 5
SIZES = ((1, 1), (7, 3), (0, 2), (3, 0), (2, 17))
ORDER = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}  # torch's gates as ONNX has them


def _packed(module: torch.nn.RNNBase, name: str, kind: str) -> np.ndarray:
    """A parameter of both directions with ONNX's order of gates."""
    found = []
    for end in ("", "_reverse"):
        blocks = np.split(getattr(module, f"{name}_l0{end}").detach().numpy(), len(ORDER[kind]))
        found.append(np.concatenate([blocks[k] for k in ORDER[kind]]))
    return np.stack(found)


def _model(kind: str, module: torch.nn.RNNBase, path: Path) -> None:
    weights = {"w": _packed(module, "weight_ih", kind), "r": _packed(module, "weight_hh", kind)}
    biases = [_packed(module, f"bias_{n}", kind) for n in ("ih", "hh")]
    weights["b"] = np.concatenate(biases, 1)
    results = ["y", "last", "last_c"] if kind == "LSTM" else ["y", "last"]
    attrs = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(
        kind, ["x", "w", "r", "b"], results, hidden_size=module.hidden_size,
        direction="bidirectional", **attrs,
    )  # fmt: skip
    typed = [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "b", IN])
    stored = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph([node], "g", [x], typed, stored)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.mark.sweep
@pytest.mark.parametrize("width", [3, 64, 70])
@pytest.mark.parametrize("kind", list(ORDER))
def test_same_as_torch(kind: str, width: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(IN, width, bidirectional=True).eval()
    _model(kind, module, tmp_path / "m.onnx")
    f = pliant.compile(tmp_path / "m.onnx")
    for t, b in SIZES:
        x = torch.randn(t, b, IN)
        y, *last = f(x.numpy())
        assert y.shape == (t, 2, b, width)
        if t == 0 or b == 0:  # torch takes no empty sequences: the states are those of the start
            assert all((np.asarray(s) == 0).all() for s in last)
            continue
        with torch.no_grad():
            wide, states = module(x)
        expected = wide.reshape(t, b, 2, width).transpose(1, 2)
        np.testing.assert_allclose(y, expected, atol=2e-5)
        for got, want in zip(last, states if kind == "LSTM" else [states], strict=True):
            np.testing.assert_allclose(got, want, atol=2e-5)
    assert f.stats()["compiles"] == 1


class Layer(torch.nn.Module):
    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.layer = getattr(torch.nn, kind)(8, width, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)[0]
        return y


@pytest.mark.parametrize("kind", list(ORDER))
def test_threads_share_a_step(kind: str) -> None:
    """Its panels, and its sequences, where there are enough of them; results are the same, bit by
    bit."""
    torch.manual_seed(0)
    model = Layer(kind, 300).eval()  # the last panel is partly empty
    x = torch.randn(2, 3, 8)
    dims = ({0: "b", 1: "t"},)
    alone, several = (pliant.compile(model, (x,), dynamic_shapes=dims, threads=n) for n in (1, 3))
    for b, t in ((1, 5), (2, 3), (7, 4), (33, 2), (64, 1), (0, 3)):
        x = torch.randn(b, t, 8)
        y = several(x)
        assert torch.equal(y, alone(x))
        if b:
            with torch.no_grad():
                torch.testing.assert_close(y, model(x), rtol=1e-4, atol=2e-5)
