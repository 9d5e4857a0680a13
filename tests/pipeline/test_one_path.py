"""There is one way to machine code: a definition, steps, a trace that makes the same again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import nn

import pliant
from bench.traces import faults, watching

SOURCE: Final = Path(pliant.__file__).parent
# Who may call what makes code of a loop program.
CALLERS: Final[Mapping[str, set[str]]] = {
    "emit_kernel": {"codegen/build.py"},
    "emit_host": {"codegen/build.py"},
    "kernel_source": {"codegen/build.py", "watch.py"},
    "build_kernel": {"codegen/build.py"},
    "schedule": {"codegen/build.py"},
    "kernel_schedule": {"codegen/build.py"},
}


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, 2), nn.BatchNorm2d(4),
    )  # fmt: skip


CASES: Final[Mapping[str, tuple[nn.Module, tuple[torch.Tensor, ...], Any]]] = {
    "rows": (
        nn.Sequential(nn.Linear(12, 40), nn.GELU(), nn.LayerNorm(40)),
        (torch.randn(5, 12),), ({0: "n"},),
    ),
    "images": (_images(), (torch.randn(2, 3, 12, 10),), ({0: "n", 2: "h", 3: "w"},)),
    "attention": (
        Attention(), tuple(torch.randn(2, 3, 7, 8) for _ in range(3)), ({0: "n", 2: "s"},) * 3,
    ),
    "sums": (nn.GRU(5, 6), (torch.randn(4, 2, 5),), None),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_its_trace(name: str) -> None:
    module, args, dynamic = CASES[name]
    with watching() as seen:
        pliant.compile(module.eval(), args, dynamic_shapes=dynamic)
    assert {f.name for f in seen.kernels} == set(seen.specs)
    assert seen.kernels
    assert faults(seen) == []


@pytest.mark.parametrize("name", CALLERS)
def test_nothing_else_makes_code(name: str) -> None:
    assert calls()[name] <= CALLERS[name]


@cache
def calls() -> dict[str, set[str]]:
    """The files that call each of these."""
    found: dict[str, set[str]] = {name: set() for name in CALLERS}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (name := getattr(node.func, "id", "")) in found:
                found[name].add(str(path.relative_to(SOURCE)))
    return found
