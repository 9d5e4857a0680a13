"""The models of the benchmark that come as ONNX files: real weights, and real inputs by
`bench/inputs.py`.

ONNX Runtime is their source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import pliant
from bench.inputs import asset, headings, pages, photos, sentences, speech, text_lines
from bench.models import MODELS, TEXT_SHAPES, Case, Inputs, widened
from pliant.runtime.callable import Compiled


@dataclass(frozen=True, kw_only=True)
class OnnxCase(Case):
    """An ONNX file.

    `ends_in_sigmoid`: references take the last sigmoid in f64 of ONNX Runtime's argument. Its own
    is off by up to 2e-7 and gives 0 below about 1e-8: where a whole result is small (a picture
    without text) its relative error is 1.
    """

    path: Path
    ends_in_sigmoid: bool = False

    def _compile(self, dims: Mapping[str, pliant.Dim], threads: int | None) -> Compiled:
        return pliant.compile(self.path, dims=dims, threads=threads)

    @cached_property
    def _session(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        model = onnx.load(self.path)
        if self.ends_in_sigmoid:  # its argument is a result more
            last = model.graph.node[-1]
            assert last.op_type == "Sigmoid"
            model.graph.output.append(onnx.ValueInfoProto(name=last.input[0]))
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def _run(self, inputs: Inputs) -> list[torch.Tensor]:
        feed = {name: t.numpy() for name, t in inputs.items()}
        return [torch.from_numpy(a) for a in self._session.run(None, feed)]

    def expected(self, inputs: Inputs) -> list[torch.Tensor]:
        results = self._run(inputs)
        return results[:-1] if self.ends_in_sigmoid else results

    def reference(self, inputs: Inputs) -> list[torch.Tensor]:
        if not self.ends_in_sigmoid:
            return self.expected(inputs)
        return [self._run(inputs)[-1].double().sigmoid()]

    @cached_property
    def _evaluator(self) -> ReferenceEvaluator:
        model = in_float64(onnx.load(self.path))
        return ReferenceEvaluator(model, new_ops=[BatchNormalization])

    def exact(self, inputs: Inputs) -> list[torch.Tensor]:
        """By ONNX's own reference implementation, which is slow."""
        feed = {n: t.numpy() for n, t in widened(inputs).items()}
        return [torch.from_numpy(np.asarray(a)) for a in self._evaluator.run(None, feed)]


class BatchNormalization(OpRun):
    """As trained: the one of the reference implementation, of opset 9, goes on with training."""

    def _run(
        self, x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: float, **_: Any
    ) -> tuple[Any]:
        scale, bias, mean, var = (
            a.reshape(-1, *[1] * (x.ndim - 2)) for a in (scale, bias, mean, var)
        )
        return (scale * (x - mean) / np.sqrt(var + epsilon) + bias,)


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each f32 in it, of weights, values and conversions, as f64."""
    f32, f64 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
    tensors = [*model.graph.initializer]
    for node in model.graph.node:
        tensors += [a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
        for a in node.attribute:
            if node.op_type == "Cast" and a.name == "to" and a.i == f32:
                a.i = f64
    for t in tensors:
        if t.data_type == f32:
            wide = numpy_helper.to_array(t).astype(np.float64)
            t.CopyFrom(numpy_helper.from_array(wide, t.name))
    for v in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if v.type.tensor_type.elem_type == f32:
            v.type.tensor_type.elem_type = f64
    return model


def minilm_int8() -> OnnxCase:
    """MiniLM with int8 weights."""
    return OnnxCase(
        path=asset("minilm_int8_onnx") / "model.onnx",
        make=lambda batch, sequence: sentences(batch, sequence),
        typical={"batch": 1, "sequence": 128}, shapes=(*TEXT_SHAPES, (16, 64), (0, 5)),
        sizes={"batch": range(17), "sequence": range(1, 513)}, most=512,
        illegal=[{"batch": 1, "sequence": 513}],
    )  # fmt: skip


def _ocr(file: str) -> Path:
    return asset("rapidocr") / file


def ocr_det() -> OnnxCase:
    """PP-OCRv4 text detection: height and width in steps of 32."""
    return OnnxCase(
        path=_ocr("ch_PP-OCRv4_det_infer.onnx"), ends_in_sigmoid=True,
        make=lambda batch, height, width: {"x": pages(batch, height, width)},
        typical={"batch": 1, "height": 192, "width": 384},
        shapes=[(1, 192, 384), (2, 32, 64), (1, 320, 640), (3, 96, 32), (1, 160, 992), (0, 32, 32)],
        sizes={"batch": range(5), "height": range(32, 641, 32), "width": range(32, 641, 32)},
        most=128 * 256,
        illegal=[
            {"batch": 1, "height": 33, "width": 32}, {"batch": 2, "height": 32, "width": 48},
            {"batch": 1, "height": 0, "width": 32},
        ],
    )  # fmt: skip


def ocr_rec() -> OnnxCase:
    """PP-OCRv4 text recognition: lines 48 high.

    Other heights are legal (some are in `shapes`), but the model was not made for them. It also has
    texts for which it amplifies rounding: in batches with a line 28 wide, both ONNX Runtime and we
    are 5e-5 from the model in float64 and up to 1.1e-4 from one another.
    """
    return OnnxCase(
        path=_ocr("ch_PP-OCRv4_rec_infer.onnx"),
        make=lambda batch, height, width: {"x": text_lines(batch, height, width)},
        typical={"batch": 1, "height": 48, "width": 432},
        shapes=[(1, 48, 432), (2, 48, 97), (1, 48, 5), (6, 48, 320), (1, 40, 161), (2, 32, 320)],
        sizes={"batch": range(1, 7), "height": range(48, 49), "width": range(1, 641)},
        most=48 * 640,
        illegal=[
            {"batch": 1, "height": 96, "width": 100}, {"batch": 1, "height": 48, "width": 0},
        ],
    )  # fmt: skip


def ocr_cls() -> OnnxCase:
    """PP-OCR orientation of a line, typically 48 x 192."""
    return OnnxCase(
        path=_ocr("ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        make=lambda batch, height, width: {"x": headings(batch, height, width)},
        typical={"batch": 1, "height": 48, "width": 192},
        shapes=[(1, 48, 192), (2, 48, 192), (6, 48, 97), (1, 64, 200), (3, 33, 257), (1, 20, 31)],
        sizes={"batch": range(1, 9), "height": range(1, 129), "width": range(1, 321)},
        most=64 * 256,
        illegal=[{"batch": 1, "height": 0, "width": 0}, {"batch": 2, "height": 48, "width": 0}],
    )  # fmt: skip


def open_nsfw() -> OnnxCase:
    """open_nsfw, a thin ResNet-50: BGR pictures, channels last."""

    def make(batch: int) -> Inputs:
        mean = torch.tensor([104.0, 117.0, 123.0])
        return {"input:0": photos(batch, 224).flip(1).permute(0, 2, 3, 1).contiguous() - mean}

    return OnnxCase(
        path=asset("open_nsfw_resnet50thin") / "model.onnx", make=make, typical={"batch": 1},
        shapes=[(n,) for n in (1, 2, 3, 5, 8, 0)], sizes={"batch": range(9)}, most=8,
    )  # fmt: skip


def basic_pitch() -> OnnxCase:
    """Basic Pitch: two seconds of sound to notes."""
    return OnnxCase(
        path=asset("basic_pitch") / "model.onnx",
        make=lambda batch: {"serving_default_input_2:0": speech(batch)}, typical={"batch": 1},
        shapes=[(n,) for n in (1, 2, 3, 5, 7, 0)], sizes={"batch": range(5)}, most=4,
    )  # fmt: skip


ONNX_MODELS: Final[Mapping[str, Callable[[], OnnxCase]]] = {
    "minilm_int8": minilm_int8,
    "ocr_det": ocr_det,
    "ocr_rec": ocr_rec,
    "ocr_cls": ocr_cls,
    "open_nsfw": open_nsfw,
    "basic_pitch": basic_pitch,
}
ALL_MODELS: Final[Mapping[str, Callable[[], Case]]] = {**MODELS, **ONNX_MODELS}
