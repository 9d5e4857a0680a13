"""The schedule of products: what the kernels of real layers compute is what was written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Index
from pliant.loop.stmt import Block, For, Invoke, Let, Store, statements
from pliant.lower.canonical import Launch
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.recipes.contraction import contraction_recipe
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.start import start
from tests.schedule.programs import same

MM = MatmulIntrinsic("mm_3x4", 3, 4, 2)


class Product(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class Rounded(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)


class Twice(nn.Module):
    """The product is a result, and so is what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.linear(x)
        z = y + 1.0
        return y, z, z * z


class Masked(nn.Module):
    """What follows the product reads it only where a mask says so."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, a @ b, torch.tensor(-1.0))


LAYERS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...], Any, list[dict[str, int]]]] = {
    "linear": (
        nn.Sequential(nn.Linear(3, 5), nn.ReLU()), (torch.ones(4, 3),), ({0: "b"},),
        [{"b": b} for b in (0, 1, 3, 4, 7, 50)],
    ),
    "whole panels": (nn.Linear(2, 8), (torch.ones(4, 2),), ({0: "b"},), [{"b": 0}, {"b": 5}]),
    "rows in two dimensions": (
        nn.Linear(2, 5), (torch.ones(2, 4, 2),), ({0: "b", 1: "s"},),
        [{"b": 2, "s": 5}, {"b": 0, "s": 3}, {"b": 3, "s": 0}, {"b": 1, "s": 1}],
    ),
    "batches": (
        Product(), (torch.ones(2, 4, 3), torch.ones(2, 3, 6)),
        ({0: "b", 1: "m", 2: "k"}, {0: "b", 1: "k", 2: "n"}),
        [{"b": 2, "m": 4, "k": 3, "n": 5}, {"b": 1, "m": 0, "k": 2, "n": 3},
         {"b": 2, "m": 3, "k": 0, "n": 4}, {"b": 0, "m": 1, "k": 1, "n": 1},
         {"b": 1, "m": 7, "k": 1, "n": 0}],
    ),
    "convolution": (
        nn.Conv2d(8, 5, 3, 1, 1), (torch.ones(2, 8, 4, 5),), ({0: "b", 2: "h", 3: "w"},),
        [{"b": 2, "h": 3, "w": 2}, {"b": 1, "h": 1, "w": 1}, {"b": 0, "h": 2, "w": 2}],
    ),
    "few channels": (
        nn.Conv2d(2, 5, 3, 2, 1), (torch.ones(2, 2, 6, 6),), ({0: "b"},), [{"b": 2}, {"b": 0}],
    ),
    "transposed convolution": (
        nn.ConvTranspose2d(8, 3, 2, 2), (torch.ones(2, 8, 4, 5),), ({0: "b", 2: "h"},),
        [{"b": 2, "h": 2}, {"b": 0, "h": 1}, {"b": 1, "h": 0}],
    ),
    "halves": (
        Product(), (torch.ones(4, 3).half(), torch.ones(3, 6).half()), ({0: "m"}, None),
        [{"m": 4}, {"m": 0}],
    ),
    "masked": (
        Masked(), (torch.ones(4, 3), torch.ones(3, 6), torch.ones(4, 6, dtype=torch.bool)),
        ({0: "m"}, None, {0: "m"}), [{"m": 4}, {"m": 0}],
    ),
    "several results": (
        Twice(), (torch.ones(4, 3),), ({0: "b"},), [{"b": 4}, {"b": 0}, {"b": 1}],
    ),
}  # fmt: skip


def launches(name: str, constant: bool) -> list[Launch]:
    module, args, dynamic, _ = LAYERS[name]
    imported = import_model(Request(module.eval(), args, None, dynamic), OPERATORS)
    lowered = lower_function(imported.function, OPERATORS, MM.columns, constant_extents=constant)
    return [x for _, x in lowered.main.launches if x.spec.kind == "contraction"]


@pytest.mark.sweep
@pytest.mark.parametrize("constant", [False, True], ids=["sizes at run time", "constant sizes"])
@pytest.mark.parametrize("name", LAYERS)
def test_products_are_scheduled(name: str, constant: bool) -> None:
    found = launches(name, constant)
    assert found
    for launch in found:
        p, q = start(launch.spec, intrinsics=MM.intrinsics), contraction_recipe(launch.spec, MM)
        cases = [[x.eval(given) for x in launch.sizes] for given in LAYERS[name][3]]
        same(p, q, cases, {MM.symbol: MM.intrinsics[0].semantics})
        (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
        assert call.callee == MM.symbol
        kinds = [s.kind for s in statements(q.function.body) if isinstance(s, For)]
        assert kinds[0] == "parallel"
        copies = [s for s in statements(q.function.body) if isinstance(s, Block) and
                  any(isinstance(x, Store) and x.buffer.name.endswith("_part")
                      for x in statements(s.body))]  # fmt: skip
        ((_, plan),) = launch.spec.plans
        windows = bool(plan.positions) and not plan.gather  # of which there is a table
        assert kinds.count("vectorized") == len(launch.spec.outputs) + len(copies) + windows
        assert not copies or copies[0].where is None  # whole vectors, without a mask


@pytest.mark.parametrize(
    ("rows", "depth", "tasks"),
    [
        *((1, 4096, 16), (2, 4096, 16), (24, 4096, 16), (48, 4096, 32), (2400, 4096, 200)),
        *((1, 3, 8), (24, 3, 8), (48, 3, 8), (120, 3, 10), (2400, 3, 200)),
    ],
)
def test_few_rows_are_shared_out_by_their_columns(rows: int, depth: int, tasks: int) -> None:
    """One task did all of them: 16 panels, and blocks of 24 rows. There are fewer where each had
    little to do."""
    given: Any = ({0: "b"},)
    request = Request(nn.Linear(depth, 64).eval(), (torch.ones(4, depth),), None, given)
    imported = import_model(request, OPERATORS)
    (launch,) = [
        x for _, x in lower_function(imported.function, OPERATORS, MM.columns).main.launches
    ]
    f = contraction_recipe(launch.spec, MM).function
    known = {n: x.eval({"b": rows}) for n, x in zip(launch.spec.sizes, launch.sizes, strict=True)}
    for s in statements(f.body):
        if isinstance(s, Let) and isinstance(s.value, Index):
            known[s.var.name] = s.value.int_.eval(known)
    (shared,) = [s for s in statements(f.body) if isinstance(s, For) and s.kind == "parallel"]
    assert shared.extent.eval(known) == tasks


@pytest.mark.parametrize(
    ("dtype", "columns", "whole"),
    [(torch.float32, 32, True), (torch.bfloat16, 32, True), (torch.bfloat16, 16, False)],
)
def test_vectors_of_whole_lines_go_through_all_rows(
    dtype: torch.dtype, columns: int, whole: bool
) -> None:
    """Elsewhere rows are written from end to end. Two vectors of short results are a line."""
    mm = MatmulIntrinsic(f"mm_3x{columns}", 3, columns, 16)
    module = nn.Sequential(nn.Linear(3, 64), Rounded(dtype)).eval()
    imported = import_model(Request(module, (torch.ones(4, 3),), None, ({0: "b"},)), OPERATORS)
    lowered = lower_function(imported.function, OPERATORS, mm.columns)
    (launch,) = [x for _, x in lowered.main.launches]
    p = contraction_recipe(launch.spec, mm)
    (output,) = launch.spec.outputs
    *_, rows, last = p.loops(output)
    assert p.loop(last).kind == ("serial" if whole else "vectorized")
    assert p.loop(rows).kind == ("vectorized" if whole else "serial")
