"""Graph functions: flat lists of bindings in single assignment.

    Function(name="main", params=(x,), weights=(w,), bindings=(h = matmul(x, w), …), results=(h,))

A `Value` is named, unique in its function, and has a type. A binding applies an operator (by name)
to values and attributes. Nothing nests: walks are loops.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace
from typing import Any, Final, SupportsIndex

import numpy as np

from pliant.base.dtypes import DType
from pliant.base.errors import ShapeError
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
    """What is known of a symbolic dimension: min <= size <= max, size % multiple == 0.

    `likely` are sizes that it often has. Raises ShapeError where no size is left, or `likely` is
    not one of them.
    """

    min: int = 0
    max: int | None = None
    multiple: int = 1
    likely: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        given: object = self.likely
        if not isinstance(given, tuple | list):
            raise ShapeError(f"likely of a Dim is a tuple of sizes, not {given!r:.60}")
        likely = tuple(_size("likely", n, 0) for n in given)
        object.__setattr__(self, "likely", likely)
        object.__setattr__(self, "min", _size("min", self.min, 0))
        object.__setattr__(self, "multiple", _size("multiple", self.multiple, 1))
        if self.max is not None:
            object.__setattr__(self, "max", _size("max", self.max, 0))
            if self.max // self.multiple * self.multiple < self.min:
                raise ShapeError(f"{self} allows no size")
        for size in likely:
            if not self.allows(size):
                raise ShapeError(f"{self} does not allow the likely size {size}")

    def allows(self, size: int) -> bool:
        """Whether a dimension may have this size."""
        fits = self.min <= size and (self.max is None or size <= self.max)
        return fits and size % self.multiple == 0

    def merged(self, more: Dim | None) -> Dim:
        """Both are true. Raises ShapeError where they contradict each other."""
        if more is None:
            return self
        ends = [m for m in (self.max, more.max) if m is not None]
        least, multiple = max(self.min, more.min), math.lcm(self.multiple, more.multiple)
        most = min(ends) if ends else None
        if most is not None and most // multiple * multiple < least:
            raise ShapeError(f"{self} and {more}, of one dimension, contradict each other")
        both = Dim(least, most, multiple)
        return replace(both, likely=tuple(filter(both.allows, more.likely or self.likely)))

    def __str__(self) -> str:
        said = {"min": self.min, "max": self.max, "multiple": self.multiple, "likely": self.likely}
        told = (f"{k}={v}" for k, v in said.items() if v != getattr(Dim, k))
        return f"Dim({', '.join(told)})"


LARGEST_SIZE: Final = (1 << 63) - 1


def _size(what: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ShapeError(f"{what} of a Dim is a whole number, not {value!r:.60}")
    size = operator.index(value)
    if not least <= size <= LARGEST_SIZE:
        raise ShapeError(f"{what} of a Dim is a number from {least} to 2**63 - 1, not {size}")
    return size


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
