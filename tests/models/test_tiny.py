"""Architectures in miniature: compiled once, the same as torch at every size.

Random weights, a layer or two each. What they are made of is what users' models are made of.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from tests.frontend.torch.running import assert_same

transformers = pytest.importorskip("transformers")


@dataclass(frozen=True)
class Model:
    """`module(*make(*sizes))`, at the example's sizes and at others."""

    module: nn.Module
    make: Callable[..., Any]
    shapes: Any
    example: tuple[int, ...]
    others: Sequence[tuple[int, ...]]
    dims: dict[str, pliant.Dim] | None = None


def check(model: Model) -> None:
    module = model.module.eval()
    args, kwargs = model.make(*model.example)
    f = pliant.compile(module, args, kwargs, dynamic_shapes=model.shapes, dims=model.dims)
    for sizes in (model.example, *model.others):
        args, kwargs = model.make(*sizes)
        with torch.no_grad():
            expected = module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        assert_same(f(*args, **kwargs), expected, tolerance=1e-4)
    assert f.stats()["compiles"] == 1


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(2, 90, shape, generator=torch.Generator().manual_seed(sum(shape)))


# ---- of the transformers library

TEXT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip


def text(kind: str, model: str = "Model", **options: Any) -> Model:
    config = getattr(transformers, f"{kind}Config")(**{**TEXT, **options})
    module = getattr(transformers, f"{kind}{model}")(config)

    def make(b: int, s: int) -> Any:
        mask = torch.ones(b, s, dtype=torch.long)
        mask[0, s // 2 + 1 :] = 0
        return (), {"input_ids": tokens(b, s), "attention_mask": mask}

    shapes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}
    return Model(module, make, shapes, (2, 9), [(1, 1), (3, 7), (2, 31)])


def encoder_decoder() -> Model:
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=99, use_cache=False,
        decoder_start_token_id=0,
    )  # fmt: skip
    shapes = {"input_ids": {0: "b", 1: "s"}, "decoder_input_ids": {0: "b", 1: "t"}}

    def make(b: int, s: int, t: int) -> Any:
        return (), {"input_ids": tokens(b, s), "decoder_input_ids": tokens(b, t)}

    others = [(1, 1, 1), (3, 7, 5)]
    return Model(transformers.T5Model(config), make, shapes, (2, 9, 6), others)


def images(module: nn.Module, example: Sequence[int], others: Any, channels: int = 3) -> Model:
    def make(b: int, h: int, w: int) -> Any:
        return (numbers(b, channels, h, w),), {}

    return Model(module, make, ({0: "b", 2: "h", 3: "w"},), tuple(example), others)


def speech() -> Model:
    config = transformers.Wav2Vec2Config(
        **{k: v for k, v in TEXT.items() if k != "max_position_embeddings"},
        conv_dim=(8, 8), conv_stride=(4, 2), conv_kernel=(8, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    module = transformers.Wav2Vec2Model(config)
    shapes = ({0: "b", 1: "t"},)
    return Model(
        module, lambda b, t: ((numbers(b, t),), {}), shapes, (2, 200), [(1, 131), (3, 400)]
    )


CACHELESS = {"use_cache": False}
LIBRARY: dict[str, Callable[[], Model]] = {
    "deberta": lambda: text("Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "llama": lambda: text("Llama", "ForCausalLM", num_key_value_heads=1, **CACHELESS),
    "gemma2": lambda: text(
        "Gemma2", num_key_value_heads=1, head_dim=8, sliding_window=8, **CACHELESS
    ),
    "clip text": lambda: text("CLIPText", eos_token_id=98, bos_token_id=0, pad_token_id=1),
    "t5": encoder_decoder,
    "dinov2": lambda: images(
        transformers.Dinov2Model(transformers.Dinov2Config(**VISION, mlp_ratio=2)),
        (2, 16, 16), [(1, 24, 20), (3, 12, 32)],
    ),
    "convnext": lambda: images(
        transformers.ConvNextModel(
            transformers.ConvNextConfig(hidden_sizes=[4, 8, 8, 8], depths=[1, 1, 1, 1])
        ),
        (2, 32, 32), [(1, 64, 32), (3, 45, 70)],
    ),
    "wav2vec2": speech,
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", LIBRARY)
def test_models_of_a_library(name: str) -> None:
    torch.manual_seed(0)
    check(LIBRARY[name]())


# ---- as users write them


class Skips(nn.Module):
    """A U-Net whose upsampled half is padded to what it meets."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True))
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(True))
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = self.up(self.inner(F.max_pool2d(a, 2)))
        dy, dx = a.size(2) - b.size(2), a.size(3) - b.size(3)
        b = F.pad(b, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(torch.cat([a, b], 1))


class Decoder(nn.Module):
    """Of a variational autoencoder: attention over pixels, nearest upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)
        self.q, self.k, self.v = (nn.Conv2d(8, 8, 1) for _ in range(3))
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        y = self.norm(x)
        q = self.q(y).reshape(b, c, h * w).permute(0, 2, 1)
        k, v = (m(y).reshape(b, c, h * w) for m in (self.k, self.v))
        a = F.softmax(torch.bmm(q, k) * int(c) ** -0.5, dim=2)
        x = x + torch.bmm(v, a.permute(0, 2, 1)).reshape(b, c, h, w)
        return torch.tanh(self.out(F.interpolate(x, scale_factor=2.0, mode="nearest")))


class Shuffled(nn.Module):
    """Channel shuffle, squeeze and excitation, dense concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.narrow = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
        self.head = nn.Linear(16 * 6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        b, c, h, w = x.size()
        y = x.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, c, h, w)
        y = F.relu_(self.narrow(y))
        y *= self.scale(y)
        return self.head(F.adaptive_avg_pool2d(torch.cat([x, y], 1), (2, 3)).flatten(1))


class Frames(nn.Module):
    """Recurrent super-resolution of a video: the last frame's result and state come back in."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3 + 4 + 12, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.state = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, frame: Any, state: Any, last: Any) -> Any:
        y = F.relu(self.a(torch.cat([frame, state, F.pixel_unshuffle(last, 2)], 1)))
        wide = F.interpolate(frame, scale_factor=2, mode="bilinear", align_corners=False)
        return {"frame": (F.pixel_shuffle(self.b(y), 2) + wide).clamp(0, 1), "state": self.state(y)}


def frames() -> Model:
    def make(b: int, h: int, w: int) -> Any:
        return (numbers(b, 3, h, w), numbers(b, 4, h, w), numbers(b, 3, 2 * h, 2 * w)), {}

    auto = torch.export.Dim.AUTO
    shapes = (*({0: "b", 2: "h", 3: "w"},) * 2, {0: "b", 2: auto, 3: auto})
    return Model(Frames(), make, shapes, (1, 6, 8), [(2, 7, 9), (1, 1, 1)])


class Graph(nn.Module):
    """Attention over the edges of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(8, 12, bias=False)
        self.a = nn.Parameter(torch.randn(3, 8))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        n, (source, target) = x.shape[0], edges
        h = self.lift(x).view(n, 3, 4)
        e = F.leaky_relu((torch.cat([h[source], h[target]], -1) * self.a).sum(-1), 0.2)
        most = torch.full((n, 3), -1e9)
        most = most.scatter_reduce(0, target[:, None].expand(-1, 3), e, "amax", include_self=True)
        w = (e - most[target]).exp()
        total = torch.zeros(n, 3).index_add_(0, target, w)
        out = torch.zeros(n, 3, 4)
        out.index_add_(0, target, (w / (total[target] + 1e-9))[..., None] * h[source])
        return F.log_softmax(out.flatten(1), -1)


def graph() -> Model:
    def make(n: int, e: int) -> Any:
        edges = torch.randint(0, n, (2, e), generator=torch.Generator().manual_seed(e))
        return (numbers(n, 8), edges), {}

    return Model(Graph(), make, ({0: "n"}, {1: "e"}), (5, 12), [(1, 1), (7, 0), (17, 101)])


class Causal(nn.Module):
    """Dilated convolutions in time, weights normalised."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.a = norm(nn.Conv1d(4, 4, 3, padding=4, dilation=2))
        self.b = torch.nn.utils.weight_norm(nn.Linear(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(F.relu(x + self.a(x)[:, :, :-4]).transpose(1, 2))


class Rays(nn.Module):
    """A radiance field: Fourier features, a small network, transmittance along each ray."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 + 3 * 4, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, origin: torch.Tensor, way: torch.Tensor, samples: int = 8) -> Any:
        z = torch.linspace(2.0, 6.0, samples).expand(origin.shape[0], samples)
        at = origin[:, None, :] + way[:, None, :] * z[..., None]
        waves = [g(2.0**k * at) for k in range(2) for g in (torch.sin, torch.cos)]
        out = self.net(torch.cat([at, *waves], -1))
        step = torch.cat([z[..., 1:] - z[..., :-1], torch.full_like(z[..., :1], 1e10)], -1)
        alpha = 1.0 - torch.exp(-F.relu(out[..., 3]) * step * way[..., None, :].norm(dim=-1))
        clear = torch.cat([torch.ones((alpha.shape[0], 1)), 1.0 - alpha + 1e-10], -1)
        w = alpha * torch.cumprod(clear, -1)[:, :-1]
        return torch.sum(w[..., None] * torch.sigmoid(out[..., :3]), -2), torch.sum(w * z, -1)


class Losses(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        t = y[:, 0].long().abs() % 6
        a, b = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
        pairs = torch.arange(x.shape[0])
        return (
            F.cross_entropy(x, t, label_smoothing=0.1), F.nll_loss(F.log_softmax(x, 1), t),
            F.cross_entropy(a @ b.t() * 10, pairs), F.smooth_l1_loss(x, y), F.huber_loss(x, y),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.triplet_margin_loss(x, y, x + y),
            F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
        )  # fmt: skip


class Changes(nn.Module):
    """Views that are written to."""

    def forward(self, x: torch.Tensor) -> Any:
        halo = x.new_zeros(x.shape[0] + 2, x.shape[1])
        halo[1:-1] = x
        halo[0], halo[-1] = x[-1], x[0]
        waves = torch.empty(x.shape[0], 12)
        waves[:, 0::2], waves[:, 1::2] = torch.sin(x), torch.cos(x)
        y = x.clone()
        y[:, 1:] += 1
        y[y > 2] = -1
        y.t()[0].mul_(2)
        return halo[2:] - halo[:-2], waves, y


def rows(module: nn.Module, inputs: int, width: int, others: Sequence[int]) -> Model:
    def make(n: int) -> Any:
        return tuple(numbers(n, width) + k for k in range(inputs)), {}

    return Model(module, make, ({0: "n"},) * inputs, (5,), [(n,) for n in others])


def attention() -> Model:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    module = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    make = lambda b, t: ((numbers(b, t, 8),), {})  # noqa: E731
    return Model(module, make, ({0: "b", 1: "t"},), (2, 9), [(1, 1), (3, 7), (2, 33)])


WRITTEN: dict[str, Callable[[], Model]] = {
    "unet": lambda: images(Skips(), (2, 12, 12), [(1, 13, 7), (3, 2, 5)]),
    "vae decoder": lambda: images(Decoder(), (2, 4, 6), [(1, 5, 7), (3, 1, 1)], channels=8),
    "shuffled": lambda: images(Shuffled(), (2, 8, 8), [(1, 9, 7), (0, 8, 8)]),
    "frames": frames,
    "graph": graph,
    "causal": lambda: Model(
        Causal(), lambda b, t: ((numbers(b, 4, t),), {}), ({0: "b", 2: "t"},), (2, 9),
        [(1, 1), (3, 30)],
    ),
    "rays": lambda: rows(Rays(), 2, 3, (1, 0, 17)),
    "losses": lambda: rows(Losses(), 2, 6, (1, 7, 16)),
    "changes": lambda: rows(Changes(), 1, 6, (1, 7, 17)),
    "attention": attention,
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", WRITTEN)
def test_models_as_users_write_them(name: str) -> None:
    torch.manual_seed(0)
    check(WRITTEN[name]())
