"""The steps of Winograd's minimal filtering, by products with whole matrices."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.functional import pad

from pliant.ops.winograd import FILTERINGS
from tests.ops.case import Case, arg
from tests.ops.data.conv import torch_pad

SIZES = (
    {"b": 2, "h": 7, "w": 6}, {"b": 1, "h": 3, "w": 13}, {"b": 0, "h": 4, "w": 5},
    {"b": 1, "h": 9, "w": 4},
)  # fmt: skip
PADS: tuple[Any, ...] = (((0, 0), (0, 0)), ((1, 1), (1, 1)), ((0, 2), (1, 0)))


def matrix(product: Any) -> torch.Tensor:
    rows = [
        torch.tensor([[float(f) for f in row] for row in x], dtype=torch.float64) for x in product
    ]
    return functools.reduce(torch.matmul, rows)


def patches(x: torch.Tensor, pads: Any, step: int) -> torch.Tensor:
    x = torch_pad(x.double(), pads)
    rows, columns = (-(-(n - 2) // step) for n in x.shape[2:])
    x = pad(x, (0, step * columns + 2 - x.shape[3], 0, step * rows + 2 - x.shape[2]))
    d = x.unfold(2, step + 2, step).unfold(3, step + 2, step)  # n c p q i j
    b = matrix(FILTERINGS[step].patches)
    return torch.einsum("ai,bj,ncpqij->npabqc", b, b, d)


def filters(w: torch.Tensor, step: int) -> torch.Tensor:
    g = matrix(FILTERINGS[step].filters)
    return torch.einsum("ai,bj,ocij->abco", g, g, w.double())


def products(v: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.einsum("npabqc,abco->npabqo", v.double(), u.double())


def results(m: torch.Tensor, height: int, width: int) -> torch.Tensor:
    step = m.shape[2] - 2
    a = matrix(FILTERINGS[step].results)
    y = torch.einsum("ia,jb,npabqo->nopiqj", a, a, m.double())
    n, o, p, _, q, _ = y.shape
    return y.reshape(n, o, step * p, step * q)[:, :, :height, :width]


CASES = [
    *(
        Case(
            "winograd_patches", (arg("f64", "b", 3, "h", "w"),), patches,
            {"pads": pads, "step": step}, SIZES, note=f"{k}-{step}",
        )
        for k, pads in enumerate(PADS)
        for step in FILTERINGS
    ),
    *(
        Case("winograd_filters", (arg("f64", 5, 3, 3, 3),), filters, {"step": step}, note=str(step))
        for step in FILTERINGS
    ),
    Case(
        "winograd_products", (arg("f64", "b", 2, 6, 6, 3, 5), arg("f64", 6, 6, 5, 4)), products,
        sizes=({"b": 2}, {"b": 0}),
    ),
    *(
        Case(
            "winograd_results", (arg("f64", "b", 2, step + 2, step + 2, 3, 5),), results,
            {"height": height, "width": width}, ({"b": 2}, {"b": 0}), note=f"{height}x{width}",
        )
        for step, height, width in (
            (4, 8, 12), (4, 5, 9), (4, 7, 10), (2, 4, 6), (2, 3, 5), (2, 4, 5),
        )
    ),
]  # fmt: skip
