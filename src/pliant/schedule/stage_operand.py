"""Compute a part of a block's value in front, into a buffer, and read it from there.

                                            for i, k in grid(n, m):
                                                x_part[i, k] = inside ? f32(x[k, 2*i]) : 0
for i, j, k in grid(n, h, m):        ->     for i, j, k in grid(n, h, m):
    y[i, j] += (inside ? f32(x[k, 2*i])         y[i, j] += x_part[i, k] * w[k, j]
                       : 0) * w[k, j]

The part is all that is made of one buffer alone. It is computed once for the iterators that it
depends on; `compute_at` and `shrink_buffer` make it that of a tile. A tile of an operand that does
not lie as the inner loops want it becomes one that does.
"""

from __future__ import annotations

from pliant.ir.expr import Expr, Load, loads_of
from pliant.ir.node import Node
from pliant.loop.stmt import Block, Buffer, Store
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import is_leaf, only_domain
from pliant.schedule.program import Program, primitive
from pliant.schedule.staging import Staging, check_staging, staged


@primitive
def stage_operand(p: Program, block: str, source: str) -> Program:
    """Makes the block that computes what `block` makes of `source`, and the buffer for it. Its
    dimensions are the block's iterators that the value depends on, in their order."""
    plan = check_stage_operand(p, block, source)
    return staged(p, "stage_operand", plan, f"{source}_part")


def check_stage_operand(p: Program, block: str, source: str) -> Staging:
    """The block is one store, under no condition but its domain, and reads the buffer in one part
    of its value; nothing else that varies is in that part, and nothing writes the buffer there."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("stage_operand", f"block {block}", reason)

    path, memory = p.block_path("stage_operand", block), p.buffer(source)
    target = path[-1]
    assert isinstance(target, Block)
    if not is_leaf(target) or not isinstance(target.body, Store):
        raise refuse("it is more than one store")
    if not only_domain(target, p.inside(path)):
        raise refuse("it runs under a condition")
    parts = _parts(target.body.value, memory)
    if len(parts) != 1:
        raise refuse(f"{len(parts)} parts of its value are made of {source} alone")
    (part,) = parts
    if any(x.source is memory for x in _loads_outside(target.body, part)):
        raise refuse(f"it reads {source} elsewhere as well")
    return check_staging(p, path, part, None, refuse)


def _parts(value: Expr, memory: Buffer) -> list[Expr]:
    """The greatest expressions all of whose loads are from the buffer."""
    sources = {x.source for x in loads_of(value)}
    if sources == {memory}:
        return [value]
    if memory not in sources:
        return []
    children = dict.fromkeys(c for c in value.children() if isinstance(c, Expr))
    return list(dict.fromkeys(part for c in children for part in _parts(c, memory)))


def _loads_outside(root: Node, part: Expr) -> list[Load]:
    found: list[Load] = []
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if node is part or isinstance(node, Buffer):
            continue
        if isinstance(node, Load):
            found.append(node)
        stack += node.children()
    return found
