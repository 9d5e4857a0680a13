"""Which stages share a kernel, where several could be joined."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import pliant
from pliant.lower.precedence import Precedence
from tests.compiled.torch_run import Apply


def launches(f: pliant.Compiled) -> int:
    return int(f.explain().split(" launches")[0].split()[-1])


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x, y: x.sin() + y.cos(), 1),
        (lambda x, y: torch.where(x > 0, x * y, x - y), 1),
        (lambda x, y: (x.sin() * y.cos()).softmax(-1), 1),
        (lambda x, y: torch.lerp(x, y, 0.3), 1),
        (lambda x, y: x.nan_to_num() * y.nan_to_num(), 1),
        (lambda x, y: (x.exp(), x.exp() + y.exp(), y.exp()), 1),
        (lambda x, y: x.sum(-1, keepdim=True) * y.cos() + x, 1),
        (
            lambda x, y: x.cos() + y.sin().sum(0),
            3,
        ),  # the sines, their sums, and what every row adds them to
        (lambda x, y: x.cos().flip(0) + y.sin(), 2),  # read at other places than it is made
        (lambda x, y: x[:, :33].softmax(-1), 1),  # rows of some of the columns
        (lambda x, y: x.sin()[:, :33].softmax(-1), 2),
        (lambda x, y: (x.sin(), x.sin()[:, :33].sum(-1)), 2),
        (lambda x, y: (x[:2] * 2, x[:2].sum(-1), x[:, :33].sum(-1)), 3),
    ],
)
def test_maps_side_by_side(function: Callable[[Tensor, Tensor], Tensor], kernels: int) -> None:
    f = pliant.compile(
        Apply(function),
        (torch.randn(5, 40), torch.randn(5, 40)),
        dynamic_shapes=(({0: "n"}, {0: "n"}),),
    )
    assert launches(f) == kernels
    for n in (1, 7):
        x, y = torch.randn(n, 40), torch.randn(n, 40)
        torch.testing.assert_close(f(x, y), function(x, y), rtol=1e-4, atol=1e-5)


class Gated(nn.Module):
    """Maps of an input beside products: one that nobody else wants is made where the product is."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x: Tensor, gate: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = gate.sigmoid() * gate, gate.cos()
        h = self.up(x) * scale + (1 - mask.float()) * -10
        return self.down(h) + shift, shift - h.softmax(-1)


def test_maps_beside_products() -> None:
    model = Gated().eval()
    f = pliant.compile(
        model,
        (torch.randn(6, 48), torch.randn(6, 48), torch.ones(48, dtype=torch.bool)),
        dynamic_shapes=({0: "n"}, {0: "n"}, None),
    )
    assert launches(f) == 5  # the mask, `shift`, two products with maps, the softmax
    for n in (1, 6, 19):
        args = torch.randn(n, 48), torch.randn(n, 48), torch.rand(48) > 0.5
        for got, want in zip(f(*args), model(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=60))
def test_precedence(steps: list[tuple[int, int, bool]]) -> None:
    """Against the closure of all pairs."""
    p, edges, count = Precedence(), set[tuple[int, int]](), 12
    for _ in range(count):
        p.add(())
    for a, b, join in steps:
        a, b = p.number(a % count), p.number(b % count)
        if a == b or reaches(edges, b, a):
            continue
        edges.add((a, b))
        p.require(a, b)
        if join and not any(x == a and y != b and reaches(edges, y, b) for x, y in edges):
            p.absorb(a, b)
            pairs = {(b if x == a else x, b if y == a else y) for x, y in edges}
            edges = {(x, y) for x, y in pairs if x != y}
    left = sorted({p.number(k) for k in range(count)})
    for a in left:
        for b in left:
            assert a == b or p.is_before(a, b) == reaches(edges, a, b)
    order = p.order()
    assert sorted(order) == left
    assert all(order.index(a) < order.index(b) for a, b in edges)


def reaches(edges: set[tuple[int, int]], a: int, b: int) -> bool:
    found, stack = set[int](), [a]
    while stack:
        at = stack.pop()
        for x, y in edges:
            if x == at and y not in found:
                found.add(y)
                stack.append(y)
    return b in found
