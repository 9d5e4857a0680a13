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


def test_repeated_pixels_are_not_copied() -> None:
    """Channels of a picture that is enlarged by repeating pixels lie as they did."""
    weight = tensor(5, 32, 3, 3)
    fn: Any = lambda x: F.conv2d(F.interpolate(x.relu(), scale_factor=2.0), weight, None, 1, 1)  # noqa: E731
    x = tensor(2, 32, 6, 7)
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=(({0: "n"},),))
    assert_same(f(x), fn(x), tolerance=1e-4)
    assert "upsample" not in "".join(x for x in f.explain().splitlines() if "[map]" in x)
