"""Rules for other types or shapes than an operator's operands have: converted, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.frontend.torch.context import Context, Lowering
from pliant.frontend.torch.lazy import Lazy
from pliant.graph.function import Value

Back = Callable[[Context, Value, torch.Tensor], Value]


def converted(
    lower: Lowering,
    applies: Callable[[Sequence[Any]], bool],
    there: Callable[[Context, Any], Any],
    back: Back,
) -> Lowering:
    """`lower`, where it `applies` to the arguments given what `there` makes of each; `back` takes
    its results to what torch says of them."""

    def rule(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        if not applies((*args, *kwargs.values())):
            return lower(ctx, *args, **kwargs)
        expected = ctx.meta()
        named = {k: there(ctx, v) for k, v in kwargs.items()}
        result = lower(ctx, *(there(ctx, a) for a in args), **named)
        if isinstance(result, tuple | list):
            return tuple(_back(ctx, r, e, back) for r, e in zip(result, expected, strict=True))
        return _back(ctx, result, expected, back)

    return rule


def _back(ctx: Context, x: Any, expected: Any, back: Back) -> Any:
    if isinstance(x, Lazy):
        return Lazy(lambda: _back(ctx, x.get(), expected, back))
    if isinstance(x, Value) and isinstance(expected, torch.Tensor):
        return back(ctx, x, expected)
    return x
