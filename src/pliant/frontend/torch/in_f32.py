"""Compositions on 16-bit floats are made in f32 and rounded once, as torch's kernels do it.

lerp(a: f16, b: f16, w)  ->  cast(lerp(cast(a, f32), cast(b, f32), w), f16)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.base.dtypes import f32
from pliant.frontend.torch.context import Context, Lowering, Table
from pliant.frontend.torch.converted import converted
from pliant.frontend.torch.promote import from_torch
from pliant.graph.function import Value


def in_f32(lower: Lowering) -> Lowering:
    """`lower`, given f32 for every 16-bit float. Its results have the types that torch says."""
    return converted(lower, _are_narrow, _widened, _rounded)


def all_in_f32(table: Table) -> dict[str, Lowering]:
    """The table with every rule made so."""
    return {name: in_f32(lower) for name, lower in table.items()}


def _are_narrow(args: Sequence[Any]) -> bool:
    """Whether some are."""
    return any(map(_is_narrow, args))


def _is_narrow(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return _are_narrow(x)
    return isinstance(x, Value) and x.dtype.is_float and x.dtype.bits < f32.bits


def _widened(ctx: Context, x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(_widened(ctx, v) for v in x)
    return ctx.cast(x, f32) if _is_narrow(x) else x


def _rounded(ctx: Context, x: Value, expected: torch.Tensor) -> Value:
    return ctx.cast(x, from_torch(expected.dtype))
