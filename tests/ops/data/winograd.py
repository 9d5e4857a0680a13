"""The steps of Winograd's minimal filtering, by products with whole matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from pliant.ops.winograd import FILTERS, PATCHES, RESULTS
from tests.ops.case import Case, arg
from tests.ops.data.conv import torch_pad

SIZES = (
    {"b": 2, "h": 7, "w": 6}, {"b": 1, "h": 3, "w": 13}, {"b": 0, "h": 4, "w": 5},
    {"b": 1, "h": 9, "w": 4},
)  # fmt: skip
PADS: tuple[Any, ...] = (((0, 0), (0, 0)), ((1, 1), (1, 1)), ((0, 2), (1, 0)))


def matrix(of: Any) -> torch.Tensor:
    return torch.tensor([[float(f) for f in row] for row in of], dtype=torch.float64)


def patches(x: torch.Tensor, pads: Any) -> torch.Tensor:
    x = torch_pad(x.double(), pads)
    rows, columns = (-(-(n - 2) // 4) for n in x.shape[2:])
    x = pad(x, (0, 4 * columns + 2 - x.shape[3], 0, 4 * rows + 2 - x.shape[2]))
    d = x.unfold(2, 6, 4).unfold(3, 6, 4)  # n c p q i j
    return torch.einsum("ai,bj,ncpqij->npabqc", matrix(PATCHES), matrix(PATCHES), d)


def filters(w: torch.Tensor) -> torch.Tensor:
    g = matrix(FILTERS)
    return torch.einsum("ai,bj,ocij->abco", g, g, w.double())


def products(v: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.einsum("npabqc,abco->npabqo", v.double(), u.double())


def results(m: torch.Tensor, height: int, width: int) -> torch.Tensor:
    a = matrix(RESULTS)
    y = torch.einsum("ia,jb,npabqo->nopiqj", a, a, m.double())
    n, o, p, _, q, _ = y.shape
    return y.reshape(n, o, 4 * p, 4 * q)[:, :, :height, :width]


CASES = [
    *(
        Case(
            "winograd_patches", (arg("f64", "b", 3, "h", "w"),), patches, {"pads": pads}, SIZES,
            note=str(k),
        )
        for k, pads in enumerate(PADS)
    ),
    Case("winograd_filters", (arg("f64", 5, 3, 3, 3),), filters),
    Case(
        "winograd_products", (arg("f64", "b", 2, 6, 6, 3, 5), arg("f64", 6, 6, 5, 4)), products,
        sizes=({"b": 2}, {"b": 0}),
    ),
    *(
        Case(
            "winograd_results", (arg("f64", "b", 2, 6, 6, 3, 5),), results,
            {"height": height, "width": width}, ({"b": 2}, {"b": 0}), note=f"{height}x{width}",
        )
        for height, width in ((8, 12), (5, 9), (7, 10))
    ),
]  # fmt: skip
