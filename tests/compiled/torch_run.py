"""Compile a torch function once and compare it with torch at several sizes."""

from __future__ import annotations

from typing import Any

import torch

import pliant
from pliant.frontend.select import Request, import_model
from pliant.ops.table import OPERATORS
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


def traced(
    module: torch.nn.Module, args: tuple[Any, ...], dynamic_shapes: Any, **dims: pliant.Dim
) -> Any:
    """A module as a graph function with its weights, to compile in several ways: tracing takes
    longer than all that comes after it. With no example, `precision` does not have it compiled a
    second time, as it is, to tell the accuracy."""
    request = Request(module.eval(), args, None, dynamic_shapes, dims)
    imported = import_model(request, OPERATORS)
    return imported.function, imported.weights


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
