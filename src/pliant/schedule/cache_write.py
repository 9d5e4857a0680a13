"""Write a buffer of one's own, and copy it to the buffer afterwards.

The buffer of one's own may have another layout, in which for example dimensions are one.
`reverse_compute_at` brings the copying block into a loop, `shrink_buffer` makes the buffer small.

Before:

    @loop
    def sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
        for i, r in grid(n, k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[a, c]

Steps:

    p = p.cache_write('y')

After:

    y_local = alloc(f32[n], scope="scratch")
    for i, r in grid(n, k):
        with block("y", S(i, n), R(r, k)) as (a, c):
            with init():
                y_local[a] = 0.0
            y_local[a] = y_local[a] + x[a, c]
    for y_store_0 in grid(n):
        with block("y_store", S(y_store_0, n)) as (y_store_v0,):
            y[y_store_v0] = y_local[y_store_v0]
"""

from __future__ import annotations

from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at, replace_buffer
from pliant.loop.stmt import Block, Buffer, Stmt, seq
from pliant.loop.stmt import buffer as make_buffer
from pliant.schedule.copies import place_behind, store_nest, varies, whole, with_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, is_leaf, stores_everywhere
from pliant.schedule.layout import Layout, Packing, known_layout, packing
from pliant.schedule.program import BlockRef, MemoryRef, Program, primitive
from pliant.schedule.set_scope import InnerScope


@primitive
def cache_write(
    p: Program,
    block: str,
    scope: InnerScope = "scratch",
    *,
    buffer: str | None = None,
    layout: Layout | None = None,
) -> Program:
    """Makes the copying block and the buffer that `block`, and all that writes its buffer with
    it, writes instead, arranged as `layout` says. `buffer` tells which, for a block that writes
    several."""
    old, packed, path, at = check_cache_write(p, block, buffer, layout)
    names = p.names()
    local = make_buffer(names.buffer(f"{old.name}_local"), packed.shape, old.dtype, scope=scope)
    copy = store_nest(names, f"{old.name}_store", packed, local, old, whole(old))
    writers = replace_buffer(path[at], old, local, packed.place)
    body = with_alloc(replace_at(path[: at + 1], seq(writers, copy.nest)), local)
    return p.with_body(body, BlockRef(copy.block), MemoryRef(local.name))


def check_cache_write(
    p: Program, block: str, buffer: str | None = None, layout: Layout | None = None
) -> tuple[Buffer, Packing, tuple[Stmt, ...], int]:
    """The block writes the buffer, all of it, at its iterators; the layout has an inverse. Gives
    the buffer, its packing, the block's path and where in it the copy goes: after the outermost
    statement that holds all writers and reads of the buffer but those of other blocks later on."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("cache_write", f"block {block}", reason)

    path, flow = p.block_path("cache_write", block), Flow(p)
    target = path[-1]
    assert isinstance(target, Block)
    if not is_leaf(target):
        raise refuse("it holds loops or blocks of its own")
    written = {a.buffer for a in flow.of_block(block) if a.write}
    buffers = {b for b in written if buffer in (None, b.name)}
    if len(buffers) != 1:
        raise refuse(f"it does not write {buffer or 'one buffer'}")
    (old,) = buffers
    uses = flow.writers(old) + flow.readers(old)
    if any(a.indices is None for a in uses):
        raise refuse(f"a call takes the address of {old.name}")
    if varies(old.shape, p):
        raise refuse(f"the shape of {old.name} varies")
    if not stores_everywhere(target, old, p.around(path)):
        raise refuse(f"it does not write all of {old.name} at its iterators")
    if not known_layout(layout, old.rank, p.sizes):
        raise refuse(f"the layout is not one of {old.rank} indices")
    packed = packing(old.shape, layout, p.facts)
    if packed is None:
        raise refuse("the layout has no inverse")
    writers = flow.writers(old)
    at = place_behind(p, path, old, (a.block for a in writers), refuse)
    if sum(a.write and a.buffer is old for a in accesses(path[at], p.invoked)) < len(writers):
        raise refuse(f"other statements write {old.name} elsewhere")
    return old, packed, path, at
