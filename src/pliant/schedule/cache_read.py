"""Read a copy of a buffer instead of the buffer.

The copy is of the whole buffer; `compute_at` and `shrink_buffer` make it that of a part.

Before:

    @loop
    def turn(x: f32["m", "n"], y: f32["n", "m"], n: i64, m: i64):
        for i, j in grid(n, m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[b, a]

Steps:

    p = p.cache_read('y', 'x')

After:

    x_cache = alloc(f32[m, n], scope="scratch")
    for x_cache_0, x_cache_1 in grid(m, n):
        with block("x_cache", S(x_cache_0, m), S(x_cache_1, n)) as (x_cache_v0, x_cache_v1):
            x_cache[x_cache_v0, x_cache_v1] = x[x_cache_v0, x_cache_v1]
    for i, j in grid(n, m):
        with block("y", S(i, n), S(j, m)) as (a, b):
            y[a, b] = x_cache[b, a]
"""

from __future__ import annotations

from pliant.ir.expr import Load
from pliant.loop.rewrite import replace_at, replace_loads
from pliant.loop.stmt import Buffer, Stmt, seq
from pliant.schedule.copies import (
    check_shared,
    fill_nest,
    place_in_front,
    varies,
    whole,
    with_alloc,
)
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow
from pliant.schedule.layout import Layout, Packing, known_layout, packing
from pliant.schedule.program import BlockRef, MemoryRef, Program, primitive
from pliant.schedule.set_scope import InnerScope


@primitive
def cache_read(
    p: Program,
    block: str,
    buffer: str,
    scope: InnerScope = "scratch",
    *,
    layout: Layout | None = None,
    pad: int | float | None = None,
) -> Program:
    """Makes the copying block and the copy that `block` reads.

    `layout` arranges the copy in another way; where that leaves gaps, they hold `pad`, or nothing.
    """
    source, packed, path, at = check_cache_read(p, block, buffer, layout)
    value = Load(source, whole(source))
    copy = fill_nest(p.names(), f"{buffer}_cache", packed, value, scope, pad=pad)
    reader = replace_loads(path[-1], source, lambda i: Load(copy.buffer, packed.place(i)))
    inner = replace_at(path[at:], reader)
    body = with_alloc(replace_at(path[: at + 1], seq(copy.nest, inner)), copy.buffer)
    q = p.with_body(body, BlockRef(copy.block), MemoryRef(copy.buffer.name))
    check_shared(q, "cache_read", block, path, at)
    return q


def check_cache_read(
    p: Program, block: str, buffer: str, layout: Layout | None = None
) -> tuple[Buffer, Packing, tuple[Stmt, ...], int]:
    """The block reads the buffer and does not write it; the layout has an inverse. Gives the
    buffer, its packing, the block's path and where in it the copy goes: in front of the outermost
    statement in which nothing writes the buffer. (Parallel loops around that must not share the
    copy, which is seen when it is there.)"""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("cache_read", f"block {block}", reason)

    path, source = p.block_path("cache_read", block), p.buffer(buffer)
    flow = Flow(p)
    mine = [a for a in flow.of_block(block) if a.buffer is source]
    if not mine:
        raise refuse(f"it does not read {buffer}")
    if any(a.write for a in mine):
        raise refuse(f"it writes {buffer}")
    if any(a.indices is None for a in mine):
        raise refuse(f"a call takes the address of {buffer}")
    if varies(source.shape, p):
        raise refuse(f"the shape of {buffer} varies")
    if not known_layout(layout, source.rank, p.sizes):
        raise refuse(f"the layout is not one of {source.rank} indices")
    packed = packing(source.shape, layout, p.facts)
    if packed is None:
        raise refuse("the layout has no inverse")
    at = place_in_front(p, path, [source])
    if at is None:
        raise refuse(f"{buffer} is written where it is read")
    return source, packed, path, at
