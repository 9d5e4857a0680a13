"""Have a block use a buffer through a copy that is indexed by the block's iterators alone.

    for i, j, r, c in grid(n, m, 3, k):            for i, r, c in grid(n, 3, k):
        y[i, j] += x[i + r, c] * w[r, c, j]  ->        x_reindex[i, r, c] = x[i + r, c]
                                                   for i, j, r, c in grid(n, m, 3, k):
                                                       y[i, j] += x_reindex[i, r, c] * w[r, c, j]

The convolution is a matrix product now, with (r, c) for its inner iterator. What a block writes is
reindexed in the same way: it writes the copy, which is brought to its place afterwards.
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
