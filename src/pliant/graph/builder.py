"""Builds a graph function: what every frontend calls.

    b = Builder("main", operators)
    x = b.param("x", f32, (var("batch"), 384))
    w = b.weight("encoder.weight", array)
    h = b.call("matmul", x, w, span=Span("model.py", 12))
    function, weights = b.finish([h])

Shapes and element types of results follow from the operator's definition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pliant.base.dtypes import DType, from_numpy
from pliant.base.errors import InvalidModelError, PliantError
from pliant.base.spans import Span
from pliant.graph.facts import facts_of
from pliant.graph.function import Binding, Dim, Function, TensorType, Value
from pliant.graph.operator import Operator, Operators
from pliant.ir.node import exact
from pliant.ir.tensor import Compute, Input, Opaque, Scatter, Tensor, producers
from pliant.sym.expr import Int, IntLike, as_int
from pliant.sym.facts import Facts

Requirement = tuple[Int, Int, str]


class Builder:
    """Collects parameters, weights and bindings of one function."""

    def __init__(self, name: str, operators: Operators, facts: Facts | None = None) -> None:
        self.name = name
        self.operators = operators
        self.facts = facts or Facts()
        self.weights: dict[str, np.ndarray] = {}
        self.origin: tuple[Span, ...] = ()  # spans of what is called without one
        self._params: list[Value] = []
        self._weight_values: dict[str, Value] = {}
        self._weight_keys: list[tuple[Value, str]] = []
        self._bindings: list[Binding] = []
        self._dims: dict[str, Dim] = {}
        self._equalities: dict[tuple[Int, Int], str] = {}
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}  # numbers below are taken, by name
        self._typed: dict[Any, tuple[tuple[TensorType, ...], tuple[Requirement, ...]]] = {}

    @classmethod
    def resume(
        cls, function: Function, operators: Operators, bindings: Sequence[Binding]
    ) -> Builder:
        """A builder that begins with what `function` declares, and these of its bindings.

        New values get names that the function does not use.
        """
        b = cls(function.name, operators, facts_of(function))
        b._dims = dict(function.dims)
        b._equalities = {(left, right): message for left, right, message in function.equalities}
        b._params = list(function.params)
        b._weight_keys = list(function.weights)
        b._weight_values = {key: value for value, key in function.weights}
        b._bindings = list(bindings)
        values = [*b._params, *b._weight_values.values()]
        b._names = {v.name for v in values} | {
            v.name for binding in function.bindings for v in binding.outputs
        }
        return b

    def keep(self, binding: Binding) -> None:
        """Append a binding as it is."""
        self._bindings.append(binding)

    def dim(self, name: str, known: Dim) -> None:
        """Declare a symbolic dimension."""
        self._dims[name] = known
        self.facts.declare(name, known.min, known.max, known.multiple, known.likely)

    def equal(self, a: IntLike, b: IntLike, message: str = "") -> None:
        """Record that two sizes are equal in every legal call; checked in each, unless proved.

        Raises InvalidModelError, with the message, where they never are.
        """
        a, b = as_int(a), as_int(b)
        message = message or f"{a} and {b} must be equal"
        difference = self.facts.simplify(a - b)
        if difference.is_const and difference != 0:
            raise InvalidModelError(f"{message} (here they differ by {difference})")
        if self.facts.equal(a, b):
            return
        self._equalities.setdefault((a, b), message)
        self.facts.assume_equal(a, b)

    def param(self, name: str, dtype: DType, shape: Sequence[IntLike]) -> Value:
        """A tensor that comes with every call. Its name is what the user calls it."""
        value = Value(self._fresh(name), TensorType(dtype, tuple(as_int(d) for d in shape)))
        self._params.append(value)
        for d in value.shape:
            for n in sorted(d.names):
                if n not in self._dims:
                    self.dim(n, Dim())
        return value

    def weight(self, name: str, array: np.ndarray) -> Value:
        """A constant tensor; equal contents are stored once."""
        array = np.asarray(array, order="C")
        head = f"{array.dtype.name}{array.shape}".encode()
        digest = hashlib.sha256(head)
        digest.update(array.reshape(-1).view(np.uint8).data)
        key = digest.hexdigest()[:32]
        if key not in self._weight_values:
            shape = tuple(as_int(d) for d in array.shape)
            value = Value(self._fresh(name or "c"), TensorType(from_numpy(array.dtype), shape))
            self.weights[key] = array
            self._weight_values[key] = value
            self._weight_keys.append((value, key))
        return self._weight_values[key]

    def constant(self, value: Value) -> np.ndarray | None:
        """What a constant tensor holds; None for what is computed."""
        return next((self.weights[key] for v, key in self._weight_keys if v is value), None)

    def scalar(self, value: int | float | bool, dtype: DType) -> Value:
        """A rank-0 constant."""
        return self.weight("c", np.asarray(value, dtype.numpy))

    def call(
        self,
        op: str,
        *args: Any,
        span: Span | None = None,
        name: str | tuple[str, ...] = "",
        **attrs: Any,
    ) -> Any:
        """Apply an operator; its one result, or a tuple of them, called `name` if that is free.

        Raises InvalidModelError, with the span, when the operands do not fit the definition.
        """
        # A binding of its own expression is of no operator that a user knows.
        where = (f"{span}: " if span else "") + ("" if op == "expression" else f"{op}: ")
        try:
            types, requires = self._infer(op, args, attrs)
            for a, b, message in requires:
                self.equal(a, b, where + message)
            if requires:  # they are facts now
                types = tuple(self._simplified(t) for t in types)
        except PliantError as error:
            text = str(error)
            raise type(error)(text if text.startswith(where) else where + text) from error
        names = name if isinstance(name, tuple) else (name or op,) * len(types)
        outputs = tuple(Value(self._fresh(n), t) for n, t in zip(names, types, strict=True))
        spans = self.origin if span is None else (span,)
        pairs = tuple(sorted(attrs.items()))
        self._bindings.append(Binding(outputs, op, tuple(args), pairs, spans))
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def bindings(self) -> Sequence[Binding]:
        """What has been bound so far; read-only."""
        return self._bindings

    def finish(self, results: Sequence[Value]) -> tuple[Function, dict[str, np.ndarray]]:
        """The function, and its weights by key."""
        function = Function(
            self.name, tuple(self._params), tuple(self._weight_keys), tuple(self._bindings),
            tuple(results), tuple(sorted(self._dims.items())),
            tuple((a, b, message) for (a, b), message in self._equalities.items()),
        )  # fmt: skip
        return function, self.weights

    @property
    def count(self) -> int:
        """How many bindings there are."""
        return len(self._bindings)

    def made_of_weights(self, begin: int, results: Sequence[Value]) -> Function:
        """The bindings from number `begin` on as a function of weights alone."""
        bindings = tuple(self._bindings[begin:])
        read = {v for b in bindings for v in b.operands()} | set(results)
        weights = tuple([(v, key) for v, key in self._weight_keys if v in read])
        return Function(self.name, (), weights, bindings, tuple(results))

    def _infer(
        self, op: str, args: tuple[Any, ...], attrs: Mapping[str, Any]
    ) -> tuple[tuple[TensorType, ...], tuple[Requirement, ...]]:
        """Types of the results and what must hold of the sizes."""
        operator = self.operators.get(op)
        if operator is None:
            raise InvalidModelError("there is no such operator")
        key = (
            op,
            tuple(_type_key(a) for a in args),
            exact(tuple(sorted(attrs.items(), key=_by_name))),
        )
        found = self._typed.get(key)
        if found is None:
            tensors = define(operator, args, attrs)
            types = tuple(self._simplified(TensorType(t.dtype, t.shape)) for t in tensors)
            found = self._typed[key] = types, requirements(tensors)
        return found

    def _simplified(self, t: TensorType) -> TensorType:
        return TensorType(t.dtype, tuple(self.facts.settle(d) for d in t.shape))

    def _fresh(self, name: str) -> str:
        clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "v"
        if clean[0].isdigit():
            clean = "v" + clean
        candidate, k = clean, self._counts.get(clean, 1)
        while candidate in self._names:
            candidate, k = f"{clean}_{k}", k + 1
        self._names.add(candidate)
        self._counts[clean] = k
        return candidate


def define(operator: Operator, args: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The tensor expressions of an operator applied to values of known types."""
    operands = [_operand(a, f"a{k}") for k, a in enumerate(args)]
    result = operator.define(*operands, **attrs)
    return result if isinstance(result, tuple) else (result,)


def requirements(tensors: Sequence[Tensor]) -> tuple[Requirement, ...]:
    """What a definition demands of the sizes, each once."""
    found: dict[Requirement, None] = {}
    for t in producers(tensors):
        if isinstance(t, Compute | Scatter | Opaque):
            found |= dict.fromkeys(t.requires)
    return tuple(found)


def _operand(arg: Any, name: str) -> Any:
    if arg is None:
        return None
    if isinstance(arg, tuple):
        return tuple(_operand(a, f"{name}_{k}") for k, a in enumerate(arg))
    return Input(name, arg.dtype, arg.shape)


def _type_key(arg: Any) -> Any:
    if arg is None:
        return None
    return tuple(_type_key(a) for a in arg) if isinstance(arg, tuple) else arg.type


def _by_name(pair: tuple[str, Any]) -> str:
    return pair[0]
