"""EfficientViT (Cai et al. 2022, ICCV 2023), the B series, for classification.

Multi-scale linear attention: q, k, v at several scales, ReLU kernels, no softmax, so that the cost
is linear in the number of pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class ConvLayer(nn.Module):
    """Convolution, batch norm, activation; each of the last two optional."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1,
        norm: bool = True, activation: bool = True, bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv = nn.Conv2d(
            inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias
        )
        self.norm = nn.BatchNorm2d(outputs) if norm else None
        self.act = nn.Hardswish() if activation else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        if self.norm is not None:
            x = self.norm(x)
        return x if self.act is None else self.act(x)


class DSConv(nn.Module):
    """Depthwise, then pointwise."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.depth = ConvLayer(inputs, inputs, 3, stride, groups=inputs)
        self.point = ConvLayer(inputs, outputs, 1, activation=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.point(self.depth(x))


class MBConv(nn.Module):
    """Inverted bottleneck. `bare`: biases instead of the first two norms (in attention stages)."""

    def __init__(
        self, inputs: int, outputs: int, stride: int = 1, expand: int = 4, bare: bool = False
    ) -> None:
        super().__init__()
        hidden = inputs * expand
        self.inverted = ConvLayer(inputs, hidden, 1, norm=not bare, bias=bare)
        self.depth = ConvLayer(hidden, hidden, 3, stride, groups=hidden, norm=not bare, bias=bare)
        self.point = ConvLayer(hidden, outputs, 1, activation=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.point(self.depth(self.inverted(x)))


class Residual(nn.Module):
    def __init__(self, main: nn.Module) -> None:
        super().__init__()
        self.main = main

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.main(x)


class LiteMLA(nn.Module):
    """Multi-scale linear attention."""

    def __init__(self, channels: int, dim: int, scales: tuple[int, ...] = (5,)) -> None:
        super().__init__()
        total = channels // dim * dim
        self.dim = dim
        self.qkv = ConvLayer(channels, 3 * total, 1, norm=False, activation=False)
        self.aggregate = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(3 * total, 3 * total, s, padding=s // 2, groups=3 * total, bias=False),
                nn.Conv2d(3 * total, 3 * total, 1, groups=3 * total // dim, bias=False),
            )
            for s in scales
        )
        self.project = ConvLayer(total * (1 + len(scales)), channels, 1, activation=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = self.qkv(x)
        multi = torch.cat([base, *(op(base) for op in self.aggregate)], dim=1)
        b, _, h, w = multi.size()
        multi = multi.reshape(b, -1, 3 * self.dim, h * w)
        q, k, v = multi.split(self.dim, dim=2)
        q, k = F.relu(q), F.relu(k)
        v = F.pad(v, (0, 0, 0, 1), mode="constant", value=1)  # the last row sums the weights
        out = torch.matmul(torch.matmul(v, k.transpose(-1, -2)), q)
        out = out[:, :, :-1] / (out[:, :, -1:] + 1e-15)
        return self.project(out.reshape(b, -1, h, w))


class EfficientViT(nn.Module):
    """Images [N, 3, H, W] to logits. The defaults are B1."""

    def __init__(
        self,
        widths: tuple[int, ...] = (16, 32, 64, 128, 256),
        depths: tuple[int, ...] = (1, 2, 3, 3, 4),
        dim: int = 16,
        head: tuple[int, int] = (1536, 1600),
        classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [ConvLayer(3, widths[0], 3, 2)]
        layers += [Residual(DSConv(widths[0], widths[0])) for _ in range(depths[0])]
        channels = widths[0]
        for width, depth in zip(widths[1:3], depths[1:3], strict=True):
            for k in range(depth):
                block = MBConv(channels, width, 2 if k == 0 else 1)
                layers.append(block if k == 0 else Residual(block))
                channels = width
        for width, depth in zip(widths[3:], depths[3:], strict=True):
            layers.append(MBConv(channels, width, 2, bare=True))
            channels = width
            for _ in range(depth):
                layers += [Residual(LiteMLA(width, dim)), Residual(MBConv(width, width, bare=True))]
        self.backbone = nn.Sequential(*layers)
        self.expand = ConvLayer(channels, head[0], 1)
        self.head = nn.Sequential(
            nn.Linear(head[0], head[1], bias=False),
            nn.LayerNorm(head[1]),
            nn.Hardswish(),
            nn.Linear(head[1], classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.expand(self.backbone(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
