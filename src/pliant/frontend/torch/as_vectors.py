"""Tensors without dimensions, where torch takes them for vectors of one element.

sort(x: f32[])  ->  reshape(sort(reshape(x, (1,))), ())
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.frontend.torch.lazy import Lazy
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def as_vectors(lower: Lowering) -> Lowering:
    """`lower`, for a first operand without dimensions given vectors in place of all tensors that
    have none. Its results have the shapes that torch says."""

    def raised(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Any:
        if x.shape:
            return lower(ctx, x, *args, **kwargs)
        expected = ctx.meta()
        named = {k: _raised(ctx, v) for k, v in kwargs.items()}
        result = lower(ctx, *(_raised(ctx, a) for a in (x, *args)), **named)
        if isinstance(result, tuple | list):
            return tuple(_shaped(ctx, r, e) for r, e in zip(result, expected, strict=True))
        return _shaped(ctx, result, expected)

    return raised


def all_as_vectors(table: Table) -> dict[str, Lowering]:
    """The table with every rule made so."""
    return {name: as_vectors(lower) for name, lower in table.items()}


def _raised(ctx: Context, x: Any) -> Any:
    if isinstance(x, Value) and not x.shape:
        return ctx.call("reshape", x, shape=(as_int(1),))
    return x


def _shaped(ctx: Context, x: Any, expected: Any) -> Any:
    if isinstance(x, Lazy):
        return Lazy(lambda: _shaped(ctx, x.get(), expected))
    if isinstance(x, Value) and isinstance(expected, torch.Tensor):
        return ctx.call("reshape", x, shape=ctx.symbols.shape(expected))
    return x
