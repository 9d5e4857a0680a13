"""Run a graph function binding by binding on NumPy arrays: the meaning of the graph level.

    interpret(function, weights, {"x": array}, OPERATORS)  ->  [array]

Every operator is evaluated from its definition alone, so this is the reference for all passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pliant.base.errors import InvalidModelError, ShapeError
from pliant.graph.builder import define
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.ir.evaluate import RunProgram, check_requirements, evaluate
from pliant.ir.scalars import Array
from pliant.ir.tensor import Input
from pliant.sym.expr import Int


def interpret(
    function: Function,
    weights: Mapping[str, np.ndarray],
    inputs: Mapping[str, npt.ArrayLike],
    operators: Operators,
    run_program: RunProgram | None = None,
) -> list[Array]:
    """The results of `function` for inputs by parameter name and weights by content key.

    `run_program` runs the loop programs of opaque operators. Raises ShapeError where the inputs do
    not fit the parameters or one another.
    """
    known = {p.name: _argument(p, inputs) for p in function.params}
    sizes = bind_sizes(function, {n: a.shape for n, a in known.items()})
    check_requirements(function.equalities, sizes)
    known |= {value.name: weights[key] for value, key in function.weights}
    for binding in function.bindings:
        results = _run(binding, known, sizes, operators, run_program)
        for value, result in zip(binding.outputs, results, strict=True):
            known[value.name] = result
    return [known[r.name] for r in function.results]


def bind_sizes(function: Function, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The values of the symbols in the parameters' shapes, by name.

    A symbol is read from a dimension that it is, or is solved for in one linear in it. Raises
    ShapeError where a dimension is not what its expression says.
    """
    dims: list[tuple[str, int, Int, int]] = []
    for p in function.params:
        if len(shapes[p.name]) != len(p.shape):
            raise ShapeError(f"{p.name} has rank {len(shapes[p.name])}, not {len(p.shape)}")
        found = zip(p.shape, shapes[p.name], strict=True)
        dims += [(p.name, d, want, have) for d, (want, have) in enumerate(found)]
    sizes: dict[str, int] = {}
    pending = [d for d in dims if d[2].names]
    while pending:
        later = [d for d in pending if not _bind(d[2], d[3], sizes)]
        if len(later) == len(pending):
            raise ShapeError(f"the sizes in {', '.join(str(d[2]) for d in later)} cannot be solved")
        pending = later
    for name, d, want, have in dims:
        if want.eval(sizes) != have:
            raise ShapeError(f"{name}: dim {d} is {have}, not {want} = {want.eval(sizes)}")
    return sizes


def _bind(want: Int, have: int, sizes: dict[str, int]) -> bool:
    """Solve `want == have` for its one unknown size, if it has one; whether none is left."""
    unknown = want.names - sizes.keys()
    if not unknown:
        return True
    if len(unknown) > 1:
        return False
    (name,) = unknown
    linear = want.subs({n: v for n, v in sizes.items() if n in want.names}).linear(name)
    if linear is None or not linear[0].is_const or not linear[1].is_const:
        return False
    sizes[name] = (have - linear[1].value) // linear[0].value
    return True


def _argument(param: Value, inputs: Mapping[str, npt.ArrayLike]) -> Array:
    if param.name not in inputs:
        raise ShapeError(f"the input {param.name} is missing")
    array = np.asarray(inputs[param.name])
    if array.dtype != param.dtype.numpy:
        raise ShapeError(f"{param.name} is {array.dtype}, not {param.dtype}")
    return array


def _run(
    binding: Binding,
    known: Mapping[str, Array],
    sizes: Mapping[str, int],
    operators: Operators,
    run_program: RunProgram | None,
) -> list[Array]:
    operator = operators.get(binding.op)
    if operator is None:
        raise InvalidModelError(f"no operator {binding.op!r}")
    tensors = define(operator, binding.args, binding.attributes())
    inputs: dict[Input, npt.ArrayLike] = {}
    for k, arg in enumerate(binding.args):
        for name, value in _named(arg, f"a{k}"):
            inputs[Input(name, value.dtype, value.shape)] = known[value.name]
    return evaluate(tensors, inputs, sizes, run_program)


def _named(arg: Any, name: str) -> list[tuple[str, Value]]:
    """The operands below an argument with the names that `define` gives them."""
    if arg is None:
        return []
    if isinstance(arg, tuple):
        return [pair for k, a in enumerate(arg) for pair in _named(a, f"{name}_{k}")]
    return [(name, arg)]
