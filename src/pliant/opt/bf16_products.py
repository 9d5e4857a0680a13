"""Factors of products become bf16; sums, results and everything else stay f32.

    y: f32["n", 64] = linear(x, w)     ->     x_bf16: bf16["n", 32] = cast(x)
                                              w_bf16: bf16[64, 32] = cast(w)
                                              y = sum of f32(x_bf16[n, k]) * f32(w_bf16[m, k])

What depends on weights alone is converted when the model is compiled; the cast of a view is a view
of the cast, so that it joins the kernel that computes the values, which then stores half the bytes.
"""

from __future__ import annotations

from typing import Any

from pliant.base.dtypes import bf16, f32
from pliant.graph.function import Binding, Function, Value
from pliant.graph.operator import Operators
from pliant.ir.expr import Load
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, Tensor, compute
from pliant.opt.narrowing import Narrowing, placeholders


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
    ) -> Compute:  # fmt: skip
        """`tensor` with these factors in bf16."""
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


def _cast(tensor: Tensor) -> Compute:
    return compute(tensor.shape, lambda *i: tensor[i].cast(bf16), "cast")
