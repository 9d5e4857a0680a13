"""Check that a graph function or module is well formed; a fault is shown with its surroundings.

What holds of a verified function:

    values      bound once, before use; operands are values, None or tuples of these; no two names
                are equal
    types       results of every binding have the type that the operator's definition infers
    symbols     of parameters are declared, with a range that makes sense; the shapes of results
                use no other
    weights     are in the store with the declared type
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import from_numpy
from pliant.base.errors import InvalidModelError, PliantError
from pliant.base.spans import Span
from pliant.graph.builder import define
from pliant.graph.function import Binding, Function, Module, TensorType, Value
from pliant.graph.inline import inline
from pliant.graph.operator import Operators
from pliant.graph.printer import binding_lines
from pliant.ir.node import exact
from pliant.sym.expr import Int, as_int
from pliant.sym.facts import ContradictionError, Facts

CONTEXT_LINES: Final = 5  # before and after the fault


class _FaultError(Exception):
    """What is wrong, at which binding (by position; -1: the signature)."""

    def __init__(self, message: str, at: int = -1, spans: tuple[Span, ...] = ()) -> None:
        super().__init__(message)
        self.at, self.spans = at, spans


Inferred = dict[Any, tuple[TensorType, ...]]
"""The types of an operator's results, by the operator, its operands' types and its attributes."""


def verify_module(module: Module, operators: Operators, inferred: Inferred | None = None) -> None:
    """Check every graph function of the module, with what it calls. Who verifies several stages of
    one model, which have most bindings in common, gives what was `inferred` before."""
    for name, function in module.functions.items():
        if isinstance(function, Function):
            verify_function(inline(module, name), operators, module.weights, inferred)


def verify_function(
    function: Function, operators: Operators, weights: Mapping[str, np.ndarray] | None = None,
    inferred: Inferred | None = None,
) -> None:  # fmt: skip
    """Raise InvalidModelError, with the lines around the fault, unless all is well formed.

    Without a store, weights are taken as they are declared; `inferred` is as in `verify_module`.
    """
    try:
        _Verifier(function, operators, {} if inferred is None else inferred).run(weights)
    except _FaultError as fault:
        raise InvalidModelError(_report(function, fault)) from None


class _Verifier:
    def __init__(self, function: Function, operators: Operators, inferred: Inferred) -> None:
        self.function = function
        self.operators = operators
        self.values: dict[str, Value] = {}
        self.symbols: set[str] = set()
        self._inferred = inferred

    def run(self, weights: Mapping[str, np.ndarray] | None) -> None:
        self.facts = self._declared_facts()
        for value in self.function.params:
            self._define(value, -1)
        for value, key in self.function.weights:
            self._define(value, -1)
            if weights is not None:
                _check_weight(value, key, weights)
        for k, binding in enumerate(self.function.bindings):
            try:
                self._binding(binding, k)
            except (PliantError, TypeError, ValueError) as error:
                raise _FaultError(f"{binding.op}: {error}", k, binding.spans) from error
        for value in self.function.results:
            self._use(value, len(self.function.bindings), ())

    def _declared_facts(self) -> Facts:
        facts = Facts()
        for name, dim in self.function.dims:
            if name in self.symbols:
                raise _FaultError(f"the symbol {name} is declared twice")
            self.symbols.add(name)
            facts.declare(name, dim.min, dim.max, dim.multiple, dim.likely)
        for a, b, message in self.function.equalities:
            self._declared(a, -1, ())
            self._declared(b, -1, ())
            try:
                facts.assume_equal(a, b)
            except ContradictionError as error:
                raise _FaultError(f"{message}: {error}") from error
        return facts

    def _binding(self, binding: Binding, at: int) -> None:
        for value in _operands(binding.args):
            if not isinstance(value, Value):
                raise _FaultError(f"{value!r} is no operand", at, binding.spans)
            self._use(value, at, binding.spans)
        types = self._infer(binding)
        if len(types) != len(binding.outputs):
            text = f"{binding.op} has {len(types)} results, {len(binding.outputs)} are bound"
            raise _FaultError(text, at, binding.spans)
        for value, inferred in zip(binding.outputs, types, strict=True):
            if not self._same(value.type, inferred):
                text = f"{value.name} is {value.type}, but {binding.op} gives {inferred}"
                raise _FaultError(text, at, binding.spans)
            self._define(value, at, binding.spans)

    def _infer(self, binding: Binding) -> tuple[TensorType, ...]:
        operator = self.operators.get(binding.op)
        if operator is None:
            raise InvalidModelError("there is no such operator")
        key = (binding.op, _types(binding.args), exact(binding.attrs))
        found = self._inferred.get(key)
        if found is None:
            tensors = define(operator, binding.args, binding.attributes())
            found = tuple([TensorType(t.dtype, t.shape) for t in tensors])
            self._inferred[key] = found
        return found

    def _same(self, a: TensorType, b: TensorType) -> bool:
        return (
            a.dtype is b.dtype
            and len(a.shape) == len(b.shape)
            and all(map(self._are_equal, a.shape, b.shape))
        )

    def _are_equal(self, x: Int, y: Int) -> bool:
        facts = self.facts
        return x is y or facts.equal(x, y) or facts.settle(x) is facts.settle(y)

    def _define(self, value: Value, at: int, spans: tuple[Span, ...] = ()) -> None:
        if value.name in self.values:
            raise _FaultError(f"{value.name} is bound twice", at, spans)
        for extent in value.shape:
            self._declared(extent, at, spans)
        self.values[value.name] = value

    def _use(self, value: Value, at: int, spans: tuple[Span, ...]) -> None:
        known = self.values.get(value.name)
        if known is None:
            raise _FaultError(f"{value.name} is used but not bound before", at, spans)
        if known is not value:
            text = f"{value.name} is {known.type}, but is used as {value.type}"
            raise _FaultError(text, at, spans)

    def _declared(self, size: Int, at: int, spans: tuple[Span, ...]) -> None:
        unknown = size.names - self.symbols
        if unknown:
            raise _FaultError(f"the symbol {min(unknown)} is not declared", at, spans)


def _operands(args: tuple[Any, ...]) -> Iterator[Any]:
    for arg in args:
        for value in arg if isinstance(arg, tuple) else (arg,):
            if value is not None:
                yield value


def _types(arg: Any) -> Any:
    if isinstance(arg, tuple):
        return tuple([_types(a) for a in arg])
    return None if arg is None else arg.type


def _check_weight(value: Value, key: str, weights: Mapping[str, np.ndarray]) -> None:
    if key not in weights:
        raise _FaultError(f"the weight {value.name} is not in the store (key {key})")
    array = weights[key]
    stored = TensorType(from_numpy(array.dtype), tuple(map(as_int, array.shape)))
    if stored is not value.type:
        raise _FaultError(f"the weight {value.name} is {value.type}, but {stored} in the store")


def _report(function: Function, fault: _FaultError) -> str:
    lines, places = binding_lines(function)
    at = places.get(fault.at, len(lines) - 1) if fault.at >= 0 else 1
    first = max(at - CONTEXT_LINES, 0)
    shown = [
        f"{'>' if k == at else ' '} {k + 1:4} {line}"
        for k, line in enumerate(lines[first : at + CONTEXT_LINES + 1], first)
    ]
    where = f" ({', '.join(map(str, fault.spans))})" if fault.spans else ""
    return "\n".join([f"{function.name}: {fault}{where}", *shown])
