"""Which values a product goes through row by row, in a kernel that is the same with gaps after the
rows and without: a gap of nothing is one, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pliant.ir.expr import Index, loads_of
from pliant.ir.mapping import if_there
from pliant.ir.tensor import Compute
from pliant.lower.layout import Order, order_in
from pliant.lower.pack import Plan
from pliant.sym.expr import Int, var


def in_rows(
    product: Compute, plan: Plan, stored: Mapping[str, tuple[Int, ...]], orders: Mapping[str, Order]
) -> Iterator[str]:
    """Of values that are `stored` in these shapes: the first operand, where its rows are read in
    place and are what is summed over, and what is as large as the product, where a row of that is
    its columns."""
    extents = {a.var: a.extent for a in (*product.axes, *product.reduce_axes)}
    last = {n: order_in(n, dims, orders)[-1] for n, dims in stored.items() if dims}
    load = next(loads_of(if_there(plan.a_side)))
    name = load.source.name
    if name in last and not plan.gather:
        along = load.indices[last[name]] is Index(var(plan.inner))
        if along and stored[name][last[name]] is extents[plan.inner]:
            yield name
    for n, dims in stored.items():
        if n in last and dims == product.shape and plan.n == (product.axes[last[n]].var,):
            yield n
