"""Models of one operator, for `python -m bench --kernels`: products of two square matrices,
products with weights of the shapes of BERT, ViT and MiniLM, convolutions of ResNet-50, attention.

Operands that a model would have as weights are weights, so that every system packs them as it
likes before. Convolutions take and give pictures channels last, as layers inside a network do where
that is faster; who wants another layout is free to choose it for a network, and here pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from bench.models import Inputs, TorchCase
from bench.standing import Row

HEADS, FEATURES = 16, 64
SQUARES: Final = (512, 1024, 2048, 4096)
LINEARS: Final = {  # rows, depth, columns
    "bert": ((128, 768, 768), (128, 768, 3072), (128, 3072, 768)),
    "vit": ((197, 768, 2304), (197, 768, 3072), (197, 3072, 768)),
    "minilm": ((64, 384, 1536), (64, 1536, 384)),
}
CONVOLUTIONS: Final = (  # side, channels in, out, kernel: those of ResNet-50's four stages
    (56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3),
    (56, 64, 256, 1), (56, 256, 64, 1), (28, 512, 128, 1), (14, 1024, 256, 1), (7, 2048, 512, 1),
)  # fmt: skip
LENGTHS: Final = (128, 256, 512, 1024, 2048, 4096)


class Product(nn.Module):
    """Both operands come with the call: packing counts."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class Convolution(nn.Module):
    """Of pictures with channels last; as many places as before."""

    def __init__(self, channels: int, filters: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, size, padding=size // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x.permute(0, 3, 1, 2))
        return y.permute(0, 2, 3, 1)


class Attention(nn.Module):
    """Heads, rows, features of each of queries, keys and values."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def _random(**shapes: tuple[int, ...]) -> Inputs:
    generator = torch.Generator().manual_seed(3)
    return {n: torch.randn(shape, generator=generator) for n, shape in shapes.items()}


def _case(
    module: nn.Module, make: Callable[..., Inputs], dims: Mapping[str, Any], **typical: int
) -> TorchCase:
    return TorchCase(
        module=module.eval(), make=make, dynamic_shapes=dims, typical=typical,
        shapes=[tuple(typical.values())], sizes={n: range(1, 65) for n in typical}, most=1 << 20,
    )  # fmt: skip


def product() -> TorchCase:
    return _case(
        Product(), lambda m, k, n: _random(a=(m, k), b=(k, n)),
        {"a": {0: "m", 1: "k"}, "b": {0: "k", 1: "n"}}, m=64, k=48, n=80,
    )  # fmt: skip


def linear(depth: int, columns: int) -> TorchCase:
    torch.manual_seed(0)
    return _case(
        nn.Linear(depth, columns), lambda rows: _random(input=(rows, depth)),
        {"input": {0: "rows"}}, rows=64,
    )  # fmt: skip


def convolution(side: int, channels: int, filters: int, size: int) -> TorchCase:
    torch.manual_seed(0)
    return _case(
        Convolution(channels, filters, size), lambda: _random(x=(1, side, side, channels)),
        {"x": {}},
    )  # fmt: skip


def attention(*, causal: bool) -> TorchCase:
    def make(seq: int) -> Inputs:
        shape = (1, HEADS, seq, FEATURES)
        return _random(q=shape, k=shape, v=shape)

    return _case(Attention(causal=causal), make, {n: {2: "seq"} for n in "qkv"}, seq=64)


_LINEARS: Final = [(f"{of} {k}x{n}", m, k, n) for of, all_ in LINEARS.items() for m, k, n in all_]
_CONVOLUTIONS: Final = [(f"conv {k}x{k} {c}-{f} {s}", s, c, f, k) for s, c, f, k in CONVOLUTIONS]
KERNEL_MODELS: Final[Mapping[str, Callable[[], TorchCase]]] = {
    "product": product,
    **{name: partial(linear, k, n) for name, _, k, n in _LINEARS},
    **{name: partial(convolution, *sizes) for name, *sizes in _CONVOLUTIONS},
    "attention": partial(attention, causal=False),
    "causal attention": partial(attention, causal=True),
}
KERNELS: Final = (
    *(Row("product", {"m": n, "k": n, "n": n}) for n in SQUARES),
    *(Row(name, {"rows": m}) for name, m, _, _ in _LINEARS),
    *(Row(name, {}) for name, *_ in _CONVOLUTIONS),
    *(Row(model, {"seq": n}) for model in ("attention", "causal attention") for n in LENGTHS),
)  # fmt: skip
