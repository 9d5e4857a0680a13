"""Windows that slide over a parameter, padded or not, against torch at every size."""

from __future__ import annotations

from typing import Any

import pytest
from torch.nn import functional as F

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same
from tests.woven import woven

DEPTHWISE = tensor(5, 1, 3, 3)
WIDE = tensor(5, 1, 5, 7)
POINTWISE = tensor(4, 5, 1, 1)
BIAS = tensor(5)
FULL = tensor(6, 5, 3, 3)
MIX = tensor(5, 5, 1, 1)
CASES = {
    "depthwise": lambda x: F.conv2d(x, DEPTHWISE, BIAS, padding=1, groups=5).relu(),
    "depthwise, strided": lambda x: F.conv2d(x, DEPTHWISE, BIAS, 2, 1, groups=5),
    "depthwise, dilated": lambda x: F.conv2d(x, DEPTHWISE, None, 1, (3, 2), (3, 2), groups=5),
    "depthwise, one side": lambda x: F.conv2d(x, DEPTHWISE, BIAS, (2, 1), (0, 1), groups=5),
    "depthwise, more than the kernel": lambda x: F.conv2d(x, DEPTHWISE, BIAS, 1, 4, groups=5),
    "depthwise 5x7": lambda x: F.conv2d(x, WIDE, BIAS, padding=(2, 3), groups=5),
    "two of them": lambda x: F.conv2d(x, DEPTHWISE, BIAS, padding=1, groups=5)
    + F.conv2d(x, WIDE, padding=(2, 3), groups=5),
    "one after another": lambda x: F.conv2d(
        F.conv2d(x, DEPTHWISE, BIAS, padding=1, groups=5), DEPTHWISE, padding=1, groups=5
    ),
    "and a product": lambda x: F.conv2d(
        F.conv2d(x, DEPTHWISE, BIAS, padding=1, groups=5), POINTWISE
    ),
    "dilated, mostly outside": lambda x: F.conv2d(x, FULL, None, 1, (9, 11), (9, 11)),
    "maximum": lambda x: F.max_pool2d(x, 3, 1, 1),
    "maximum, strided": lambda x: F.max_pool2d(x, 3, (2, 1), 1),
    "mean": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "mean of what is there": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "both": lambda x: F.max_pool2d(x, 3, 1, 1) - F.avg_pool2d(x, 3, 1, 1),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "width"), woven([*CASES], [None, 3, 14, 70], each=2))
def test_two_dimensions(name: str, width: int | None) -> None:
    fn: Any = CASES[name]
    dims = {0: "n", 2: "h"} | ({3: "w"} if width is None else {})
    f = pliant.compile(Apply(fn), (tensor(3, 5, 12, width or 11),), dynamic_shapes=((dims,),))
    for n, h, w in ((1, 3, 3), (2, 4, 5), (0, 7, 4), (1, 5, 64), (2, 17, 83)):
        x = tensor(n, 5, h, width or w)
        assert_same(f(x), fn(x), tolerance=1e-4)
    assert f.stats()["compiles"] == 1


def test_nothing_to_slide_over() -> None:
    fn: Any = CASES["depthwise"]
    f = pliant.compile(
        Apply(fn), (tensor(3, 5, 6, 7),), dynamic_shapes=(({0: "n", 2: "h", 3: "w"},),)
    )
    assert f(tensor(0, 5, 4, 4)).shape == (0, 5, 4, 4)
    assert f(tensor(2, 5, 1, 1)).shape == (2, 5, 1, 1)
    for h, w in ((0, 3), (3, 0), (0, 0)):  # as torch does
        with pytest.raises(pliant.ShapeError, match="the window is larger"):
            f(tensor(2, 5, h, w))


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    weight = tensor(6, 1, *(3,) * rank)
    conv = F.conv1d if rank == 1 else F.conv3d
    fn = lambda x: conv(x, weight, padding=1, groups=6) + 1  # noqa: E731
    dims = {2 + d: f"d{d}" for d in range(rank)}
    f = pliant.compile(
        Apply(fn), (tensor(2, 6, *(8, 9, 10)[:rank]),), dynamic_shapes=((dims,),)
    )  # fmt: skip
    for size in ((1, 1, 1), (2, 3, 4), (20, 4, 33)):
        x = tensor(2, 6, *size[:rank])
        assert_same(f(x), fn(x), tolerance=1e-4)


@pytest.mark.parametrize("width", [16, 17, 31, 33, 48, 64, 65, 100, 130])
def test_vectors_at_the_end_of_a_row(width: int) -> None:
    """Reductions over other dimensions than the last, at widths around whole vectors."""
    fn = lambda x: (x.sum(0), x.amax(0), x.argmax(0))  # noqa: E731
    for symbolic in (False, True):
        shapes = (({1: "w"},),) if symbolic else None
        f = pliant.compile(Apply(fn), (tensor(7, width),), dynamic_shapes=shapes)
        x = tensor(7, width, seed=4)
        for found, wanted in zip(f(x), fn(x), strict=True):
            assert_same(found, wanted, tolerance=1e-5)


PADDED = {
    "depthwise": (lambda x: F.conv2d(F.pad(x, (1, 2, 0, 1)), DEPTHWISE, BIAS, groups=5), 3),
    "of what is padded": (
        lambda x: F.conv2d(F.pad(x.relu(), (1, 0, 1, 0)), DEPTHWISE, padding=1, groups=5),
        2,
    ),
    "product": (lambda x: F.conv2d(F.pad(x, (0, 1, 1, 0)), FULL, padding=(1, 0)), 2),
    "cropped": (lambda x: F.conv2d(F.pad(x, (-1, 2, 1, -1)), DEPTHWISE, groups=5), 2),
    "maximum": (lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=0.5), 2, 1), 2),
    "mean of zeros": (lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2, 1), 3),
    "mean of a number": (lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), value=2.0), 2, 1), 4),
    "reflected": (lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), DEPTHWISE, groups=5), 2),
    "read by others": (
        lambda x: F.max_pool2d(y := F.pad(x, (1, 1, 1, 1)), 3, 1, 1) + y.exp(),
        4,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PADDED)
def test_padding_of_its_own(name: str) -> None:
    """A window tests what is outside by itself, where the padding is of use to it."""
    fn, launches = PADDED[name]
    # Between products, as in a model: channels lie last, and windows read what a kernel made.
    whole = lambda x: fn(F.conv2d(x, MIX))  # noqa: E731
    f = pliant.compile(
        Apply(whole), (tensor(2, 5, 9, 8),), dynamic_shapes=(({0: "n", 2: "h", 3: "w"},),)
    )
    for n, h, w in ((1, 4, 4), (2, 5, 7), (0, 6, 4), (1, 17, 23)):
        x = tensor(n, 5, h, w)
        assert_same(f(x), whole(x), tolerance=1e-4)
    assert f.stats()["launches"] == launches
