"""Arguments and values at the edges of what operators are defined for, against torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant import UnsupportedError
from pliant.frontend.torch.legal import legal
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([NAN, INF, -INF, 0.0, -0.5, 0.05, 1.5, -3.0])
EDGES = torch.tensor([-1.0, 0.0, 1.0])
CLUTTER = torch.tensor([0, 1, NAN, INF, -INF])[
    torch.randint(0, 5, (5, 9), generator=torch.Generator().manual_seed(2))
]
BYTES = torch.tensor([[0, 3], [1, 2]], dtype=torch.uint8)
CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "softmax of nothing": (lambda x: torch.ops.aten._safe_softmax(x, 1), (
        torch.tensor([[-INF, -INF], [1.0, -INF], [NAN, 0.0]]),
    )),
    "no dims squeezed": (lambda x: x.squeeze(()), (torch.ones(1, 1),)),
    "angles between numbers, and rows": (
        lambda x: (
            F.cosine_similarity(x[1], x[2], dim=0),
            F.cosine_similarity(x[:2], x.reshape(4, 2), dim=-1),
        ),
        (torch.arange(8.0),),
    ),
    "scattered into a row for each": (
        lambda x, y: torch.masked_scatter(x[0], y > 0, y),
        (torch.ones(2, 5), torch.randn(3, 5)),
    ),
    "rows of two": (lambda x: F.layer_norm(x, (2,), x[0], x[0]), (torch.tensor([[1.0, 3.0]]),)),
    "threshold of NaN": (lambda x: F.threshold(x, 0.1, -3.0), (ODD,)),
    "hardshrink of NaN": (lambda x: F.hardshrink(x), (ODD,)),
    "softshrink of NaN": (lambda x: F.softshrink(x), (ODD,)),
    "places of extremes so far": (lambda x: (*x.cummax(1), *x.cummin(0)), (CLUTTER,)),
    "places of NaN": (
        lambda x: (
            F.max_pool1d(x, 2, return_indices=True),
            F.max_pool2d(x, 3, 2, 1, 1, True, True),
            F.max_pool3d(x.reshape(1, 5, 3, 3), 2, 1, 1, return_indices=True),
        ),
        (CLUTTER.reshape(1, 5, 9),),
    ),
    "far shifts": (
        lambda x, y, by: (x << by, x >> by, y << by.byte(), y >> by.byte(), x >> 3, y << 9),
        (
            torch.tensor([[-128, 127, -1, 5]], dtype=torch.int8).T,
            torch.tensor([[255, 3]], dtype=torch.uint8).T,
            torch.tensor([0, 1, 6, 7, 8, 9, 100], dtype=torch.int8),
        ),
    ),
    "floats taken apart": (
        lambda x: (
            *torch.frexp(x),
            *torch.frexp(x.bfloat16()),
            torch.nextafter(x[:, None], x),
            torch.nextafter(x.double(), -x.double()),
            torch.mvlgamma(x.abs().clamp(0.1, 50).nan_to_num(3.0) + 2, 3),
            torch.special.erfcx(x.clamp(-3, 1e30)),
        ),
        (torch.tensor([0.0, -0.0, 1, -1, INF, -INF, NAN, 1e-45, 1e-38, 3e38, -1.5, 2.0**-149]),),
    ),
    "parts between indices": (
        lambda x: (
            *torch.tensor_split(x, (3, 12, 5)),
            *torch.tensor_split(x, torch.tensor([-20, 4, -2])),
            *torch.tensor_split(x, torch.tensor(3)),
            *torch.vsplit(x, (7, 50, 3)),
        ),
        (torch.arange(20.0).view(10, 2),),
    ),
    "hypot of large and small": (
        torch.hypot,
        (
            torch.tensor([1e30, 1e-30, 0.0, INF, 3.0, NAN]),
            torch.tensor([1e30, 1e-30, 0.0, NAN, -4.0, 1.0]),
        ),
    ),
    "quotients by infinity": (
        lambda a, b: torch.floor_divide(a, b),
        (
            torch.tensor([-1.5, 1.5, 1.5, -1.5, 7.0, -7.0]),
            torch.tensor([INF, -INF, INF, -INF, 2.0, 2.0]),
        ),
    ),
    "NaN among edges": (lambda x: torch.bucketize(x, EDGES), (ODD,)),
    "NaN among edges, right": (lambda x: torch.searchsorted(EDGES, x, right=True), (ODD,)),
    "any of bytes": (lambda x: (x.any(), x.all(1)), (BYTES,)),
    "around, and cut": (
        lambda x: (F.pad(x, (3, -1), "circular"), F.pad(x, (-2, 1), "circular")),
        (torch.arange(8.0).view(1, 1, 8),),
    ),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str) -> None:
    fn, args = CASES[name]
    f = pliant.compile(Apply(fn), args)
    assert_same(f(*args), fn(*args), tolerance=1e-5)


def test_far_erfc() -> None:
    """To its last bits, however small it is."""
    for dtype, end in ((torch.float32, 10.0), (torch.float64, 26.0)):
        x = torch.cat([torch.linspace(-7, end, 300, dtype=dtype), torch.tensor([INF, -INF, NAN])])
        wide = torch.special.erfcx(x.double()) * torch.exp(-(x.double() ** 2))
        wide = torch.where(x > 1, wide, torch.erfc(x.double())).to(dtype)
        found = pliant.compile(Apply(torch.erfc), (x,))(x)
        near = 1e-6 if dtype is torch.float32 else 1e-12
        torch.testing.assert_close(found, wide, rtol=near, atol=1e-300, equal_nan=True)


def alone(x: torch.Tensor) -> Any:
    """What is along a dimension, of a tensor without any."""
    zero, one, w = torch.tensor(0), torch.tensor([0]), x.reshape(1)
    return (
        *x.sort(), *x.topk(1), *x.kthvalue(1), *x.median(0), *x.cummax(0), *x.cummin(-1),
        x.argsort(), x.cumsum(0), x.cumprod(0), x.argmax(), x.argmin(0), x.softmax(0),
        x.index_select(0, zero), x.index_select(0, one), x.unfold(0, 1, 1), F.prelu(-x, w),
        x.gather(0, zero), x.gather(0, one), x.scatter(0, zero, 4.0), x.scatter_add(0, zero, x),
        x.scatter_reduce(0, zero, x, "mean"), x.index_add(0, zero, x), x.index_copy(0, zero, x * 2),
        x.index_fill(0, zero, 3.0), x.take(one), x.repeat_interleave(2), x.roll(1), x.flip(0),
    )  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_number_alone(dtype: torch.dtype) -> None:
    x = torch.tensor(2.5, dtype=dtype)
    assert_same(pliant.compile(Apply(alone), (x,))(x), alone(x))


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_samples_at_no_place(mode: str) -> None:
    """Where coordinates are infinite, far away or NaN."""
    choice = torch.randint(0, 8, (1, 6, 9, 2), generator=torch.Generator().manual_seed(0))
    grid = torch.tensor([NAN, INF, -INF, 1e38, -3.0, 0.3, -0.7, 1.1])[choice]
    image, volume = torch.randn(1, 2, 5, 6), torch.randn(1, 2, 5, 6, 4)
    cube = torch.where(grid < 1e37, grid, NAN)[:, None, ..., [0, 1, 1]]

    def sampled(image: torch.Tensor, grid: torch.Tensor, volume: torch.Tensor) -> Any:
        return [
            F.grid_sample(x, g, mode, padding, align)
            for padding in ("zeros", "border", "reflection")
            for align in (False, True)
            for x, g in ((image, grid), (volume, cube))[: 1 if mode == "bicubic" else 2]
        ]

    args = (image, grid, volume)
    assert_same(pliant.compile(Apply(sampled), args)(*args), sampled(*args), tolerance=1e-5)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    """Empty ones, rows of padding, offsets that end before or at the end."""
    rows, ends = torch.tensor([0, 2, 2, 5, 0, 0, 3, 2, 5, 1]), [0, 1, 3, 6, 6]
    weight = torch.randn(6, 5)

    def bags(rows: torch.Tensor, starts: torch.Tensor, weight: torch.Tensor) -> Any:
        found = [
            F.embedding_bag(rows, weight, starts, mode=mode, padding_idx=padding)
            for padding in (None, 0, 2, -1)
        ]
        whole = torch.cat([starts, starts[:1] + 10])
        found.append(F.embedding_bag(rows, weight, whole, mode=mode, include_last_offset=True))
        if mode == "sum":  # of the others torch means more than it adds up
            found.append(F.embedding_bag(rows, weight, starts, mode=mode, include_last_offset=True))
        return found

    args = (rows, torch.tensor(ends), weight)
    assert_same(pliant.compile(Apply(bags), args)(*args), bags(*args))


def of_maxima(g: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
    """A gradient goes where the maxima were, of windows of three elements."""
    ops = torch.ops.aten
    backward = ops.max_pool2d_with_indices_backward, ops.max_pool3d_with_indices_backward
    k = g.dim() - 2
    return backward[k - 2](g, x, [3] * k, [1] * k, [1] * k, [1] * k, False, at)


def maxima(*sizes: int) -> tuple[torch.Tensor, ...]:
    x = torch.randn(2, 3, *sizes)
    y, at = (F.max_pool2d, F.max_pool3d)[len(sizes) - 2](x, 3, 1, 1, return_indices=True)
    return torch.randn(y.shape), x, at


@pytest.mark.parametrize("sizes", [(9, 12), (4, 5, 6)])
def test_places_that_torch_does_not_check(sizes: tuple[int, ...]) -> None:
    """It writes wherever they say: outside of a smaller image that is memory of something else."""
    g, x, at = maxima(*sizes)
    program = torch.export.export(Apply(of_maxima), (g, x, at))
    with legal(program):
        of_maxima(g, x, at)
        for wrong in (at + math.prod(sizes), at - math.prod(sizes)):
            with pytest.raises(ValueError, match="outside of what was pooled"):
                of_maxima(g, x, wrong)


def test_places_of_maxima_at_other_sizes() -> None:
    """The example's places are none of the smaller images that are tried while compiling, however
    torch writes the operator."""
    dims = {2: "h", 3: "w"}
    f = pliant.compile(Apply(of_maxima), maxima(9, 12), dynamic_shapes=((dims, dims, dims),))
    for sizes in ((2, 2), (1, 7), (5, 13)):
        given = maxima(*sizes)
        assert_same(f(*given), of_maxima(*given))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_any_number_of_bags(mode: str) -> None:
    """Torch reads the first of no offsets, and may die of it: none are given to it."""
    bags, table = nn.EmbeddingBag(9, 5, mode=mode), torch.arange(40).view(8, 5) % 9
    f = pliant.compile(bags, (table[0], table[0, :2]), dynamic_shapes=({0: "n"}, {0: "k"}))
    for starts in ([0], [0, 2, 2], [0, 0, 4, 5]):
        args = (table[2, :5], torch.tensor(starts))
        assert_same(f(*args), bags(*args))
    f = pliant.compile(bags, (table,), dynamic_shapes=({0: "n", 1: "k"},))
    for n, k in ((8, 5), (3, 1), (0, 2)):
        assert_same(f(table[:n, :k]), bags(table[:n, :k]))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sections", [2, 3, 5])
def test_parts_of_any_size(sections: int) -> None:
    """As torch splits it at this size, not as at the example's."""
    fn: Any = lambda x: torch.tensor_split(x, sections)  # noqa: E731
    f = pliant.compile(Apply(fn), (torch.arange(7.0),), dynamic_shapes=(({0: "n"},),))
    for n in (0, 1, 4, 5, 6, 7, 23):
        x = torch.arange(float(n))
        assert_same(f(x), fn(x))


def test_sizes_that_a_decomposition_is_not_for_are_refused() -> None:
    """Torch writes it with a row repeated five times, to which a single row also fits."""
    fn: Any = lambda x: torch.ops.aten.vander(x[:5], 3)  # noqa: E731
    with pytest.warns(UserWarning, match="below 2"):
        f = pliant.compile(Apply(fn), (torch.randn(12),), dynamic_shapes=(({0: "n"},),))
    for n in (1, 2, 4, 5, 9):
        x = torch.randn(n)
        if n < 5:
            with pytest.raises(pliant.ShapeError):
                f(x)
        else:
            assert_same(f(x), fn(x))


def _written_through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[1:].add_(2)
    return y


@pytest.mark.sweep(2)
@pytest.mark.parametrize("before", [lambda x: torch.logaddexp(x, x), _written_through_a_view])
def test_parts_of_any_size_beside_what_torch_decomposes(before: Any) -> None:
    """Torch's own rewrites would make the parts that are longer by one those of the example."""
    fn: Any = lambda x: torch.tensor_split(before(x), 3)  # noqa: E731
    f = pliant.compile(Apply(fn), (torch.randn(7, 2),), dynamic_shapes=(({0: "n"},),))
    for n in (2, 6, 7, 8, 23):
        x = torch.randn(n, 2)
        assert_same(f(x), fn(x))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [
    {"size": (5, 12), "mode": "bilinear"}, {"size": (16, 5), "mode": "bicubic"},
    {"size": (3, 5), "mode": "bicubic", "antialias": True}, {"size": (7, 4), "mode": "nearest"},
])  # fmt: skip
def test_bytes_are_resampled(options: dict[str, Any]) -> None:
    """Rounded and clamped as torch does it; its weights of 15 bits decide near halves."""
    fn: Any = lambda x: F.interpolate(x, **options)  # noqa: E731
    x = torch.randint(0, 256, (2, 3, 8, 9), generator=torch.Generator().manual_seed(0)).byte()
    x[:, :, ::2] = 255 * (x[:, :, ::2] > 127)
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=(({2: "h"},),))
    for image in (x, x[:, :, :5]):
        found, expected = f(image), fn(image)
        assert found.dtype is torch.uint8
        away = (found.int() - expected.int()).abs()
        assert away.max() <= 1 and away.float().mean() < 0.05


def test_programs_that_torch_decomposed() -> None:
    def mixed(x: torch.Tensor, w: torch.Tensor) -> Any:
        small = F.interpolate(x, (3, 5), mode="bilinear", antialias=True)
        return small, F.bilinear(x, x, w), F.pdist(x[0, 0]), F.adaptive_max_pool2d(x, 2)

    args = (torch.randn(1, 2, 6, 8), torch.randn(3, 8, 8))
    program = torch.export.export(Apply(mixed), args).run_decompositions()
    assert_same(pliant.compile(program)(*args), mixed(*args))
    unsafe = torch.export.export(Apply(torch.linalg.inv), (torch.eye(3),)).run_decompositions()
    with pytest.raises(UnsupportedError, match="effects"):
        pliant.compile(unsafe)


def test_a_slice_of_one_is_squeezed() -> None:
    fn: Any = lambda x: x[:, 1:2].squeeze(1) + 1  # noqa: E731
    f = pliant.compile(Apply(fn), (torch.randn(4, 5, 3),), dynamic_shapes=(({1: "n"},),))
    for n in (2, 3, 9):
        x = torch.randn(4, n, 3)
        assert_same(f(x), fn(x))


def test_a_change_that_torch_tells_of_late_is_refused() -> None:
    """Running statistics of an operator that it has to decompose first."""
    args = (torch.randn(2, 3), *(torch.rand(3) for _ in range(4)))
    norm = Apply(lambda *x: torch.native_batch_norm(*x, True, 0.1, 1e-5)[0])
    with pytest.raises(UnsupportedError, match="the model changes its state"):
        pliant.compile(norm, args)


def test_a_mutation_that_torch_cannot_rewrite_is_refused() -> None:
    def mutates(x: torch.Tensor) -> torch.Tensor:
        y = x + 0
        y.unfold(2, 2, 1)[..., 0].abs_()
        return y

    with pytest.raises(UnsupportedError, match="in-place"):
        pliant.compile(Apply(mutates), (torch.randn(2, 3, 4),))


NARROW = [torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", NARROW)
def test_one_lane_is_stored_as_wide_as_it_is(dtype: torch.dtype) -> None:
    """Of 9 or 17 columns the last vector has one lane: it must not overwrite what lies behind."""
    fn: Any = lambda x: x.t().to(dtype)  # noqa: E731
    for n in (9, 17, 33):
        x = torch.arange(n * n).view(n, n) % 100
        assert_same(pliant.compile(Apply(fn), (x,))(x), fn(x))


def test_a_convolution_of_seven_pixels_in_bf16() -> None:
    model = torch.nn.Conv2d(8, 4, 3, padding=1).to(torch.bfloat16).eval()
    x = torch.randn(2, 8, 7, 7, dtype=torch.bfloat16)
    got = torch.as_tensor(pliant.compile(model, (x,))(x))
    torch.testing.assert_close(got, model(x).detach(), rtol=2e-2, atol=2e-2)


FIRST: dict[str, Any] = {
    "relu": torch.relu,
    "product": lambda x: x @ x.t(),
    "softmax": lambda x: x.softmax(-1),
    "concatenation": lambda x: torch.cat([x, x], 1),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_first_columns_are_a_result(name: str, symbolic: bool) -> None:
    """They do not take the place of all columns."""
    fn: Any = lambda x: FIRST[name](x)[:, :3]  # noqa: E731
    x = torch.randn(6, 8)
    dims = (({0: "n"},),) if symbolic else None
    f = pliant.compile(Apply(fn), (x,), dynamic_shapes=dims)
    assert_same(f(x), fn(x), tolerance=1e-5)
