"""Real models give what ONNX Runtime gives, at several shapes of one import."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from pliant.frontend.onnx import import_onnx
from pliant.ops.table import OPERATORS
from tests.frontend.onnx.run import run

ASSETS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pliant-assets"

Feeds = Callable[[np.random.Generator], Mapping[str, np.ndarray]]


def image(name: str, *shape: int) -> Feeds:
    """One random image."""
    return lambda random: {name: random.standard_normal(shape, np.float32)}


def sentence(batch: int, length: int) -> Feeds:
    """Random token ids, the last of them masked."""

    def feeds(random: np.random.Generator) -> Mapping[str, np.ndarray]:
        mask = np.ones((batch, length), np.int64)
        mask[-1, 1:] = 0
        ids = random.integers(0, 30_000, (batch, length))
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}

    return feeds


CASES: list[tuple[str, list[Feeds]]] = [
    ("minilm_int8_onnx/model.onnx", [sentence(2, 5), sentence(1, 1), sentence(3, 8)]),
    ("rapidocr/ch_PP-OCRv4_det_infer.onnx", [image("x", 1, 3, 32, 64), image("x", 2, 3, 64, 32)]),
    ("rapidocr/ch_PP-OCRv4_rec_infer.onnx", [image("x", 1, 3, 48, 40), image("x", 2, 3, 48, 67)]),
    ("rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", [image("x", 2, 3, 48, 61)]),
    ("open_nsfw_resnet50thin/model.onnx", [image("input:0", 1, 224, 224, 3)]),
    ("basic_pitch/model.onnx", [image("serving_default_input_2:0", 1, 43844, 1)]),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("file", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_against_onnx_runtime(file: str, shapes: list[Feeds]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = ASSETS / file
    if not path.exists():
        pytest.skip(f"the asset {file.split('/')[0]} is missing")
    model = import_onnx(path, OPERATORS)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for feeds in shapes:
        values = feeds(np.random.default_rng(0))
        for have, want in zip(
            run(model, [values[n] for n in model.inputs]), session.run(None, values), strict=True
        ):
            np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)
