"""precision="int8": products with weights are of 8-bit integers, everything else stays f32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import pliant


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT, -1)


def _compiled(module: nn.Module, x: torch.Tensor, target: str = "native") -> pliant.Compiled:
    shapes = ({0: "n"},)
    return pliant.compile(module, (x,), dynamic_shapes=shapes, precision="int8", target=target)


def _steps(x: torch.Tensor, signed: bool) -> torch.Tensor:
    """The step between neighbouring numbers that stand for the values of each row."""
    rows = x.double().flatten(1)
    if signed:
        return rows.abs().amax(1) / 127
    return (rows.amax(1).clamp(min=0) - rows.amin(1).clamp(max=0)) / 255


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["native", "x86-64-avx2"])
@pytest.mark.parametrize("kind", ["linear", "conv", "padded", "strided"])
def test_one_product(kind: str, target: str) -> None:
    """A value is off by at most its step (half of it, and what the ends lose by the zero point's
    rounding), a weight by half of its channel's: a bound for every output."""
    torch.manual_seed(0)
    module, shape = {
        "linear": (nn.Linear(37, 21), (37,)),
        "conv": (nn.Conv2d(16, 9, 3), (16, 6, 5)),
        "padded": (nn.Conv2d(6, 9, 3, padding=1), (6, 8, 7)),
        "strided": (nn.Conv2d(5, 33, 3, stride=2, padding=1), (5, 9, 9)),
    }[kind]
    f = _compiled(module.eval(), torch.randn(3, *shape), target)
    assert f.explain().count("[contraction") == 1
    exact = module.double()
    weight = exact.weight.detach()
    channel = _steps(weight, signed=True) / 2
    for n in (1, 2, 13):
        x = torch.rand(n, *shape) * 3 - 1
        step = _steps(x, signed=kind in ("padded", "strided"))
        with torch.no_grad():
            want = exact(x.double())
            ours, rest = (_like(exact, w) for w in (torch.ones_like(weight), weight.abs()))
            of_values = ours(x.double().abs())
            of_weights = rest(torch.ones_like(x.double()))
            terms = ours(torch.ones_like(x.double()))
        each = (-1, *[1] * (want.ndim - 1))
        a, b = step.reshape(each), channel.reshape(1, -1, *[1] * (want.ndim - 2))
        bound = b * of_values + a * of_weights + a * b * terms + 1e-5 * want.abs()
        got = f(x)
        assert got.dtype is torch.float32
        assert ((got.double() - want).abs() <= bound).all()


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, _, *image = x.shape
        y = x.reshape(n, 2, 16, *image).softmax(2)
        return x + self.conv(y.reshape(n, 32, *image))


def test_a_batch_of_one_costs_no_copies() -> None:
    """A product keeps a dimension of one element, which its rows have lost."""
    torch.manual_seed(0)
    module, x = Heads().eval(), torch.randn(1, 32, 6, 9)
    one = pliant.compile(module, (x,), precision="int8")
    many = _compiled(module, torch.cat([x, x]))
    assert one.stats()["launches"] <= many.stats()["launches"]
    assert one.explain().count("[contraction") == 1
    with torch.no_grad():
        torch.testing.assert_close(one(x), module(x), rtol=0.02, atol=0.02)


def _like(module: nn.Module, weight: torch.Tensor) -> nn.Module:
    """The layer with another weight and no bias."""
    if isinstance(module, nn.Linear):
        return lambda x: nn.functional.linear(x, weight)  # type: ignore[return-value]
    assert isinstance(module, nn.Conv2d)
    moves = (module.stride, module.padding, module.dilation, module.groups)
    return lambda x: nn.functional.conv2d(x, weight, None, *moves)  # type: ignore[return-value]


def test_layers_share_what_they_read_and_tell_their_accuracy(tmp_path: Path) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.c(torch.relu(self.a(x)) * self.b(x))

    torch.manual_seed(0)
    module, x = Layers().eval(), torch.randn(5, 32)
    f = _compiled(module, x)
    assert f.explain().count("x_u8[n, 32]") == 1
    stats = f.stats()
    error = (f(x).double() - module.double()(x.double())).detach()
    assert stats["max_abs[output]"] == pytest.approx(error.abs().max().item(), rel=1e-3)
    assert 0 < float(stats["relative_l2[output]"] or 0) < 0.02
    f.save(tmp_path / "m.so")
    g = pliant.load(tmp_path / "m.so")
    assert g.stats()["max_abs[output]"] == stats["max_abs[output]"]
    assert torch.equal(g(x), f(x))


def test_rows_do_not_depend_on_each_other() -> None:
    torch.manual_seed(0)
    module = nn.Linear(19, 33).eval()
    f = _compiled(module, torch.randn(3, 19))
    x = torch.randn(7, 19)
    alone = f(x[2:3])
    x[3] *= 1e6
    x[4, 5], x[5, 1], x[6] = float("nan"), float("inf"), 0
    y = f(x)
    assert torch.equal(y[2:3], alone)
    assert y[4:6].isnan().all()
    assert torch.equal(y[6], module.bias.detach())
    assert f(x[:0]).shape == (0, 33)


def test_what_stays_is_told() -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 5, 8)
    shapes = ({0: "b"}, {0: "b"})
    f = pliant.compile(Attention(), (q, q), dynamic_shapes=shapes, precision="int8")
    assert "matmul stays f32: neither factor is a weight" in f.explain()
    assert torch.equal(f(q, q), pliant.compile(Attention(), (q, q), dynamic_shapes=shapes)(q, q))


def test_sums_that_may_not_fit_stay() -> None:
    module = nn.Linear(70_000, 1).eval()
    f = _compiled(module, torch.randn(2, 70_000))
    assert "may not fit in i32" in f.explain()
