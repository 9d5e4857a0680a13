"""Walks a function and gives its products to a narrowing, which says how they are computed instead.

What is a product is said by an operator's definition, not by its name: a sum of products of two f32
values, each with dimensions of the result that the other lacks. Softmax and normalisations are
none; windows without a matrix (depthwise convolutions) and groups of channels are for a narrowing
to say. A vector times a constant matrix is taken for a matrix of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pliant.base.dtypes import f32
from pliant.base.names import fresh_name
from pliant.graph.constants import constant_values
from pliant.graph.expression import expression_binding, expression_of
from pliant.graph.function import Binding, Function, TensorType, Value
from pliant.graph.operator import Operators
from pliant.ir.einsum import NoEinsum, einsum_of, names_in
from pliant.ir.expr import Axis, Binary, Expr, Index, Load
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, Tensor, compute, own_nodes, producers
from pliant.sym.expr import as_int, var

Explain = Callable[[Binding, str], None]
"""Is told of a sum of products that stays as it is, and why."""


NO_MATRIX: Final = "no matrix product: a factor has no dimension of the result for itself"
_Factored = tuple[Compute, tuple[Load, Load]]


class Product(NamedTuple):
    """The two values whose products are summed; `matrix`: each has dimensions of the result that
    the other lacks."""

    loads: tuple[Load, Load]
    matrix: bool


def factors(tensor: Tensor) -> Product | str:
    """The factors of a sum of products; or why it is none that could be computed in another way.

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
    return Product((left, right), bool(rows - columns and columns - rows))


def _factor(side: Expr) -> Load | None:
    found = [n for n in own_nodes(side) if isinstance(n, Load) and n.dtype is f32]
    return found[0] if len(found) == 1 else None


class Narrowing:
    """Collects the bindings of a function of which products are computed in another way.
    `constant`: the values that follow from weights alone, by name."""

    def __init__(self, function: Function, operators: Operators) -> None:
        self.function, self.operators = function, operators
        self.bindings: list[Binding] = []
        values = (*function.params, *(v for v, _ in function.weights))
        self.constant = constant_values(function)
        self.taken = {v.name for v in values}
        self.taken |= {v.name for b in function.bindings for v in b.outputs}

    def narrowed(self, explain: Explain) -> Function:
        """The function with its products changed."""
        for binding in self.function.bindings:
            self.add(binding, explain)
        return self.function.replace(bindings=tuple(self.bindings))

    def is_constant(self, load: Load) -> bool:
        return isinstance(load.source, Input) and load.source.name in self.constant

    def is_another(self, tensor: Compute, loads: tuple[Load, Load]) -> bool:
        """Whether products that are no matrix product are computed in another way, too."""
        return False

    def product(
        self, tensor: Compute, loads: tuple[Load, Load], values: dict[str, Value],
        memo: dict[Node, Any],
    ) -> Compute | str:  # fmt: skip
        """What is computed instead of a product of these factors, or why nothing is. It reads what
        `memo` maps its sources to, and `values`, by name, to which more may be added."""
        raise NotImplementedError

    def seen(self, binding: Binding, tensors: tuple[Tensor, ...], values: dict[str, Value]) -> None:
        """Is shown every binding, with what it computes of `values`, before its products."""

    def add(self, binding: Binding, explain: Explain) -> None:
        """The binding, as it is or changed."""
        tensors = self.definition(binding)
        values = {v.name: v for v in binding.operands()}
        self.seen(binding, tensors, values)
        memo: dict[Node, Any] = {}
        changed = False
        for tensor in producers(tensors):
            found = factors(tensor) if isinstance(tensor, Compute) else ""
            if isinstance(found, Product):
                assert isinstance(tensor, Compute)
                other: Compute | str = NO_MATRIX
                if found.matrix or self.is_another(tensor, found.loads):
                    other = self.product(tensor, found.loads, values, memo)
                elif row := self.with_row(tensor, found.loads, values):
                    other = self.product(*row, values, memo)
                    other = _without_row(other) if isinstance(other, Compute) else other
                if isinstance(other, Compute):
                    memo[tensor], changed = other, True
                    continue
                found = other
            if found:
                explain(binding, found)
            memo[tensor] = transform(tensor, _same, memo) if changed else tensor
        if not changed:
            self.bindings.append(binding)
            return
        expression = expression_of(binding)
        notes = (("op", binding.op),) if expression is None else expression[1]
        for value, tensor in zip(binding.outputs, tensors, strict=True):
            made = memo[tensor]
            self.bindings.append(expression_binding((value,), made, values, notes, binding.spans))

    def with_row(
        self, tensor: Compute, loads: tuple[Load, Load], values: dict[str, Value]
    ) -> _Factored | None:
        """A vector times a constant matrix as a matrix of one row times that; None for anything
        else."""
        vectors = [load for load in loads if not self.is_constant(load)]
        if len(vectors) != 1 or not isinstance(vectors[0].source, Input):
            return None
        (vector,), outer = vectors, {a.var for a in tensor.axes}
        if not outer or names_in(vector) & outer:
            return None
        x = values[vector.source.name]
        made = compute((1, *x.shape), lambda _, *at: placeholders(x)[at])
        row = self.bind(f"{x.name}_row", made, {x.name: x}, "unsqueeze")
        values[row.name] = row
        unit = Axis(fresh_name("_row", {*names_in(tensor.body), *outer}), as_int(1))
        read = Load(placeholders(row), (Index(var(unit.var)), *vector.indices))
        body = transform(tensor.body, _same, {vector: read})
        both = (read, loads[1]) if loads[0] is vector else (loads[0], read)
        return tensor.replace(axes=(unit, *tensor.axes), body=body), both

    def definition(self, binding: Binding) -> tuple[Tensor, ...]:
        """What the binding computes, of placeholders with the values' names."""
        made = self.operators[binding.op].define(
            *map(placeholders, binding.args), **binding.attributes()
        )
        return made if isinstance(made, tuple) else (made,)

    def bind(
        self, wish: str, made: Tensor, read: dict[str, Value], op: str, spans: Any = ()
    ) -> Value:
        """A new value that `made` computes of the values it reads, by name."""
        value = Value(self.fresh(wish), TensorType(made.dtype, made.shape))
        self.bindings.append(expression_binding((value,), made, read, (("op", op),), spans))
        return value

    def fresh(self, wish: str) -> str:
        name = fresh_name(wish, self.taken)
        self.taken.add(name)
        return name


def _without_row(tensor: Compute) -> Compute:
    """The only row of a matrix."""
    return compute(tensor.shape[1:], lambda *at: tensor[(0, *at)])


def placeholders(arg: Any) -> Any:
    """Placeholders for values, in tuples as they are."""
    if isinstance(arg, tuple):
        return tuple(map(placeholders, arg))
    return None if arg is None else Input(arg.name, arg.dtype, arg.shape)


def _same(node: Any) -> Any:
    return node
