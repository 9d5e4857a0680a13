"""ATen operators that are made of others, several in one module, against torch at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant
from pliant import UnsupportedError
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same
from tests.frontend.torch.test_operators import floats, ints

INDEX = torch.tensor([0, 2, 0])
TABLE = floats(8, 5)
NAN = float("nan")


def holey(*shape: int) -> torch.Tensor:
    """Numbers with many ties, and NaN among them."""
    x = ints(*shape, low=0, high=5).float()
    return torch.where(x == 4, NAN, x)


def reduced(x: torch.Tensor) -> Any:
    source = x[:, :3] * 2
    return tuple(
        x.index_reduce(1, INDEX, source, reduce, include_self=kept)
        for reduce in ("prod", "mean", "amax", "amin")
        for kept in (True, False)
    )


def diagonals(x: torch.Tensor) -> Any:
    inner = x.diagonal(1)[None] * 2 + x[:2, :1]
    return (
        x.diagonal_scatter(x.diagonal() * 0 + 3), torch.linalg.diagonal(x[None] + 1, offset=1),
        torch.diagonal_scatter(x[None].expand(2, -1, -1), inner, 1, 1, 2),
    )  # fmt: skip


def assembled(x: torch.Tensor) -> Any:
    return (
        torch.atleast_1d(x), torch.atleast_2d(x[0], x), torch.atleast_3d(x, x[0], x[0, 0]),
        torch.cartesian_prod(x[0], x[:, 0], x[0, :2]), torch.angle(x), torch.angle(x > 0),
        x.put(torch.tensor([0, 4, -1]), x[0, :3] * 9), x.put(INDEX, x[0, :3], accumulate=True),
        x.clone().as_strided((2, 3), (1, 2), 1), torch.nonzero_static(x > 0.5, size=7),
        torch.nonzero_static(x[0] > 9, size=2, fill_value=5),
        x.repeat_interleave(torch.tensor([1, 0, 2, 0, 1]), 1),
        x[:, torch.tensor([1, 0, 1, 1, 0]) > 0],
    )  # fmt: skip


def places(x: torch.Tensor) -> Any:
    image = x.repeat(2, 2, 1, 1)
    return (
        F.adaptive_max_pool2d(image, (3, 2), return_indices=True),
        F.adaptive_max_pool2d(image, 1, return_indices=True),
        F.adaptive_max_pool1d(image[0], 4, return_indices=True),
        F.avg_pool2d(image, 2, 2, 1, True, divisor_override=3),
        torch.conv_tbc(image[0], image[0, :, :5, :2].expand(2, 5, 2), x[0, :2], 1),
    )


def grids(x: torch.Tensor) -> Any:
    plane, space = x[:, :3].reshape(1, -1, 3)[:, :2], x[:4, :4].reshape(1, -1, 4)[:, :3]
    return tuple(
        F.affine_grid(theta, size, align_corners=corners)
        for theta, size in ((plane, (1, 1, 3, x.shape[0])), (space, (1, 2, 4, 1, 3)))
        for corners in (False, True)
    )


def coded(x: torch.Tensor) -> Any:
    """By the nearest row of a table, how far that is, and what is left: one kernel, which keeps the
    row of the table where what is left will lie."""
    row = F.embedding(torch.cdist(x, TABLE).argmin(-1), TABLE)
    return F.mse_loss(row, x), x - row


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], torch.Tensor]]] = {
    "slices reduced": (reduced, lambda n: floats(n, 5)),
    "slices of integers reduced": (reduced, lambda n: ints(n, 5)),
    "diagonals": (diagonals, lambda n: floats(n, 5)),
    "assembled": (assembled, lambda n: floats(n, 5)),
    "most frequent": (
        lambda x: (x.mode(0)[0], x.mode(1, keepdim=True)[0], *x.nanmedian(1), x.nanmedian(),
                   x.long().mode(1)[0], *x.long().nanmedian(0)),
        lambda n: holey(n, 5).nan_to_num(9.0),
    ),
    "median of numbers": (lambda x: (x.nanmedian(1)[0], x.nanmedian()), lambda n: holey(n, 5)),
    "codes": (coded, lambda n: floats(n, 5)),
    "sums of exponentials": (
        lambda x: (x.logcumsumexp(0), (x * 300).logcumsumexp(1), x.bfloat16().logcumsumexp(0)),
        lambda n: floats(n, 5),
    ),
}  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str) -> None:
    fn, make = CASES[name]
    f = pliant.compile(Apply(lambda x: list(fn(x))), (make(12),), dynamic_shapes=(({0: "n"},),),
                       dims={"n": pliant.Dim(min=6)})  # fmt: skip
    for n in (6, 7, 12, 31):
        x = make(n)
        assert_same(f(x), list(fn(x)), tolerance=1e-5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("fn", [places, grids])
@pytest.mark.parametrize("rows", [5, 12])
def test_of_fixed_sizes(fn: Any, rows: int) -> None:
    """For torch gives the sizes up itself."""
    x = holey(rows, 5) if fn is places else floats(rows, 5)
    assert_same(pliant.compile(Apply(fn), (x,))(x), fn(x), tolerance=1e-5)


def test_of_fixed_rows() -> None:
    def fixed(x: torch.Tensor) -> Any:
        y, z = x.clone(), x.flip(0).clone()
        filled = y.fill_diagonal_(7.0), z.fill_diagonal_(5.0, wrap=True)
        return F.pdist(x), F.pdist(x, 1.0), *filled

    x = floats(9, 4)
    assert_same(pliant.compile(Apply(fixed), (x,))(x), fixed(x))


def algebra(a: torch.Tensor, b: torch.Tensor) -> Any:
    definite = a @ a.mT + torch.eye(a.shape[-1])
    factor = torch.linalg.cholesky(definite)
    triangle = torch.linalg.solve_triangular
    return (
        torch.linalg.inv(a), torch.inverse(a[0]), torch.linalg.solve(a, b), a.det(), a[0].det(),
        torch.linalg.solve(a[0], b[0, :, 0]), torch.linalg.solve(a[:1], b),
        torch.linalg.solve(a, b.mT, left=False), *torch.slogdet(a), definite.logdet(),
        factor, torch.linalg.cholesky(definite, upper=True), torch.cholesky_solve(b, factor),
        torch.cholesky_inverse(factor.mT, upper=True), torch.linalg.matrix_power(a, -3),
        torch.linalg.matrix_power(a[0], 5) / 1e3, triangle(definite, b, upper=True),
        triangle(definite, b.mT, upper=False, left=False, unitriangular=True) / 1e3,
    )  # fmt: skip


def test_linear_algebra() -> None:
    def make(batch: int, n: int) -> tuple[torch.Tensor, ...]:
        return floats(batch, n, n) + 3 * torch.eye(n).flip(0), floats(batch, n, 2, seed=1)

    shapes = (({0: "batch", 1: "n", 2: "n"}, {0: "batch", 1: "n"}),)
    f = pliant.compile(Apply(lambda a, b: list(algebra(a, b))), make(3, 5), dynamic_shapes=shapes)
    for batch, n in ((3, 5), (2, 1), (5, 2), (2, 13)):
        args = make(batch, n)
        assert_same(f(*args), list(algebra(*args)), tolerance=2e-4)


class Held(nn.Module):
    """A model whose weights are factored, inverted and exponentiated on the way."""

    def __init__(self) -> None:
        super().__init__()
        linear = nn.Linear(6, 6)
        self.turned = nn.utils.parametrizations.orthogonal(linear, orthogonal_map="matrix_exp")
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: torch.Tensor) -> Any:
        q, r = torch.linalg.qr(self.weight.t() * 2)
        sign, size = torch.slogdet(self.weight)
        window = torch.kaiser_window(6) + torch.hamming_window(6)
        return (
            self.turned(x),
            x @ torch.inverse(self.weight),
            x @ q @ r,
            x * size * sign,
            x * window,
        )


def test_what_weights_decide_is_computed_once() -> None:
    model, x = Held().eval(), floats(4, 6)
    f = pliant.compile(model, (x,), dynamic_shapes=({0: "n"},))
    for n in (1, 4, 9):
        with torch.no_grad():
            expected = model(floats(n, 6))
        assert_same(f(floats(n, 6)), expected, tolerance=1e-4)


@pytest.mark.parametrize("fn", [
    torch.bincount, torch.argwhere, torch.unique,
    lambda x: x.repeat_interleave(x), lambda x: x[x > 0],
])  # fmt: skip
def test_sizes_by_values_are_refused(fn: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"depends on the data|data-dependent"):
        pliant.compile(Apply(fn), (torch.arange(5),))


def _stored(x: torch.Tensor, kinds: torch.Tensor, row: torch.Tensor) -> Any:
    """What a mask selects is changed in its place (as prompts are embedded in SAM)."""
    y = x * 2
    y[kinds == 0] = 0.0
    y[kinds == 0] += row
    y[kinds == 1] = y[kinds == 1].relu() * 3 - row[0]
    y[kinds < 1, 2:] = row[0, 2:]
    y[..., 0][kinds > 1] *= kinds[kinds > 1]
    return y


def _reduced(x: torch.Tensor, kinds: torch.Tensor, row: torch.Tensor) -> Any:
    """And what is made of it has a size again."""
    m, y = kinds > 0, x.cos()
    of_columns = x[:, (kinds == 1).any(0)]
    return (
        x[m].mean(), (x[m] - row).sum(0), x[m].abs().sum(-1).mean(), x[x > 9].mean(),
        (x[m] > 0).any(), (x[m] < 3).all(), x[m].clone().bfloat16().mean(),
        of_columns.sum(1), of_columns.mean((1, 2)), of_columns.mean(1, keepdim=True),
        kinds[m].sum(), kinds.masked_select(m).float().mean(), x.masked_select(m[..., None]).sum(),
        F.mse_loss(x[m], y[m]), F.l1_loss(x[m], y[m], reduction="sum"),
        F.cross_entropy(x[m], kinds[m]), x[m].softmax(-1)[:, None].mean(0),
        F.binary_cross_entropy_with_logits(x[m], (y[m] > 0).float()),
        x[m].gather(-1, kinds[m][:, None]).squeeze(-1).mean(),
    )  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("fn", [_stored, _reduced])
def test_what_a_mask_selects(fn: Any) -> None:
    def some(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
        kinds = torch.arange(rows * columns).reshape(rows, columns) % 3
        return floats(rows, columns, 4), kinds, floats(1, 4) + 1

    f = pliant.compile(
        Apply(fn), some(3, 5), dynamic_shapes=(({0: "n", 1: "m"}, {0: "n", 1: "m"}, None),)
    )
    for sizes in ((3, 5), (1, 1), (1, 2), (4, 3), (0, 2)):
        inputs = some(*sizes)
        assert_same(f(*inputs), fn(*inputs), tolerance=1e-5)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("fn", [
    lambda x, m: x[m] @ x, lambda x, m: x[m].cumsum(0), lambda x, m: x[m] * x[~m].sum(0),
    lambda x, m: x[m] + x[x > 0][:, None], lambda x, m: (x.long()[m] // 2).sum(),
])  # fmt: skip
def test_what_needs_the_size_of_a_selection_is_refused(fn: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"depends on the data|decides by the values"):
        pliant.compile(Apply(fn), (floats(4, 4), torch.arange(4) > 1))


@pytest.mark.parametrize("fn", [lambda x, m: x[m].sum(), lambda x, m: x.index_put((m,), x[0])])
def test_a_mask_is_as_long_as_what_it_selects_of(fn: Any) -> None:
    f = pliant.compile(
        Apply(fn), (floats(4), torch.arange(4) > 1), dynamic_shapes=(({0: "n"}, {0: "m"}),)
    )
    for n, m in ((3, 1), (1, 3)):
        with pytest.raises(pliant.ShapeError, match="m and n must be equal"):
            f(floats(n), torch.ones(m, dtype=torch.bool))
