"""f16 with instructions for it and without: all its numbers, both ways, and models in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant.base.dtypes import DType, bf16, f16, f32, f64, i32
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var


@pytest.fixture(params=("native", "x86-64-avx2", "x86-64"))
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def casts(target: str, source: DType, *kinds: DType) -> pliant.Compiled:
    b = Builder("main", OPERATORS)
    x = b.param("x", source, (var("n"),))
    outputs = [b.call("cast", x, to=to) for to in kinds]
    return pliant.compile(b.finish(outputs), target=target)


def every_half() -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def test_every_half_to_f32(target: str) -> None:
    f = casts(target, f16, f32)
    x = every_half()
    for lot in (x, x[:1], x[1:38], np.append(x[::-1], x[:5])):  # by vectors and one by one
        got = f(lot)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(lot))
        same = ~np.isnan(lot)
        want = lot.astype(np.float32)
        np.testing.assert_array_equal(got.view(np.uint32)[same], want.view(np.uint32)[same])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(lot))


def test_f32_to_half(target: str) -> None:
    """Every number of f16, what lies halfway to the next, and both neighbours of that in f32."""
    f = casts(target, f32, f16)
    x = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    x[-1] = 65536.0  # where the next number would be, which rounding halfway to infinity asks for
    middle = (x[1:] + x[:-1]) / 2
    ends = np.array([np.inf, np.nan, 1e-45, 1e-38, 2.0**-25, 65519.996, 65520, 3e38], np.float32)
    below, above = (np.nextafter(middle, np.float32(end)) for end in (0, np.inf))
    x = np.concatenate([x, middle, below, above, ends]).astype(np.float32)
    x = np.concatenate([x, -x])
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    for lot in (slice(None), slice(1), slice(5, 44), slice(len(x) - 3, None)):
        got = f(x[lot])
        number = ~np.isnan(x[lot])
        np.testing.assert_array_equal(np.isnan(got), ~number)
        got, wanted = got.view(np.uint16)[number], want[lot].view(np.uint16)[number]
        np.testing.assert_array_equal(got, wanted)


def test_nan_keeps_its_payload() -> None:
    """What instructions for f16 do with NaN is done without them, too."""
    x = every_half()
    x = x[np.isnan(x)]
    wide = np.concatenate([x.view(np.uint16).astype(np.uint32) << 13 | 0x7F800000, [0xFF800001]])
    wide = wide.astype(np.uint32).view(np.float32)
    for source, to, lot, bits in ((f16, f32, x, np.uint32), (f32, f16, wide, np.uint16)):
        a, b = (casts(t, source, to)(lot) for t in ("x86-64-avx2", "x86-64"))
        np.testing.assert_array_equal(a.view(bits), b.view(bits))


def test_other_types(target: str) -> None:
    f = casts(target, f16, f64, bf16, i32)
    x = np.array([0, -0.0, 1.5, -2.75, 6e-8, 65504, -65504, 3.14159], np.float16)
    double, brain, whole = f(x)
    np.testing.assert_array_equal(double, x.astype(np.float64))
    np.testing.assert_array_equal(brain.astype(np.float32), x.astype(np.float32).astype(bf16.numpy))
    np.testing.assert_array_equal(whole, x.astype(np.int32))


def test_arithmetic(target: str) -> None:
    """One rounding an operation, comparisons, selection by NaN."""
    b = Builder("main", OPERATORS)
    n = var("n")
    x, y = b.param("x", f16, (n,)), b.param("y", f16, (n,))
    names = ("add", "sub", "mul", "div", "max", "lt", "eq")
    results = [b.call(name, x, y) for name in names]
    results += [b.call(name, x) for name in ("neg", "abs", "sqrt", "isnan", "isinf", "exp")]
    f = pliant.compile(b.finish(results), target=target)
    rng = np.random.default_rng(0)
    p, q = (rng.integers(0, 1 << 16, 3001, dtype=np.uint16).view(np.float16) for _ in range(2))
    with np.errstate(all="ignore"):
        wanted = [p + q, p - q, p * q, p / q, np.maximum(p, q), p < q, p == q]
        exact = np.exp(p.astype(np.float64)).astype(np.float16)
        wanted += [-p, np.abs(p), np.sqrt(p), np.isnan(p), np.isinf(p), exact]
    for got, want in zip(f(p, q), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


class Block(nn.Module):
    """A transformer's block and a convolution: what f16 models are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 3, 2, 1)
        self.norm = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x).flatten(2).transpose(1, 2))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        y: torch.Tensor = self.down(nn.functional.gelu(self.up(x)))
        return x + y


@pytest.mark.sweep(3)
def test_model(target: str) -> None:
    torch.manual_seed(0)
    module = Block().eval()
    x = torch.randn(2, 3, 8, 12)
    shapes = ({0: "n", 2: "h", 3: "w"},)
    wanted = {n: module(x[:n]) for n in (1, 2)}
    f = pliant.compile(module.half(), (x.half(),), dynamic_shapes=shapes, target=target)
    for n, want in wanted.items():
        got = f(x[:n].half())
        error = (got.float() - want).norm() / want.norm()
        assert error < 4e-3  # a few roundings to 11 bits
