"""Whole models through `pliant.compile`: one compilation, many shapes, each against torch eager."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from tests.models.decoder import Config, Decoder
from tests.models.efficientvit import EfficientViT
from tests.models.mobilenet import MobileNetV2
from tests.models.resnet import ResNet
from tests.models.unet import UNet

TOLERANCE = 1e-4  # relative L2


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got - want).norm() / want.norm().clamp_min(1e-30)).item()


def check(f: Any, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        want = model(*inputs)
    got = f(*inputs)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert error(got, want) <= TOLERANCE


IMAGES = [
    (lambda: ResNet((1, 1, 1, 1), 16, 10), 32),
    (lambda: MobileNetV2(0.25, 10), 32),
    (lambda: EfficientViT((8, 8, 16, 16, 32), (1, 1, 1, 1, 1), 8, (32, 32), 10), 32),
    (lambda: UNet(), 16),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("build", "multiple"), IMAGES, ids=["resnet", "mobilenet", "evit", "unet"])
def test_images(build: Any, multiple: int) -> None:
    torch.manual_seed(0)
    model = build().eval()
    h, w = (multiple * torch.export.Dim(n, min=1, max=64) for n in ("h", "w"))
    f = pliant.compile(
        model,
        (torch.randn(2, 3, 2 * multiple, 3 * multiple),),
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64), 2: h, 3: w},),
    )
    for n, a, b in ((1, 1, 1), (2, 2, 3), (3, 1, 2), (1, 5, 7), (1, 2, 1)):
        check(f, model, (torch.randn(n, 3, a * multiple, b * multiple),))
    assert f.stats()["compiles"] == 1


@pytest.fixture(scope="module")
def decoder() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = Decoder(Config(2, 64, 4, 2, 96, 100)).eval()
    ids = torch.randint(0, 100, (2, 9))
    return model, pliant.compile(model, (ids,), dynamic_shapes=({0: "batch", 1: "seq"},))


def test_random_shapes(decoder: tuple[nn.Module, Any]) -> None:
    model, f = decoder
    rng = np.random.default_rng(0)
    special = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33]
    for _ in range(40):
        batch, seq = int(rng.integers(1, 5)), int(rng.choice(special))
        check(f, model, (torch.randint(0, 100, (batch, seq)),))
    assert f.stats()["compiles"] == 1


def test_threads_do_not_change_bits(decoder: tuple[nn.Module, Any], tmp_path: Path) -> None:
    _, f = decoder
    ids = torch.randint(0, 100, (3, 50))
    f.save(tmp_path / "m.so")
    one = pliant.load(tmp_path / "m.so", threads=1)(ids)
    two = pliant.load(tmp_path / "m.so", threads=2)(ids)
    assert torch.equal(one, two)
    assert torch.equal(one, f(ids))


def test_saved_model_needs_no_compiler(decoder: tuple[nn.Module, Any], tmp_path: Path) -> None:
    _, f = decoder
    ids = np.arange(24, dtype=np.int64).reshape(2, 12)
    np.save(tmp_path / "want.npy", f(ids))
    f.save(tmp_path / "m.so")
    program = f"""
import sys
for name in ("llvmlite", "torch", "onnx"):
    sys.modules[name] = None
import numpy as np
import pliant
f = pliant.load({str(tmp_path / "m.so")!r})
ids = np.arange(24, dtype=np.int64).reshape(2, 12)
assert np.array_equal(f(ids), np.load({str(tmp_path / "want.npy")!r}))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_illegal_calls(decoder: tuple[nn.Module, Any]) -> None:
    _, f = decoder
    with pytest.raises(pliant.ShapeError, match="dimensions"):
        f(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(pliant.ShapeError, match="i64"):
        f(torch.zeros(1, 3))
    with pytest.raises(pliant.ShapeError, match=r"out of range|outside"):
        f(torch.full((1, 3), 100))
    with pytest.raises(pliant.ShapeError, match=r"out of range|outside"):
        f(torch.full((1, 3), -101))
