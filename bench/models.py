"""The full-size models of the benchmark.

Each function returns a `Case`: the module, example inputs, its dynamic dims, and a sampler of legal
sizes. Run from the repository root (the model code is in `tests/models`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.models.decoder import Config, Decoder
from tests.models.efficientvit import EfficientViT
from tests.models.mobilenet import MobileNetV2
from tests.models.resnet import ResNet

ASSETS: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pliant-assets"

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A model and how to feed it.

    `make(sizes)` gives inputs for the named sizes; `sample(random)` draws legal sizes; `dims` are
    keyword arguments of `pliant.Dim` by name.
    """

    module: nn.Module
    make: Callable[..., Inputs]
    dynamic_shapes: Mapping[str, Mapping[int, str]]
    typical: Mapping[str, int]
    sample: Callable[[Random], dict[str, int]]
    dims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        """The example: the typical sizes."""
        return self.make(**self.typical)


def _seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()


def _tokens(names: tuple[str, ...], vocabulary: int) -> Callable[..., Inputs]:
    def make(batch: int, seq: int) -> Inputs:
        generator = torch.Generator().manual_seed(batch * 1009 + seq)
        ids = torch.randint(0, vocabulary, (batch, seq), generator=generator)
        rest = {"attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        return {names[0]: ids} | {n: rest[n] for n in names[1:]}

    return make


def _text_sizes(longest: int, batches: int = 8) -> Callable[[Random], dict[str, int]]:
    return lambda r: {"batch": r.randint(1, batches), "seq": r.randint(1, longest)}


def _image(channels: int = 3, side: int | None = None) -> Callable[..., Inputs]:
    def make(batch: int, height: int = side or 0, width: int = side or 0) -> Inputs:
        generator = torch.Generator().manual_seed(batch)
        return {"x": torch.randn(batch, channels, height, width, generator=generator)}

    return make


def _image_sizes(
    low: int, high: int, step: int, batches: int = 4
) -> Callable[[Random], dict[str, int]]:
    def sample(r: Random) -> dict[str, int]:
        height, width = (r.randrange(low, high + 1, step) for _ in range(2))
        return {"batch": r.randint(1, batches), "height": height, "width": width}

    return sample


BATCH_SEQ: Final = {0: "batch", 1: "seq"}
IMAGE: Final = {0: "batch", 2: "height", 3: "width"}
BERT_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")


def minilm() -> Case:
    """all-MiniLM-L6-v2 with its real weights (asset `minilm`; random ones where it is absent)."""
    from transformers import BertConfig, BertModel

    folder = ASSETS / "minilm"
    if folder.is_dir():
        module: nn.Module = BertModel.from_pretrained(folder).eval()
    else:
        config = BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
        module = _seeded(lambda: BertModel(config))
    return _bert(module)


def bert_base() -> Case:
    from transformers import BertConfig, BertModel

    return _bert(_seeded(lambda: BertModel(BertConfig())))


def _bert(module: nn.Module) -> Case:
    return Case(
        module, _tokens(BERT_INPUTS, 30522), dict.fromkeys(BERT_INPUTS, BATCH_SEQ),
        {"batch": 1, "seq": 128}, _text_sizes(512), {"batch": {"min": 1}, "seq": {"min": 1}},
    )  # fmt: skip


def vit_b16() -> Case:
    """ViT-B/16 at 224 with its classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    module = _seeded(lambda: _Logits(ViTForImageClassification(ViTConfig(num_labels=1000))))
    return Case(
        module, _image(side=224), {"x": {0: "batch"}}, {"batch": 1},
        lambda r: {"batch": r.randint(1, 16)},
    )  # fmt: skip


class _Logits(nn.Module):
    """A model of transformers as a function from images to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=x).logits


def segformer_b0() -> Case:
    """SegFormer-B0 at 512 x 512; height and width vary in steps of 32."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(num_labels=150)  # the defaults are B0
    module = _seeded(lambda: _Logits(SegformerForSemanticSegmentation(config)))
    return Case(
        module, _image(), {"x": IMAGE}, {"batch": 1, "height": 512, "width": 512},
        _image_sizes(128, 640, 32, 2),
        {n: {"min": 32, "multiple": 32} for n in ("height", "width")},
    )  # fmt: skip


def resnet50() -> Case:
    return Case(
        _seeded(ResNet), _image(), {"x": IMAGE}, {"batch": 1, "height": 224, "width": 224},
        _image_sizes(64, 320, 1), {n: {"min": 33} for n in ("height", "width")},
    )  # fmt: skip


def mobilenet_v2() -> Case:
    return Case(
        _seeded(MobileNetV2), _image(), {"x": IMAGE}, {"batch": 1, "height": 224, "width": 224},
        _image_sizes(64, 320, 1), {n: {"min": 33} for n in ("height", "width")},
    )  # fmt: skip


def efficientvit_b1() -> Case:
    return Case(
        _seeded(EfficientViT), _image(), {"x": IMAGE},
        {"batch": 1, "height": 224, "width": 224}, _image_sizes(64, 512, 1),
        {n: {"min": 33} for n in ("height", "width")},
    )  # fmt: skip


def efficientnet_lite0() -> Case:
    """EfficientNet-Lite0 with its real weights and its own code (asset `efficientnet_lite0`)."""
    folder = ASSETS / "efficientnet_lite0"
    if not folder.is_dir():
        raise FileNotFoundError(f"asset efficientnet_lite0: no folder {folder}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    from efficientnet_lite_pytorch import EfficientNet

    module = EfficientNet.from_name("efficientnet-lite0")
    (path,) = folder.glob("*.pth")
    module.load_state_dict(torch.load(path, weights_only=True))
    make = _image(side=224)
    return Case(
        module.eval(), lambda **sizes: {"inputs": make(**sizes)["x"]}, {"inputs": {0: "batch"}},
        {"batch": 1}, lambda r: {"batch": r.randint(1, 16)},
    )  # fmt: skip


def decoder() -> Case:
    """12 layers, hidden 1024: prefill logits."""
    return Case(
        _seeded(lambda: Decoder(Config())), _tokens(("ids",), 32000), {"ids": BATCH_SEQ},
        {"batch": 1, "seq": 128}, _text_sizes(512, 4), {"batch": {"min": 1}, "seq": {"min": 1}},
    )  # fmt: skip


MODELS: Final[Mapping[str, Callable[[], Case]]] = {
    "minilm": minilm,
    "bert_base": bert_base,
    "vit_b16": vit_b16,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "segformer_b0": segformer_b0,
    "efficientvit_b1": efficientvit_b1,
    "decoder": decoder,
    "efficientnet_lite0": efficientnet_lite0,
}
