"""Other libraries' products of two f32 matrices, on one thread: the machine's best is among them.

Which is best differs from processor to processor: torch's own library is slow on some.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

Matrix = np.ndarray[Any, np.dtype[np.float32]]
Call = Callable[[], object]
_THREADS: Final = "OPENBLAS_NUM_THREADS"


def on_one_thread() -> None:
    """To call first: start the process again where NumPy's library, which reads how many threads
    it may use as it is loaded, may have more than one; then hold torch to one."""
    if os.environ.get(_THREADS) != "1":
        os.execve(
            sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {_THREADS: "1"}
        )
    torch.set_num_threads(1)


def product_peers(a: Matrix, b: Matrix) -> dict[str, Call]:
    """Calls that compute a @ b, by the library's name; of those that are installed. Each gives the
    result, in memory that is its own or used again."""
    out, x, y = np.empty((len(a), b.shape[1]), np.float32), torch.from_numpy(a), torch.from_numpy(b)
    to = torch.empty(out.shape)
    found: dict[str, Call] = {
        "numpy": lambda: np.matmul(a, b, out=out),
        "torch": lambda: torch.mm(x, y, out=to),
    }
    makers = {"openvino": _openvino, "onnxruntime": _onnxruntime}
    return found | {n: f(a, b) for n, f in makers.items() if importlib.util.find_spec(n)}


def _openvino(a: Matrix, b: Matrix) -> Call:
    import openvino
    from openvino import opset13 as ops

    parameters = [ops.parameter(list(m.shape), np.float32) for m in (a, b)]
    model = openvino.Model([ops.matmul(*parameters, False, False)], parameters)
    options = {
        "INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
    return lambda: request.infer([a, b], share_inputs=True, share_outputs=True)[0]


def _onnxruntime(a: Matrix, b: Matrix) -> Call:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, m.shape)
        for name, m in (("a", a), ("b", b))
    ]
    result = helper.make_tensor_value_info("c", TensorProto.FLOAT, [len(a), b.shape[1]])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "m", inputs, [result]
    )
    version = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[version], ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"a": a, "b": b})[0]
