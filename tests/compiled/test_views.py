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
