"""Evaluate an imported model on torch tensors, to compare with torch itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from pliant.frontend.torch import ImportedModel, import_torch
from pliant.frontend.torch.weights import to_array
from pliant.graph.interpret import interpret
from pliant.loop.interpret import interpret as run_program
from pliant.ops.table import OPERATORS


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def call(model: ImportedModel, *args: Any, **kwargs: Any) -> Any:
    """The model's result on torch tensors, in its own structure."""
    arrays = [to_array(t) for t in model.call.flatten(args, kwargs)]
    inputs = {p.name: a for p, a in zip(model.function.params, arrays, strict=True)}
    results = interpret(model.function, model.weights, inputs, OPERATORS, run_program)
    return model.rebuild([to_torch(r) for r in results])


def imported(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Any = None, **options: Any
) -> ImportedModel:
    return import_torch(module.eval(), args, kwargs, operators=OPERATORS, **options)


def assert_same(found: Any, expected: Any, *, tolerance: float = 2e-5) -> None:
    """Equal structure, types and shapes; values within a tolerance of the largest."""
    a, left = torch.utils._pytree.tree_flatten(found)
    b, right = torch.utils._pytree.tree_flatten(expected)
    assert left == right, f"{left} != {right}"
    for x, y in zip(a, b, strict=True):
        if not isinstance(y, torch.Tensor):
            assert x == y
            continue
        assert x.dtype is y.dtype and x.shape == y.shape, f"{x.dtype}{x.shape} {y.dtype}{y.shape}"
        if y.dtype.is_floating_point:
            finite = y.isfinite()
            scale = float(y[finite].abs().max()) if finite.any() else 1.0
            wide = max(tolerance, 4 * torch.finfo(y.dtype).eps)
            torch.testing.assert_close(
                x, y, rtol=wide, atol=wide * max(scale, 1e-3), equal_nan=True
            )
        else:
            assert torch.equal(x, y), f"{x} != {y}"


def check(
    module: torch.nn.Module,
    args: Sequence[Any],
    dynamic_shapes: Any = None,
    others: Sequence[Sequence[Any]] = (),
    *,
    tolerance: float = 2e-5,
    **options: Any,
) -> ImportedModel:
    """Import with `args`; the same as torch on them and on every tuple of `others`."""
    model = imported(module, args, dynamic_shapes=dynamic_shapes, **options)
    for inputs in (args, *others):
        with torch.no_grad():
            expected = module(*inputs)
        assert_same(call(model, *inputs), expected, tolerance=tolerance)
    return model
