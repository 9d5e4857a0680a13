"""Tensor programs in graphs: a loop program as the definition of what a binding computes.

    y = relu_rows(x)        y: f32["b", 384] = opaque(relu_rows, (x,), (f32["b", 384],))

The program's inputs are the operands, its outputs the results (`loop.signature`); its sizes follow
from the operands' shapes. What it demands of them is demanded of the graph's sizes: proved when the
graph is made, or else checked in every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pliant.base.dtypes import from_numpy
from pliant.base.errors import InvalidModelError, ShapeError
from pliant.base.spans import Span
from pliant.graph.builder import Builder
from pliant.graph.expression import EXPRESSION
from pliant.graph.function import Dim, Value
from pliant.ir.evaluate import evaluate
from pliant.ir.scalar import poison
from pliant.ir.scalars import Array
from pliant.ir.tensor import Input, Opaque, OpaqueOutput, Tensor
from pliant.loop.interpret import interpret
from pliant.loop.signature import Demand, signature
from pliant.loop.stmt import Buffer, Function
from pliant.ops.common import Requirement, at_least, equal
from pliant.sym.expr import Int, as_int, var
from pliant.sym.extents import solve_extents


@dataclass(frozen=True)
class TensorProgram:
    """A loop program to be used as an operator, what is taken for granted of its sizes, the meaning
    of the intrinsics that it may call, and what keeps its indices inside (`signature.demands`)."""

    function: Function
    dims: tuple[tuple[str, Dim], ...] = ()
    intrinsics: tuple[tuple[str, Function], ...] = ()
    demands: tuple[Demand, ...] = ()

    def define(self, *operands: Tensor) -> tuple[OpaqueOutput, ...]:
        """Its results for these operands. Raises InvalidModelError where they do not fit."""
        made = self.opaque(operands)
        return tuple([OpaqueOutput(made, k) for k in range(len(made.results))])

    def opaque(self, operands: Sequence[Tensor]) -> Opaque:
        """The program applied to operands, in the order of its inputs."""
        s = signature(self.function)
        name = self.function.name
        if len(operands) != len(s.inputs):
            takes = ", ".join(b.name for b in s.inputs)
            raise InvalidModelError(
                f"{name} takes {len(s.inputs)} tensors ({takes}), not {len(operands)}"
            )
        pairs: list[tuple[Buffer, int, Int, Int]] = []
        for formal, actual in zip(s.inputs, operands, strict=True):
            if formal.dtype is not actual.dtype or formal.rank != actual.rank:
                raise InvalidModelError(
                    f"{name}: {formal.name} is {formal.dtype} of rank {formal.rank}, not "
                    f"{actual.dtype} of rank {actual.rank}"
                )
            dims = zip(formal.shape, actual.shape, strict=True)
            pairs += [(formal, d, want, have) for d, (want, have) in enumerate(dims)]
        sizes = solve_extents([(want, have) for _, _, want, have in pairs])
        requires: list[Requirement] = []
        for formal, d, want, have in pairs:
            said = f"{name}: dim {d} of {formal.name} must be {want}"
            requires += equal(_with(sizes, want), have, said)
        for size, known in self.dims:
            requires += _demands(f"{name}: {size}", sizes.get(size, var(size)), known)
        for least, number, said in self.demands:
            requires += at_least(_with(sizes, least), _with(sizes, number), f"{name}: {said}")
        results = tuple([(b.dtype, tuple([_with(sizes, d) for d in b.shape])) for b in s.outputs])
        return Opaque(name, tuple(operands), results, s.function, tuple(dict.fromkeys(requires)))


def call_program(
    builder: Builder, program: TensorProgram, *operands: Value, span: Span | None = None
) -> Any:
    """Bind the program's results for these operands: one value, or a tuple of them."""
    placeholders = tuple([Input(v.name, v.dtype, v.shape) for v in operands])
    made = program.opaque(placeholders)
    read = tuple(dict.fromkeys(operands))
    names = tuple(b.name for b in made.program.buffers[-len(made.results) :])
    notes = (("op", program.function.name),)
    return builder.call(EXPRESSION.name, *read, span=span, name=names, of=made, notes=notes)


def run_program(program: TensorProgram, arrays: Sequence[npt.ArrayLike]) -> Any:
    """What the program computes of arrays, by the interpreter: one array, or a tuple of them."""
    s = signature(program.function)
    if len(arrays) != len(s.inputs):
        takes = ", ".join(b.name for b in s.inputs)
        raise ShapeError(
            f"{program.function.name} takes {len(s.inputs)} arrays ({takes}), not {len(arrays)}"
        )
    inputs = [Input(b.name, b.dtype, b.shape) for b in s.inputs]
    known = {x: np.asarray(a) for x, a in zip(inputs, arrays, strict=True)}
    pairs = [
        (want, as_int(have))
        for x, a in known.items()
        for want, have in zip(x.shape, a.shape, strict=a.ndim == x.rank)
    ]
    sizes = {name: value.value for name, value in solve_extents(pairs).items()}
    made = program.opaque(inputs)

    def run(function: Function, memory: list[Array], own: Mapping[str, int]) -> None:
        for array in memory[len(inputs) :]:
            array.fill(poison(from_numpy(array.dtype)))
        interpret(function, memory, own, dict(program.intrinsics))

    outputs = [OpaqueOutput(made, k) for k in range(len(made.results))]
    try:
        results = evaluate(outputs, known, sizes, run)
    except (IndexError, ZeroDivisionError) as error:  # where data say, or under conditions
        raise ShapeError(f"{program.function.name}: {error}") from error
    return results[0] if len(results) == 1 else tuple(results)


def _with(sizes: dict[str, Int], extent: Int) -> Int:
    return extent.subs({n: v for n, v in sizes.items() if n in extent.names})


def _demands(what: str, size: Int, known: Dim) -> tuple[Requirement, ...]:
    out: tuple[Requirement, ...] = ()
    if known.min > 0:
        out += at_least(size, known.min, f"{what} must be at least {known.min}")
    if known.max is not None:
        out += at_least(known.max, size, f"{what} must be at most {known.max}")
    if known.multiple > 1:
        out += equal(size % known.multiple, 0, f"{what} must be a multiple of {known.multiple}")
    return out
