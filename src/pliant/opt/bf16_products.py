"""Factors of products become bf16; sums, results and everything else stay f32.

    y: f32["n", 64] = linear(x, w)     ->     x_bf16: bf16["n", 32] = cast(x)
                                              w_bf16: bf16[64, 32] = cast(w)
                                              y = sum of f32(x_bf16[n, k]) * f32(w_bf16[m, k])

What depends on weights alone is converted when the model is compiled; the cast of a view is a view
of the cast, so that it joins the kernel that computes the values, which then stores half the bytes.
Products of two values that multiply each few times stay as they are: elements would take longer to
be converted and laid out in pairs than to be multiplied. So do convolutions of few channels with
small windows: in f32 they read an image where it lies, pairs of bf16 would have to be copied.
"""

from __future__ import annotations

import math
from typing import Any, Final

from pliant.base.dtypes import bf16, f32
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.ir.einsum import names_in
from pliant.ir.expr import Load
from pliant.ir.few_channels import filters_of
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, Tensor, compute
from pliant.opt.narrowing import Narrowing, placeholders
from pliant.sym.expr import as_int

FEW: Final = 12  # multiplications for each element of a product of values that do not pay for it
SMALL: Final = 64  # elements of a window on all channels whose copy takes as long as the product


class Bf16Products(Narrowing):
    """Products of bf16 factors."""

    def __init__(self, function: Function, operators: Operators) -> None:
        super().__init__(function, operators)
        self.views: dict[str, tuple[Binding, Compute, Value]] = {}
        self.narrow: dict[str, Value] = {}

    def seen(self, binding: Binding, tensors: tuple[Tensor, ...], values: dict[str, Value]) -> None:
        """Remembers views."""
        first = tensors[0]
        if isinstance(first, Compute) and isinstance(first.body, Load):
            source = first.body.source
            if isinstance(source, Input) and source.dtype is f32:
                self.views[binding.outputs[0].name] = binding, first, values[source.name]

    def product(
        self, tensor: Compute, loads: tuple[Load, Load], values: dict[str, Value],
        memo: dict[Node, Any],
    ) -> Compute | str:  # fmt: skip
        """`tensor` with these factors in bf16."""
        window = math.prod((a.extent for a in tensor.reduce_axes), start=as_int(1))
        if filters_of(tensor) and window.value <= SMALL:
            return f"a window of {window} elements on few channels takes longer to copy as pairs"
        if not any(self.is_constant(load) for load in loads):
            times = _multiplications(tensor, loads)
            if times < FEW:
                return f"values are multiplied {times:.2g} times each, too few to convert them"
        table = dict(memo)
        narrowed: set[Node] = set()
        for source in dict.fromkeys(load.source for load in loads):
            if isinstance(source, Input):
                value = self.in_bf16(values[source.name])
                values[value.name] = value
                table[source] = placeholders(value)
            else:
                table[source] = _cast(memo[source])
            narrowed.add(table[source])

        def widened(node: Any) -> Any:
            return node.cast(f32) if isinstance(node, Load) and node.source in narrowed else node

        return tensor.replace(body=transform(tensor.body, widened, table))

    def is_constant(self, load: Load) -> bool:
        return isinstance(load.source, Input) and load.source.name in self.constant

    def in_bf16(self, value: Value) -> Value:
        """The value in bf16, as near to where it is computed as views allow."""
        chain: list[Value] = []
        while value.name not in self.narrow and value.name in self.views:
            chain.append(value)
            value = self.views[value.name][2]
        if value.name not in self.narrow:
            self.convert(value, _cast(placeholders(value)), value, "cast", ())
        for view in reversed(chain):
            binding, copy, source = self.views[view.name]
            below = self.narrow[source.name]
            assert isinstance(copy.body, Load)
            body = Load(placeholders(below), copy.body.indices)
            self.convert(view, copy.replace(body=body), below, binding.op, binding.spans)
            value = view
        return self.narrow[value.name]

    def convert(self, wide: Value, made: Tensor, read: Value, op: str, spans: Any) -> None:
        self.narrow[wide.name] = self.bind(f"{wide.name}_bf16", made, {read.name: read}, op, spans)


def _multiplications(tensor: Compute, loads: tuple[Load, Load]) -> float:
    """How many a matrix product does for each element of its factors and its result, where sizes
    that are not known are large: 1 / (1/M + 1/N + 1/K). Both products of attention do as many."""
    left, right = (names_in(load) for load in loads)
    sides = (left - right, right - left, left & right & {a.var for a in tensor.reduce_axes})
    less = 0.0
    for side in sides:
        extents = [a.extent for a in (*tensor.axes, *tensor.reduce_axes) if a.var in side]
        if all(x.is_const for x in extents):
            less += 1 / max(1, math.prod(x.value for x in extents))
    return 1 / less if less else math.inf


def _cast(tensor: Tensor) -> Compute:
    return compute(tensor.shape, lambda *i: tensor[i].cast(bf16), "cast")
