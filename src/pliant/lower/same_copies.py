"""A result that only names the dimensions of another value in another order is that value, where
both lie in memory in the same order.

    y[n, o, h, w] = sum(…)         order (n, h, w, o)
    r[n, h, w, o] = y[n, o, h, w]  order (n, h, w, o)     ->     r[n, h, w, o] = sum(…)

A model whose images have their channels last at its ends needs no copy of them.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.ir.expr import Index, Load
from pliant.ir.tensor import Compute
from pliant.lower.layout import Order, readers_of
from pliant.lower.stages import Stages
from pliant.sym.expr import var


def drop_same_copies(s: Stages, orders: dict[str, Order]) -> None:
    """Rewrite results in place; what they copied is gone. `orders` are those of all stages."""
    readers = readers_of(s)
    for name in s.results:
        copy = s.stages[name].tensor
        source, dims = _turned(copy)
        if source not in s.stages or source in s.results or len(readers.get(source, ())) != 1:
            continue
        made = s.stages[source]
        same = [dims[d] for d in orders[source]] == list(orders[name])
        if not same or made.notes or not isinstance(made.tensor, Compute):
            continue
        axes = [made.tensor.axes[dims.index(k)] for k in range(len(dims))]
        spans = (*made.spans, *s.stages[name].spans)
        s.stages[name] = replace(
            made, name=name, tensor=made.tensor.replace(axes=tuple(axes)), spans=spans
        )
        del s.stages[source], orders[source]


def _turned(copy: object) -> tuple[str, list[int]]:
    """What the tensor copies with its dimensions in another order, and which of the copy's
    dimensions each of them is; an empty name where it does something else."""
    if not isinstance(copy, Compute) or not isinstance(copy.body, Load):
        return "", []
    names = [a.var for a in copy.axes]
    at = [i.int_ for i in copy.body.indices if isinstance(i, Index)]
    dims = [k for x in at for k, v in enumerate(names) if x is var(v)]
    if sorted(dims) != list(range(len(names))) or len(dims) != len(copy.body.indices):
        return "", []
    return copy.body.source.name, dims
