"""Rows of few columns, whose kernels know how many: every kind of rest, and rows of views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.codegen import build
from pliant.codegen.llvm.target import Target
from pliant.loop.stmt import For, Function, statements
from pliant.lower.canonical import Spec
from pliant.lower.constant_sizes import SHORT
from tests.compiled.torch_run import Apply, traced

WIDTHS = (
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    17,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    96,
    120,
    127,
    160,
    SHORT - 1,
    SHORT,
)


def near(got: Tensor, want: Tensor) -> None:
    assert got.shape == want.shape
    torch.testing.assert_close(got, want.to(got.dtype), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.sweep
@pytest.mark.parametrize("width", WIDTHS)
def test_widths(width: int) -> None:
    """A normalisation, a softmax and what is kept of a row, in one function at several heights."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        norm = nn.functional.layer_norm(x, (width,))
        return norm * 2, x.softmax(-1), x.amax(-1), x.argmax(-1), x.half().sum(-1)

    graph = traced(Apply(function), (torch.randn(40, width),), (({0: "n"},),))
    targets = ("native", "x86-64-avx2") if width in WIDTHS[::2] else ("native",)
    for f in (pliant.compile(graph, target=target) for target in targets):
        for height in (0, 1, 5, 17):
            x = torch.randn(height, width) * 3
            for got, want in zip(f(x), function(x.double()), strict=True):
                if got.dtype == torch.float16:
                    torch.testing.assert_close(got, x.half().sum(-1), rtol=1e-2, atol=1e-2)
                else:
                    near(got, want)
        x = torch.randn(3, width)
        x[1] = float("inf")
        x[2] = float("nan")
        for got, want in zip(f(x)[:4], function(x)[:4], strict=True):
            near(got, want)
        assert f.stats()["compiles"] == 1


class Embedded(nn.Module):
    """Patches of an image, which lie channels last, as rows that are normalised, twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(20, channels, 2, 2)
        self.first, self.second = nn.LayerNorm(channels), nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.first(self.patches(x).flatten(2).transpose(1, 2))
        return rows, self.second(rows)


@pytest.mark.sweep
@pytest.mark.parametrize("channels", [32, 40, 200])
def test_rows_of_an_image(channels: int) -> None:
    model = Embedded(channels).eval()
    h, w = (2 * torch.export.Dim(n, min=1, max=64) for n in ("h", "w"))
    dynamic = ({0: "b", 2: h, 3: w},)
    f = pliant.compile(model, (torch.randn(2, 20, 8, 6),), dynamic_shapes=dynamic)
    assert "3 launches" in f.explain()  # the image turned, the patches, and both of their rows
    for shape in ((1, 2, 2), (2, 10, 6), (3, 4, 14)):
        x = torch.randn(shape[0], 20, *shape[1:])
        for got, want in zip(f(x), model(x), strict=True):
            near(got, want)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.flatten(0, 1).sum(-1),
        lambda x: x.flatten(1).sum(-1),
        lambda x: x[:, 1:].softmax(-1),
        lambda x: x[..., 2:].amax(-1),
        lambda x: (x.flatten(0, 1) - x.flatten(0, 1).mean(-1, keepdim=True)).exp(),
        lambda x: x.transpose(0, 1).flatten(0, 1).softmax(-1),
        lambda x: x.flip(0).softmax(-1),
        lambda x: x.flip(2).softmax(-1),
        lambda x: x.unflatten(2, (2, 6)).softmax(-1),
        lambda x: x.unflatten(2, (2, 6)).sum((-1, -2)),
        lambda x: x.unflatten(2, (2, 6)).sum(2),
    ],
)
def test_rows_of_views(read: Callable[[Tensor], Tensor]) -> None:
    f = pliant.compile(Apply(read), (torch.randn(4, 5, 12),), dynamic_shapes=(({0: "a", 1: "b"},),))
    for a, b in ((1, 2), (3, 5), (7, 4)):
        x = torch.randn(a, b, 12)
        near(f(x), read(x))


@pytest.mark.parametrize("widths", [(3, 4), (16, 16), (24, 24, 24, 24), (1, 64, 7), (100, 91, 1)])
def test_joined(widths: tuple[int, ...]) -> None:
    """Parts of few channels, of which some come from elsewhere in their rows."""

    def function(*parts: Tensor) -> Tensor:
        return torch.cat([*parts, parts[0].flip(0), parts[-1][..., :1] * 2], -1)

    f = pliant.compile(
        Apply(function),
        tuple(torch.randn(6, w) for w in widths),
        dynamic_shapes=(tuple({0: "n"} for _ in widths),),
    )
    for height in (0, 1, 5):
        parts = [torch.randn(height, w) for w in widths]
        assert torch.equal(f(*parts), function(*parts))


def test_windows_side_by_side() -> None:
    """A view as rows of few elements: means of neighbours, and of long runs."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        pool = nn.functional.avg_pool1d
        return pool(x, 4), pool(x, 40), x.unflatten(-1, (-1, 20)).amax(-1)

    f = pliant.compile(
        Apply(function),
        (torch.randn(2, 3, 80),),
        dynamic_shapes=(({0: "n", 2: 40 * torch.export.Dim("k", min=1, max=99)},),),
    )
    for n, k in ((1, 1), (2, 2), (3, 7)):
        x = torch.randn(n, 3, 40 * k)
        for got, want in zip(f(x), function(x), strict=True):
            near(got, want)


def test_a_row_that_lies_in_an_output_is_read_for_others_before() -> None:
    """What is made of it is computed where it is wanted, and not once more from memory."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.log_softmax(x, 1)
        count = torch.count_nonzero(y)
        return count + y, torch.log1p(y.abs()), count

    f = pliant.compile(
        Apply(function),
        (torch.randn(5, 19, 19),),
        dynamic_shapes=(({0: "n", 1: "m", 2: "m"},),),
    )
    for n, m in ((1, 1), (2, 3), (3, 17), (0, 2)):
        x = torch.randn(n, m, m)
        for got, want in zip(f(x), function(x), strict=True):
            near(got, want)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("width", [8, 48, 100, 384, 768])
def test_what_a_row_gives_depends_on_no_other(width: int) -> None:
    """Short rows are computed in groups, of which the last has those that are left."""
    weight = torch.randn(width)
    for function in (
        lambda x: nn.functional.layer_norm(x, (width,), weight, weight),
        lambda x: nn.functional.rms_norm(x, (width,), weight),
    ):
        f = pliant.compile(traced(Apply(function), (torch.randn(40, width),), (({0: "n"},),)))
        x = torch.randn(11, width) * 3
        whole = f(x)
        near(whole, function(x))
        for height in range(12):
            assert torch.equal(f(x[:height]), whole[:height])
        for k in range(11):
            assert torch.equal(f(x[k : k + 1])[0], whole[k])


def test_groups_of_rows_along_two_axes() -> None:
    """Groups of rows begin in one image and end in another; an output is read again."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        total = x + y
        return total, nn.functional.layer_norm(total, (32,))

    dynamic = ({0: "n", 1: "m"}, {0: "n", 1: "m"})
    traces = traced(Apply(function), (torch.randn(3, 5, 32), torch.randn(3, 5, 32)), (dynamic,))
    f = pliant.compile(traces)
    for n, m in ((0, 3), (1, 1), (1, 4), (2, 3), (3, 7), (5, 1), (7, 13)):
        x, y = torch.randn(n, m, 32), torch.randn(n, m, 32)
        turned = torch.randn(m, n, 32).transpose(0, 1)  # lies otherwise
        for other in (y, turned):
            for got, want in zip(f(x, other), function(x, other), strict=True):
                near(got, want)
    x, y = torch.randn(2, 12, 32), torch.randn(2, 12, 32)
    for got, want in zip(
        pliant.compile(Apply(function), (x, y))(x, y), function(x, y), strict=True
    ):
        near(got, want)


class Channels(nn.Module):
    """A normalisation over channels of what convolutions make, and want."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(3, 96, 5), nn.Conv1d(96, 32, 3)
        self.norm = nn.LayerNorm(96)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.gelu(self.norm(self.first(x).mT).mT))


def test_rows_that_lie_along_another_axis_are_in_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """All passes, also that of a map whose last axis is not that of the columns."""
    found: list[Function] = []
    schedule = build.kernel_program

    def noted(symbol: str, spec: Spec, t: Target) -> Function:
        program = schedule(symbol, spec, t)
        found.extend([program] * (spec.kind == "row"))
        return program

    monkeypatch.setattr(build, "kernel_program", noted)
    monkeypatch.setenv("PLIANT_CACHE_DIR", "off")
    monkeypatch.setenv("PLIANT_NUM_THREADS", "1")
    module, x = Channels().eval(), torch.randn(2, 3, 40)
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "n", 2: "t"},))
    near(f(x), module(x))
    assert len(found) == 2  # another where all of it comes from memory
    for row in found:
        inner = [s for s in statements(row.body) if isinstance(s, For) and not _loops(s)]
        assert inner
        assert all(s.kind == "vectorized" for s in inner)


def _loops(loop: For) -> list[For]:
    return [s for s in statements(loop.body) if isinstance(s, For)]


@pytest.mark.parametrize("width", [24, 32])
def test_values_of_rows_in_another_order(width: int) -> None:
    """Who reads the normalised rows wants their channels last: so lie what rows have in common."""

    def function(x: Tensor) -> Tensor:
        return nn.functional.pixel_shuffle(nn.functional.layer_norm(x, (width,)), 2)

    f = pliant.compile(Apply(function), (torch.randn(2, 48, 14, width),))
    x = torch.randn(2, 48, 14, width)
    near(f(x), function(x))
