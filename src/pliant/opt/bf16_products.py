"""Factors of products become bf16; sums, results and everything else stay f32.

    y: f32["n", 64] = linear(x, w)     ->     x_bf16: bf16["n", 32] = cast(x)
                                              w_bf16: bf16[64, 32] = cast(w)
                                              y = sum of f32(x_bf16[n, k]) * f32(w_bf16[m, k])

What depends on weights alone is converted when the model is compiled; the cast of a view, or of
one with zeros around it, is a view of the cast, so that it joins the kernel that computes the
values, which then stores half the bytes. Windows of weights that slide along one channel (depthwise
convolutions) are products, too.
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
from pliant.ir.chosen_matrix import chosen_matrix
from pliant.ir.einsum import names_in
from pliant.ir.expr import Const, Expr, Index, Load, Select, const, index_names
from pliant.ir.few_channels import filters_of
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, Tensor, compute, own_nodes
from pliant.ir.windows import area, is_small
from pliant.opt.narrowing import Narrowing, placeholders
from pliant.sym.expr import var

FEW: Final = 6  # multiplications for each element of a product of values that do not pay for it
WIDE: Final = 16  # channels of a group, inputs and outputs, whose panels are worth it
SMALL: Final = 64  # elements of a window on all channels whose copy takes as long as the product


class Bf16Products(Narrowing):
    """Products of bf16 factors."""

    def __init__(self, function: Function, operators: Operators) -> None:
        super().__init__(function, operators)
        self.views: dict[str, tuple[Binding, Compute, Value]] = {}
        self.narrow: dict[str, Value] = {}

    def seen(self, binding: Binding, tensors: tuple[Tensor, ...], values: dict[str, Value]) -> None:
        """Remembers views, and what pads."""
        first = tensors[0]
        viewed = _viewed(first)
        if isinstance(first, Compute) and viewed is not None:
            source = viewed.source
            if isinstance(source, Input) and source.dtype is f32:
                self.views[binding.outputs[0].name] = binding, first, values[source.name]

    def is_another(self, tensor: Compute, loads: tuple[Load, Load]) -> bool:
        """Whether a window of weights, which has rows and columns, slides along a value, or each
        wide group of a value's channels has weights of its own, or rows choose theirs."""
        values = [load for load in loads if not self.is_constant(load)]
        if not values or not area(tensor).is_const:
            return False
        if len(values) == 2:  # weights that are computed, of their own for each sample
            return any(_is_grouped(tensor, value) for value in values)
        (value,) = values
        (weights,) = (load for load in loads if load is not value)
        if chosen_matrix(tensor, value, weights) is not None:
            return not is_small(tensor)
        return _is_window(tensor, value) or _is_grouped(tensor, value)

    def product(
        self, tensor: Compute, loads: tuple[Load, Load], values: dict[str, Value],
        memo: dict[Node, Any],
    ) -> Compute | str:  # fmt: skip
        """`tensor` with these factors in bf16."""
        window = area(tensor)
        if filters_of(tensor) and window.value <= SMALL:
            return f"a window of {window} elements on few channels takes longer to copy as pairs"
        if narrow_groups(tensor):
            return "a window over narrow groups of channels takes longer as a product of pairs"
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
            viewed = _viewed(copy)
            assert viewed is not None
            body: Expr = Load(placeholders(below), viewed.indices)
            if isinstance(copy.body, Select):
                body = Select(copy.body.cond, body, const(0, bf16))
            self.convert(view, copy.replace(body=body), below, binding.op, binding.spans)
            value = view
        return self.narrow[value.name]

    def convert(self, wide: Value, made: Tensor, read: Value, op: str, spans: Any) -> None:
        self.narrow[wide.name] = self.bind(f"{wide.name}_bf16", made, {read.name: read}, op, spans)


def _viewed(tensor: Tensor) -> Load | None:
    """What a view, or one with zeros around it, loads; None for anything else: what other values
    choose (a gather, a mask) is converted as it is read, not a whole table for a few rows of it."""
    if not isinstance(tensor, Compute):
        return None
    body = tensor.body
    if isinstance(body, Select) and isinstance(body.b, Const) and body.b.value == 0:
        body = body.a
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    return body if isinstance(body, Load) and loads == [body] else None


def _is_window(tensor: Compute, value: Load) -> bool:
    """Whether a window of rows and columns slides along a value."""
    if sum(a.extent != 1 for a in tensor.reduce_axes) < 2:
        return False
    outer, window = ({a.var for a in axes} for axes in (tensor.axes, tensor.reduce_axes))
    there = [index_names(i) for i in value.indices]
    return any(names & outer and names & window for names in there)


def _is_grouped(tensor: Compute, value: Load) -> bool:
    """Whether an output channel o sums over all channels o // each * members + c of its group,
    which are so many that a group is a matrix product."""
    for index, extent in zip(value.indices, value.source.shape, strict=True):
        for inner in tensor.reduce_axes:
            if not (inner.extent.is_const and extent.is_const and inner.extent.value >= WIDE):
                continue
            groups = max(1, extent.value // inner.extent.value)
            for outer in tensor.axes:
                if outer.extent.is_const and outer.extent.value >= groups * WIDE:
                    group = var(outer.var) // (outer.extent.value // groups)
                    if index == Index(group * inner.extent + var(inner.var)):
                        return True
    return False


def _multiplications(tensor: Compute, loads: tuple[Load, Load]) -> float:
    """How many a matrix product does for each element of its factors and its result, where sizes
    that are not known are large: 1 / (1/M + 1/N + 1/K). Both products of attention do as many.
    In groups N is that of a group, which is large."""
    left, right = (names_in(load) for load in loads)
    sides = (left - right, right - left, left & right & {a.var for a in tensor.reduce_axes})
    less = 0.0
    for side in sides:
        extents = [a.extent for a in (*tensor.axes, *tensor.reduce_axes) if a.var in side]
        if side and all(x.is_const for x in extents):
            less += 1 / max(1, math.prod(x.value for x in extents))
    return 1 / less if less else math.inf


def _cast(tensor: Tensor) -> Compute:
    return compute(tensor.shape, lambda *i: tensor[i].cast(bf16), "cast")
