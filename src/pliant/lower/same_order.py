"""A value that is read with its dimensions in another order, by what lies in memory in the same
order, has them in that order.

    y[n, o, h, w] = sum(…)                    order (n, h, w, o)
    z[n, h, w, o] = y[n, o, h, w] + b[o]      order (n, h, w, o)
 ->
    y[n, h, w, o] = sum(…)                    order (n, h, w, o)
    z[n, h, w, o] = y[n, h, w, o] + b[o]      order (n, h, w, o)

Then z is made where y is: a kernel goes through the elements of its values together. Where z is a
result and no more than a copy it is y itself. So a model whose images have their channels last at
its ends needs no copy of them.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.ir.expr import Index, Load
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, own_nodes
from pliant.lower.access import bare_name
from pliant.lower.layout import Order
from pliant.lower.stages import Stages, readers_of
from pliant.sym.expr import var


def order_as_read(s: Stages, orders: dict[str, Order]) -> None:
    """Rewrite in place, readers before what they read. `orders` are those of all stages."""
    readers = readers_of(s)
    for name in reversed(tuple(s.stages)):
        if name in s.stages:  # else it took the place of a result
            while _take_place(s, orders, readers, name):
                pass  # it is another stage now, which may be a copy, too
            _turn_read(s, orders, readers, name)


def _take_place(
    s: Stages, orders: dict[str, Order], readers: dict[str, list[str]], name: str
) -> bool:
    """Whether the result `name` was a copy, and is what it copied now."""
    copy = s.stages[name].tensor
    if name not in s.results or not isinstance(copy, Compute) or not isinstance(copy.body, Load):
        return False
    source = copy.body.source.name
    turned = _turned(s, orders, readers, name, source)
    if turned is None or turned.shape != copy.shape:  # the first of its rows alone, say
        return False
    spans = (*s.stages[source].spans, *s.stages[name].spans)
    s.stages[name] = replace(s.stages[source], name=name, tensor=turned, spans=spans)
    for read in s.stages[name].inputs:
        readers[read] = [name if x == source else x for x in readers[read]]
    del s.stages[source], orders[source]
    return True


def _turn_read(
    s: Stages, orders: dict[str, Order], readers: dict[str, list[str]], name: str
) -> None:
    """What a stage reads so has its dimensions in the stage's order."""
    for source in s.stages[name].inputs:
        turned = _turned(s, orders, readers, name, source)
        if turned is None or turned is s.stages[source].tensor:
            continue
        s.stages[source] = replace(s.stages[source], tensor=turned)
        orders[source] = orders[name]
        s.types[source] = Input(source, turned.dtype, turned.shape)
        stage = s.stages[name]
        assert isinstance(stage.tensor, Compute)
        s.stages[name] = replace(stage, tensor=_reading(stage.tensor, s.types[source]))


def _turned(
    s: Stages, orders: dict[str, Order], readers: dict[str, list[str]], name: str, source: str
) -> Compute | None:
    """The stage `source` with its dimensions in the order of the stage `name`, which alone reads
    it, element by element, and lies as it does; None where that is not so."""
    if source not in s.stages or source in s.results or readers[source] != [name]:
        return None
    by, made = s.stages[name].tensor, s.stages[source]
    if made.notes or not isinstance(made.tensor, Compute) or not isinstance(by, Compute):
        return None
    names = [a.var for a in by.axes]
    loads = [n for n in own_nodes(by.body) if isinstance(n, Load) and n.source.name == source]
    places = {tuple(map(bare_name, n.indices)) for n in loads}
    if len(places) != 1 or sorted(map(str, *places)) != sorted(names):
        return None
    dims = [names.index(str(x)) for x in places.pop()]
    if [dims[d] for d in orders[source]] != list(orders[name]):
        return None
    if dims == sorted(dims):
        return made.tensor
    axes = [made.tensor.axes[dims.index(k)] for k in range(len(dims))]
    return made.tensor.replace(axes=tuple(axes))


def _reading(reader: Compute, source: Input) -> Compute:
    """The stage, element by element of what it reads."""
    here = tuple(Index(var(a.var)) for a in reader.axes)

    def visit(node: Node) -> Node:
        if isinstance(node, Load) and node.source.name == source.label:
            return Load(source, here)
        return node

    return reader.replace(body=transform(reader.body, visit))
