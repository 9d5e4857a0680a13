"""One compilation at hundreds of sizes: right, in constant memory, the same from every thread.

`bench/soak.py` does the same with the full-size models.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import pliant
from pliant.runtime.callable import Compiled
from tests.compare import bits, distance
from tests.pipeline.small import SMALL, Small
from tests.sizes import tuples

torch.set_num_threads(1)  # eager calls this small lose by more, and there are other tests

NAMES = pytest.mark.parametrize("name", SMALL)


@cache
def compiled(name: str) -> tuple[Small, nn.Module, Compiled]:
    return SMALL[name], *SMALL[name].compile()


def call(f: Compiled, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return tree_leaves(f(*inputs))


@pytest.mark.sweep(2)
@NAMES
def test_every_size_is_right(name: str) -> None:
    case, module, f = compiled(name)
    for sizes in tuples(0, case.sizes, 150, case.most):
        inputs = case.make(sizes)
        with torch.inference_mode():
            want = tree_leaves(module(*inputs))
        assert distance(call(f, inputs), want) <= 1e-5, sizes
    assert f.stats()["compiles"] == 1


@NAMES
def test_memory_stays(name: str) -> None:
    case, _, f = compiled(name)
    inputs = [case.make(sizes) for sizes in tuples(1, case.sizes, 300, case.most)]
    for x in inputs:
        call(f, x)
    resident = []
    for x in inputs:
        call(f, x)
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]))
    assert fmean(resident[-100:]) <= 1.01 * fmean(resident[:100])


@NAMES
def test_illegal_sizes_fail_alike(name: str) -> None:
    case, _, f = compiled(name)
    legal = case.make({n: r[-1] for n, r in case.sizes.items()} | {next(iter(case.sizes)): 1})
    want = bits(call(f, legal))
    for _ in range(3):
        for sizes in case.illegal:
            with pytest.raises(pliant.ShapeError):
                f(*case.make(sizes))
        with pytest.raises(pliant.ShapeError):
            f(*(x[None] for x in legal))
        with pytest.raises(pliant.ShapeError):
            f(*(x.double() for x in legal))
        assert bits(call(f, legal)) == want


@NAMES
def test_threads_agree_with_serial_calls(name: str) -> None:
    case, _, f = compiled(name)
    inputs = [case.make(sizes) for sizes in tuples(2, case.sizes, 50, case.most)]
    want = [bits(call(f, x)) for x in inputs]

    def differing(thread: int) -> int:
        order = Random(thread).sample(range(len(inputs)), len(inputs))
        return sum(bits(call(f, inputs[k])) != want[k] for k in order)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(differing, range(8))) == 0
