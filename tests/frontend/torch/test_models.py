"""Whole models, small: imported and evaluated against torch at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pliant.graph.function import Dim
from tests.frontend.torch.running import assert_same, call, check, imported
from tests.models.decoder import Config, Decoder
from tests.models.efficientvit import EfficientViT
from tests.models.mobilenet import MobileNetV2
from tests.models.resnet import ResNet
from tests.models.unet import AudioNet, UNet

transformers = pytest.importorskip("transformers")

IMAGE = ({0: "n", 2: "h", 3: "w"},)


def image(n: int, h: int, w: int) -> tuple[torch.Tensor]:
    return (torch.randn(n, 3, h, w, generator=torch.Generator().manual_seed(n)),)


def tokens(b: int, s: int, vocabulary: int = 50) -> torch.Tensor:
    return torch.randint(0, vocabulary, (b, s), generator=torch.Generator().manual_seed(s))


def randomised(module: nn.Module) -> nn.Module:
    """Statistics of batch norms that are not the identity."""
    torch.manual_seed(0)
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-0.1, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return module.eval()


CNNS: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: ResNet((1, 1), 8, 10),
    "mobilenet": lambda: MobileNetV2(0.1, 10),
    "efficientvit": lambda: EfficientViT((8, 8, 16, 16, 32), (1, 1, 1, 1, 1), 8, (32, 32), 10),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CNNS)
def test_image_models(name: str) -> None:
    torch.manual_seed(0)
    model = randomised(CNNS[name]())
    others = [image(1, 37, 64), image(3, 31, 41)]
    check(model, image(2, 64, 96), IMAGE, others, tolerance=1e-4)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("transposed", [True, False])
def test_unet(transposed: bool) -> None:
    torch.manual_seed(0)
    dims = {"h": Dim(min=4, multiple=4), "w": Dim(min=4, multiple=4)}
    others = [image(1, 4, 12), image(3, 20, 8)]
    check(UNet(8, 2, transposed), image(2, 16, 12), IMAGE, others, dims=dims, tolerance=1e-4)


def test_audio_convolutions() -> None:
    def wave(n: int, t: int) -> tuple[torch.Tensor]:
        return (torch.randn(n, 1, t, generator=torch.Generator().manual_seed(t)),)

    check(AudioNet(), wave(2, 64), ({0: "n", 2: "t"},), [wave(1, 101), wave(3, 32)])


SMALL = Config(layers=2, hidden=32, heads=4, kv_heads=2, inner=48, vocabulary=50)


def test_decoder() -> None:
    torch.manual_seed(0)
    check(
        Decoder(SMALL), (tokens(2, 6),), ({0: "b", 1: "s"},),
        [(tokens(1, 1),), (tokens(3, 7),), (tokens(1, 16),)], tolerance=1e-4,
    )  # fmt: skip


def test_decoder_in_bfloat16() -> None:
    torch.manual_seed(0)
    model = Decoder(SMALL).to(torch.bfloat16)
    check(model, (tokens(2, 6),), ({0: "b", 1: "s"},), [(tokens(1, 5),)], tolerance=6e-2)


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=40,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.BertModel(config).eval()


def test_bert_keeps_its_output_type() -> None:
    names = ("input_ids", "attention_mask", "token_type_ids")

    def inputs(b: int, s: int) -> dict[str, torch.Tensor]:
        ids = tokens(b, s)
        mask = torch.ones_like(ids)
        mask[:, s - s // 3 :] = 0
        return dict(zip(names, (ids, mask, torch.zeros_like(ids)), strict=True))

    module = bert()
    shapes = {n: {0: "batch", 1: "seq"} for n in names}
    model = imported(module, (), inputs(1, 7), dynamic_shapes=shapes)
    assert dict(model.function.dims)["seq"].max == 40
    for size in ((1, 7), (1, 1), (3, 5), (2, 31)):
        with torch.no_grad():
            expected = module(**inputs(*size))
        found = call(model, **inputs(*size))
        assert type(found) is type(expected)
        assert_same(found, expected, tolerance=1e-4)


class Logits(nn.Module):
    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model.eval(), argument

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.argument: x}).logits


def causal(config: Any) -> nn.Module:
    torch.manual_seed(0)
    return Logits(transformers.AutoModelForCausalLM.from_config(config), "input_ids")


TEXT: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: causal(transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )),
    "gpt2": lambda: causal(transformers.GPT2Config(
        vocab_size=50, n_positions=40, n_embd=32, n_layer=2, n_head=4, use_cache=False,
    )),
    "qwen3": lambda: causal(transformers.Qwen3Config(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )),
    "mixtral": lambda: causal(transformers.MixtralConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, use_cache=False,
    )),
    "qwen3_moe": lambda: causal(transformers.Qwen3MoeConfig(
        vocab_size=50, hidden_size=32, moe_intermediate_size=24, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2,
        use_cache=False,
    )),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", TEXT)
def test_language_models(name: str) -> None:
    others = [(tokens(1, 1),), (tokens(3, 11),)]
    check(TEXT[name](), (tokens(1, 6),), ({0: "b", 1: "s"},), others, tolerance=1e-4)


def test_t5_encoder() -> None:
    config = transformers.T5Config(
        vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False
    )
    torch.manual_seed(0)
    model = transformers.T5EncoderModel(config).eval()

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=x).last_hidden_state

    others = [(tokens(1, 1),), (tokens(3, 11),)]
    check(Encoder(), (tokens(2, 6),), ({0: "b", 1: "s"},), others, tolerance=1e-4)


def test_vit() -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        image_size=32, patch_size=8, num_labels=10,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Logits(transformers.ViTForImageClassification(config), "pixel_values")
    check(model, image(2, 32, 32), ({0: "n"},), [image(1, 32, 32)], tolerance=1e-4)


def test_segformer() -> None:
    config = transformers.SegformerConfig(
        num_labels=5, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Logits(transformers.SegformerForSemanticSegmentation(config), "pixel_values")
    dims = {"h": Dim(min=32, multiple=32), "w": Dim(min=32, multiple=32)}
    others = [image(1, 32, 96)]
    check(model, image(1, 64, 64), IMAGE, others, dims=dims, tolerance=1e-4)
