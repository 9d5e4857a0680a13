"""Tensors without dimensions, where torch takes them for vectors of one element.

sort(x: f32[])  ->  reshape(sort(reshape(x, (1,))), ())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.frontend.torch.converted import converted
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def as_vectors(lower: Lowering) -> Lowering:
    """`lower`, for a first operand without dimensions given vectors in place of all tensors that
    have none. Its results have the shapes that torch says."""
    return converted(lower, _begins_without, _raised, _shaped)


def all_as_vectors(table: Table) -> dict[str, Lowering]:
    """The table with every rule made so."""
    return {name: as_vectors(lower) for name, lower in table.items()}


def _begins_without(args: Sequence[Any]) -> bool:
    return not args[0].shape


def _raised(ctx: Context, x: Any) -> Any:
    if isinstance(x, Value) and not x.shape:
        return ctx.call("reshape", x, shape=(as_int(1),))
    return x


def _shaped(ctx: Context, x: Value, expected: torch.Tensor) -> Value:
    return ctx.call("reshape", x, shape=ctx.symbols.shape(expected))  # type: ignore[no-any-return]
