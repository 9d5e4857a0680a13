"""Small random models with the sizes that their own code accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.runtime.callable import Compiled
from tests.models.decoder import Config, Decoder
from tests.models.resnet import ResNet
from tests.models.unet import UNet
from tests.sizes import Sizes


class Pooled(nn.Module):
    """Linear, softmax and sums along sizes that may be 0: [n, m, 24] to [n, 1 + m, 8] and [n, 24].

    Its concatenation, padding and running sums have an edge at every size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 8)
        self.start = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.second(F.gelu(self.first(x)).softmax(-1)).cumsum(1)
        y = torch.cat((self.start.expand(x.shape[0], 1, 8), h), 1)
        return y, F.pad(x, (0, 0, 1, 0)).sum(1) + x.shape[1]


@dataclass(frozen=True)
class Small:
    """A model, inputs for sizes, the legal sizes, and tuples that its own code refuses."""

    build: Callable[[], nn.Module]
    make: Callable[[Sizes], tuple[torch.Tensor, ...]]
    dynamic_shapes: tuple[Mapping[int, str], ...]
    sizes: Mapping[str, range]
    illegal: tuple[Sizes, ...] = ()
    dims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    most: int = 4096

    def compile(self) -> tuple[nn.Module, Compiled]:
        """The module and what it is compiled to, once."""
        torch.manual_seed(0)
        module = self.build().eval()
        example = self.make({n: r[len(r) // 2] for n, r in self.sizes.items()})
        dims = {n: pliant.Dim(**known) for n, known in self.dims.items()}
        f = pliant.compile(module, example, dynamic_shapes=self.dynamic_shapes, dims=dims)
        return module, f


def _noise(s: Sizes) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(sum(s.values()))
    return (torch.randn(s["n"], 3, s["h"], s["w"], generator=generator),)


def _ids(s: Sizes) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(sum(s.values()))
    return (torch.randint(0, 100, (s["batch"], s["seq"]), generator=generator),)


def _rows(s: Sizes) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(sum(s.values()))
    return (torch.randn(s["n"], s["m"], 24, generator=generator),)


IMAGE = ({0: "n", 2: "h", 3: "w"},)

SMALL = {
    "resnet": Small(
        lambda: ResNet((1, 1, 1, 1), 16, 10), _noise, IMAGE,
        {"n": range(4), "h": range(1, 80), "w": range(1, 80)},
        ({"n": 1, "h": 0, "w": 9}, {"n": 0, "h": 9, "w": 0}),
    ),
    "unet": Small(
        UNet, _noise, IMAGE, {"n": range(1, 4), "h": range(4, 81, 4), "w": range(4, 81, 4)},
        ({"n": 1, "h": 6, "w": 8}, {"n": 2, "h": 8, "w": 9}, {"n": 1, "h": 0, "w": 8}),
    ),
    "decoder": Small(
        lambda: Decoder(Config(2, 64, 4, 2, 96, 100)), _ids, ({0: "batch", 1: "seq"},),
        {"batch": range(1, 9), "seq": range(1, 130)},
        ({"batch": 0, "seq": 3}, {"batch": 2, "seq": 0}),
        {"batch": {"min": 1}, "seq": {"min": 1}}, most=256,
    ),
    "pooled": Small(
        Pooled, _rows, ({0: "n", 1: "m"},), {"n": range(33), "m": range(130)}, most=1024,
    ),
}  # fmt: skip
