"""MobileNetV2 (Sandler et al. 2018): inverted residuals with depthwise convolutions."""

from __future__ import annotations

import torch
from torch import nn

# expansion, channels, repeats, stride
SETTINGS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; added to the input where the shape is kept."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers.append(conv_norm(inputs, hidden, 1, 1, 1))
        layers += [
            conv_norm(hidden, hidden, 3, stride, hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.body = nn.Sequential(*layers)
        self.keeps_shape = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.keeps_shape else self.body(x)


class MobileNetV2(nn.Module):
    """Images [N, 3, H, W] to logits."""

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        channels = _round(32 * width)
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1)]
        for expansion, base, repeats, stride in SETTINGS:
            outputs = _round(base * width)
            for k in range(repeats):
                layers.append(
                    InvertedResidual(channels, outputs, stride if k == 0 else 1, expansion)
                )
                channels = outputs
        last = _round(1280 * max(1.0, width))
        layers.append(conv_norm(channels, last, 1, 1, 1))
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def _round(channels: float, by: int = 8) -> int:
    """To a multiple of `by`, never more than 10 % down."""
    new = max(by, int(channels + by / 2) // by * by)
    return new + by if new < 0.9 * channels else new
