"""Views cost nothing at symbolic sizes, also those that require something of sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant import ShapeError
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

VIEWS: dict[str, Any] = {
    "all but the last": lambda x: x[:, :-1].exp(),
    "one over another": lambda x: x[:, :-1] / (x[:, -1:] + 2),
    "so many of them": lambda x: x[:, 2:5].exp(),
    "halves": lambda x: torch.sigmoid(x[:, : x.shape[1] // 2]) * 3,
    "shifted": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    "reflected": lambda x: F.pad(x, (2, 1), "reflect") * 2,
}
LAUNCHES = {"one over another": 2}  # what divides has a row's shape


@pytest.mark.parametrize("name", VIEWS)
def test_one_kernel(name: str) -> None:
    fn = VIEWS[name]
    f = pliant.compile(Apply(fn), (tensor(7, 12),), dynamic_shapes=(({0: "n", 1: "m"},),))
    for n, m in ((7, 12), (1, 5), (0, 6), (2, 4), (3, 33)):
        if n == 0 and name == "reflected":
            continue  # torch has none of nothing
        x = tensor(n, m)
        assert_same(f(x), fn(x), tolerance=1e-6)
    assert f.stats()["launches"] == LAUNCHES.get(name, 1)


def test_what_they_require_is_checked() -> None:
    """It is the function's business: no stage is left that could."""
    f = pliant.compile(Apply(VIEWS["reflected"]), (tensor(7, 12),), dynamic_shapes=(({1: "m"},),))
    with pytest.raises(ShapeError, match="must be larger than the padding 2"):
        f(tensor(7, 2))


def _shuffled(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


WHOLE, GROUPED, EACH = tensor(5, 8, 3, 3), tensor(32, 8, 3, 3), tensor(32, 1, 3, 3)

# Windows over channels that a view takes apart read a copy of it, made once.
WINDOWS: dict[str, Any] = {
    "pixels of channels": lambda x: F.conv2d(F.pixel_shuffle(x, 2), WHOLE, None, 1, 1),
    "padded too": lambda x: F.conv2d(F.pad(F.pixel_shuffle(x, 2), (1, 1, 1, 1), "reflect"), WHOLE),
    "of every channel": lambda x: F.conv2d(_shuffled(x), EACH, None, 1, 1, groups=32),
    "of groups": lambda x: F.conv2d(_shuffled(x), GROUPED, None, 1, 1, groups=4),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", WINDOWS)
def test_channels_taken_apart(name: str) -> None:
    fn = WINDOWS[name]
    dims = {0: "n", 2: "h", 3: "w"}
    f = pliant.compile(Apply(fn), (tensor(2, 32, 6, 7),), dynamic_shapes=((dims,),))
    for n, h, w in ((2, 6, 7), (1, 3, 3), (0, 4, 5), (1, 17, 16)):
        x = tensor(n, 32, h, w)
        assert_same(f(x), fn(x), tolerance=1e-4)
    explained = f.explain()
    assert "[map]" in explained, "the view is not copied"
    assert "rows gathered" not in explained
    assert f.stats()["compiles"] == 1


def test_pixels_that_become_channels() -> None:
    """Winograd's patches read a copy, too: each of their elements is made of many."""
    weight = tensor(32, 12, 3, 3)
    fn: Any = lambda x: F.conv2d(F.pixel_unshuffle(x, 2), weight, None, 1, 1)  # noqa: E731
    h, w = (2 * torch.export.Dim(n, min=1, max=64) for n in ("h", "w"))
    f = pliant.compile(Apply(fn), (tensor(1, 3, 24, 20),), dynamic_shapes=(({2: h, 3: w},),))
    for shape in ((24, 20), (2, 2), (14, 62)):
        x = tensor(1, 3, *shape)
        assert_same(f(x), fn(x), tolerance=1e-4)
    assert "winograd" in f.explain()
    assert "3 launches" in f.explain()  # the copy, the patches, and channels first again


def test_repeated_pixels_are_not_copied() -> None:
    """Channels of a picture that is enlarged by repeating pixels lie as they did."""
    weight = tensor(5, 32, 3, 3)
    fn: Any = lambda x: F.conv2d(F.interpolate(x.relu(), scale_factor=2.0), weight, None, 1, 1)  # noqa: E731
    x = tensor(2, 32, 6, 7)
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=(({0: "n"},),))
    assert_same(f(x), fn(x), tolerance=1e-4)
    assert "upsample" not in "".join(x for x in f.explain().splitlines() if "[map]" in x)


class Flattened(torch.nn.Module):
    """A normalisation of groups of channels as ONNX has it: of rows without dimensions."""

    def __init__(self, groups: int, padding: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.groups = groups
        self.first = torch.nn.Conv2d(3, 16, 3, padding=padding)
        self.last = torch.nn.Conv2d(16, 8, 3)
        self.scale = torch.nn.Parameter(tensor(16, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        rows = F.instance_norm(y.reshape(y.shape[0], self.groups, -1))
        return self.last(F.silu(rows.reshape(y.shape) * self.scale))


@pytest.mark.sweep
@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("padding", [1, 0])
def test_a_view_there_and_back(groups: int, dynamic: bool, padding: int) -> None:
    """The map of the view is one of what was viewed, and sums go through what was flattened: an
    image with its channels last is turned around nowhere."""
    model = Flattened(groups, padding).eval()
    shapes = ((2, 3, 9, 10), (1, 3, 5, 12), (3, 3, 30, 7))
    for shape in shapes if not dynamic else shapes[:1]:
        dims = ({0: "n", 2: "h", 3: "w"},) if dynamic else None
        f = pliant.compile(model, (tensor(*shape),), dynamic_shapes=dims)
        if padding or not dynamic:
            assert "-> instance_norm[" not in f.explain()
        for other in shapes if dynamic else (shape,):
            x = tensor(*other, seed=3)
            torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_view_that_others_read_stays() -> None:
    """Where somebody wants the map of a view as a view, it is made once, as that."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.exp(x.flatten(1))
        return rows.reshape(x.shape) + x, rows.sum(-1)

    f = pliant.compile(Apply(both), (tensor(2, 3, 5),), dynamic_shapes=(({0: "n", 2: "m"},),))
    for n, m in ((2, 5), (1, 1), (0, 4), (3, 17)):
        x = tensor(n, 3, m)
        assert_same(f(x), both(x), tolerance=1e-5)


@pytest.mark.parametrize("kind", ["sum", "amax", "argmax"])
def test_reductions_of_what_was_flattened(kind: str) -> None:
    """Also of a part of the dimensions, and of places."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.transpose(1, 2) * 2  # it lies otherwise
        return getattr(y.flatten(1, 2), kind)(1)  # type: ignore[no-any-return]

    dims = (({0: "n", 1: "a", 2: "b"},),)
    f = pliant.compile(Apply(fn), (tensor(2, 3, 5, 4),), dynamic_shapes=dims)
    for n, a, b in ((2, 3, 5), (1, 1, 1), (3, 7, 2), (1, 16, 33)):
        x = tensor(n, a, b, 4)
        assert_same(f(x), fn(x), tolerance=1e-5)
