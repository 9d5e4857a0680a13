"""Kernels that are given a value from one of its places on (`lower.sliced`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import pliant
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

W, U = tensor(24, 24), tensor(24, 24)


def _steps(x: Tensor) -> Any:
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ W + h @ U)
        out.append(h.sum(-1))
    return torch.stack(out, 1), h


def _of_what_was_computed(x: Tensor) -> Any:
    """What is sliced is an intermediate value, and a result."""
    y = x.softmax(-1)
    return y, *[F.relu(y[:, t] * (y[:, t] @ W)) for t in range(x.shape[1])]


def _tables(x: Tensor) -> Any:
    """Layers whose keys and values are in one tensor [layer, key or value, n, heads, m, 8]."""
    past = x.reshape(x.shape[0], 2, 3, 2, 4, -1).transpose(0, 2).contiguous()
    q = past[0, 0, :, :, :, :8].transpose(0, 2).contiguous()
    for layer in range(3):
        k, v = past[layer, 0][..., :8], past[layer, 1][..., :8]
        q = F.scaled_dot_product_attention(q.transpose(0, 2), k, v).transpose(0, 2)
    return q


def _neighbours(x: Tensor) -> Any:
    """Several places in one kernel."""
    return [x[:, t - 1] * x[:, t] + x[:, t + 1] for t in range(1, x.shape[1] - 1)]


CASES: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "steps": (_steps, (6, 24)),
    "of what was computed": (_of_what_was_computed, (5, 24)),
    "tables": (_tables, (4, 96)),
    "neighbours": (_neighbours, (7, 19)),
    "one element": (lambda x: x * x[0, 2, 1] + x[0, 3, 0], (5, 3)),
    "of half": (lambda x: [x.half()[:, t].float() + t for t in range(4)], (4, 17)),
    "rows": (lambda x: [x[:, t].softmax(-1) for t in range(4)], (4, 17)),
    "turned": (lambda x: [x.transpose(1, 2)[:, :, t].flip(-1) for t in range(4)], (4, 17)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    fn, shape = CASES[name]
    dynamic = None if name == "tables" else (({0: "n"},),)
    f = pliant.compile(Apply(fn), (tensor(3, *shape),), dynamic_shapes=dynamic)
    for n in (3,) if dynamic is None else (3, 1, 8):
        x = tensor(n, *shape, seed=n)
        assert_same(f(x), fn(x), tolerance=1e-5)


def _kernels(fn: Callable[[Tensor], Any], *shape: int) -> int:
    f = pliant.compile(Apply(fn), (tensor(*shape),), dynamic_shapes=(({0: "n"},),))
    found = re.search(r"(\d+) kernels", f.explain())
    assert found is not None
    return int(found[1])


def test_steps_share_their_kernels() -> None:
    assert _kernels(_steps, 3, 12, 24) == _kernels(_steps, 3, 6, 24)


def test_several_places_are_one_argument() -> None:
    """Chunks of steps are alike, too: those before them differ only in where they begin."""

    def run(steps: int) -> Callable[[Tensor], Any]:
        def chunks(x: Tensor) -> Any:
            return [x[:, t] * x[:, t + 1] - x[:, t + 3] for t in range(0, 4 * steps, 4)]

        return chunks

    assert _kernels(run(6), 3, 24, 19) == _kernels(run(2), 3, 24, 19)
    x = tensor(3, 24, 19)
    f = pliant.compile(Apply(run(6)), (x,))
    assert_same(f(x), run(6)(x), tolerance=1e-5)
