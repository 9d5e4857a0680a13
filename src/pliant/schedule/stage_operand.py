"""Compute a part of a block's value in front, into a buffer, and read it from there.

The part is all that is made of one buffer alone. It is computed once for the iterators that it
depends on; `compute_at` and `shrink_buffer` make it that of a tile. A tile of an operand that does
not lie as the inner loops want it becomes one that does.

Before:

    @loop
    def product(x: f16["k", "n"], w: f32["k", "m"], y: f32["n", "m"], n: i64, m: i64, k: i64):
        for i, j, r in grid(n, m, k):
            with block("y", S(i, n), S(j, m), R(r, k)) as (a, b, c):
                with init():
                    y[a, b] = 0.0
                y[a, b] = y[a, b] + f32(x[c, a]) * w[c, b]

Steps:

    p = p.stage_operand('y', 'x')

After:

    x_part = alloc(f32[n, k], scope="scratch")
    for x_part_0, x_part_1 in grid(n, k):
        with block("x_part", S(x_part_0, n), S(x_part_1, k)) as (x_part_v0, x_part_v1):
            x_part[x_part_v0, x_part_v1] = f32(x[x_part_v1, x_part_v0])
    for i, j, r in grid(n, m, k):
        with block("y", S(i, n), S(j, m), R(r, k)) as (a, b, c):
            with init():
                y[a, b] = 0.0
            y[a, b] = y[a, b] + x_part[a, c] * w[c, b]
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
def stage_operand(p: Program, block: str, source: str, *, dtype: str = "") -> Program:
    """Makes the block that computes what `block` makes of `source`, and the buffer for it. Its
    dimensions are the block's iterators that the value depends on, in their order. With `dtype`
    (a type's name) it is what the block makes of that type: it converts that itself."""
    plan = check_stage_operand(p, block, source, dtype)
    return staged(p, "stage_operand", plan, f"{source}_part")


def check_stage_operand(p: Program, block: str, source: str, dtype: str = "") -> Staging:
    """The block is one store, under no condition but its domain, and reads the buffer in one part
    of its value; nothing else that varies is in that part, and nothing writes the buffer there."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("stage_operand", f"block {block}", reason)

    path, memory = p.block_path("stage_operand", block), p.buffer(source)
    target = path[-1]
    assert isinstance(target, Block)
    if not is_leaf(target) or not isinstance(target.body, Store):
        raise refuse("it is more than one store")
    if not only_domain(target, p.around(path)):
        raise refuse("it runs under a condition")
    parts = _parts(target.body.value, memory, dtype)
    if len(parts) != 1:
        kind = f" and are {dtype}" if dtype else ""
        raise refuse(f"{len(parts)} parts of its value are made of {source} alone{kind}")
    (part,) = parts
    if any(x.source is memory for x in _loads_outside(target.body, part)):
        raise refuse(f"it reads {source} elsewhere as well")
    return check_staging(p, path, part, None, refuse)


def _parts(value: Expr, memory: Buffer, dtype: str) -> list[Expr]:
    """The greatest expressions (of a type) all of whose loads are from the buffer."""
    sources = {x.source for x in loads_of(value)}
    if sources == {memory} and dtype in ("", str(value.dtype)):
        return [value]
    if memory not in sources:
        return []
    children = dict.fromkeys(c for c in value.children() if isinstance(c, Expr))
    return list(dict.fromkeys(part for c in children for part in _parts(c, memory, dtype)))


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
