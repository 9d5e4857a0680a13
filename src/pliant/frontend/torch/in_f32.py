"""Compositions on 16-bit floats are made in f32 and rounded once, as torch's kernels do it.

lerp(a: f16, b: f16, w)  ->  cast(lerp(cast(a, f32), cast(b, f32), w), f16)
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.base.dtypes import f32
from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.frontend.torch.lazy import Lazy
from pliant.frontend.torch.promote import from_torch
from pliant.graph.function import Value


def in_f32(lower: Lowering) -> Lowering:
    """`lower`, given f32 for every 16-bit float. Its results have the types that torch says."""

    def wide(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        if not any(map(_is_narrow, (*args, *kwargs.values()))):
            return lower(ctx, *args, **kwargs)
        expected = ctx.meta()
        named = {k: _widened(ctx, v) for k, v in kwargs.items()}
        result = lower(ctx, *(_widened(ctx, a) for a in args), **named)
        if isinstance(result, tuple | list):
            return tuple(_rounded(ctx, r, e) for r, e in zip(result, expected, strict=True))
        return _rounded(ctx, result, expected)

    return wide


def all_in_f32(table: Table) -> dict[str, Lowering]:
    """The table with every rule made so."""
    return {name: in_f32(lower) for name, lower in table.items()}


def _is_narrow(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return any(map(_is_narrow, x))
    return isinstance(x, Value) and x.dtype.is_float and x.dtype.bits < f32.bits


def _widened(ctx: Context, x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(_widened(ctx, v) for v in x)
    return ctx.cast(x, f32) if _is_narrow(x) else x


def _rounded(ctx: Context, x: Any, expected: Any) -> Any:
    if isinstance(x, Lazy):
        return Lazy(lambda: _rounded(ctx, x.get(), expected))
    if isinstance(x, Value) and isinstance(expected, torch.Tensor):
        return ctx.cast(x, from_torch(expected.dtype))
    return x
