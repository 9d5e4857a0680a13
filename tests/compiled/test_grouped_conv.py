"""Grouped convolutions as products with the group for a batch, those of narrow groups as windows of
shuffled channels, against torch at every size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.codegen.llvm.target import target
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same
from tests.woven import woven

SIZES = ((1, 1), (1, 4), (5, 7), (16, 2))


def check(fn: Any, channels: int, rank: int = 2, sizes: Any = SIZES) -> pliant.Compiled:
    """The same as torch at all sizes, from one compilation."""
    dims = {0: "n"} | {2 + d: f"d{d}" for d in range(rank)}
    f = pliant.compile(
        Apply(fn), (tensor(3, channels, *((6, 8, 7)[:rank])),), dynamic_shapes=((dims,),)
    )
    for n in (0, 1, 2):
        for size in sizes:
            x = tensor(n, channels, *size)
            assert_same(f(x), fn(x), tolerance=1e-4)
    return f


GROUPS = [
    (64, 64, 2), (12, 80, 2), (39, 120, 3),  # a group a batch
    (32, 32, 8), (48, 24, 6), (6, 20, 2), (32, 16, 16), (16, 48, 16),  # several in a panel
    (35, 70, 7), (24, 132, 12), (9, 9, 3),  # numbers that do not fit
]  # fmt: skip
FILTERS: list[tuple[Any, Any]] = [
    (1, {}), (3, {"padding": 1}), ((3, 2), {"stride": 2, "padding": (2, 1), "dilation": (2, 1)}),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("numbers", "filters"), woven(GROUPS, FILTERS, each=2))
def test_groups(numbers: tuple[int, int, int], filters: tuple[Any, Any]) -> None:
    (channels, outputs, groups), (kernel, options) = numbers, filters
    k = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight, bias = tensor(outputs, channels // groups, *k), tensor(outputs)
    f = check(lambda x: F.conv2d(x.relu(), weight, bias, groups=groups, **options), channels)
    narrow = kernel != 1 and channels // groups in (2, 4, 8) and outputs // groups in (2, 4, 8)
    assert ("[windowed" in f.explain()) == narrow
    assert ("[contraction" in f.explain()) != narrow
    assert "[reduction" not in f.explain()


PADDED, APART, STEPS = (
    {"padding": 1}, {"stride": 2, "padding": (2, 1), "dilation": (2, 1)}, {"stride": (1, 3)},
)  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("inputs", "outputs", "groups", "options", "numerics"), [
    (2, 2, 16, PADDED, "fast"), (4, 4, 8, PADDED, "fast"), (4, 4, 8, APART, "strict"),
    (8, 8, 4, APART, "fast"), (8, 8, 6, PADDED, "strict"), (8, 8, 5, STEPS, "fast"),
    (4, 8, 5, STEPS, "fast"), (8, 4, 9, PADDED, "fast"), (2, 8, 11, APART, "fast"),
    (8, 2, 3, PADDED, "fast"),
])  # fmt: skip
def test_narrow_groups(inputs: int, outputs: int, groups: int, options: Any, numerics: str) -> None:
    """Vectors are of the outputs of several groups; which of its channels each lane reads is a
    shuffle."""
    weight, bias = tensor(outputs * groups, inputs, 3, 3), tensor(outputs * groups)
    first, last = tensor(inputs * groups, 5, 1, 1), tensor(3, outputs * groups, 1, 1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(F.conv2d(x, first), weight, bias, groups=groups, **options)
        return F.conv2d(y.relu(), last)

    dims = {0: "n", 2: "h", 3: "w"}
    f = pliant.compile(
        Apply(fn), (tensor(2, 5, 12, 13),), dynamic_shapes=((dims,),), numerics=numerics
    )
    assert "[windowed" in f.explain()
    for n, h, w in ((0, 7, 9), (1, 5, 5), (2, 5, 17), (1, 16, 31)):
        x = tensor(n, 5, h, w)
        assert_same(f(x), fn(x), tolerance=1e-4)


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize(("groups", "width", "stride"), [(11, 16, 1), (3, 16, 2), (5, 40, 1)])
def test_groups_share_a_table(
    groups: int, width: int, stride: int, precision: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where pixels lie is found once for several groups, as many as fit (the last ones are fewer);
    a group's channels begin so much further."""
    channels = groups * width
    first, weight = tensor(channels, 5, 1, 1), tensor(channels, width, 3, 3)
    last = tensor(4, channels, 1, 1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(F.conv2d(x, first), weight, groups=groups, padding=1, stride=stride)
        return F.conv2d(y.relu(), last)

    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path))
    dims = {0: "n", 2: "h", 3: "w"}
    f = pliant.compile(
        Apply(fn), (tensor(2, 5, 12, 13),), dynamic_shapes=((dims,),), precision=precision
    )
    kernels = next(tmp_path.rglob("*_kernels.py")).read_text()
    assert re.search(r"pl_mm_\w+\(address\(x0\[0, [^0]", kernels)
    for n, h, w in ((0, 7, 9), (1, 1, 1), (1, 5, 5), (2, 5, 17), (1, 16, 31), (3, 20, 3)):
        x = tensor(n, 5, h, w)
        assert_same(f(x), fn(x), tolerance=2e-2 if precision else 1e-4)


def test_narrow_groups_stay_in_f32() -> None:
    """In pairs of bf16 most of a panel would be zeros."""
    weight = tensor(64, 4, 3, 3)
    fn = lambda x: F.conv2d(x.relu(), weight, padding=1, groups=16)  # noqa: E731
    x = tensor(1, 64, 9, 10)
    f = pliant.compile(Apply(fn), (x,), precision="bf16")
    assert "narrow groups" in f.explain() and "[contraction" not in f.explain()
    assert_same(f(x), fn(x), tolerance=1e-5)


def test_narrow_groups_read_bf16() -> None:
    """An image that a product made in bf16 is converted as it is read, a vector at a time."""
    first, weight, last = tensor(64, 16, 1, 1), tensor(64, 4, 3, 3), tensor(16, 64, 1, 1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.conv2d(F.conv2d(x, first), weight, padding=1, groups=16).relu(), last)

    x = tensor(1, 16, 9, 10)
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=({2: "h"},), precision="bf16")
    (kernel,) = [line for line in f.explain().splitlines() if "[windowed]" in line]
    assert "conv relu cast" in kernel
    for h in (9, 1, 4):
        x = tensor(1, 16, h, 10)
        assert_same(f(x), fn(x), tolerance=2e-2)


@pytest.mark.sweep
@pytest.mark.parametrize(("channels", "outputs", "groups"), [
    (32, 32, 8), (48, 24, 6), (6, 20, 2), (32, 16, 16), (9, 9, 3),
])  # fmt: skip
@pytest.mark.parametrize(("kernel", "options"), [
    ((3, 3), {"padding": 1}), ((3, 2), {"stride": 2, "padding": (2, 1), "dilation": (2, 1)}),
])  # fmt: skip
def test_narrow_groups_of_an_image(
    channels: int, outputs: int, groups: int, kernel: tuple[int, int], options: Any
) -> None:
    """Alone, where images come and go with their channels first, they are sums along rows; groups
    that fill a vector are products."""
    weight, bias = tensor(outputs, channels // groups, *kernel), tensor(outputs)
    sizes = (*SIZES, (7, 40), (12, 17))
    fn = lambda x: F.conv2d(x, weight, bias, groups=groups, **options).relu()  # noqa: E731
    narrow = outputs // groups < target().lanes(32)
    assert ("[windowed" in check(fn, channels, sizes=sizes).explain()) == narrow


def test_narrow_groups_of_short_rows_share_panels() -> None:
    weight = tensor(48, 12, 3, 3)
    fn = lambda x: F.conv2d(x, weight, padding=1, groups=4)  # noqa: E731
    f = pliant.compile(Apply(fn), (tensor(2, 48, 7, 7),))
    assert "[contraction" in f.explain()
    x = tensor(2, 48, 7, 7, seed=1)
    assert_same(f(x), fn(x), tolerance=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize(("rank", "groups"), [(1, 4), (1, 2), (3, 4)])
def test_other_ranks(rank: int, groups: int) -> None:
    weight, bias = tensor(72, 32 // groups, *(3,) * rank), tensor(72)
    conv = F.conv1d if rank == 1 else F.conv3d
    sizes = ((1,), (9,), (40,)) if rank == 1 else ((1, 1, 1), (2, 3, 4))
    check(lambda x: conv(x, weight, bias, padding=1, groups=groups), 32, rank, sizes)


def test_a_block_is_fused_and_laid_out_like_any_other() -> None:
    first, grouped, last = tensor(32, 20, 1, 1), tensor(32, 8, 3, 3), tensor(20, 32, 1, 1)
    scale, shift = tensor(32).view(-1, 1, 1), tensor(32, seed=3).view(-1, 1, 1)

    def block(x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, first).relu()
        y = (F.conv2d(y, grouped, padding=1, groups=4) * scale + shift).relu()
        return (F.conv2d(y, last) + x).relu()

    f = check(block, 20)
    assert f.explain().count("[contraction") == 2 and "[windowed" in f.explain()


def test_channels_are_shuffled_between_groups() -> None:
    first, second = tensor(24, 4, 1, 1), tensor(48, 8, 1, 1)

    def shuffle(x: torch.Tensor) -> torch.Tensor:
        y = F.channel_shuffle(F.conv2d(x, first, groups=3), 3)
        return F.conv2d(y, second, groups=3)

    check(shuffle, 12)


def test_transposed() -> None:
    """Divisions under a condition too, which LLVM's own vectorizer gets wrong (`llvm.compile`)."""
    weight = tensor(48, 20, 4, 3)
    fn = lambda x: F.conv_transpose2d(x, weight, stride=2, padding=1, groups=4)  # noqa: E731
    f = pliant.compile(
        Apply(fn), (tensor(2, 48, 6, 5),), dynamic_shapes=(({2: "h", 3: "w"},),)
    )  # fmt: skip
    for h, w in SIZES[2:]:
        x = tensor(2, 48, h, w)
        assert_same(f(x), fn(x), tolerance=1e-4)


def test_weights_that_come_with_the_call() -> None:
    fn = lambda x, w: F.conv2d(x, w, padding=1, groups=4)  # noqa: E731
    w = tensor(32, 8, 3, 3)
    f = pliant.compile(
        Apply(fn), (tensor(2, 32, 6, 5), w), dynamic_shapes=(({2: "h", 3: "w"}, None),)
    )  # fmt: skip
    for h, width in SIZES:
        x = tensor(2, 32, h, width)
        assert_same(f(x, w), fn(x, w), tolerance=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    weight = tensor(6, 2, 3, 3, dtype=dtype)
    fn = lambda x: F.conv2d(x, weight, padding=1, groups=3)  # noqa: E731
    f = pliant.compile(Apply(fn), (tensor(2, 6, 5, 4, dtype=dtype),))
    x = tensor(2, 6, 5, 4, dtype=dtype)
    assert_same(f(x), fn(x), tolerance=1e-2 if dtype is torch.float16 else 1e-9)


def test_windows_that_move_by_their_own_size_are_no_groups() -> None:
    patches, depthwise = tensor(24, 3, 8, 8), tensor(24, 1, 2, 2)
    fn = lambda x: F.conv2d(F.conv2d(x, patches, stride=8), depthwise, stride=2, groups=24)  # noqa: E731
    f = pliant.compile(Apply(fn), (tensor(1, 3, 64, 48),))
    x = tensor(1, 3, 64, 48, seed=1)
    assert_same(f(x), fn(x), tolerance=1e-4)
    assert f.explain().count("[contraction") == 1


def test_a_triangular_product() -> None:
    """A guard that bounds a reduction by an output axis may ask for more than there is."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(a, 2) @ b

    f = pliant.compile(
        Apply(fn), (tensor(6, 9), tensor(9, 40)), dynamic_shapes=(({0: "n", 1: "k"}, {0: "k"}),)
    )
    for n, k in ((1, 1), (3, 7), (20, 5), (4, 0)):
        a, b = tensor(n, k), tensor(k, 40)
        assert_same(f(a, b), fn(a, b), tolerance=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize(("channels", "outputs"), [(3, 5), (1, 1), (16, 32)])
def test_a_filter_for_each_image(channels: int, outputs: int) -> None:
    """As many groups as images: a group's filters are one image's (StyleGAN's, siamese nets')."""

    def filtered(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, _, *image = x.shape
        y = F.conv2d(x.reshape(1, -1, *image), w.reshape(-1, channels, 3, 3), padding=1, groups=n)
        y = F.conv_transpose2d(y, v.reshape(-1, channels, 2, 2), stride=2, groups=n)
        return y.view(n, channels, *y.shape[2:])

    def inputs(n: int, *image: int) -> tuple[torch.Tensor, ...]:
        kernels = tensor(n, outputs, channels, 3, 3), tensor(n, outputs, channels, 2, 2)
        return (tensor(n, channels, *image), *kernels)

    shapes = ({0: "n", 2: "h", 3: "w"}, {0: "n"}, {0: "n"})
    f = pliant.compile(Apply(filtered), inputs(2, 6, 8), dynamic_shapes=shapes)
    for size in ((1, 1, 1), (3, 5, 7), (2, 16, 9)):
        args = inputs(*size)
        assert_same(f(*args), filtered(*args), tolerance=1e-4)
    with pytest.raises(pliant.ShapeError, match="there must be a group"):
        f(*inputs(0, 6, 8))
