"""Update a buffer in a copy of it.

For a block that needs what was in the buffer before, which `cache_write` refuses. The copy is of
the whole buffer.

Before:

    @loop
    def add(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
        for i, r in grid(n, k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                y[a] = y[a] + x[a, c]

Steps:

    p = p.cache_inplace('y', 'y')

After:

    y_local = alloc(f32[n], scope="scratch")
    for y_local_0 in grid(n):
        with block("y_local", S(y_local_0, n)) as (y_local_v0,):
            y_local[y_local_v0] = y[y_local_v0]
    for i, r in grid(n, k):
        with block("y", S(i, n), R(r, k)) as (a, c):
            y_local[a] = y_local[a] + x[a, c]
    for y_store_0 in grid(n):
        with block("y_store", S(y_store_0, n)) as (y_store_v0,):
            y[y_store_v0] = y_local[y_store_v0]
"""

from __future__ import annotations

from pliant.ir.expr import Load
from pliant.loop.lower_init import reduction_loops
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at, replace_buffer
from pliant.loop.stmt import Alloc, Block, Buffer, For, Let, Seq, Stmt, seq
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
    outermost statement is in which no other uses it: the copies go around that. What the block
    starts, in front of the loops that it reduces over, is started in there. (Parallel loops around
    must not share the copy, which is seen when it is there.)"""

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
        if any(a.block != block for a in uses):
            continue
        target, around = path[-1], {s.var for s in path[:k] if isinstance(s, For)}
        assert isinstance(target, Block)
        reduced = around & reduction_loops(target)
        if target.init is not None and reduced:
            raise refuse(f"it starts in front of loop {min(reduced)}; decompose_reduction first")
        return memory, path, k
    raise refuse(f"what is inside it uses {buffer}")
