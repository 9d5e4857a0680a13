"""The order in which each stored value keeps its dimensions.

Tensors inside are compact, but need not be row-major: a convolution wants its channels last, the
product of attention wants heads next to features because the reader merges them. Since every
access is an expression, no transposition is inserted; readers just see other strides.
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.ir.expr import Index, Load
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import classify, contraction, is_identity
from pliant.lower.stages import Stages
from pliant.sym.expr import Int, as_int

Order = tuple[int, ...]


def choose_layouts(s: Stages) -> dict[str, Order]:
    """The order of dimensions, outermost first, of every stage's value; parameters, weights and
    results are row-major."""
    fixed = set(s.results)
    orders: dict[str, Order] = {}
    for name, stage in s.stages.items():  # forwards: convolutions decide, maps follow
        tensor = stage.tensor
        if name in fixed or not isinstance(tensor, Compute):
            continue
        wanted = _own_wish(tensor, orders)
        if wanted is not None:
            orders[name] = wanted
    readers = _readers(s)
    for name in reversed(s.stages):  # backwards: the rest suit their first reader
        tensor = s.stages[name].tensor
        if name in fixed or name in orders or not isinstance(tensor, Compute):
            continue
        for reader in readers.get(name, ()):
            wanted = _reader_wish(name, s.stages[reader].tensor, orders.get(reader))
            if wanted is not None:
                orders[name] = wanted
                break
    identity = {n: tuple(range(len(st.tensor.shape))) for n, st in s.stages.items()}
    return identity | orders


def strides_of(shape: tuple[Int, ...], order: Order) -> tuple[Int, ...]:
    """Strides of a compact tensor whose dimensions lie in `order`."""
    strides = [as_int(1)] * len(shape)
    step = as_int(1)
    for dim in reversed(order):
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


def _own_wish(tensor: Compute, orders: Mapping[str, Order]) -> Order | None:
    rank = len(tensor.axes)
    kind = classify(tensor)
    if kind == "contraction":
        c = contraction(tensor)
        assert c is not None
        if tensor.axes[-1].var not in c.n and _windowed(tensor):
            return _with_last(tensor, c.n)
        return None
    if kind == "reduction" and rank >= 3 and _windowed(tensor):
        return (0, *range(2, rank), 1)
    loads = [n for n in own_nodes(tensor.body) if isinstance(n, Load)]
    for load in loads:
        order = orders.get(load.source.name)
        if order is not None and is_identity(load, tensor):
            return order
    if kind == "reduction":
        return None
    for load in loads:  # concatenation, padding, resizing: same rank, dimensions in place
        order = orders.get(load.source.name)
        if order is not None and _keeps_dims(load, tensor):
            return order
    return None


def _windowed(tensor: Compute) -> bool:
    """An index that mixes an output axis with a reduction axis: a sliding window."""
    outer = {a.var for a in tensor.axes}
    inner = {a.var for a in tensor.reduce_axes}
    for node in own_nodes(tensor.body):
        if isinstance(node, Load):
            mixed = any(
                isinstance(i, Index) and i.int_.names & outer and i.int_.names & inner
                for i in node.indices
            )
            if mixed:
                return True
    # a 1 x 1 window leaves no iterator behind, but strided or plain spatial axes do not come last
    return len(tensor.axes) >= 4 and len(inner) <= 3


def _with_last(tensor: Compute, names: tuple[str, ...]) -> Order:
    first = [k for k, a in enumerate(tensor.axes) if a.var not in names]
    return (*first, *(k for k, a in enumerate(tensor.axes) if a.var in names))


def _keeps_dims(load: Load, tensor: Compute) -> bool:
    if len(load.indices) != len(tensor.axes):
        return False
    return all(
        isinstance(i, Index) and i.int_.names & {b.var for b in tensor.axes} <= {a.var}
        for i, a in zip(load.indices, tensor.axes, strict=True)
    )


def _readers(s: Stages) -> dict[str, list[str]]:
    readers: dict[str, list[str]] = {}
    for name, stage in s.stages.items():
        for source in stage.inputs:
            readers.setdefault(source, []).append(name)
    return readers


def _reader_wish(name: str, reader: object, order: Order | None) -> Order | None:
    """Dimensions in the order in which the reader runs through them, where row-major would make
    it jump."""
    if not isinstance(reader, Compute):
        return None
    innermost = _innermost(reader, order)
    axes = list(reader.axes) if order is None else [reader.axes[k] for k in order]
    place = {a.var: k for k, a in enumerate((*axes, *reader.reduce_axes))}
    for node in own_nodes(reader.body):
        if not (isinstance(node, Load) and node.source.name == name):
            continue
        if _runs_along(node, innermost):
            return None
        keys: list[tuple[int, int]] = []
        for dim, index in enumerate(node.indices):
            if not isinstance(index, Index):
                return None
            at = [place[n] for n in index.int_.names if n in place]
            keys.append((max(at, default=-1), dim))
        return tuple(dim for _, dim in sorted(keys))
    return None


def _innermost(reader: Compute, order: Order | None) -> tuple[str, ...]:
    """The iterators of which one should be contiguous in what the reader reads."""
    c = contraction(reader)
    if c is not None:
        return c.k
    if not reader.axes:
        return tuple(a.var for a in reader.reduce_axes)
    last = reader.axes[-1 if order is None else order[-1]].var
    return (last, *(a.var for a in reader.reduce_axes[-1:]))


def _runs_along(load: Load, names: tuple[str, ...]) -> bool:
    """Whether one of the iterators steps through a row-major source element by element."""
    offset = as_int(0)
    strides = strides_of(load.source.shape, tuple(range(len(load.indices))))
    for index, stride in zip(load.indices, strides, strict=True):
        if isinstance(index, Index):
            offset = offset + index.int_ * stride
    splits = (offset.linear(n) for n in names)
    return any(s is not None and s[0] == 1 for s in splits)
