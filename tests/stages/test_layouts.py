"""The order in which values lie, and which operand of a product is packed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import pliant
from pliant.base.dtypes import f32
from pliant.codegen.llvm.target import target
from pliant.codegen.micro_kernels import micro_kernel
from pliant.graph.builder import Builder
from pliant.graph.function import Dim
from pliant.ir.expr import Axis, Binary, Reduce
from pliant.ir.mapping import row_major
from pliant.ir.tensor import Compute, Input
from pliant.lower import function
from pliant.lower.contraction import placed_contraction
from pliant.ops.table import OPERATORS
from pliant.sym.expr import as_int, var
from pliant.sym.facts import Facts
from tests.models.efficientvit import LiteMLA
from tests.stages.oracle import Stages, stages_of

T = target()


def packed(stages: Stages) -> list[str]:
    """What packing stages copy."""
    return [m.inputs[0] for part in stages.parts for g in part.groups for m in g.members
            if m.op == "pack"]  # fmt: skip


def test_most_is_read() -> None:
    """A value of columns and tokens: a sum over one column is read along tokens, the rest along
    columns. So it lies, and so its product has tokens for rows."""
    b = Builder("main", OPERATORS)
    b.dim("t", Dim(min=1, likely=(196,)))
    q, kv = b.param("q", f32, (16, var("t"))), b.param("kv", f32, (17, 16))
    q = b.call("relu", q)
    out = b.call("matmul", kv, q)
    last = b.call("slice", out, starts=(16, 0), stops=(17, var("t")), steps=(1, 1))
    rest = b.call("slice", out, starts=(0, 0), stops=(16, var("t")), steps=(1, 1))
    y = b.call("div", rest, b.call("add", last, b.scalar(1e-5, f32)))
    z = b.call("matmul", b.call("transpose", y, perm=(1, 0)), b.param("w", f32, (16, 8)))
    graph, weights = b.finish([z])
    assert "kv" in packed(stages_of(graph, weights, T, programs=False))


def test_linear_attention() -> None:
    """What keys and values are multiplied to is small: it is packed, not the queries."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 128, 1), LiteMLA(128, 16)).eval()
    x = torch.randn(1, 8, 14, 14)
    f = pliant.compile(model, (x,))
    panels = -(-17 // micro_kernel(T).columns)
    assert f"matmul_1.packed[1, 16, {panels}, 16, " in f.explain()
    torch.testing.assert_close(f(x), model(x), rtol=1e-3, atol=1e-5)


def test_a_batch_of_one_decides_nothing() -> None:
    """Of queries and keys, of which one has lost a batch of one, keys are packed: scores lie by
    them."""
    q = Input("q", f32, (as_int(49), as_int(64)))
    k = Input("k", f32, (as_int(1), as_int(49), as_int(4), as_int(16)))
    b, h, i, j, r = map(var, ("_b", "_h", "_i", "_j", "_r"))
    product = Binary("mul", q[i, 16 * h + r], k[b, j, h, r])
    extents = {"_b": 1, "_h": 4, "_i": 49, "_j": 49}
    axes = tuple([Axis(name, as_int(n)) for name, n in extents.items()])
    scores = Compute("t", axes, Reduce("sum", (Axis("_r", as_int(16)),), product))
    order, none = (0, 1, 2, 3), frozenset[str]()
    c, _ = placed_contraction(scores, none, order, row_major, Facts(), 32)
    assert (c.a.source, c.b.source) == (q, k)
    assert (c.m, c.n) == (("_i",), ("_j",))


class Tokens(torch.nn.Module):
    """A depthwise convolution of tokens, which are an image of a batch of one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(24, 24, 3, padding=1, groups=24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = (x * 2).transpose(1, 2).view(1, 24, 10, -1)
        return self.conv(image).flatten(2).transpose(1, 2).sigmoid() + 1


def test_an_image_of_a_batch_of_one() -> None:
    """Its batch is no row that may go: tokens stay side by side, and no kernel turns them."""
    torch.manual_seed(0)
    model = Tokens().eval()
    x = torch.randn(1, 110, 24)
    f = pliant.compile(model, (x,))
    assert "-> conv[1, 24, 10, 11]" in f.explain()
    torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)
    conv = torch.nn.Conv2d(5, 7, 3, padding=1)  # without a batch
    image = torch.randn(5, 9, 11)
    torch.testing.assert_close(
        pliant.compile(conv, (image,))(image), conv(image), rtol=1e-4, atol=1e-5
    )


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, ...]]:
    """The orders of all values."""
    found: dict[str, tuple[int, ...]] = {}
    choose = function.choose_layouts

    def noted(*args: Any) -> Any:
        found.update(choose(*args))
        return dict(found)

    monkeypatch.setattr(function, "choose_layouts", noted)
    return found


def test_sums_of_rows_are_no_windows(chosen: dict[str, tuple[int, ...]]) -> None:
    """A maximum over the last of five dimensions wants them in rows, and so does what reads it."""
    b = Builder("main", OPERATORS)
    b.dim("t", Dim(min=1, likely=(196,)))
    x = b.call("relu", b.param("x", f32, (2, 4, 3, var("t"), var("t"))))
    graph, weights = b.finish([b.call("relu", b.call("softmax", x, axis=4))])
    stages_of(graph, weights, T, programs=False)
    assert len(chosen) > 4
    assert all(order == tuple(range(len(order))) for order in chosen.values()), chosen


@pytest.mark.parametrize("apart", [1, 2])
def test_tokens_that_are_pooled(chosen: dict[str, tuple[int, ...]], apart: int) -> None:
    """A maximum over groups of tokens slides along these: channels stay side by side for it, and
    for all layers that follow."""
    b = Builder("main", OPERATORS)
    b.dim("t", Dim(min=1, likely=(49,)))
    b.dim("n", Dim(min=1, likely=(1,)))
    x = b.param("x", f32, (var("n"), 4 * var("t"), 24))
    rows = b.call("linear", x, b.param("w", f32, (64, 24)), None)
    groups = (4, var("t")) if apart == 1 else (var("t"), 4)
    split = b.call("reshape", rows, shape=(var("n"), *groups, 64))
    pooled = b.call("max", split, axes=(apart,), keepdims=False)
    more = b.call("add", pooled, b.call("linear", pooled, b.param("v", f32, (64, 64)), None))
    graph, weights = b.finish([b.call("softmax", more, axis=2)])
    stages_of(graph, weights, T, programs=False)
    assert len(chosen) > 4
    assert all(order == tuple(range(len(order))) for order in chosen.values()), chosen


def test_heads_that_are_scaled(chosen: dict[str, tuple[int, ...]]) -> None:
    """The length of each head's rows is no window over an image of heads: rows stay rows."""
    b = Builder("main", OPERATORS)
    b.dim("t", Dim(min=1, likely=(49,)))
    b.dim("n", Dim(min=1, likely=(16,)))
    x = b.param("x", f32, (var("n"), var("t"), 24))
    rows = b.call("linear", x, b.param("w", f32, (96, 24)), None)
    split = b.call("reshape", rows, shape=(var("n"), var("t"), 3, 32))
    heads = b.call("transpose", split, perm=(0, 2, 1, 3))
    scaled = b.call("div", heads, b.call("norm", heads, p=2, axes=(3,), keepdims=True))
    scores = b.call("matmul", scaled, b.call("transpose", scaled, perm=(0, 1, 3, 2)))
    graph, weights = b.finish([b.call("softmax", scores, axis=3)])
    stages_of(graph, weights, T, programs=False)
    assert chosen["div"] == (0, 1, 2, 3)


@pytest.mark.parametrize("turned_first", [False, True])
def test_a_gradient_lies_in_rows(chosen: dict[str, tuple[int, ...]], turned_first: bool) -> None:
    """Two products of as much read it: along its rows, and along its columns."""
    b = Builder("main", OPERATORS)
    b.dim("t", Dim())
    g = b.call("tanh", b.param("g", f32, (var("t"), 48)))
    x, w = b.param("x", f32, (var("t"), 400)), b.param("w", f32, (48, 400))

    def along_columns() -> Any:
        return b.call("matmul", b.call("transpose", g, perm=(1, 0)), x)

    def along_rows() -> Any:
        return b.call("matmul", g, w)

    products = (along_columns, along_rows) if turned_first else (along_rows, along_columns)
    graph, weights = b.finish([product() for product in products])
    stages_of(graph, weights, T, programs=False)
    assert chosen["tanh"] == (0, 1)


TURNED = {  # how wide the result is
    "many columns": 400,
    "few columns": 20,
    "as many as a call says": None,
}


@pytest.mark.parametrize("case", TURNED)
def test_rows_that_lie_across_lines(case: str) -> None:
    """They are turned before the product, which would gather them."""
    columns = TURNED[case]

    class Gradient(torch.nn.Module):
        def forward(self, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            return x.mT @ g

    x, g = torch.randn(3, 40, 48), torch.randn(3, 40, columns or 90)
    f = pliant.compile(
        Gradient(), (x, g), dynamic_shapes=({1: "t"}, {1: "t"} | ({} if columns else {2: "n"}))
    )
    assert "[contraction, rows read in place]" in f.explain()
    for t in (40, 1, 0, 17):
        a, b = torch.randn(3, t, 48), torch.randn(3, t, g.shape[2])
        torch.testing.assert_close(f(a, b), a.mT @ b, rtol=1e-4, atol=1e-4)


def test_channels_of_an_image_lie_across_lines() -> None:
    """Pixels are rows of a product: they are turned before it, however few it makes of them."""
    model = torch.nn.Conv2d(40, 24, 1).eval()
    x = torch.randn(1, 40, 9, 16)
    f = pliant.compile(model, (x,), dynamic_shapes=({2: "h", 3: "w"},))
    assert "[contraction, rows read in place]" in f.explain()
    for h, w in ((9, 16), (1, 1), (2, 3), (17, 31)):
        x = torch.randn(1, 40, h, w)
        torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


class Points(torch.nn.Module):
    """The greatest of what is made of each point."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv1d(3, 32, 1), torch.nn.Conv1d(32, 80, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu()).relu().amax(2)


def test_a_reduction_takes_a_product_as_it_comes(chosen: dict[str, tuple[int, ...]]) -> None:
    """A maximum over points may run along channels: none of them is turned."""
    torch.manual_seed(0)
    model, x = Points().eval(), torch.randn(2, 3, 50)
    f = pliant.compile(model, (x,), dynamic_shapes=({0: "b", 2: "n"},))
    assert chosen["relu_1"] == chosen["relu"] == (0, 2, 1), chosen
    for b, n in ((2, 50), (1, 1), (0, 7), (3, 97)):
        x = torch.randn(b, 3, n)
        torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


class WeightsFirst(torch.nn.Module):
    """Mixes tokens: y[b] = w x[b]."""

    def __init__(self, outputs: int, tokens: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, tokens))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight @ x


MIXED = {  # outputs, tokens, and whether tokens are what is packed
    "as many": (40, 40, True),
    "more": (96, 17, True),
    "very few": (3, 300, False),
}


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("case", MIXED)
def test_weights_may_be_rows(case: str, precision: str | None) -> None:
    """Of a result whose rows lie along the other factor, which is packed in every call, unless it
    is much larger than the result."""
    torch.manual_seed(0)
    outputs, tokens, packs = MIXED[case]
    model, x = WeightsFirst(outputs, tokens), torch.randn(2, tokens, 50)
    f = pliant.compile(model, (x,), dynamic_shapes=({0: "b", 2: "n"},), precision=precision)
    assert ("[map] pack" in f.explain()) is packs, f.explain()
    assert not (packs and "[map] copy" in f.explain()), f.explain()
    for b, n in ((2, 50), (1, 1), (0, 3), (3, 97)):
        x = torch.randn(b, tokens, n)
        want = model(x)
        error = torch.linalg.vector_norm(f(x) - want)
        assert error <= (1e-2 if precision else 1e-5) * torch.linalg.vector_norm(want)


@pytest.mark.parametrize(("channels", "outputs", "turned"), [(16, 64, False), (64, 16, True)])
def test_images_that_come_and_go_in_rows(channels: int, outputs: int, turned: bool) -> None:
    """A window of one pixel leaves them so where results are many: their channels are not last."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(channels, outputs, 1), torch.nn.ReLU()).eval()
    x = torch.randn(2, channels, 12, 20)
    f = pliant.compile(model, (x,), dynamic_shapes=({0: "b", 2: "h", 3: "w"},))
    assert ("its dimensions lie in another order" in f.explain()) is turned, f.explain()
    assert ("[map] copy" in f.explain()) is turned, f.explain()
    for b, h, w in ((2, 12, 20), (1, 1, 1), (2, 3, 3), (3, 7, 31)):
        x = torch.randn(b, channels, h, w)
        torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("side", "in_rows"), [(28, True), (14, False), (7, False)])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_of_an_image_are_one_line(side: int, in_rows: bool, bias: bool) -> None:
    """Its pixels fill panels together, across the ends of rows. Where most of the last panel stays
    empty, or many products are done on what fills it, channels are last."""
    torch.manual_seed(0)
    channels, outputs = (32, 192) if in_rows else (400, 192)
    model = torch.nn.Conv2d(channels, outputs, 1, bias=bias).eval()
    x = torch.randn(2, channels, side, side)
    f = pliant.compile(model, (x,))
    images = re.search(rf"packed\[2, (\d+), {channels}, (\d+)\]", f.explain())
    assert (images is not None) is in_rows, f.explain()
    if images:
        panels, columns = map(int, images.groups())
        assert panels == -(-(side**2) // columns)
    torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-5)


class Scaled(torch.nn.Module):
    """Images, and what a batch norm's way back makes of them."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        x, y = x.permute(0, 3, 1, 2), y.permute(0, 3, 1, 2)
        z = x * y + 1
        return z.sum((0, 2, 3)), (z * 2).permute(0, 2, 3, 1)


def test_images_that_are_given_with_their_channels_last(chosen: dict[str, tuple[int, ...]]) -> None:
    """So they stay."""
    x, y = torch.randn(2, 5, 6, 24), torch.randn(2, 5, 6, 24)
    f = pliant.compile(Scaled(), (x, y), dynamic_shapes=({0: "n", 1: "h"}, {0: "n", 1: "h"}))
    assert chosen["add"] == (0, 2, 3, 1), chosen
    torch.testing.assert_close(f(x, y), Scaled()(x, y), rtol=1e-4, atol=1e-4)


def test_what_is_made_of_several_rows_lies_in_rows(chosen: dict[str, tuple[int, ...]]) -> None:
    """The steps of a transform, whatever wants its results turned: that is copied."""
    b = Builder("main", OPERATORS)
    re, im = b.call("fourier_of_reals", b.param("x", f32, (50, 240)), axis=1)
    graph, weights = b.finish([re, im])
    stages_of(graph, weights, T, programs=False)
    assert len(chosen) > 6
    assert all(order == tuple(range(len(order))) for order in chosen.values()), chosen


class Modulated(torch.nn.Module):
    """An image in twice its size, of which each of a batch has filters of its own."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        b, c, height, width = x.shape
        return torch.nn.functional.conv2d(x.reshape(1, b * c, height, width), w, groups=b)


def test_an_image_that_grows_has_its_channels_last(chosen: dict[str, tuple[int, ...]]) -> None:
    """Where a convolution follows: it is made of two elements of each dimension."""
    x, w = torch.randn(2, 32, 8, 9), torch.randn(64, 32, 3, 3)
    f = pliant.compile(Modulated(), (x, w))
    resized = [order for name, order in chosen.items() if name.startswith("upsample")]
    resized = resized or [order for name, order in chosen.items() if "resize" in name]
    assert resized and all(order[-1] == 1 for order in resized), chosen
    torch.testing.assert_close(f(x, w), Modulated()(x, w), rtol=1e-4, atol=1e-3)
