"""Runs an imported model with NumPy, a binding at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pliant.base.dtypes import from_numpy
from pliant.frontend.imported import ImportedModel
from pliant.graph.builder import define
from pliant.graph.function import TensorType, Value
from pliant.ir.evaluate import evaluate
from pliant.ir.tensor import Input
from pliant.loop.interpret import interpret
from pliant.ops.table import OPERATORS
from pliant.sym.expr import Int, as_int

Values = Mapping[Value, np.ndarray]


def run(model: ImportedModel, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results for these arguments; shapes and types are checked against what was inferred."""
    function = model.function
    values = {v: model.weights[key] for v, key in function.weights}
    sizes: dict[str, int] = {}
    for param, array in zip(function.params, map(np.asarray, arrays), strict=True):
        for dim, size in zip(param.shape, array.shape, strict=True):
            if not dim.is_const:
                sizes.setdefault(str(dim), size)
        values[param] = array
    for left, right, message in function.equalities:
        assert left.eval(sizes) == right.eval(sizes), message
    for value, array in values.items():
        _check(value, array, sizes)
    for binding in function.bindings:
        attrs = {k: _number(a, sizes) for k, a in binding.attributes().items()}
        args = tuple(_typed(a, values) for a in binding.args)
        tensors = define(OPERATORS[binding.op], args, attrs)
        inputs = dict(_inputs(binding.args, values, "a"))
        results = evaluate(tensors, inputs, {}, _program)
        for value, array in zip(binding.outputs, results, strict=True):
            _check(value, array, sizes)
            values[value] = array
    return [values[r] for r in function.results]


def _program(program: Any, arrays: list[np.ndarray], sizes: Mapping[str, int]) -> None:
    interpret(program, arrays, sizes)


def _number(attribute: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(attribute, Int):
        return as_int(attribute.eval(sizes))
    if isinstance(attribute, tuple):
        return tuple(_number(a, sizes) for a in attribute)
    return attribute


def _typed(arg: Any, values: Values) -> Any:
    if arg is None:
        return None
    if isinstance(arg, tuple):
        return tuple(_typed(a, values) for a in arg)
    return Value(arg.name, TensorType(arg.dtype, tuple(map(as_int, values[arg].shape))))


def _inputs(args: Any, values: Values, name: str) -> Iterator[tuple[Input, np.ndarray]]:
    """The placeholders that `define` makes, with their arrays."""
    for k, arg in enumerate(args):
        label = f"{name}{k}" if name == "a" else f"{name}_{k}"
        if isinstance(arg, tuple):
            yield from _inputs(arg, values, label)
        elif arg is not None:
            array = values[arg]
            yield Input(label, from_numpy(array.dtype), tuple(map(as_int, array.shape))), array


def _check(value: Value, array: np.ndarray, sizes: Mapping[str, int]) -> None:
    assert array.dtype == value.dtype.numpy, (value, array.dtype)
    shape = tuple(d.eval(sizes) for d in value.shape)
    assert array.shape == shape, f"{value}: {array.shape}"
