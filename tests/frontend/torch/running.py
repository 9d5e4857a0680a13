"""Evaluate an imported model on torch tensors, to compare with torch itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from pliant.frontend.torch import ImportedModel, import_torch
from pliant.frontend.torch.weights import to_array
from pliant.graph.builder import define
from pliant.graph.function import Function, Value
from pliant.ir.evaluate import evaluate
from pliant.ir.tensor import inputs_of
from pliant.loop.interpret import interpret
from pliant.ops.table import OPERATORS


def bind_sizes(function: Function, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """The value of every symbol, from the shapes of the inputs."""
    sizes: dict[str, int] = {}
    pending = [
        (d, n)
        for p, a in zip(function.params, arrays, strict=True)
        for d, n in zip(p.shape, a.shape, strict=True)
    ]
    for d, n in pending:
        if len(d.names) == 1 and not d.is_const:
            (name,) = d.names
            a, b = d.linear(name) or (1, 0)
            sizes.setdefault(name, (n - int(str(b))) // int(str(a)))
    for d, n in pending:
        assert d.eval(sizes) == n, f"{d} is {d.eval(sizes)}, not {n}"
    return sizes


def run_function(
    function: Function, weights: Mapping[str, np.ndarray], arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The meaning of a function, binding by binding."""
    sizes = bind_sizes(function, arrays)
    for a, b, *_ in function.equalities:
        assert a.eval(sizes) == b.eval(sizes), f"{a} == {b} does not hold for {sizes}"
    env: dict[Value, np.ndarray] = dict(zip(function.params, arrays, strict=True))
    env |= {v: weights[key] for v, key in function.weights}
    for binding in function.bindings:
        tensors = define(OPERATORS[binding.op], binding.args, binding.attributes())
        values = _operands(binding.args, "a")
        given = {i: env[values[i.name]] for i in inputs_of(tensors)}
        for out, result in zip(
            binding.outputs, evaluate(tensors, given, sizes, interpret), strict=True
        ):
            expected = tuple(d.eval(sizes) for d in out.shape)
            assert result.shape == expected, f"{binding.op}: {result.shape}, not {expected}"
            env[out] = result
    return [env[r] for r in function.results]


def _operands(args: Any, prefix: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for k, a in enumerate(args):
        name = f"{prefix}{k}" if prefix == "a" else f"{prefix}_{k}"
        if isinstance(a, tuple):
            found |= _operands(a, name)
        elif a is not None:
            found[name] = a
    return found


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def call(model: ImportedModel, *args: Any, **kwargs: Any) -> Any:
    """The model's result on torch tensors, in its own structure."""
    arrays = [to_array(t) for t in model.call.flatten(args, kwargs)]
    results = run_function(model.function, model.weights, arrays)
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
