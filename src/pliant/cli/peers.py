"""Other runtimes, for `bench --against`: each takes the model's file and NumPy arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from pliant.base.load import load_module
from pliant.cli.arrays import Array

Results = list[Array]
Prepared = Callable[[], Results]  # one call on inputs that were converted beforehand


class UnavailableError(Exception):
    """A peer that cannot take part; the message says why."""


class TorchPeer:
    """PyTorch eager, of an exported program."""

    def __init__(self, model: Path, threads: int) -> None:
        if model.suffix != ".pt2":
            raise UnavailableError("PyTorch runs .pt2 models, not ONNX files")
        self._torch: Any = load_module("torch")
        self._torch.set_num_threads(threads)
        self._module: Any = self._torch.export.load(model).module()

    def prepare(self, inputs: Mapping[str, Array]) -> Prepared:
        torch, module = self._torch, self._module
        tensors = [torch.from_numpy(a) for a in inputs.values()]

        def call() -> Results:
            with torch.no_grad():
                found = module(*tensors)
            found = found if isinstance(found, list | tuple) else [found]
            return [t.numpy() for t in found if isinstance(t, torch.Tensor)]

        return call


class OnnxRuntimePeer:
    """ONNX Runtime on the same file."""

    def __init__(self, model: Path, threads: int) -> None:
        if model.suffix != ".onnx":
            raise UnavailableError("ONNX Runtime runs .onnx files")
        ort = load_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = ort.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )

    def prepare(self, inputs: Mapping[str, Array]) -> Prepared:
        session, feed = self._session, dict(inputs)

        def call() -> Results:
            found: Results = session.run(None, feed)
            return found

        return call


class OpenVinoPeer:
    """OpenVINO on the same file, for latency, at the model's precision."""

    def __init__(self, model: Path, threads: int) -> None:
        if model.suffix != ".onnx":
            raise UnavailableError("OpenVINO runs .onnx files")
        openvino = load_module("openvino")
        config = {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
            # As the model says: by itself it would quantise activations beside int8 weights.
            "INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        }  # fmt: skip
        core = openvino.Core()
        self._compiled: Any = core.compile_model(core.read_model(str(model)), "CPU", config)
        self._ports = [
            (k, p.get_names() | {p.node.get_friendly_name()})
            for k, p in enumerate(self._compiled.inputs)
        ]

    def prepare(self, inputs: Mapping[str, Array]) -> Prepared:
        feed = {k: a for k, names in self._ports for n, a in inputs.items() if n in names}
        request: Any = self._compiled.create_infer_request()

        def call() -> Results:
            found = request.infer(feed, share_inputs=True, share_outputs=True)
            return [np.asarray(v) for v in found.values()]

        return call


Peer = TorchPeer | OnnxRuntimePeer | OpenVinoPeer

PEERS: Final[dict[str, type[Peer]]] = {
    "torch": TorchPeer,
    "onnxruntime": OnnxRuntimePeer,
    "openvino": OpenVinoPeer,
}


def open_peer(name: str, model: Path, threads: int) -> Peer:
    """A peer, ready. Raises UnavailableError."""
    try:
        return PEERS[name](model, threads)
    except UnavailableError:
        raise
    except ImportError as e:
        raise UnavailableError(f"not installed ({e})") from None
    except Exception as e:  # a peer's own errors are of any class
        raise UnavailableError(f"cannot run the model: {_first_line(e)}") from None


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0][:200]
