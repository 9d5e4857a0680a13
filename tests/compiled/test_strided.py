"""Elements a few apart in memory: picked from vectors, and nothing outside of the operand read."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.base.dtypes import DTYPES
from pliant.graph.builder import Builder
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply, traced
from tests.frontend.torch.running import assert_same

TARGETS = ("native", "x86-64-avx2", "x86-64")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["f32", "f64", "f16", "i64", "u8", "bool"])
def test_every_few(name: str, target: str) -> None:
    """Slices by 2, 3, 4 and 5 that end with the last page that may be read."""
    dtype = DTYPES[name]
    b = Builder("main", OPERATORS)
    n = var("n")
    x = b.param("x", dtype, (60 * n + 1,))
    steps = (2, 3, 4, 5)
    f = pliant.compile(
        b.finish([b.call("slice", x, starts=(0,), stops=(60 * n + 1,), steps=(s,)) for s in steps]),
        target=target,
    )
    for n_value in (1, 3, 17):
        count = 60 * n_value + 1
        for values in ends_of_memory(count, dtype.numpy):
            for step, got in zip(steps, f(values), strict=True):
                np.testing.assert_array_equal(got, values[::step])


@pytest.mark.sweep
@pytest.mark.parametrize("stride", [2, 3, 5, (1, 4)])
def test_windows(stride: int | tuple[int, int]) -> None:
    small, large, bias = tensor(5, 1, 3, 3), tensor(5, 1, 5, 2), tensor(5)
    cases: list[tuple[Callable[[torch.Tensor], torch.Tensor], int]] = [
        (lambda x: F.conv2d(x, small, bias, stride, 1, groups=5), 1),
        (lambda x: F.conv2d(x, large, None, stride, groups=5), 5),
        (lambda x: F.max_pool2d(x, 3, stride, 1), 1),
        (lambda x: F.avg_pool2d(x, (2, 5), stride), 5),
    ]
    for fn, smallest in cases:
        dims = {0: "n", 2: "h", 3: "w"}
        graph = traced(Apply(fn), (tensor(2, 5, 20, 21),), ((dims,),))
        for f in (pliant.compile(graph, target=target) for target in TARGETS[:2]):
            for size in ((1, 1), (4, 7), (5, 16), (9, 33), (20, 21), (8, 71), (70, 9)):
                if min(size) >= smallest:
                    x = tensor(1, 5, *size)
                    assert_same(f(x), fn(x), tolerance=1e-4)


def ends_of_memory(count: int, dtype: np.dtype) -> list[np.ndarray]:
    """Random values at the start of a mapping and at its end: what lies beyond may be no memory."""
    size = count * dtype.itemsize
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    out = []
    for at in (0, pages - size):
        values = np.frombuffer(mmap.mmap(-1, pages), dtype, count, at)
        values[...] = np.random.default_rng(0).integers(0, 100, count)
        out.append(values)
    return out
