"""Compile a torch function once and compare it with torch at several sizes."""

from __future__ import annotations

from typing import Any

import torch

import pliant
from pliant.runtime.callable import Compiled
from tests.compiled.torch_cases import Case
from tests.frontend.torch.running import assert_same

MARKERS = {83: "n", 89: "m"}


class Apply(torch.nn.Module):
    """A module out of a function."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def compiled(case: Case) -> Compiled:
    """`case` with a symbol for every dim that follows `n`."""
    shapes = tuple(
        {k: MARKERS[d] for k, d in enumerate(x.shape) if d in MARKERS} for x in case.make(83)
    )
    example = case.make(12)
    return pliant.compile(Apply(case.fn), example, dynamic_shapes=(shapes,))


def check(case: Case) -> None:
    """The same as torch at every size, from one compilation."""
    f = compiled(case)
    for n in case.sizes:
        args = case.make(n)
        with torch.no_grad():
            expected = case.fn(*args)
        try:
            assert_same(f(*args), expected, tolerance=case.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{case.name} at n = {n}: {error}") from error
    assert f.stats()["compiles"] == 1
