"""Sizes that a model's code computes with stay symbols: one trace holds at every size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant import ShapeError, UnsupportedError
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import check

Image = torch.Tensor


def _grid(x: Image) -> Image:
    theta = torch.eye(2, 3)[None] * 0.5
    return F.affine_grid(theta, (1, 1, x.shape[0], x.shape[1]), align_corners=False)


def _windows(x: Image) -> Image:
    """Sums of windows, whose last ones are padded; cut only where they are (as Swin's)."""
    (n, m), size = x.shape, 4
    below, right = (size - n % size) % size, (size - m % size) % size
    rows, columns = n + below, m + right
    wide = F.pad(x, (0, right, 0, below)).view(1, rows // size, size, columns // size, size)
    windows = wide.transpose(2, 3).contiguous().view(-1, size * size).cumsum(1)
    back = windows.view(-1, rows // size, columns // size, size, size).transpose(2, 3)
    whole = back.contiguous().view(-1, rows, columns)[0]
    return whole[:n, :m].contiguous() if below > 0 or right > 0 else whole


def _even(x: Image) -> Image:
    """Resized where one of its sides is odd (as MobileViT's)."""
    rows, columns = ((n + 1) // 2 * 2 for n in x.shape)
    if columns != x.shape[1] or rows != x.shape[0]:
        x = F.interpolate(x[None, None], size=(rows, columns), mode="bilinear")[0, 0]
    return x.reshape(rows // 2, 2, columns // 2, 2).transpose(1, 2)[: int(x.shape[0] * 0.5)]


def _put(x: Image, at: int) -> Image:
    y = x.clone()
    y[:, at:] *= 2
    y[:, :at] += 1
    return y


def _put_at(x: Image, row: int, column: int) -> Image:
    y = x.clone()
    y[row] = 1.0
    y[:, column] = x[:, 0]
    y[row, column:] += 2
    y[..., row, column] = row
    return y


CASES: dict[str, Any] = {
    "even sides": _even,
    "windows": _windows,
    "parts of a dim": lambda x: x.view(-1, x.shape[1], 1).transpose(0, 1).reshape(x.shape[1], -1),
    "rows of a maximum": lambda x: F.max_pool1d(x[None], 3, 2, 1),
    "rows without a batch": lambda x: torch.max_pool1d(x, 2, ceil_mode=True),
    "mean of an image": lambda x: F.avg_pool2d(x[None, None], x.shape),
    "mean of columns": lambda x: F.avg_pool2d(x[None, None], (2, x.shape[1])),
    "mean of a row": lambda x: F.avg_pool1d(x[None], x.shape[1]),
    "maximum of an image": lambda x: F.max_pool2d(x[None, None], (x.shape[0], x.shape[1])),
    "means of parts": lambda x: (
        F.adaptive_avg_pool1d(x[None], x.shape[0]),
        F.interpolate(x[None], scale_factor=1.5, mode="area"),
        F.interpolate(x[None], size=x.shape[0] + 2, mode="area"),
    ),
    "maxima of parts": lambda x: (
        F.adaptive_max_pool2d(x[None, None], (None, 3)),
        F.adaptive_max_pool2d(x[None], (2, None)),
        F.adaptive_max_pool2d(x[None], x.shape),
        F.adaptive_max_pool3d(x[None, None, None], (None, 2, x.shape[1])),
        F.adaptive_max_pool1d(x, x.shape[1]),
    ),
    "linspace": lambda x: torch.linspace(0.5, x.shape[1] - 0.5, x.shape[1]) + x,
    "logspace": lambda x: torch.logspace(0, 1, x.shape[1]),
    "classes": lambda x: F.one_hot(torch.arange(x.shape[0]), x.shape[1]),
    "kron": lambda x: torch.kron(x, torch.arange(3.0)),
    "grid": _grid,
    "elements along a dim": lambda x: (
        torch.take_along_dim(x, x.argmax(1, keepdim=True), 1),
        x.take_along_dim(torch.tensor([[0, 1]]), 1),
        torch.take_along_dim(x, x.argsort(0)),
        torch.take_along_dim(x, x.argmax()),
    ),
    "steps of a size": lambda x: torch.arange(2, x.shape[0] * x.shape[1], x.shape[0]),
    "powers": lambda x: (
        torch.vander(x[0]),
        torch.vander(x[0], 4, True),
        torch.linalg.vander(x, N=3),
        torch.vander((x[0] * 3).int(), 3),
    ),
    "several products": lambda x: (
        torch.linalg.multi_dot([x, x.t(), x]),
        torch.linalg.multi_dot([x[0], x.t(), x[:, 0]]),
        torch.chain_matmul(x, x.t()),
    ),
    "covariances": lambda x: (
        torch.cov(x),
        x.cov(correction=0),
        torch.cov(x[0]),
        torch.corrcoef(x),
        x[1].corrcoef(),
    ),
    "tensors of sizes": lambda x: (
        torch.as_tensor(x.shape) * 2,
        torch.asarray([x.shape[1], 1.5]),
        torch.as_tensor(x.shape[-1:], dtype=torch.float32),
    ),
    "digits": lambda x: (
        torch.unravel_index(x.argmax(), x.shape),
        torch.unravel_index(x.argmax(1) + 1, (x.shape[0], x.shape[1])),
    ),
    "triangles": lambda x: [
        places(*sizes, offset)
        for places in (torch.tril_indices, torch.triu_indices)
        for sizes in ((x.shape[0], x.shape[1]), (x.shape[1], x.shape[1]))
        for offset in (-1, 0, 1, 3)
    ],
    "frequencies": lambda x: (torch.fft.fftfreq(x.shape[1], 0.5), torch.fft.rfftfreq(x.shape[0])),
    "truths": lambda x: (
        torch.tensor(x.shape[0] == x.shape[1]),
        torch.tensor([x.shape[0] > 4, x.shape[1] != 9, 2 * x.shape[0] >= x.shape[1]]),
        x * (x.shape[1] / 2 < 7),
        (x > 0) & torch.tensor(x.shape[1] % 2 == 0),
        torch.full((2,), x.shape[0] <= 3),
    ),
    "square root": lambda x: x / x.shape[1] ** 0.5 + math.sqrt(x.shape[0]),
    "fraction": lambda x: x[:, : int(x.shape[1] * 0.5)],
    "rounded": lambda x: x[:, : round(x.shape[1] / 4)],
    "from the start or the end": lambda x: (
        x[:, : -(x.shape[1] // 6)],
        x[:, -(x.shape[1] // 6) :],
        x[:, : x.shape[1] - 8],
        x[:, x.shape[1] - 8 : 4],
        x[:, : x.shape[0] - 4],
        x[:, -(x.shape[1] // 6)],
        x[:, x.shape[1] - 7 + x.shape[0] // 2],
    ),
    "put from the start or the end": lambda x: _put(x, x.shape[1] - 8),
    "put at a place": lambda x: _put_at(x, x.shape[0] - 1, x.shape[1] // 2),
    "attention by a size": lambda x: F.scaled_dot_product_attention(
        x[None, :, :, None], x[None, :, :, None], x[None, :, :, None], scale=x.shape[1] ** -0.5
    ),
    "whole groups": lambda x: x[:, : x.shape[1] // 4 * 4].reshape(x.shape[0], -1, 4),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_one_trace_for_all_sizes(name: str) -> None:
    others = [(torch.randn(*s),) for s in ((4, 9), (6, 31), (3, 14), (2, 5), (5, 12))]
    check(Apply(CASES[name]), (torch.randn(5, 12),), (({0: "n", 1: "m"},),), others)


def _one(x: Image) -> tuple[Image, ...]:
    rows, columns = x.shape
    image = (1, 1, rows, columns)
    theta = torch.eye(2, 3)[None]
    return (
        torch.linspace(-1, 1, rows) + x[:, 0],
        torch.linspace(0, rows - 1, columns),
        torch.logspace(1, 2, columns),
        *(F.affine_grid(theta, image, align_corners=corners) for corners in (False, True)),
        torch.triu_indices(columns, columns, 1),
    )


def test_sizes_of_one() -> None:
    """One step is the first, the middle of one pixel 0, and above the diagonal is nothing."""
    others = [(torch.randn(*s),) for s in ((1, 1), (1, 4), (2, 1), (3, 3))]
    model = check(Apply(_one), (torch.randn(5, 12),), (({0: "n", 1: "m"},),), others)
    assert not model.notes


def test_nothing_may_be_left_inside() -> None:
    """Torch's strides assume that no size is 0: that is asked of no call."""

    def parts(x: Image) -> tuple[Image, ...]:
        return F.pad(x, (-2, -1, -1, -1)), torch.tril_indices(x.shape[0], x.shape[0], -3)

    others = [(torch.randn(*s),) for s in ((2, 9), (3, 3), (3, 12), (9, 4))]
    check(Apply(parts), (torch.randn(5, 12),), (({0: "n", 1: "m"},),), others)


def test_what_torch_took_for_a_number_is_checked() -> None:
    """A scale is a float to torch: the trace holds for sizes that give the same one."""
    scaled = Apply(lambda x: F.interpolate(x, scale_factor=x.shape[3] / 8, mode="nearest"))
    x = torch.randn(1, 2, 5, 12)
    f = pliant.compile(scaled, (x,), dynamic_shapes=(({2: "h", 3: "w"},),))
    assert torch.equal(f(x[:, :, :3]), scaled(x[:, :, :3]))
    with pytest.raises(ShapeError, match="must be equal"):
        f(torch.randn(1, 2, 5, 13))


def test_another_path_at_sizes_together_is_refused() -> None:
    """Also where code is read while tracing, instead of run: half a size as an int."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        half = x[: int(x.shape[0] * 0.5)]
        return half * 2 if x.shape[0] + x.shape[1] > 140 else half

    f = pliant.compile(Apply(halves), (torch.randn(8, 12),), dynamic_shapes=(({0: "n", 1: "m"},),))
    x = torch.randn(100, 40)
    assert torch.equal(f(x), halves(x))
    with pytest.raises(ShapeError, match=r"takes another path unless m \+ n <= 140"):
        f(torch.randn(101, 41))


def test_a_trace_that_is_not_the_model_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not compute what it computes otherwise"):
        pliant.compile(Traced(), (torch.ones(3),), dynamic_shapes=({0: "n"},))
    with pytest.raises(UnsupportedError, match=r"other sizes \(dim 0 of x = 2\)"):
        pliant.compile(Counts(), (torch.ones(3),), dynamic_shapes=({0: "n"},))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_as_many_parts_as_the_example_has(size: int) -> None:
    """Also where one of them is of one element, which tracing would take for a constant."""

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(p * p.shape[0] for p in x.split(size))

    f = pliant.compile(Apply(parts), (torch.randn(9, 3),), dynamic_shapes=(({0: "n"},),))
    for n in range(8, 11):
        x = torch.randn(n, 3)
        if -(-n // size) == -(-9 // size):
            for found, expected in zip(f(x), parts(x), strict=True):
                assert torch.equal(found, expected)
        else:
            with pytest.raises(ShapeError):
                f(x)


def test_sizes_at_which_only_the_graph_fails_are_refused_by_a_call() -> None:
    """A trace has as many parts as the example's: it is right where there are so many."""

    def parts(x: torch.Tensor) -> torch.Tensor:
        return torch.cat(x[:4].chunk(2)[::-1]) + torch.stack(x[:3].unbind()).sum()

    f = pliant.compile(Apply(parts), (torch.randn(5, 4),), dynamic_shapes=(({0: "n"},),))
    for n in (4, 5, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(f(x), parts(x))
    for n in (0, 1, 2, 3):
        with pytest.raises(ShapeError):
            f(torch.randn(n, 4))


class Traced(torch.nn.Module):
    """Something else while it is traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_exporting() else x


class Counts(torch.nn.Module):
    """Whose code gets the size as a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return x * (n.node.hint if isinstance(n, torch.SymInt) else n)


class Shrinks(torch.nn.Module):
    """A window that never grows again (as Swin's in transformers)."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= self.window:
            self.window = x.shape[0]
        return x.narrow(0, 0, self.window) * 2


def test_running_a_model_elsewhere_leaves_it_as_it_is() -> None:
    model = Shrinks()
    f = pliant.compile(model, (torch.ones(12),), dynamic_shapes=({0: "n"},))
    assert model.window == 8
    assert torch.equal(f(torch.arange(9.0)), model(torch.arange(9.0)))


class Heard(torch.nn.Module):
    """Windows of a sound, as wav2vec 2.0 has them, and attention between them."""

    def __init__(self) -> None:
        super().__init__()
        sides = ((1, 10, 5), (8, 3, 2), (8, 3, 2), (8, 3, 2), (8, 3, 2), (8, 2, 2), (8, 2, 2))
        layers = [torch.nn.Conv1d(c, 8, size, stride) for c, size, stride in sides]
        self.windows = torch.nn.Sequential(*layers)
        self.qkv = torch.nn.Linear(8, 24)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        x = self.windows(sound[:, None]).transpose(1, 2)
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, -1, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts.unbind(0))
        return x + seen.transpose(1, 2).reshape(batch, length, width)


def test_a_length_has_one_formula() -> None:
    """What torch says of it and what follows from each window are seen to be equal, so that the sum
    of both is no broadcast."""
    model = Heard().eval()
    sound = torch.randn(2, 1600)
    f = pliant.compile(model, (sound,), dynamic_shapes=({0: "batch", 1: "samples"},))
    assert "min(1" not in f.explain()
    for batch, samples in ((2, 1600), (1, 400), (3, 1777), (2, 719)):
        x = torch.randn(batch, samples)
        with torch.no_grad():
            assert torch.allclose(f(x), model(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError):
        f(torch.randn(1, 399))
