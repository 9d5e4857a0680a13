"""One node of an ONNX graph being imported: what a lowering sees.

A lowering is a function of a `Site` that returns the values of the node's outputs. It asks for
operands as tensors (`x`), as known numbers or sizes (`ints`, `known`, `const`), for attributes, and
applies catalogue operators with `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from onnx import AttributeProto, NodeProto

from pliant.base.dtypes import DType, f32, i64
from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.base.spans import Span
from pliant.frontend.onnx.symbolic import Known, Ratio, Sizes, ints_in
from pliant.graph.builder import Builder
from pliant.graph.function import Value
from pliant.sym.expr import Int, IntLike, as_int


@dataclass(eq=False)
class Item:
    """What an ONNX value name stands for: a graph value, known elements, or both.

    `value` is made when a lowering first needs the tensor. `inputs` are the model's inputs that the
    elements depend on. `small` is ONNX's element type where that is an integer of less than a byte,
    which is a byte here, or a float of a byte or less, which is f32.
    """

    dtype: DType
    shape: tuple[Int, ...]
    value: Value | None = None
    known: Known | None = None
    name: str = ""
    inputs: frozenset[str] = frozenset()
    small: int = 0

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(eq=False)
class ItemList(Item):
    """A sequence, or (`absent`) an optional value that is none: known while importing."""

    members: tuple[Item, ...] = ()
    absent: bool = False

    @staticmethod
    def of(members: tuple[Item, ...], *, absent: bool = False) -> ItemList:
        """A sequence of these. It has the element type of the first one, and no shape."""
        dtype = members[0].dtype if members else f32
        return ItemList(dtype, (), members=members, absent=absent)


class NeedsValueError(UnsupportedError):
    """An operand that decides a shape or a choice of code is computed at run time."""

    def __init__(self, message: str, inputs: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.inputs = inputs


class Emitter(Protocol):
    """What a site needs of the importer."""

    builder: Builder
    sizes: Sizes

    def tensor(self, item: Item) -> Value:
        """The graph value of an item."""
        ...


Results = Value | Item | tuple[Value | Item | None, ...]
Lowering = Callable[["Site"], Results]
Lowerings = Mapping[tuple[str, str], Lowering]


@dataclass
class Site:
    """One node with its operands."""

    emitter: Emitter
    node: NodeProto
    opset: int
    items: tuple[Item | None, ...]
    attributes: Mapping[str, AttributeProto]
    span: Span
    to_array: Callable[[Any], np.ndarray]
    expand: Callable[[Site], tuple[Item | None, ...]]
    used: frozenset[int] = field(default_factory=frozenset)

    @property
    def op(self) -> str:
        return self.node.op_type

    @property
    def builder(self) -> Builder:
        return self.emitter.builder

    @property
    def sizes(self) -> Sizes:
        return self.emitter.sizes

    # operands

    def has(self, index: int) -> bool:
        """Whether operand `index` is given."""
        return index < len(self.items) and self.items[index] is not None

    def item(self, index: int) -> Item:
        """Operand `index`, which must be given."""
        found = self.anything(index)
        if isinstance(found, ItemList):
            raise InvalidModelError(f"{self.span}: operand {index} is a sequence, no tensor")
        return found

    def anything(self, index: int) -> Item:
        """Operand `index`, a tensor or a sequence."""
        found = self.items[index] if index < len(self.items) else None
        if found is None:
            raise InvalidModelError(f"{self.span}: operand {index} is missing")
        return found

    def members(self, index: int) -> tuple[Item, ...]:
        """The members of operand `index`, a sequence."""
        found = self.anything(index)
        if not isinstance(found, ItemList):
            raise InvalidModelError(f"{self.span}: operand {index} is no sequence")
        return found.members

    def x(self, index: int = 0) -> Value:
        """Operand `index` as a tensor."""
        return self.emitter.tensor(self.item(index))

    def opt(self, index: int) -> Value | None:
        """Operand `index` as a tensor, None where it is not given."""
        return self.x(index) if self.has(index) else None

    def zero_point(self, index: int) -> Value | None:
        """Operand `index` as a tensor, None where it is not given or known to be 0."""
        known = self.item(index).known if self.has(index) else None
        zero = known is not None and known.dtype != object and not known.any()
        return None if zero else self.opt(index)

    def xs(self) -> tuple[Value, ...]:
        """All operands as tensors."""
        return tuple(self.x(k) for k in range(len(self.items)))

    def known(self, index: int, what: str) -> Known:
        """The elements of operand `index`, which must be known while importing."""
        item = self.item(index)
        if item.known is None:
            raise NeedsValueError(
                f"its {what} ({item.name!r}) is computed at run time; it must be a constant or "
                "follow from shapes", item.inputs,
            )  # fmt: skip
        return item.known

    def const(self, index: int, what: str) -> np.ndarray:
        """The numbers of operand `index`, which must be constant."""
        known = self.known(index, what)
        if known.dtype == object:
            raise NeedsValueError(f"its {what} ({self.item(index).name!r}) depends on sizes")
        return known

    def ints(self, index: int, what: str) -> tuple[Int, ...]:
        """The elements of integer operand `index` as sizes."""
        if not self.item(index).dtype.is_int:
            raise InvalidModelError(f"{self.span}: {what} must be integers")
        return ints_in(self.known(index, what))

    def ints_of_any(self, index: int, what: str) -> tuple[Int, ...]:
        """The elements of a number operand of any type as sizes."""
        known = self.known(index, what)
        if known.dtype == object:
            return tuple(v if isinstance(v, Int) else v.floor().num for v in known.ravel())
        return tuple(as_int(int(v)) for v in known.ravel())

    def numbers(self, index: int, what: str) -> tuple[int, ...]:
        """The elements of operand `index` as plain integers."""
        return tuple(int(v) for v in self.const(index, what).ravel())

    def ratios(self, index: int, what: str) -> tuple[float | Ratio, ...]:
        """The elements of float operand `index`."""
        return tuple(self.known(index, what).ravel().tolist())

    # attributes

    def has_attr(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.attributes

    def int_attr(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        return int(self._attr(name, AttributeProto.INT, "i", default))

    def float_attr(self, name: str, default: float | None = None) -> float:
        """A float attribute: the decimal number that was meant, not the f32 nearest to it."""
        value = self._attr(name, AttributeProto.FLOAT, "f", default)
        return float(str(np.float32(value))) if name in self.attributes else float(value)

    def str_attr(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        value = self._attr(name, AttributeProto.STRING, "s", default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def ints_attr(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers."""
        return tuple(int(v) for v in self._attr(name, AttributeProto.INTS, "ints", default))

    def floats_attr(self, name: str, default: Sequence[float] | None) -> tuple[float, ...]:
        """A list of floats: the decimal numbers that were meant."""
        values = self._attr(name, AttributeProto.FLOATS, "floats", default)
        return tuple(float(str(np.float32(v))) for v in values)

    def strings_attr(self, name: str, default: Sequence[str]) -> tuple[str, ...]:
        """A list of strings."""
        values = self._attr(name, AttributeProto.STRINGS, "strings", default)
        return tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in values)

    def tensor_attr(self, name: str) -> np.ndarray:
        """A tensor attribute."""
        return self.to_array(self._attr(name, AttributeProto.TENSOR, "t", None))

    def _attr(self, name: str, kind: int, field_name: str, default: Any) -> Any:
        found = self.attributes.get(name)
        if found is None:
            if default is None:
                raise InvalidModelError(f"{self.span}: attribute {name!r} is missing")
            return default
        if found.type != kind:
            want = AttributeProto.AttributeType.Name(kind)
            raise InvalidModelError(f"{self.span}: attribute {name!r} is no {want}")
        return getattr(found, field_name)

    # axes

    def axis(self, name: str = "axis", default: int | None = None, *, rank: int) -> int:
        """An axis attribute, counted from the start."""
        return self.positive_axis(self.int_attr(name, default), rank)

    def positive_axis(self, axis: int, rank: int) -> int:
        """An axis counted from the start, which must exist."""
        if not -rank <= axis < rank:
            raise InvalidModelError(f"{self.span}: axis {axis} of a tensor of rank {rank}")
        return axis % rank if rank else 0

    def axes(self, index: int, rank: int, since: int) -> tuple[int, ...] | None:
        """Axes from operand `index`, or before opset `since` from the attribute `axes`."""
        if self.opset >= since:
            if not self.has(index):
                return None
            axes = self.numbers(index, "axes")
        elif self.has_attr("axes"):
            axes = self.ints_attr("axes")
        else:
            return None
        positive = tuple(self.positive_axis(a, rank) for a in axes)
        if len(set(positive)) != len(positive):
            raise InvalidModelError(f"{self.span}: axes {list(axes)} repeat one")
        return positive

    # results

    def call(self, op: str, *args: Any, **attrs: Any) -> Value:
        """Apply a catalogue operator of one result."""
        (result,) = self.call_many(op, *args, **attrs)
        return result

    def call_many(self, op: str, *args: Any, **attrs: Any) -> tuple[Value, ...]:
        """Apply a catalogue operator."""
        label = self.node.output[0] if self.node.output else ""
        result = self.builder.call(op, *args, span=self.span, name=label, **attrs)
        return result if isinstance(result, tuple) else (result,)

    def cast(self, x: Value, dtype: DType) -> Value:
        """`x` as `dtype`; itself if it is so already."""
        return x if x.dtype is dtype else self.call("cast", x, to=dtype)

    def scalar(self, value: float | bool, dtype: DType) -> Value:
        """A rank-0 constant."""
        return self.builder.scalar(value, dtype)

    def weight(self, array: np.ndarray, name: str = "c") -> Value:
        """A constant tensor."""
        return self.builder.weight(name, array)

    def full(self, shape: Sequence[IntLike], value: float | bool, dtype: DType) -> Value:
        """A tensor of one value."""
        return self.call("full", shape=tuple(map(as_int, shape)), value=value, dtype=dtype)

    def reshape(self, x: Value, shape: Sequence[IntLike]) -> Value:
        """`x` in another shape; itself if it has that shape."""
        wanted = tuple(map(as_int, shape))
        return x if wanted == x.shape else self.call("reshape", x, shape=wanted)

    def part(self, x: Value, axis: int, start: IntLike, stop: IntLike) -> Value:
        """`x` from start to stop along an axis; itself if that is all of it."""
        first, last, rank = as_int(start), as_int(stop), len(x.shape)
        if first == as_int(0) and last == x.shape[axis]:
            return x
        starts = tuple(first if k == axis else as_int(0) for k in range(rank))
        stops = tuple(last if k == axis else d for k, d in enumerate(x.shape))
        return self.call("slice", x, starts=starts, stops=stops, steps=(1,) * rank)

    def size(self, value: IntLike, dtype: DType = i64) -> Value:
        """A size as a rank-0 tensor."""
        size = as_int(value)
        if size.is_const:
            return self.scalar(size.value, dtype)
        return self.cast(self.call("size_value", value=size), dtype)

    def definition(self) -> tuple[Item | None, ...]:
        """The results by ONNX's own definition of the operator."""
        return self.expand(self)

    def unsupported(self, reason: str) -> UnsupportedError:
        """The error to raise for a feature that has no lowering."""
        return UnsupportedError(reason)


def product(sizes: Sequence[IntLike]) -> Int:
    """The product of sizes."""
    out = as_int(1)
    for s in sizes:
        out = out * s
    return out
