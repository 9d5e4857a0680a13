"""precision="bf16": values between kernels are stored as bf16 where products want them so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pliant
from tests.compiled.torch_run import traced

SIZES = ((1, 9, 9), (2, 16, 11), (1, 33, 20), (3, 8, 40))


def conv(a: int, b: int, size: int = 3, **options: int) -> nn.Conv2d:
    return nn.Conv2d(a, b, size, padding=size // 2, **options)


class Residual(nn.Module):
    """An inverted bottleneck with squeeze and excitation, and what it adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = conv(16, 40, 1), conv(40, 16, 1)
        self.depthwise = conv(40, 40, 5, groups=40)
        self.squeeze, self.excite = conv(40, 8, 1), conv(8, 40, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.depthwise(F.relu6(self.up(x))))
        scale = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.down(y * scale)


class Pyramid(nn.Module):
    """Pools, enlargements and joinings between products."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = conv(16, 24), conv(24, 24), conv(64, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.one(x))
        small = self.two(F.max_pool2d(y, 3, 2, 1))
        large = F.interpolate(small, size=y.shape[2:], mode="nearest")
        average = F.avg_pool2d(F.pad(y, (1, 1, 1, 1)), 3, 1)
        return self.three(torch.cat([y, large + average, x], 1))


class Between(nn.Module):
    """Something between two products."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.two, self.between = conv(16, 24), conv(24, 16), between

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.between(self.one(x)))


class Warped(nn.Module):
    """A product says where a picture is read."""

    def __init__(self) -> None:
        super().__init__()
        self.flow, self.one, self.last = conv(16, 2), conv(16, 16, 1), conv(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.tanh(self.flow(x)).permute(0, 2, 3, 1)
        return self.last(F.grid_sample(self.one(x), places, align_corners=False))


def compiled(module: nn.Module) -> pliant.Compiled:
    torch.manual_seed(0)
    for p in module.parameters():
        nn.init.normal_(p, std=1 / max(p[0].numel(), 1) ** 0.5)
    shapes = ({0: "n", 2: "h", 3: "w"},)
    graph = traced(module, (torch.randn(2, 16, 12, 14),), shapes)
    return pliant.compile(graph, precision="bf16")


def wide(f: pliant.Compiled) -> set[str]:
    """Names of what kernels store that is not bf16."""
    lines = re.findall(r"^ +-> (.+)$", f.explain(), re.M)
    names = {re.split(r"[\[ ]", word)[0] for line in lines for word in line.split("], ")}
    return {n for n in names if "bf16" not in n}


def check(module: nn.Module, f: pliant.Compiled, limit: float = 0.02) -> None:
    for n, h, w in SIZES:
        x = torch.randn(n, 16, h, w)
        with torch.no_grad():
            want = module(x)
        assert f(x).dtype is torch.float32
        assert (f(x) - want).norm() <= limit * want.norm(), (n, h, w)
    assert f.stats()["compiles"] == 1


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("module", "results"),
    [(Residual(), {"conv_4", "sigmoid", "add"}), (Pyramid(), {"conv_2.2", "conv_2"})],
    ids=["residual", "pyramid"],
)
def test_images_are_short(module: nn.Module, results: set[str]) -> None:
    f = compiled(module)
    assert wide(f) == results, f.explain()
    check(module, f)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("between", "kept"),
    [
        (lambda x: torch.softmax(x, 1), True),
        (lambda x: F.layer_norm(x.permute(0, 2, 3, 1), [24]).permute(0, 3, 1, 2), True),
        (lambda x: x - x.std((2, 3), keepdim=True), True),
        (lambda x: torch.where(x.isnan(), 0, x).clamp(-1, 1), False),
        (lambda x: F.max_pool2d(x, 3, 1, 1), False),
        (lambda x: F.gelu(x * 4), False),
    ],
    ids=["softmax", "layer norm", "deviation", "map", "window", "gelu"],
)
def test_what_statistics_are_computed_of_stays(
    between: Callable[[Tensor], Tensor], kept: bool
) -> None:
    module = Between(between)
    f, results = compiled(module), wide(compiled(Between(lambda x: x)))
    assert (wide(f) > results) if kept else (wide(f) == results), f.explain()
    check(module, f)


def test_what_is_spread_stays() -> None:
    """The mean of one element is that element, no reduction; what is left of it when it is taken
    away is multiplied by 1 / sqrt(eps)."""
    module = nn.Sequential(nn.LayerNorm(1), nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 16)).eval()
    shapes = ({0: "n", 1: "t"},)
    f = pliant.compile(traced(module, (torch.randn(5, 8, 1),), shapes), precision="bf16")
    x = torch.randn(50, 3, 1)
    with torch.no_grad():
        want = module(x)
    assert (f(x) - want).norm() <= 0.02 * want.norm()


def test_groups_of_single_channels_between_kernels() -> None:
    """A packed product of few channels is a product, and reads what it was packed for."""
    first, last = conv(24, 8, groups=8), conv(8, 8, groups=8)
    module = nn.Sequential(conv(16, 24, 1), first, nn.PixelShuffle(2), conv(2, 8, groups=2), last)
    check(module.eval(), compiled(module))


def test_places_stay() -> None:
    module = Warped()
    f = compiled(module)
    assert any(name.startswith("tanh") for name in wide(f)), f.explain()
    check(module, f, 0.05)


def test_phases_stay() -> None:
    """Of 800.3 radians bf16 keeps the 800. Nor are fractions and comparisons made of it."""

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(40, 8)

        def forward(self, t: Tensor) -> Tensor:
            phases = t[:, None] * torch.exp(-torch.arange(8.0))
            parts = [phases.sin(), phases.cos(), phases % 1, phases - phases.floor()]
            return self.mix(torch.cat([*parts, (phases > phases.roll(1, 0)).float()], -1))

    module, t = Embedded(), torch.rand(40) * 1000
    f = pliant.compile(module, (t[:5],), dynamic_shapes=({0: "n"},), precision="bf16")
    assert (f(t) - module(t)).norm() <= 0.02 * module(t).norm()


@pytest.mark.parametrize("asked", [lambda y: y.argmax(1), lambda y: (y > 1).sum(1)])
def test_what_is_compared_stays(asked: Callable[[Tensor], Tensor]) -> None:
    """Values that differ in f32 may be the same in bf16; a product wants them so beside."""

    class Asked(nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            y = x * 3
            return asked(y), y @ w

    torch.manual_seed(0)
    args = torch.randn(64, 16, 16), torch.randn(16, 64)
    f = pliant.compile(Asked(), args, dynamic_shapes=({0: "n"}, None), precision="bf16")
    assert torch.equal(f(*args)[0], Asked()(*args)[0])


def test_subnormal_numbers_and_what_is_none() -> None:
    """Numbers that bf16 has no normal one for may become 0 before they are multiplied."""
    module = nn.Sequential(conv(16, 16, 1), nn.ReLU(), conv(16, 16, 1))
    f = compiled(module)
    x = torch.zeros(1, 16, 2, 3)
    x[0, :, 0, 0], x[0, 3, 0, 1], x[0, 5, 1, 1] = 1e-39, torch.nan, torch.inf
    with torch.no_grad():
        want = module(x)
    got = f(x)
    finite = want.isfinite()
    assert torch.equal(got.isfinite(), finite)
    torch.testing.assert_close(got[finite], want[finite], rtol=0.05, atol=0.05)


def test_gelu_of_what_is_far_below_is_0() -> None:
    """Its erf has few bits, but -1 is one of them."""
    lift = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8))
    nn.init.normal_(lift[0].weight)
    nn.init.constant_(lift[0].bias, -1e6)
    nn.init.zeros_(lift[2].bias)
    f = pliant.compile(lift.eval(), (torch.randn(5, 8),), precision="bf16")
    assert torch.equal(f(torch.randn(5, 8)), torch.zeros(5, 8))


def test_what_is_short_and_what_is_not_are_made_in_one_kernel() -> None:
    """Its outputs may be named in another order than they are computed in."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = conv(32, 1, 2, stride=2)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            gate = x.sigmoid()
            mean = F.avg_pool2d(x * gate, 5, 2, 2)
            return self.product(y + gate), mean

    torch.manual_seed(0)
    module = Branches().eval()
    args = torch.randn(3, 32, 4, 48), torch.randn(3, 32, 4, 48)
    f = pliant.compile(module, args, dynamic_shapes=({0: "n"}, {0: "n"}), precision="bf16")
    with torch.no_grad():
        for got, want in zip(f(*args), module(*args), strict=True):
            assert (got - want).norm() <= 0.02 * want.norm()
