"""The full-size models of the benchmark that come from PyTorch.

Each function returns a `TorchCase`: the module, its dynamic dims, inputs for given sizes and the
sizes that its own code accepts. `bench/onnx_models.py` has those that come as ONNX files. Run from
the repository root (the model code is in `tests/models`).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pliant
from bench.inputs import asset, photos, sentences
from pliant.runtime.callable import Compiled
from tests.models.decoder import Config, Decoder
from tests.models.efficientvit import EfficientViT
from tests.models.mobilenet import MobileNetV2
from tests.models.resnet import ResNet
from tests.sizes import Sizes

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Case(ABC):
    """A model and how to feed it.

    `make(**sizes)` gives inputs for the named sizes, always the same for the same sizes; `typical`
    is the size to time; `shapes` are those whose results are reported (the names' values in order);
    `sizes` are the legal ones, as far as they are moderate, and `most` bounds their product;
    `illegal` are tuples that the source refuses; `dims` are keyword arguments of `pliant.Dim` by
    symbol.
    """

    make: Callable[..., Inputs]
    typical: Sizes
    shapes: Sequence[tuple[int, ...]]
    sizes: Mapping[str, range]
    most: int
    illegal: Sequence[Sizes] = ()
    dims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        """The example: the typical sizes."""
        return self.make(**self.typical)

    def compile(self, threads: int | None = None) -> Compiled:
        """The model compiled once with all its dynamic dims."""
        dims = {n: pliant.Dim(**known) for n, known in self.dims.items()}
        return self._compile(dims, threads)

    @abstractmethod
    def _compile(self, dims: Mapping[str, pliant.Dim], threads: int | None) -> Compiled: ...

    @abstractmethod
    def expected(self, inputs: Inputs) -> list[torch.Tensor]:
        """The results of the framework that the model comes from, in order."""

    def reference(self, inputs: Inputs) -> list[torch.Tensor]:
        """The same, or something more exact where the framework's own error would hide ours."""
        return self.expected(inputs)

    @abstractmethod
    def exact(self, inputs: Inputs) -> list[torch.Tensor]:
        """The model's results in float64, which say who is right where two others differ."""


@dataclass(frozen=True, kw_only=True)
class TorchCase(Case):
    """A module; eager PyTorch is its source."""

    module: nn.Module
    dynamic_shapes: Mapping[str, Mapping[int, str]]

    def _compile(self, dims: Mapping[str, pliant.Dim], threads: int | None) -> Compiled:
        return pliant.compile(
            self.module, (), self.inputs, dynamic_shapes=self.dynamic_shapes, dims=dims,
            threads=threads,
        )  # fmt: skip

    def expected(self, inputs: Inputs) -> list[torch.Tensor]:
        with torch.inference_mode():
            return tree_leaves(self.module(**inputs))

    def exact(self, inputs: Inputs) -> list[torch.Tensor]:
        with torch.inference_mode():
            return tree_leaves(deepcopy(self.module).double()(**widened(inputs)))


def widened(inputs: Inputs) -> Inputs:
    """The inputs with their floats in float64."""
    return {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}


def _seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()


def _calibrated(module: nn.Module, side: int = 128) -> nn.Module:
    """The module with the statistics of its batch norms measured, as training leaves them.

    With those of a fresh module activations shrink from layer to layer until nothing but the last
    bias reaches the output, and a comparison of outputs would compare nothing.
    """
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the mean of what it sees
        norm.train()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        module(torch.randn(8, 3, side, side, generator=generator))
    return module.eval()


def _tokens(vocabulary: int) -> Callable[..., torch.Tensor]:
    def make(batch: int, seq: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(batch * 1009 + seq)
        return torch.randint(0, vocabulary, (batch, seq), generator=generator)

    return make


def _noise(batch: int, height: int, width: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch)
    return {"x": torch.randn(batch, 3, height, width, generator=generator)}


BATCH_SEQ: Final = {0: "batch", 1: "seq"}
IMAGE: Final = {0: "batch", 2: "height", 3: "width"}
BERT_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
TEXT_SHAPES: Final = ((1, 1), (1, 128), (2, 17), (16, 1), (5, 63), (1, 512), (3, 257))
IMAGE_SHAPES: Final = (
    (1, 224, 224), (2, 97, 161), (1, 1, 1), (3, 64, 33), (1, 255, 257), (2, 31, 7), (0, 64, 64),
)  # fmt: skip
AT_LEAST_1: Final = {"min": 1}


def minilm() -> TorchCase:
    """all-MiniLM-L6-v2 with its real weights on real text (asset `minilm`); without the asset,
    random ones."""
    from transformers import BertConfig, BertModel

    try:
        module: nn.Module = BertModel.from_pretrained(asset("minilm")).eval()
        make: Callable[..., Inputs] = sentences
    except FileNotFoundError:
        config = BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
        module, make = _seeded(lambda: BertModel(config)), _bert_noise
    return _bert(module, make, most=512)


def bert_base() -> TorchCase:
    from transformers import BertConfig, BertModel

    return _bert(_seeded(lambda: BertModel(BertConfig())), _bert_noise, most=96)


def _bert_noise(batch: int, seq: int) -> Inputs:
    ids = _tokens(30522)(batch, seq)
    rest = {"attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    return {"input_ids": ids} | rest


def _bert(module: nn.Module, make: Callable[..., Inputs], most: int) -> TorchCase:
    # The model's own code refuses empty batches: it reshapes to (batch, seq, -1, …).
    return TorchCase(
        module=module, make=make, dynamic_shapes=dict.fromkeys(BERT_INPUTS, BATCH_SEQ),
        typical={"batch": 1, "seq": 128}, shapes=(*TEXT_SHAPES, (16, 64)),
        sizes={"batch": range(1, 17), "seq": range(1, 513)}, most=most,
        illegal=[{"batch": 0, "seq": 5}, {"batch": 2, "seq": 0}, {"batch": 1, "seq": 513}],
        dims={"batch": AT_LEAST_1, "seq": AT_LEAST_1},
    )  # fmt: skip


def vit_b16() -> TorchCase:
    """ViT-B/16 at 224 with its classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    module = _seeded(lambda: _Logits(ViTForImageClassification(ViTConfig(num_labels=1000))))
    return TorchCase(
        module=module, make=lambda batch: _noise(batch, 224, 224),
        dynamic_shapes={"x": {0: "batch"}}, typical={"batch": 1},
        shapes=[(n,) for n in (1, 2, 3, 5, 8, 16)], sizes={"batch": range(1, 4)}, most=3,
        illegal=[{"batch": 0}], dims={"batch": AT_LEAST_1},
    )  # fmt: skip


class _Logits(nn.Module):
    """A model of transformers as a function from images to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=x).logits


def segformer_b0() -> TorchCase:
    """SegFormer-B0; typically 512 x 512."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(num_labels=150)  # the defaults are B0
    module = _seeded(lambda: _Logits(SegformerForSemanticSegmentation(config)))
    return TorchCase(
        module=_calibrated(module), make=_noise, dynamic_shapes={"x": IMAGE},
        typical={"batch": 1, "height": 512, "width": 512},
        shapes=[(1, 512, 512), (2, 97, 161), (1, 29, 29), (3, 64, 33), (1, 255, 257), (2, 99, 640)],
        sizes={"batch": range(1, 5), "height": range(29, 321), "width": range(29, 321)},
        most=128 * 128,
        illegal=[
            {"batch": 0, "height": 64, "width": 64}, {"batch": 1, "height": 28, "width": 64},
            {"batch": 1, "height": 64, "width": 0},
        ],
        dims={"batch": AT_LEAST_1},
    )  # fmt: skip


def resnet50() -> TorchCase:
    return _convolutional(_seeded(ResNet), empty=True)


def mobilenet_v2() -> TorchCase:
    return _convolutional(_seeded(MobileNetV2), empty=True)


def efficientvit_b1() -> TorchCase:
    # Its attention reshapes to (batch, -1, …), which empty batches do not allow.
    return _convolutional(_seeded(EfficientViT), empty=False)


def _convolutional(module: nn.Module, *, empty: bool) -> TorchCase:
    """A model of pictures of any size; `empty`: a batch may be, too."""
    return TorchCase(
        module=_calibrated(module), make=_noise, dynamic_shapes={"x": IMAGE},
        typical={"batch": 1, "height": 224, "width": 224},
        shapes=IMAGE_SHAPES if empty else IMAGE_SHAPES[:-1],
        sizes={
            "batch": range(0 if empty else 1, 5), "height": range(1, 321), "width": range(1, 321),
        },
        most=128 * 128,
        illegal=[
            {"batch": 1, "height": 0, "width": 64}, {"batch": 2, "height": 64, "width": 0},
            *([] if empty else [{"batch": 0, "height": 64, "width": 64}]),
        ],
        dims={} if empty else {"batch": AT_LEAST_1},
    )  # fmt: skip


def efficientnet_lite0() -> TorchCase:
    """EfficientNet-Lite0 with its real weights and its own code (asset `efficientnet_lite0`)."""
    folder = asset("efficientnet_lite0")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    from efficientnet_lite_pytorch import EfficientNet

    module = EfficientNet.from_name("efficientnet-lite0")
    (path,) = folder.glob("*.pth")
    module.load_state_dict(torch.load(path, weights_only=True))
    return TorchCase(
        module=module.eval(), make=lambda batch: {"inputs": (photos(batch, 224) - 127) / 128},
        dynamic_shapes={"inputs": {0: "batch"}}, typical={"batch": 1},
        shapes=[(n,) for n in (1, 2, 3, 5, 7, 16)], sizes={"batch": range(1, 9)}, most=8,
        illegal=[{"batch": 0}], dims={"batch": AT_LEAST_1},
    )  # fmt: skip


def decoder() -> TorchCase:
    """12 layers, hidden 1024: prefill logits."""
    tokens = _tokens(32000)
    return TorchCase(
        module=_seeded(lambda: Decoder(Config())),
        make=lambda batch, seq: {"ids": tokens(batch, seq)}, dynamic_shapes={"ids": BATCH_SEQ},
        typical={"batch": 1, "seq": 128}, shapes=TEXT_SHAPES,
        sizes={"batch": range(1, 9), "seq": range(1, 257)}, most=64,
        illegal=[{"batch": 0, "seq": 5}, {"batch": 2, "seq": 0}],
        dims={"batch": AT_LEAST_1, "seq": AT_LEAST_1},
    )  # fmt: skip


MODELS: Final[Mapping[str, Callable[[], TorchCase]]] = {
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
