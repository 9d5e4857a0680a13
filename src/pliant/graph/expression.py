"""Bindings that are tensor expressions: what is left of operators after fission.

    y: f32["n"] = compute((n,), lambda _i0: exp(x[_i0] - m[()]), notes={"op": "softmax"})

As data this is an application of the operator `expression` to the values that are read:

    Binding((y,), "expression", (x, m), (("notes", (("op", "softmax"),)), ("of", Compute(…))))

`of` reads placeholders, in the order of the operands; `notes` are what passes have decided. An
`Opaque` binds all its results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pliant.base.errors import InvalidModelError
from pliant.base.spans import Span
from pliant.graph.function import Binding, Value
from pliant.graph.operator import Operator
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Input, Opaque, OpaqueOutput, Tensor, inputs_of, sources

Notes = tuple[tuple[str, Any], ...]


def _define(*operands: Tensor, of: Tensor, notes: Notes = ()) -> Tensor | tuple[Tensor, ...]:
    """`of` reading from the operands instead of its placeholders."""
    inputs = inputs_of((of,))
    if len(operands) != len(inputs):
        raise InvalidModelError(f"{len(inputs)} operands are read, {len(operands)} are given")
    memo: dict[Node, Any] = {}
    for formal, actual in zip(inputs, operands, strict=True):
        if formal.dtype is not actual.dtype or formal.rank != actual.rank:
            raise InvalidModelError(
                f"{formal.name} is {formal.dtype} of rank {formal.rank}, "
                f"not {actual.dtype} of rank {actual.rank}"
            )
        memo[formal] = actual
    if isinstance(of, Opaque):
        memo[of.program] = of.program
    made = transform(of, lambda node: node, memo)
    if isinstance(made, Opaque):
        return tuple([OpaqueOutput(made, k) for k in range(len(made.results))])
    return made  # type: ignore[no-any-return]


EXPRESSION: Final = Operator("expression", _define)


def expression_binding(
    outputs: tuple[Value, ...],
    tensor: Tensor,
    values: Mapping[str, Value],
    notes: Notes = (),
    spans: tuple[Span, ...] = (),
) -> Binding:
    """`outputs = tensor`, whose placeholders are named after the `values` that it reads."""
    args = tuple([values[i.name] for i in inputs_of((tensor,))])
    attrs: tuple[tuple[str, Any], ...] = (("of", tensor),)
    return Binding(outputs, EXPRESSION.name, args, (("notes", notes), *attrs) if notes else attrs,
                   spans)  # fmt: skip


def expression_of(binding: Binding) -> tuple[Tensor, Notes] | None:
    """The tensor and notes of a binding that is an expression over its operands by their names;
    None for all others."""
    if binding.op != EXPRESSION.name:
        return None
    match binding.attrs:
        case [("of", Tensor() as tensor)]:
            notes: Notes = ()
        case [("notes", tuple(notes)), ("of", Tensor() as tensor)] if notes:
            pass
        case _:
            return None
    read = tuple(sources(tensor))
    named = all(
        isinstance(a, Value) and isinstance(s, Input) and s is Input(a.name, a.dtype, a.shape)
        for a, s in zip(binding.args, read, strict=False)
    )
    results = len(tensor.results) if isinstance(tensor, Opaque) else 1
    fits = len(read) == len(binding.args) and results == len(binding.outputs)
    return (tensor, notes) if named and fits and not isinstance(tensor, Input) else None
