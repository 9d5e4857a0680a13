"""A small U-Net with transposed convolutions, and one that enlarges by interpolation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Images [N, 3, H, W] to maps [N, classes, H, W], for H and W that 4 divides."""

    def __init__(self, width: int = 8, classes: int = 2, transposed: bool = True) -> None:
        super().__init__()
        self.down = nn.ModuleList([double(3, width), double(width, 2 * width)])
        self.middle = double(2 * width, 4 * width)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(4 * width >> k, 2 * width >> k, 2, 2)
            if transposed
            else nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear"),
                nn.Conv2d(4 * width >> k, 2 * width >> k, 1),
            )
            for k in range(2)
        )
        self.join = nn.ModuleList([double(4 * width, 2 * width), double(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            x = join(torch.cat([up(x), skip], dim=1))
        return self.head(x)


class AudioNet(nn.Module):
    """Samples [N, 1, T] to frames: strided convolutions, gates, a transposed convolution."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.front = nn.Conv1d(1, 2 * width, 16, stride=4, padding=6)
        self.mix = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=d, dilation=d) for d in (1, 2, 4)
        )
        self.back = nn.ConvTranspose1d(width, 1, 8, stride=4, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.glu(self.front(x), dim=1)
        for layer in self.mix:
            h = h + F.glu(layer(h), dim=1)
        return torch.tanh(self.back(h))
