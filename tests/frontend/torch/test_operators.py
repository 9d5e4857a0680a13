"""Every ATen rule against torch eager, on small tensors of several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (it defines some of them)

from pliant.frontend.torch.aten import ATEN
from pliant.frontend.torch.recurrent import KINDS, operator_name
from tests.frontend.torch.running import check


class Apply(nn.Module):
    """A module out of a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ints(*shape: int, low: int = -9, high: int = 9) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1))


def bools(*shape: int) -> torch.Tensor:
    return ints(*shape) > 0


def dynamic(fn: Callable[..., Any], make: Callable[[int], tuple[Any, ...]], *sizes: int) -> None:
    """`make(n)` gives the arguments; every dim equal to the marker 83 is called n."""
    marked = make(83)
    shapes = tuple(
        {k: "n" for k, d in enumerate(x.shape) if d == 83} if isinstance(x, torch.Tensor) else None
        for x in marked
    )
    sizes = sizes or (1, 2, 7)
    check(Apply(fn), make(5), (shapes,), [make(n) for n in sizes])


UNARY = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p tanh sigmoid erf sin cos tan asin acos atan"
    " sinh cosh asinh acosh atanh reciprocal neg abs square floor ceil trunc round sign sgn"
    " signbit isnan isinf isfinite logical_not nan_to_num positive"
).split()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name: str) -> None:
    dynamic(getattr(torch, name), lambda n: (floats(n, 3) * 2,))
    if name not in ("neg", "positive"):
        dynamic(getattr(torch, name), lambda n: (ints(n, 3),), 2)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": F.relu, "relu6": F.relu6, "silu": F.silu, "mish": F.mish, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "hardtanh": F.hardtanh, "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu, "celu": lambda x: F.celu(x, 0.6), "leaky_relu": F.leaky_relu,
    "softplus": lambda x: F.softplus(x, 2.0, 3.0), "softsign": F.softsign,
    "logsigmoid": F.logsigmoid, "hardshrink": F.hardshrink, "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 3.0), "glu": lambda x: F.glu(x, -1),
    "tanhshrink": F.tanhshrink, "logit": lambda x: torch.logit(x.sigmoid(), 1e-6),
    "softmax": lambda x: F.softmax(x, -1), "softmax0": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 1), "softmin": lambda x: F.softmin(x, 1),
    "softmax_half": lambda x: F.softmax(x.half(), -1, dtype=torch.float32),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    dynamic(ACTIVATIONS[name], lambda n: (floats(n, 6) * 3,))


def test_prelu() -> None:
    check(nn.PReLU(3), (floats(2, 3, 4),), ({0: "n"},), [(floats(5, 3, 4),)])


BINARY = (
    "add sub mul div true_divide floor_divide remainder fmod pow atan2 maximum minimum fmax fmin"
    " eq ne lt le gt ge logical_and logical_or logical_xor hypot rsub"
).split()


@pytest.mark.sweep
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_broadcast(name: str) -> None:
    fn = getattr(torch, name)
    dynamic(fn, lambda n: (floats(n, 3), floats(3, seed=1)))
    dynamic(fn, lambda n: (floats(n, 1).abs() + 0.1, floats(1, n, seed=1)))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", "add sub mul div floor_divide remainder fmod eq lt".split())
def test_binary_functions_promote(name: str) -> None:
    fn = getattr(torch, name)
    positive = ints(4, low=1)
    dynamic(lambda x: fn(x, positive[:1]), lambda n: (ints(n, 3),), 2)
    dynamic(lambda x: fn(x, 2), lambda n: (ints(n, 3),), 2)
    dynamic(lambda x: fn(x, 2.5), lambda n: (ints(n, 3),), 2)
    dynamic(lambda x: fn(x, torch.tensor(3.0, dtype=torch.float64)), lambda n: (floats(n),), 2)
    dynamic(lambda x, y: fn(x, y), lambda n: (floats(n).half(), ints(n, low=1)), 2)
    dynamic(lambda x, y: fn(x, y), lambda n: (floats(n).bfloat16(), floats(n)), 2)
    if name not in ("sub", "remainder", "fmod", "floor_divide"):
        dynamic(lambda x, y: fn(x, y), lambda n: (bools(n), torch.ones(n).bool()), 2)


@pytest.mark.parametrize("name", "bitwise_and bitwise_or bitwise_xor".split())
def test_bitwise(name: str) -> None:
    fn = getattr(torch, name)
    dynamic(fn, lambda n: (ints(n, 3), ints(n, 3, low=0)))
    dynamic(fn, lambda n: (bools(n, 3), ~bools(n, 3)), 2)
    dynamic(lambda x: fn(x, 6), lambda n: (ints(n),), 2)


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "alpha": lambda x, y: torch.add(x, y, alpha=2.5) - torch.sub(x, y, alpha=3),
    "rsub": lambda x, y: 1 - x,
    "rdiv": lambda x, y: 2 / (x.abs() + 1),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "powers": lambda x, y: (x**2, x.abs() ** 0.5, x**3, x**-1, 2**y, x.abs() ** y),
    "clamp": lambda x, y: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp_max(1), x.clamp(y, y + 1)),
    "where": lambda x, y: torch.where(x > 0, x, 0.5) + torch.where(x > y, 1, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, float("-inf")),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, x, y.abs() + 1),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, 0.7) + torch.lerp(x, y, y),
    "casts": lambda x, y: (x.double(), x.half(), x.bfloat16(), x.int(), x.bool(), x.to(y)),
    "bits": lambda x, y: x.view(torch.int32),
    "sizes": lambda x, y: x * x.shape[0] + x.shape[0] / 3 + torch.full_like(y, x.shape[0]),
    "logic": lambda x, y: ((x > 0) & (y > 0)) | ~(x < y) ^ (x == y),
    "copies": lambda x, y: x.clone().contiguous().detach() + y.type_as(x),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str) -> None:
    dynamic(ARITHMETIC[name], lambda n: (floats(n, 3), floats(n, 3, seed=2)))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x: (
        x.sum(),
        x.sum(0),
        x.sum((1, -1), keepdim=True),
        x.sum(1, dtype=torch.float64),
    ),
    "prod": lambda x: (x.prod(), x.prod(1)),
    "mean": lambda x: (x.mean(), x.mean(-1, keepdim=True), x.mean((0, 2))),
    "max": lambda x: (x.max(), x.amax(1), x.amax((0, 1), keepdim=True), x.max(1), x.min(2)[1]),
    "arg": lambda x: (x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True)),
    "any": lambda x: ((x > 2).any(), (x > 0).all(1), (x > 0).any(0, keepdim=True), x.all()),
    "var": lambda x: (x.var(1), x.std(1, correction=0), torch.var_mean(x, 2, keepdim=True)),
    "norm": lambda x: (x.norm(), x.norm(1, dim=1), torch.linalg.vector_norm(x, 3, dim=1)),
    "norms": lambda x: (torch.linalg.vector_norm(x, float("inf"), 1), F.normalize(x, dim=1)),
    "logsumexp": lambda x: x.logsumexp(1),
    "count": lambda x: (x > 0).count_nonzero(1),
    "running": lambda x: (x.cumsum(1), x.cumprod(2), (x > 0).cumsum(0), x.cummax(1)[0]),
    "integers": lambda x: (x.int().sum(), x.int().sum(1), (x > 0).sum(0), x.int().amax(1)),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(1), dim=1),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    dynamic(REDUCTIONS[name], lambda n: (floats(n, 4, 3),), 2, 7)


def test_sorting() -> None:
    dynamic(
        lambda x: (x.sort(1), x.argsort(0, descending=True), x.topk(2, -1), x.topk(1, 1, False)),
        lambda n: (floats(n, 5),),
    )


def test_places_of_maxima() -> None:
    def there_and_back(x):
        values, places = F.max_pool2d(x, 2, return_indices=True)
        return places, F.max_unpool2d(values * 2, places, 2), F.max_unpool2d(values, places, 2, 2)

    dynamic(there_and_back, lambda n: (floats(n, 3, 6, 8),), 2, 5)
    dynamic(lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), lambda n: (floats(n, 3, 9),))
    pool = torch.nn.MaxPool3d(2, return_indices=True)
    dynamic(lambda x: torch.nn.MaxUnpool3d(2)(*pool(x)), lambda n: (floats(n, 2, 4, 4, 6),))


def test_bilinear() -> None:
    layer = torch.nn.Bilinear(5, 4, 3).requires_grad_(False)
    dynamic(lambda a, b: layer(a, b), lambda n: (floats(n, 2, 5), floats(n, 2, 4)))
    dynamic(lambda a, b: F.bilinear(a, b, layer.weight), lambda n: (floats(n, 5), floats(n, 4)))


def test_rrelu() -> None:
    dynamic(lambda x: (F.rrelu(x), F.rrelu(x, 0.1, 0.5)), lambda n: (floats(n, 5),))


VIEWS: dict[str, Callable[..., Any]] = {
    "reshape": lambda x: (x.view(-1, 2), x.reshape(x.shape[0], -1), x.flatten(1), x.flatten()),
    "unflatten": lambda x: x.unflatten(1, (2, -1)),
    "transpose": lambda x: (x.transpose(1, 2), x.permute(2, 0, 1), x.mT, x.movedim(0, -1)),
    "slice": lambda x: (x[:, 1:3], x[:, ::2], x[:, -2:], x[1:], x[:, :-1], x[:, 10:]),
    "select": lambda x: (x[:, 0], x[:, -1], x[..., 1], x[0], x[-1]),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "squeeze": lambda x: (x.unsqueeze(1), x[:, None, :, None], x[:, :1].squeeze(1)),
    "diff": lambda x: (x.diff(dim=1), x.diff(dim=0), x.diff(2, dim=1), x.diff(prepend=x)),
    "expand": lambda x: (x[:, :1].expand(-1, 3, -1), x.expand(2, -1, -1, -1), x[:1].expand_as(x)),
    "cat": lambda x: (torch.cat([x, x + 1]), torch.cat([x, x.double()], -1)),
    "stack": lambda x: torch.stack([x, x], 1),
    "joins": lambda x: (torch.hstack([x, x]), torch.vstack([x, x])),
    "split": lambda x: (*x.split(2, 1), *x.split([1, 3], 1), *x.chunk(2, 1), *x.unbind(2)),
    "repeat": lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 1), x.repeat_interleave(2, 1)),
    "tile": lambda x: x.tile(2),
    "flip": lambda x: (x.flip(1), x.flip((0, 2)), x.roll(1, 1), x.roll(2), x.roll((1, -1), (1, 2))),
    "triangle": lambda x: (x.tril(), x.triu(1), x.tril(-1), x.diagonal(dim1=1, dim2=2)),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, -1, 2), value=3.0)),
    "pad_modes": lambda x: (F.pad(x, (1, 1), mode="reflect"), F.pad(x, (2, 1), mode="replicate")),
    "circular": lambda x: F.pad(x, (1, 1), mode="circular"),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "broadcast": lambda x: torch.broadcast_tensors(x, x[:, :1]),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    sizes = (2, 7) if name in ("slice", "flip", "expand") else (1, 2, 7)
    dynamic(VIEWS[name], lambda n: (floats(n, 4, 2),), *sizes)


def test_symbolic_axes_are_sliced_and_split() -> None:
    dynamic(
        lambda x: (x[:, :2], x[:, 1:-1], x[:, -1:], x[:, x.shape[1] // 2 :]),
        lambda n: (floats(3, n),),
        3,
        7,
    )
    dynamic(lambda x: x.reshape(2, -1), lambda n: (floats(4, n),))
    dynamic(lambda x: torch.cat([x, x[:, :1]], 1), lambda n: (floats(3, n),))


def test_products_of_bytes() -> None:
    """With the extremes of both."""

    def make(n: int) -> tuple[torch.Tensor, ...]:
        return tuple(ints(*s, low=-128, high=128).to(torch.int8) for s in ((n, 16), (16, 8)))

    for n in (20, 33):  # torch has no product of 16 rows or fewer
        check(Apply(torch._int_mm), make(n))


def test_pixels() -> None:
    dynamic(lambda x: F.pixel_shuffle(x, 2), lambda n: (floats(2, 8, n, 3),))
    check(Apply(lambda x: F.pixel_unshuffle(x, 2)), (floats(2, 3, 4, 6),))
    check(Apply(lambda x: F.channel_shuffle(x, 2)), (floats(2, 6, 4, 3),))
    check(Apply(lambda x: F.unfold(x, (2, 3), padding=1, stride=2)), (floats(2, 3, 5, 6),))


CREATION: dict[str, Callable[..., Any]] = {
    "arange": lambda x: (torch.arange(x.shape[0]), torch.arange(1, x.shape[0], dtype=torch.int32)),
    "arange_step": lambda x: (
        torch.arange(10, 1, -3),
        torch.arange(0, 1, 0.25),
        torch.arange(0, x.shape[0], 2),
        torch.arange(x.shape[0], -x.shape[0], -1.0),
        torch.arange(x.shape[0], 2 * x.shape[0] + 1, 1.5),
    ),
    "full": lambda x: (
        torch.full((x.shape[0], 2), 7),
        torch.zeros_like(x),
        torch.ones(2, x.shape[0]),
    ),
    "new": lambda x: (x.new_zeros(x.shape[0]), x.new_full((2,), 3), x.new_ones(1).bool()),
    "eye": lambda x: (torch.eye(x.shape[0]), torch.eye(2, 3)),
    "linspace": lambda x: torch.linspace(0, 1, 5),
    "triu_mask": lambda x: torch.full((x.shape[0], x.shape[0]), float("-inf")).triu(1),
    "one_hot": lambda x: F.one_hot(x.long().abs() % 3, 3),
    "constant": lambda x: x + torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(2),
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    dynamic(CREATION[name], lambda n: (floats(n, 3),))


INDEXING: dict[str, Callable[..., Any]] = {
    "index": lambda x, i: (x[i], x[:, i % 3], x[i, i % 3], x[i[:, None], torch.arange(3)]),
    "select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 3)),
    "scatter": lambda x, i: x.scatter(1, i[:, None] % 3, 9.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i[:, None] % 3, x[:, :1]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i[:, None] % 3, x[:, :1], "amax"),
    "index_put": lambda x, i: torch.index_put(x, (i,), x[:1] * 2),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "bucketize": lambda x, i: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name: str) -> None:
    dynamic(INDEXING[name], lambda n: (floats(n, 3), torch.arange(n).flip(0)))


PRODUCTS: dict[str, Callable[..., Any]] = {
    "matmul": lambda x, y: (x @ y, x[0] @ y[0], x[0, 0] @ y[0], x @ y[0], x[0] @ y[0, :, 0]),
    "bmm": lambda x, y: torch.bmm(x, y),
    "addmm": lambda x, y: torch.addmm(y[0, 0], x[0], y[0], beta=0.5, alpha=2),
    "baddbmm": lambda x, y: torch.baddbmm(y[:, :1], x, y, beta=0),
    "einsum": lambda x, y: torch.einsum("bik,bkj->bji", x, y),
    "linear": lambda x, y: F.linear(x, y[0].T, y[0, 0]),
    "outer": lambda x, y: torch.outer(x[0, 0], y[0, :, 0]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    dynamic(PRODUCTS[name], lambda n: (floats(2, n, 4), floats(2, 4, 3)))


def test_products_of_groups() -> None:
    """Rows in groups, of which some are empty."""
    weights = floats(4, 8, 16).bfloat16()
    ends = torch.tensor([0, 2, 2, 5], dtype=torch.int32)

    def product(x: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x.bfloat16(), weights, ends + x.shape[0] - 5)

    dynamic(product, lambda n: (floats(n, 8),), 8, 13)


def test_histograms() -> None:
    """Both ends belong to bins, what is beyond them and what is no number to none."""
    x = torch.tensor([0.0, 3.0, 2.999, 1.0, -0.1, 3.1, float("nan"), float("inf"), 1.5])
    dynamic(lambda y, z: torch.histc(y, 4, 0, 3) + z.sum(), lambda n: (x, floats(n)))
    dynamic(lambda y: torch.histc(y, 7, -1, 1), lambda n: (floats(n, 3),))
    dynamic(lambda y: torch.histc(y, 5), lambda n: (floats(n, 3),))
    dynamic(lambda y: torch.histc(y * 0 + 2, 5), lambda n: (floats(n, 3),))


def test_attention() -> None:
    attend = F.scaled_dot_product_attention
    dynamic(lambda q, k: attend(q, k, k), lambda n: (floats(2, 4, n, 8), floats(2, 4, n, 8)))
    dynamic(lambda q: attend(q, q, q, is_causal=True, scale=0.3), lambda n: (floats(2, 4, n, 8),))
    dynamic(lambda q, m: attend(q, q, q, m), lambda n: (floats(2, 4, n, 8), floats(n, n)))
    dynamic(
        lambda q, m: attend(q, q, q, m.tril() > -9),
        lambda n: (floats(2, 4, n, 8), torch.ones(n, n)),
    )
    dynamic(
        lambda q, k: attend(q, k, k, enable_gqa=True),
        lambda n: (floats(2, 4, n, 8), floats(2, 2, n, 8)),
    )
    dynamic(lambda q: attend(q, q, q), lambda n: (floats(n, 8),))


def test_normalisations() -> None:
    dynamic(lambda x: F.layer_norm(x, (6,)), lambda n: (floats(n, 6),))
    dynamic(lambda x: F.rms_norm(x, (6,), eps=1e-5), lambda n: (floats(n, 6),))
    dynamic(lambda x: F.group_norm(x, 3), lambda n: (floats(2, 6, n),), 2, 7)
    dynamic(lambda x: F.instance_norm(x), lambda n: (floats(2, 6, n),), 2, 7)
    for module in (nn.BatchNorm1d(6), nn.LayerNorm((6, 4)), nn.GroupNorm(2, 6), nn.RMSNorm((6, 4))):
        check(module.eval(), (floats(2, 6, 4),), ({0: "n"},), [(floats(5, 6, 4),)])


@pytest.mark.parametrize("options", [
    {}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2},
    {"padding": "same"}, {"bias": False, "padding": (1, 0)},
])  # fmt: skip
def test_convolutions(options: dict[str, Any]) -> None:
    check(
        nn.Conv2d(4, 6, 3, **options), (floats(2, 4, 8, 9),), ({0: "n", 2: "h", 3: "w"},),
        [(floats(1, 4, 7, 5),), (floats(3, 4, 11, 13),)],
    )  # fmt: skip


def test_other_convolutions() -> None:
    check(nn.Conv1d(4, 6, 3, stride=2), (floats(2, 4, 9),), ({2: "t"},), [(floats(2, 4, 30),)])
    check(nn.Conv3d(2, 3, 2), (floats(1, 2, 4, 4, 4),))
    check(nn.Conv2d(4, 6, 3), (floats(4, 8, 9),))
    for options in ({}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2}):
        check(
            nn.ConvTranspose2d(4, 6, 3, **options), (floats(2, 4, 5, 6),), ({2: "h"},),
            [(floats(2, 4, 7, 6),)],
        )  # fmt: skip
    check(nn.ConvTranspose1d(4, 2, 4, 2, 1), (floats(2, 4, 5),), ({2: "t"},), [(floats(2, 4, 9),)])


def test_pooling() -> None:
    image, other = (floats(2, 3, 9, 8),), [(floats(1, 3, 7, 11),)]
    shapes = ({0: "n", 2: "h", 3: "w"},)
    for module in (
        nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((2, 3)), nn.AdaptiveMaxPool2d(1),
    ):  # fmt: skip
        check(module, image, shapes, other)
    check(nn.MaxPool1d(2), (floats(2, 3, 9),))
    check(nn.AvgPool1d(2), (floats(2, 3, 9),))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("options", [
    {"scale_factor": 2}, {"scale_factor": 1.5}, {"size": (7, 5)},
    {"scale_factor": 2, "mode": "nearest-exact"},
    {"scale_factor": 2, "mode": "bilinear"}, {"size": (7, 5), "mode": "bilinear"},
    {"scale_factor": 2, "mode": "bilinear", "align_corners": True},
    {"size": (9, 4), "mode": "bicubic"},
    {"size": (2, 7), "mode": "bilinear", "antialias": True},
    {"scale_factor": 0.6, "mode": "bicubic", "antialias": True},
])  # fmt: skip
def test_interpolation(options: dict[str, Any]) -> None:
    check(
        Apply(lambda x: F.interpolate(x, **options)), (floats(2, 3, 6, 4),),
        (({2: "h", 3: "w"},),), [(floats(2, 3, 3, 5),)],
    )  # fmt: skip


def test_in_place_operators_become_functional() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.relu_().add_(1)
        y *= 3
        z = torch.zeros(x.shape[0], 4)
        z[:, 1:3] = y[:, :2]
        z[:, 0] = 5
        z[x[:, :1].expand(-1, 4) > 0] = -1
        return y + z.sum(1, keepdim=True)

    dynamic(chain, lambda n: (floats(n, 3),))


def test_the_table_is_large_and_names_real_operators() -> None:
    assert len(ATEN) >= 250
    ours = {operator_name(kind) for kind in KINDS}  # what stands for some while a module is traced
    ours.add("transformers.grouped_mm_fallback.default")  # a library's own (test_models.py)
    assert ours <= ATEN.keys()
    for name in ATEN.keys() - ours:
        head, op, overload = name.split(".")
        packet = getattr(getattr(torch.ops, head), op, None)
        assert packet is not None and overload in packet.overloads(), name
