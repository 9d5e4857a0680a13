"""The type of an operator's one definition. The table of operators is a value, passed along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pliant.ir.tensor import Tensor

Definition = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Operator:
    """A named operator.

    `define(*operands, **attributes)` gives its tensor expression(s). An operand is a `Tensor`, None
    where an optional one is absent, or a tuple of tensors for a variadic one (`variadic`).
    Attributes are numbers, strings, booleans, None, dtypes, symbolic integers or tuples of these.
    Raises `InvalidModelError` with the reason where operands do not fit.
    """

    name: str
    define: Definition
    variadic: bool = False


Operators = Mapping[str, Operator]


def operator_table(*families: tuple[Operator, ...]) -> dict[str, Operator]:
    """One table out of families. Raises ValueError when two operators share a name."""
    table: dict[str, Operator] = {}
    for family in families:
        for op in family:
            if op.name in table:
                raise ValueError(f"operator {op.name!r} is defined twice")
            table[op.name] = op
    return table
