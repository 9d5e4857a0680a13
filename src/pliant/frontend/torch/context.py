"""What a lowering function sees: the builder, the ATen node at hand, and the common conversions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from pliant.base.dtypes import DType, boolean, f64, i64
from pliant.base.errors import UnsupportedError
from pliant.base.spans import Span
from pliant.frontend.torch.promote import common_type, from_torch, part_of
from pliant.frontend.torch.symbols import SizeFloat, SizeFunction, SizeNumber, Symbols
from pliant.graph.builder import Builder
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int

Lowering = Callable[..., Any]
"""`(ctx, *args, **kwargs)` with the arguments of the ATen schema -> value, tuple of values."""

Table = Mapping[str, Lowering]


class Context:
    """One function being built. `node` and `span` change from node to node."""

    def __init__(self, builder: Builder, symbols: Symbols) -> None:
        self.builder = builder
        self.symbols = symbols
        self.node: Node | None = None
        self.span: Span | None = None

    def call(self, op: str, *args: Any, **attrs: Any) -> Any:
        """Apply an operator at the present place of the user's model."""
        return self.builder.call(op, *args, span=self.span, **attrs)

    def meta(self, index: int | None = None) -> Any:
        """What torch says of the result (its `index`-th, where there are several)."""
        assert self.node is not None
        value = self.node.meta["val"]
        return value if index is None else value[index]

    def out_dtype(self) -> DType:
        """Element type of the (one) result; of either part, where it is complex."""
        return from_torch(part_of(self.meta().dtype))

    def out_shape(self) -> tuple[Int, ...]:
        """Shape of the (one) result."""
        return self.symbols.shape(self.meta())

    def cast(self, x: Value, to: DType) -> Value:
        """`x` with element type `to`."""
        return x if x.dtype is to else self.call("cast", x, to=to)  # type: ignore[no-any-return]

    def scalar(self, number: float | int | bool, dtype: DType) -> Value:
        """A rank-0 constant; integers wrap, as torch does."""
        if dtype.is_int and isinstance(number, float):
            number = int(number)
        if dtype.is_int:
            number = (int(number) - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min)
        with np.errstate(all="ignore"):
            return self.builder.weight("c", np.asarray(number).astype(dtype.numpy))

    def tensor(self, x: Any, dtype: DType) -> Value:
        """A tensor, number or size as a tensor of type `dtype`."""
        if isinstance(x, Value):
            return self.cast(x, dtype)
        if isinstance(x, Int):
            if not x.is_const:
                return self.cast(self.call("size_value", value=x), dtype)
            x = x.value
        if isinstance(x, SizeFloat):
            over, under = self.tensor(x.over, f64), self.tensor(x.under, f64)
            return self.cast(self.call("div", over, under), dtype)
        if isinstance(x, SizeFunction):
            args = [self.tensor(a, f64) for a in x.args]
            return self.cast(self.call(x.op, *args), dtype)
        return self.scalar(x, dtype)

    def promoted(self, *operands: Any) -> tuple[Any, ...]:
        """The operands as tensors of their common type (`torch.result_type`)."""
        dtype = common_type(operands)
        return tuple(None if x is None else self.tensor(x, dtype) for x in operands)

    def truth(self, x: Any) -> Value:
        """`x != 0` as a boolean tensor."""
        if isinstance(x, Value) and x.dtype is boolean:
            return x
        if isinstance(x, Value):
            return self.call("ne", x, self.scalar(0, x.dtype))  # type: ignore[no-any-return]
        return self.tensor(bool(x), boolean)

    def indices(self, x: Value) -> Value:
        """Index tensors are i64."""
        return self.cast(x, i64)

    def unsupported(self, reason: str) -> UnsupportedError:
        """The error for what this node asks; the importer adds its name and place."""
        return UnsupportedError(reason)


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front (rank-0 tensors have one, as in torch)."""
    return dim + max(rank, 1) if dim < 0 else dim


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, sorted; all of them for None or an empty list."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return tuple(sorted(axis_of(int(d), rank) for d in dims)) if rank else ()


def size_of(x: Any) -> Int:
    """A size argument as an integer expression."""
    return as_int(x)


def constant(x: Any, what: str) -> Any:
    """A Python number out of an argument that must be known when compiling."""
    if isinstance(x, Int) and x.is_const:
        return x.value
    if isinstance(x, Value | Int | SizeNumber):
        raise UnsupportedError(f"{what} must be a constant")
    return x


def dtype_of(dtype: torch.dtype | None, otherwise: DType) -> DType:
    """The type that a `dtype=` argument asks for."""
    return otherwise if dtype is None else from_torch(dtype)
