"""Factors of products become bf16; sums, results and everything else stay f32.

    y: f32["n", 64] = linear(x, w)     ->     x_bf16: bf16["n", 32] = cast(x)
                                              w_bf16: bf16[64, 32] = cast(w)
                                              y = sum of f32(x_bf16[n, k]) * f32(w_bf16[m, k])

What is a product is said by an operator's definition, not by its name: a sum of products of two f32
values, each with dimensions of the result that the other lacks. Softmax, normalisations and
windows without a matrix (depthwise convolutions) are none. What depends on weights alone is
converted when the model is compiled; the cast of a view is a view of the cast, so that it joins the
kernel that computes the values, which then stores half the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.base.dtypes import bf16, f32
from pliant.graph.expression import expression_binding, expression_of
from pliant.graph.function import Binding, Function, TensorType, Value
from pliant.graph.operator import Operators
from pliant.ir.einsum import NoEinsum, einsum_of, names_in
from pliant.ir.expr import Binary, Expr, Load
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, Tensor, compute, own_nodes, producers

Explain = Callable[[Binding, str], None]
"""Is told of a sum of products that stays as it is, and why."""


def reduce_precision(
    function: Function, operators: Operators, explain: Explain = lambda binding, reason: None
) -> Function:
    """The function with the factors of its products in bf16. Parameters and results keep their
    types."""
    narrowing = _Narrowing(function, operators)
    for binding in function.bindings:
        narrowing.add(binding, explain)
    return function.replace(bindings=tuple(narrowing.bindings))


def factors(tensor: Tensor) -> tuple[Load, Load] | str:
    """The two values whose products a matrix product, or a convolution, sums; or why it is none.

    Empty where it is no sum of products at all.
    """
    try:
        form = einsum_of(tensor)
    except NoEinsum:
        return ""
    term = form.term
    if form.combiner != "sum" or not isinstance(term, Binary) or term.op != "mul":
        return ""
    if term.dtype is not f32:
        return f"its sums are {term.dtype}, not f32"
    left, right = _factor(term.a), _factor(term.b)
    if left is None or right is None:
        return "its terms are no products of two f32 values as they are stored"
    outer = {a.var for a in form.outer}
    rows, columns = (names_in(side) & outer for side in (term.a, term.b))
    if not rows - columns or not columns - rows:
        return "no matrix product: a factor has no dimension of the result for itself"
    return left, right


def _factor(side: Expr) -> Load | None:
    found = [n for n in own_nodes(side) if isinstance(n, Load) and n.dtype is f32]
    return found[0] if len(found) == 1 else None


class _Narrowing:
    def __init__(self, function: Function, operators: Operators) -> None:
        self.operators = operators
        self.bindings: list[Binding] = []
        self.views: dict[str, tuple[Binding, Compute, Value]] = {}
        self.narrow: dict[str, Value] = {}
        values = (*function.params, *(v for v, _ in function.weights))
        self.taken = {v.name for v in values}
        self.taken |= {v.name for b in function.bindings for v in b.outputs}

    def add(self, binding: Binding, explain: Explain) -> None:
        tensors = self.definition(binding)
        values = {v.name: v for v in binding.operands()}
        first = tensors[0]
        if isinstance(first, Compute) and isinstance(first.body, Load):
            source = first.body.source
            if isinstance(source, Input) and source.dtype is f32:
                self.views[binding.outputs[0].name] = binding, first, values[source.name]
        memo: dict[Node, Any] = {}
        changed = False
        for tensor in producers(tensors):
            found = factors(tensor) if isinstance(tensor, Compute) else ""
            if isinstance(found, str):
                if found:
                    explain(binding, found)
                memo[tensor] = transform(tensor, _same, memo) if changed else tensor
                continue
            assert isinstance(tensor, Compute)
            memo[tensor] = self.product(tensor, found, values, memo)
            changed = True
        if not changed:
            self.bindings.append(binding)
            return
        expression = expression_of(binding)
        notes = (("op", binding.op),) if expression is None else expression[1]
        for value, tensor in zip(binding.outputs, tensors, strict=True):
            made = memo[tensor]
            self.bindings.append(expression_binding((value,), made, values, notes, binding.spans))

    def definition(self, binding: Binding) -> tuple[Tensor, ...]:
        """What the binding computes, of placeholders with the values' names."""
        made = self.operators[binding.op].define(
            *map(_placeholders, binding.args), **binding.attributes()
        )
        return made if isinstance(made, tuple) else (made,)

    def product(
        self, tensor: Compute, loads: tuple[Load, Load], values: dict[str, Value],
        memo: dict[Node, Any],
    ) -> Compute:  # fmt: skip
        """`tensor` with these factors in bf16."""
        table = dict(memo)
        narrowed: set[Node] = set()
        for source in dict.fromkeys(load.source for load in loads):
            if isinstance(source, Input):
                value = self.narrowed(values[source.name])
                values[value.name] = value
                table[source] = _placeholders(value)
            else:
                table[source] = _cast(memo[source])
            narrowed.add(table[source])

        def widened(node: Any) -> Any:
            return node.cast(f32) if isinstance(node, Load) and node.source in narrowed else node

        return tensor.replace(body=transform(tensor.body, widened, table))

    def narrowed(self, value: Value) -> Value:
        """The value in bf16, as near to where it is computed as views allow."""
        chain: list[Value] = []
        while value.name not in self.narrow and value.name in self.views:
            chain.append(value)
            value = self.views[value.name][2]
        if value.name not in self.narrow:
            made = _cast(_placeholders(value))
            self.bind(value, made, value, "cast", ())
        for view in reversed(chain):
            binding, copy, source = self.views[view.name]
            below = self.narrow[source.name]
            assert isinstance(copy.body, Load)
            body = Load(_placeholders(below), copy.body.indices)
            self.bind(view, copy.replace(body=body), below, binding.op, binding.spans)
            value = view
        return self.narrow[value.name]

    def bind(self, wide: Value, made: Tensor, read: Value, op: str, spans: Any) -> None:
        value = Value(self.fresh(f"{wide.name}_bf16"), TensorType(bf16, wide.shape))
        self.narrow[wide.name] = value
        notes = (("op", op),)
        self.bindings.append(expression_binding((value,), made, {read.name: read}, notes, spans))

    def fresh(self, wish: str) -> str:
        name, k = wish, 1
        while name in self.taken:
            name, k = f"{wish}_{k}", k + 1
        self.taken.add(name)
        return name


def _placeholders(arg: Any) -> Any:
    if isinstance(arg, tuple):
        return tuple(map(_placeholders, arg))
    return None if arg is None else Input(arg.name, arg.dtype, arg.shape)


def _cast(tensor: Tensor) -> Compute:
    return compute(tensor.shape, lambda *i: tensor[i].cast(bf16), "cast")


def _same(node: Any) -> Any:
    return node
