"""A window that slides over a parameter reads a copy that has the padding in it.

    y[o] = max_k  x[o + k - 1] if 0 <= o + k - 1 < n else -inf                0 <= k < 3
 ->
    x.padded[i] = x[i - 1] if 0 <= i - 1 < n else -inf                        0 <= i < n + 2
    y[o] = max_k  x.padded[o + k]

An element is tested once and not for every window that it is in, and a vector of them is one load.
Only windows that run along rows of a parameter gain by it (`layout.runs_in_rows`): what a kernel
made is not worth a copy, and where channels lie last one test serves a vector of them.
"""

from __future__ import annotations

from pliant.ir.expr import Binary, Const, Expr, Index, Load, Select
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, all_of, compute, own_nodes, within
from pliant.lower.conditions import conjuncts
from pliant.lower.layout import runs_in_rows
from pliant.lower.stages import Stage, Stages, readers_of
from pliant.sym.expr import Int, as_int, maximum
from pliant.sym.facts import Facts

Box = tuple[tuple[Int, Int], ...]
"""First element and extent, for every dimension of an operand."""


def pad_windows(s: Stages) -> None:
    """Rewrite windows in place; the copies become stages."""
    given = {p.name for p in s.params}
    readers = readers_of(s)
    made: dict[Compute, str] = {}
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and runs_in_rows(name, s, readers, {}):
            for node in [n for n in own_nodes(tensor.body) if isinstance(n, Select)]:
                load, other = node.a, node.b
                if not (isinstance(load, Load) and load.source.name in given):
                    continue
                box = box_of(tensor, node.cond, load, s.facts)
                if box is None or not isinstance(other, Const):
                    continue
                copy = padded(load.source, box, other)
                if copy not in made:
                    made[copy] = f"{load.source.name}.padded{len(made)}"
                    stages[made[copy]] = Stage(made[copy], copy, "pad", stage.spans)
                    s.types[made[copy]] = Input(made[copy], copy.dtype, copy.shape)
                inside = moved(load, s.types[made[copy]], box)
                body = transform(tensor.body, _same, {node: inside})
                tensor = tensor.replace(body=body)
            stage = Stage(name, tensor, stage.op, stage.spans)
        stages[name] = stage
    s.stages = stages


def box_of(tensor: Compute, cond: Expr, load: Load, facts: Facts) -> Box | None:
    """What a load may read, where the condition says no more than that it is inside its source."""
    found: list[tuple[Int, Int]] = []
    allowed: set[Expr] = set()
    windowed = False
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        if not isinstance(index, Index):
            return None
        tests = {Binary("le", Index(as_int(0)), index), Binary("lt", index, Index(extent))}
        if any(c in tests for c in conjuncts(cond)):
            span = _span(tensor, index.int_, facts)
            if span is None:
                return None
            windowed = True
            found.append(span)
        else:
            found.append((as_int(0), extent))
        allowed |= tests
    return tuple(found) if windowed and set(conjuncts(cond)) <= allowed else None


def _span(tensor: Compute, index: Int, facts: Facts) -> tuple[Int, Int] | None:
    """The least value of an index that grows with every iterator, and how many it ranges over."""
    room = as_int(1)
    for axis in (*tensor.axes, *tensor.reduce_axes):
        split = index.linear(axis.var)
        if split is None or not split[0].is_const or split[0].value < 0:
            return None
        room = room + split[0] * (axis.extent - 1)
        index = split[1]
    return index, facts.simplify(room if facts.nonneg(room) else maximum(room, 0))


def padded(source: Input, box: Box, other: Expr) -> Compute:
    """A copy of what lies in the box, with `other` where that is outside of the source."""

    def element(*at: Int) -> Expr:
        indices = tuple(i + first for i, (first, _) in zip(at, box, strict=True))
        inside = [
            within(i, extent)
            for i, extent, (first, room) in zip(indices, source.dims, box, strict=True)
            if first != 0 or room != extent
        ]
        return Select(all_of(inside), source[indices], other)

    return compute([room for _, room in box], element)


def _same(node: Node) -> Node:
    return node


def moved(load: Load, source: Input, box: Box) -> Load:
    """The same element in a copy of the box."""
    indices: list[Expr] = []
    for index, (first, _) in zip(load.indices, box, strict=True):
        assert isinstance(index, Index)
        indices.append(Index(index.int_ - first))
    return Load(source, tuple(indices))
