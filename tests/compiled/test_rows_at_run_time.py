"""Rows whose number or length a call decides: a kernel for each of what may be known of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import pliant
from pliant.frontend.select import Request, import_model
from pliant.lower.canonical import Launch
from pliant.lower.function import lower_function
from pliant.lower.row_facts import LARGE, Rows
from pliant.ops.table import OPERATORS

EVERY = (Rows(True, True, False, True), Rows(in_lines=True), Rows(large=True), Rows(moderate=True))
SIZES = {  # rows, columns: what they are known to be
    (1, 1): Rows(),
    (3, 127): Rows(),
    (0, 64): Rows(in_lines=True),
    (5, 16): Rows(in_lines=True),
    (31, 1024): Rows(in_lines=True),
    (3, 4096): Rows(in_lines=True),
    (3073, 1024): Rows(in_lines=True),
    (769, 4096): Rows(True, True, False, True),
    (2, 2048 * 769): Rows(True, True, False, True),
    (7, 128 + 1): Rows(moderate=True),
    (7, 2047): Rows(moderate=True),
    (7, 2049): Rows(),
    (3200, 1001): Rows(large=True),
    (LARGE // 4 + 3, 1): Rows(large=True),
}


class Masked(nn.Module):
    """Rows that have maps before and after, and a value for each."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 3 - 1
        return torch.softmax(y, -1) + x, y.logsumexp(-1)


def launch_of(
    module: nn.Module, shape: tuple[int, ...], numerics: str = "fast", **dims: pliant.Dim
) -> Launch:
    """The only launch of a module of one input, whose first dimensions are `dims`."""
    named = dict(enumerate(dims))
    request = Request(module.eval(), (torch.zeros(shape),), None, (named,), dims)
    function = import_model(request, OPERATORS).function
    (launch,) = [
        x for _, x in lower_function(function, OPERATORS, 32, numerics=numerics).main.launches
    ]
    return launch


def taken(launch: Launch, sizes: dict[str, int]) -> Rows:
    """What the kernel that a call takes knows of its rows."""
    for v in launch.variants:
        guard = v.guard.subs(sizes)
        assert guard.is_const and guard.value >= 0
        if guard == 0:
            return v.spec.known
    return launch.spec.known


def test_what_is_known_in_a_call() -> None:
    """Formulas of the sizes tell it."""
    launch = launch_of(nn.Softmax(-1), (3, 4), r=pliant.Dim(), c=pliant.Dim())
    assert launch.spec.known == Rows()
    assert tuple(v.spec.known for v in launch.variants) == EVERY
    for (r, c), known in SIZES.items():
        assert taken(launch, {"r": r, "c": c}) == known, (r, c)


@pytest.mark.parametrize("module", [nn.Softmax(-1), nn.LogSoftmax(-1), Masked()])
def test_every_kernel_is_right(module: nn.Module) -> None:
    """One compilation; extreme values in the first row."""
    f = pliant.compile(module, (torch.zeros(3, 4),), dynamic_shapes=({0: "r", 1: "c"},))
    for r, c in SIZES:
        x = torch.randn(r, c) * 8
        x[:1, :1], x[1:2] = 80.0, -torch.inf if module.__class__ is not Masked else 0.5
        close(f(x), module(x))
    assert f.stats()["compiles"] == 1


def close(ours: object, theirs: object) -> None:
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-6, equal_nan=True)


def test_known_lengths() -> None:
    """Of rows of a known length only their number may be large; a range that rules it out, or where
    all calls are, leaves one kernel."""
    for width in (384, 1000, 4096):
        module, most = nn.LayerNorm(width), LARGE // (4 * width)
        launch = launch_of(module, (3, width), r=pliant.Dim())
        (variant,) = launch.variants
        assert variant.spec.known == replace(launch.spec.known, large=True) != launch.spec.known
        assert not launch_of(module, (3, width), r=pliant.Dim(max=most - 1)).variants
        launch = launch_of(module, (most + 2, width), r=pliant.Dim(most + 1))
        assert launch.spec.known.large
        assert not launch.variants


def test_lengths_of_a_known_multiple() -> None:
    """… are known to fill lines; whether they are many or long is for a call to say."""
    launch = launch_of(nn.Softmax(-1), (3, 64), r=pliant.Dim(), c=pliant.Dim(64, multiple=32))
    assert launch.spec.known == Rows(in_lines=True)
    assert [v.spec.known for v in launch.variants] == [
        Rows(large=True, long=True, in_lines=True), Rows(large=True, in_lines=True),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [2048, 2064, 3333, 4096])
def test_long_rows_from_memory_have_three_passes(width: int) -> None:
    """Mean and variance are sums of one pass in the caches only."""
    launch = launch_of(nn.LayerNorm(width), (3, width), r=pliant.Dim())
    (variant,) = launch.variants
    assert (variant.spec.members == launch.spec.members) == (width * 4 <= 8192)
    module = nn.LayerNorm(width)
    nn.init.normal_(module.weight)
    nn.init.normal_(module.bias)
    f = pliant.compile(module, (torch.zeros(3, width),), dynamic_shapes=({0: "r"},))
    for rows in (0, 1, 5, LARGE // (4 * width) + 2):
        x = torch.randn(rows, width) * 3 + 1
        close(f(x), module(x))


def test_the_bits_of_a_row_do_not_depend_on_the_others() -> None:
    """Where that is asked for, one kernel serves all calls."""
    numerics = "batch_invariant"
    assert not launch_of(nn.LayerNorm(4096), (3, 4096), numerics, r=pliant.Dim()).variants
    f = pliant.compile(
        nn.LayerNorm(4096), (torch.zeros(3, 4096),), dynamic_shapes=({0: "r"},), numerics=numerics
    )
    x = torch.randn(1000, 4096) + 2
    assert torch.equal(f(x)[:5], f(x[:5]))
