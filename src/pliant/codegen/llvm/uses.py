"""What a statement uses of its surroundings, by name: the body of a parallel loop, which becomes a
function of its own, is given it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pliant.base.dtypes import DType
from pliant.ir.expr import Axis, Index, Load, Var
from pliant.ir.node import Node, walk
from pliant.loop.stmt import PREFETCH, Alloc, Buffer, BufferRef, Flat, For, Stmt, Store
from pliant.sym.expr import Int


@dataclass
class Uses:
    """In the order in which they are met, what the statement itself defines among them. `sizes` are
    names of symbols and of loops, `scalars` of variables."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    sizes: dict[str, None] = field(default_factory=dict)
    scalars: dict[str, DType] = field(default_factory=dict)

    def _add(self, x: Int) -> None:
        self.sizes.update(dict.fromkeys(sorted(x.names)))


def uses(s: Stmt) -> Uses:
    found = Uses()
    for node in walk(s):
        if isinstance(node, Load | Store | BufferRef):
            b = node.source if isinstance(node, Load) else node.buffer
            b = b.buffer if isinstance(b, Flat) else b
            found.buffers[b.name] = b
            for extent in (*b.shape, *b.strides):
                found._add(extent)
        for x in _ints(node):
            found._add(x)
        if isinstance(node, Var):
            found.scalars[node.name] = node.dtype
    return found


def _ints(node: Node) -> Iterator[Int]:
    match node:
        case Index(x):
            yield x
        case Axis(_, x):
            yield x
        case For():
            yield node.extent
            if PREFETCH in (notes := dict(node.notes)):
                yield from _asked_for(notes[PREFETCH][1])
        case Alloc():
            yield from node.buffer.shape


def _asked_for(ahead: Int | Load | tuple[Int, ...]) -> Iterator[Int]:
    if isinstance(ahead, Int):
        yield ahead
    elif isinstance(ahead, tuple):
        yield from ahead
    else:
        for node in walk(ahead):
            yield from _ints(node)
