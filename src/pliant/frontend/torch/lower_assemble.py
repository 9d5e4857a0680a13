"""ATen operators that raise ranks and combine vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.frontend.torch.context import Context, Table
from pliant.frontend.torch.lower_shape import expand, flatten, raise_rank, to_shape
from pliant.graph.function import Value
from pliant.sym.expr import as_int


def at_least(rank: int) -> Any:
    """atleast_1d, atleast_2d, atleast_3d, of a tensor or a list."""

    def lower(ctx: Context, x: Any) -> Any:
        if not isinstance(x, Value):
            return tuple(lower(ctx, v) for v in x)
        if rank == 3 and len(x.shape) == 2:
            return ctx.call("unsqueeze", x, axes=(2,))
        if rank == 3 and len(x.shape) == 1:
            return ctx.call("unsqueeze", x, axes=(0, 2))
        return raise_rank(ctx, x, rank)

    return lower


def cartesian_product(ctx: Context, xs: Sequence[Value]) -> Any:
    """All combinations of elements of vectors, a row each."""
    if len(xs) == 1:
        return xs[0]
    shape = tuple(x.shape[0] for x in xs)
    columns = []
    for k, x in enumerate(xs):
        row = tuple(d if j == k else as_int(1) for j, d in enumerate(shape))
        columns.append(flatten(ctx, expand(ctx, to_shape(ctx, x, row), shape)))
    return ctx.call("stack", ctx.promoted(*columns), axis=1)


ASSEMBLE: Final[Table] = {
    "aten.cartesian_prod.default": cartesian_product,
    **{
        f"aten.atleast_{n}d.{overload}": at_least(n)
        for n in (1, 2, 3)
        for overload in ("default", "Sequence")
    },
}
