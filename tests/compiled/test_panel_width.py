"""Weights with few columns, or as many as fill no panel of the usual width, against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

import pliant
from pliant.base.dtypes import f32
from pliant.codegen.build import target_factors
from pliant.codegen.llvm.target import target
from pliant.lower.panel_width import panel_width, sharing
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import traced

ROWS = (0, 1, 2, 9, 13, 29, 130)


UNITS = {None: 2.0**-20, "bf16": 2.0**-7, "int8": 2.0**-5}


def check(
    module: nn.Module, shape: tuple[int, ...], precisions: Sequence[str | None] = (None,)
) -> None:
    """Within what rounding explains, at all numbers of rows, from one compilation for each of the
    precisions."""
    graph = traced(module, (tensor(5, *shape),), ({0: "n"},))
    inputs = [tensor(n, *shape) for n in ROWS]
    exact = module.double()
    with torch.no_grad():
        wanted = [exact(x.double()) for x in inputs]
    for precision in precisions:
        f = pliant.compile(graph, precision=precision)
        for x, want in zip(inputs, wanted, strict=True):
            torch.testing.assert_close(f(x).double(), want, rtol=0, atol=UNITS[precision] * 8)
        assert f.stats()["compiles"] == 1


@pytest.mark.sweep
@pytest.mark.parametrize("columns", [2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 16, 18, 20, 24, 40, 42])
@pytest.mark.parametrize("depth", [32, 37])
def test_columns(columns: int, depth: int) -> None:
    check(nn.Sequential(nn.Linear(depth, columns), nn.ReLU6()), (depth,))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("columns", [47, 48, 49, 65, 72, 80, 112])
def test_several_panels(columns: int) -> None:
    check(nn.Linear(24, columns), (24,))


@pytest.mark.sweep
@pytest.mark.parametrize("columns", [5, 8, 12, 24, 40, 48])
@pytest.mark.parametrize("depth", [24, 35])
def test_precisions(columns: int, depth: int) -> None:
    check(nn.Linear(depth, columns), (depth,), ["bf16", "int8"])


@pytest.mark.sweep
@pytest.mark.parametrize("options", [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 2, "dilation": 2, "bias": False},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": (1, 5), "padding": (0, 2)},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("channels", "filters"), [(24, 24), (33, 12), (16, 10)])
def test_convolutions(channels: int, filters: int, options: dict[str, object]) -> None:
    """Where windows leave the image, rows of zeros are read."""
    conv = nn.Conv2d(channels, filters, **options)  # type: ignore[arg-type]
    check(nn.Sequential(conv, nn.Hardswish()), (channels, 7, 9))


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", [(2, 3), (2, 7), (4, 3), (1, 3), (3, 2)])
@pytest.mark.parametrize("channels", [3, 5, 7])
def test_gathered_windows(channels: int, kernel: tuple[int, int]) -> None:
    """Neighbours of k are of two rows of the window."""
    check(nn.Conv2d(channels, 16, kernel), (channels, 7, 9))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("filters", [1, 3, 6])
def test_transposed_convolutions(filters: int) -> None:
    check(nn.ConvTranspose2d(24, filters, 2, stride=2), (24, 5, 6))


def test_an_infinity_stays_in_its_row() -> None:
    """What a panel holds beyond the reduction is not multiplied by it."""
    linear = nn.Linear(35, 24).eval()
    x = tensor(11, 35)
    x[3, 34], x[7, 0] = float("inf"), float("nan")
    f = pliant.compile(linear, (x,))
    with torch.no_grad():
        assert torch.equal(f(x).isfinite(), linear(x).isfinite())


def test_same_bits_for_any_number_of_rows() -> None:
    linear = nn.Linear(41, 24).eval()
    x = tensor(31, 41)
    f = pliant.compile(linear, (x,), dynamic_shapes=({0: "n"},), numerics="batch_invariant")
    whole = f(x)
    for n in (1, 2, 8, 10, 19):
        assert torch.equal(f(x[:n]), whole[:n])


def test_choice() -> None:
    """What fills its last panel is best; where nothing is gained, panels are as wide as ever."""
    wide = next(f for f in target_factors(target("x86-64-avx512")) if f.a.name == "f32")
    chosen = {n: panel_width(wide, 32, n, 1, 96) for n in (4, 8, 12, 16, 24, 40, 48, 80, 144)}
    assert chosen == {
        4: (4, 8), 8: (8, 4), 12: (12, 4), 16: (16, 2), 24: (24, 2), 40: (40, 2), 48: (48, 1),
        80: (80, 1), 144: (48, 1),
    }  # fmt: skip
    for n in (32, 64, 120, 384, 768, 1000, 3072):
        assert panel_width(wide, 32, n, 1, 96) == (32, 1)
    assert panel_width(wide, 32, 24, 9, 3)[1] == 1  # groups would be put together at every step


def test_panels_that_groups_share() -> None:
    """Of 3 x 3 windows over narrow groups they are narrower: less of them is zeros."""
    (wide,) = (x for x in target_factors(target("x86-64-avx512")) if x.a is x.b is f32)
    chosen = {n: sharing(wide, 32, n, n, 32, 9) for n in (2, 4, 8, 16, 32, 40)}
    assert chosen == {2: (8, 16), 4: (4, 16), 8: (2, 16), 16: (1, 16), 32: (1, 32), 40: (1, 40)}
    usual = replace(wide, fitting=())
    assert [sharing(usual, 32, n, n, 12, 9) for n in (3, 4, 40)] == [(6, 32), (6, 32), (1, 32)]


@pytest.mark.sweep
@pytest.mark.parametrize("each", [2, 4, 8, 24])
def test_groups(each: int) -> None:
    torch.manual_seed(0)
    groups = 12
    module = nn.Sequential(
        nn.Conv2d(8, groups * each, 1),
        nn.Conv2d(groups * each, groups * each, 3, padding=1, groups=groups),
        nn.Conv2d(groups * each, 4, 1),
    )
    check(module, (8, 5, 7), [None, "bf16", "int8"])
