"""Graph functions: flat lists of bindings in single assignment.

    Function(name="main", params=(x,), weights=(w,), bindings=(h = matmul(x, w), …), results=(h,))

A `Value` is named, unique in its function, and has a type. A binding applies an operator (by name)
to values and attributes. Nothing nests: walks are loops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pliant.base.dtypes import DType
from pliant.base.spans import Span
from pliant.ir.node import Node, exact
from pliant.sym.expr import Int

__all__ = ["Binding", "Dim", "Function", "Module", "TensorType", "Value"]


class TensorType(Node):
    """Element type and symbolic shape."""

    dtype: DType
    shape: tuple[Int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Value(Node):
    """A tensor by name. The name is its identity within its function."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[Int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


class Binding(Node):
    """`outputs = op(args, **attrs)`.

    `args`: values, None for an absent optional operand, or tuples of values (variadic).
    `attrs`: sorted (name, value) pairs. `spans` say where in the user's model this came from.
    """

    outputs: tuple[Value, ...]
    op: str
    args: tuple[Any, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    spans: tuple[Span, ...] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:  # 1, 1.0 and True are different attributes
        return exact(args[3])

    def operands(self) -> tuple[Value, ...]:
        """The values read, variadic ones spread, absent ones left out."""
        out: list[Value] = []
        for a in self.args:
            if isinstance(a, Value):
                out.append(a)
            elif isinstance(a, tuple):
                out += [v for v in a if v is not None]
        return tuple(out)

    def attributes(self) -> dict[str, Any]:
        return dict(self.attrs)


@dataclass(frozen=True)
class Dim:
    """What is known of a symbolic dimension: min <= size <= max, size % multiple == 0."""

    min: int = 0
    max: int | None = None
    multiple: int = 1
    likely: tuple[int, ...] = ()


class Function(Node):
    """A graph function.

    `params` come with each call, `weights` from the module's store (value, key).
    `dims` are the symbols of the parameters' shapes with what is known of them (name, `Dim`).
    `equalities` (a, b, message) hold of every legal call: a == b, checked at run time.
    `notes` are what passes have decided about it.
    """

    name: str
    params: tuple[Value, ...]
    weights: tuple[tuple[Value, str], ...]
    bindings: tuple[Binding, ...]
    results: tuple[Value, ...]
    dims: tuple[tuple[str, Dim], ...] = ()
    equalities: tuple[tuple[Int, Int, str], ...] = ()
    notes: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        return exact(args[7])


@dataclass(frozen=True)
class Module:
    """Functions of all levels by name, and the weights they refer to by content key.

    A stage is `Module -> Module`; functions are never changed in place.
    """

    functions: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def with_function(self, function: Any) -> Module:
        """The module with `function` added or replaced."""
        return Module(self.functions | {function.name: function}, self.weights)
