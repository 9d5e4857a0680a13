"""A product between maps of patches, a row of patches at a time: convolutions by few products.

    v[n, p, …, c] = f(x[n, c, s*p + …, …])                what a patch is made of, several times
    m[n, p, …, o] = sum over c of v[n, p, …, c] * u[…, c, o]
    y[n, o, h, w] = g(m[n, h // s, …, w // s, o])         s rows of results of a row of patches

What lies between is some times as large as images. In a kernel of its own a row of it is computed,
used and forgotten. (Filters u that do not fit into a second-level cache beside that are read again
for each row, so it must be long.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Final

from pliant.ir.expr import Index, Load
from pliant.ir.mapping import SIDE, likely_value
from pliant.ir.tensor import Compute, Input, own_nodes
from pliant.lower.access import bare_name, classify, is_identity, reads_many
from pliant.lower.attention import operand_of
from pliant.lower.layout import Order
from pliant.lower.pack import Plan
from pliant.lower.stages import Stages, readers_of
from pliant.sym.atoms import DivAtom
from pliant.sym.expr import as_int

ROOM: Final = 3 << 18  # bytes of filters: three quarters of a second-level cache
SEVERAL: Final = 4  # elements that one of a patch is made of, at least
LONG: Final = 10  # patches of a row for which others are read


def find_patches(
    s: Stages, plans: Mapping[str, Plan], orders: Mapping[str, Order]
) -> Iterator[tuple[str, tuple[str, ...] | str]]:
    """For each packed product of patches, by name: the stages that can be one kernel (maps, each
    read by the next alone, the product, and a map), or why they are several."""
    readers = readers_of(s)

    def only_reader(name: str) -> str:
        """What alone reads a value; empty where that is not so, or it is a result."""
        by = readers.get(name, ())
        return by[0] if len(by) == 1 and name not in s.results else ""

    for name, plan in plans.items():
        operand = operand_of(plan)
        if name not in s.stages or plan.packed in s.stages or operand is None or plan.gather:
            continue
        before = _maps_before(s, operand.source.name, name, only_reader)
        product = s.stages[name].tensor
        assert isinstance(product, Compute)
        if not before or not _product_of_rows(plan, product, operand):
            continue
        after = only_reader(name)
        results = s.stages[after].tensor if after else None
        if not isinstance(results, Compute) or not _in_rows(results, name, orders[after]):
            yield name, "what is made of its results is not a map by rows of patches"
        elif not _pays(s, name, s.types[plan.packed]):
            yield name, "filters would be read again for each of many short rows of patches"
        else:
            yield name, (*before, name, after)


def _maps_before(
    s: Stages, name: str, reader: str, only_reader: Callable[[str], str]
) -> tuple[str, ...]:
    """The map that gives a product its operand, after those that it is a mere cast of; nothing
    where others want it, or it is no more than is read."""
    found: list[str] = []
    while True:
        stage = s.stages.get(name)
        if stage is None or only_reader(name) != reader or classify(stage.tensor) != "map":
            return ()
        tensor = stage.tensor
        assert isinstance(tensor, Compute)
        found.insert(0, name)
        loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
        if reads_many(tensor, SEVERAL):
            return tuple(found)
        if len(loads) != 1 or not is_identity(loads[0], tensor):
            return ()
        name, reader = loads[0].source.name, name


def _pays(s: Stages, name: str, filters: Input) -> bool:
    row = s.types[name].dims[-2]
    size = prod(filters.dims, start=as_int(filters.dtype.bytes))
    few = size.is_const and size.value <= ROOM
    return row != 1 and (few or likely_value(row, s.facts, SIDE) >= LONG)


def _product_of_rows(plan: Plan, product: Compute, operand: Load) -> bool:
    """Whether rows of a product are images, rows of patches and these, and the places of a patch
    outside; all but how many of those there are is known."""
    axes = [a.var for a in product.axes]
    sizes = (*product.axes[2:4], product.axes[-1], *product.reduce_axes)
    if len(axes) != 6 or not all(a.extent.is_const for a in sizes):
        return False
    at = [bare_name(i) for i in operand.indices]
    if at != [*axes[:-1], plan.inner] or (axes[-1],) != plan.n or plan.positions:
        return False
    return {axes[0], axes[1], axes[-2]} <= {*plan.m}


def _in_rows(results: Compute, product: str, order: Order) -> bool:
    """Whether each row of patches gives rows of results, which lie so."""
    if classify(results) != "map" or len(order) < 4:
        return False
    loads = [n for n in own_nodes(results.body) if isinstance(n, Load) and n.source.name == product]
    rows = {_row(n) for n in loads}
    image, row, *_, last = (results.axes[d].var for d in order)
    column = {bare_name(n.indices[-1]) for n in loads}
    return rows == {(image, row)} and column == {last}


def _row(load: Load) -> tuple[str, str] | None:
    """The image, and the row of results of which several come from a row of patches."""
    image, row = load.indices[:2]
    first = bare_name(image)
    if first is None or not isinstance(row, Index):
        return None
    match row.int_.sole_atom:
        case DivAtom(num, den) if den.is_const and bare_name(Index(num)) is not None:
            return first, str(num)
    return None
