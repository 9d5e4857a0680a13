"""Update a buffer in a copy of it.

                                          for a in grid(n):
                                              y_local[a] = y[a]
    for i, r in grid(n, k):               for i, r in grid(n, k):
        y[i] = y[i] + x[i, r]        ->       y_local[i] = y_local[i] + x[i, r]
                                          for a in grid(n):
                                              y[a] = y_local[a]

For a block that needs what was in the buffer before, which `cache_write` refuses. The copy is of
the whole buffer.
"""

from __future__ import annotations

from pliant.ir.expr import Load
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at, replace_buffer
from pliant.loop.stmt import Alloc, Buffer, Let, Seq, Stmt, seq
from pliant.schedule.copies import check_shared, fill_nest, store_nest, varies, whole, with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow
from pliant.schedule.layout import packing
from pliant.schedule.program import BlockRef, MemoryRef, Program, primitive
from pliant.schedule.set_scope import InnerScope


@primitive
def cache_inplace(p: Program, block: str, buffer: str, scope: InnerScope = "scratch") -> Program:
    """Makes the block that fills the copy, the one that brings it back, and the copy."""
    memory, path, at = check_cache_inplace(p, block, buffer)
    packed, names = packing(memory.shape, None, p.facts), p.names()
    assert packed is not None
    value = Load(memory, whole(memory))
    filled = fill_nest(names, f"{buffer}_local", packed, value, scope)
    local = filled.buffer
    stored = store_nest(names, f"{buffer}_store", packed, local, memory, whole(memory))
    inner = replace_buffer(path[at], memory, local, packed.place)
    nest = seq(filled.nest, inner, stored.nest)
    body = with_alloc(replace_at(path[: at + 1], nest), local)
    made = BlockRef(filled.block), BlockRef(stored.block), MemoryRef(local.name)
    q = p.with_body(body, *made)
    check_shared(q, "cache_inplace", block, path, at)
    return q


def check_cache_inplace(
    p: Program, block: str, buffer: str
) -> tuple[Buffer, tuple[Stmt, ...], int]:
    """The block reads and writes the buffer. Gives it, the block's path, and where in that the
    outermost statement is in which no other uses it: the copies go around that. (Parallel loops
    around must not share the copy, which is seen when it is there.)"""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("cache_inplace", f"block {block}", reason)

    path, memory, flow = p.block_path("cache_inplace", block), p.buffer(buffer), Flow(p)
    mine = [a for a in flow.of_block(block) if a.buffer is memory]
    if {a.write for a in mine} != {True, False}:
        raise refuse(f"it does not both read and write {buffer}")
    if any(a.indices is None for a in mine):
        raise refuse(f"a call takes the address of {buffer}")
    if varies(memory.shape, p):
        raise refuse(f"the shape of {buffer} varies")
    for k, s in enumerate(path):
        if isinstance(s, Alloc | Seq | Let) or not flow.in_scope(memory, path[: k + 1]):
            continue
        uses = (a for a in accesses(s, p.invoked) if a.buffer is memory)
        if all(a.block == block for a in uses):
            return memory, path, k
    raise refuse(f"what is inside it uses {buffer}")
