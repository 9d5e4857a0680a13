"""Have a block use a buffer through a copy that is indexed by the block's iterators alone.

A convolution is a matrix product then, with the iterators that it reduces over for the inner one.
Zeros around the buffer, as a window has them, are in the copy. What a block writes is reindexed in
the same way: it writes the copy, which is brought to its place afterwards.

Before:

    @loop
    def outer(x: f32["2*n"], w: f32["m"], y: f32["n", "m"], n: i64, m: i64):
        for i, j in grid(n, m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[2*a + 1] * w[b]

Steps:

    p = p.reindex('y', 'x')

After:

    x_reindex = alloc(f32[n], scope="scratch")
    for x_reindex_0 in grid(n):
        with block("x_reindex", S(x_reindex_0, n)) as (x_reindex_v0,):
            x_reindex[x_reindex_v0] = x[2*x_reindex_v0 + 1]
    for i, j in grid(n, m):
        with block("y", S(i, n), S(j, m)) as (a, b):
            y[a, b] = x_reindex[a] * w[b]

Steps:

    p = p.reindex('y', 'y')

After:

    y_reindex = alloc(f32[n, m], scope="scratch")
    for i, j in grid(n, m):
        with block("y", S(i, n), S(j, m)) as (a, b):
            y_reindex[a, b] = x[2*a + 1] * w[b]
    for y_store_0, y_store_1 in grid(n, m):
        with block("y_store", S(y_store_0, n), S(y_store_1, m)) as (y_store_v0, y_store_v1):
            y[y_store_v0, y_store_v1] = y_reindex[y_store_v0, y_store_v1]
"""

from __future__ import annotations

from pliant.schedule.flow import Flow
from pliant.schedule.program import Program, primitive
from pliant.schedule.reindex_cache_read import check_reindex_read
from pliant.schedule.reindex_cache_write import check_reindex_write, written_apart
from pliant.schedule.set_scope import InnerScope
from pliant.schedule.staging import staged


@primitive
def reindex(p: Program, block: str, buffer: str, scope: InnerScope = "scratch") -> Program:
    """Makes the copying block and the copy. The copy's dimensions are the iterators that the
    block's one access of `buffer` uses, in the block's order; a reduction's update of `buffer`,
    which reads and writes, is one."""
    label = f"{buffer}_reindex"
    if writes(p, block, buffer):
        kept = check_reindex_write(p, "reindex", block, buffer, None)
        return written_apart(p, kept, label, scope)
    plan = check_reindex_read(p, "reindex", block, buffer, None)
    return staged(p, "reindex", plan, label, scope)


def writes(p: Program, block: str, buffer: str) -> bool:
    """Whether it is what the block writes that is reindexed."""
    memory = p.buffer(buffer)
    return any(a.write and a.buffer is memory for a in Flow(p).of_block(block))
