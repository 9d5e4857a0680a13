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

from pliant.ir.expr import Index, Load, Select, const
from pliant.loop.regions import accesses
from pliant.loop.rewrite import Names, conjoin, replace_at, replace_loads
from pliant.loop.stmt import Alloc, Block, Buffer, Iter, Let, Seq, Stmt, Store, buffer, for_, seq
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow
from pliant.schedule.layout import Layout, Packing, known_layout, packing
from pliant.schedule.program import BlockRef, MemoryRef, Program, primitive
from pliant.schedule.set_scope import InnerScope
from pliant.sym.expr import var


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
    names = p.names()
    copy, nest = _copy_nest(source, packed, scope, pad, names)
    old = path[-1]
    assert isinstance(old, Block)
    reader = replace_loads(old, source, lambda i: Load(copy, packed.place(i)))
    inner = replace_at(path[at:], reader)
    body = with_alloc(replace_at(path[: at + 1], seq(nest.stmt, inner)), copy)
    return p.with_body(body, BlockRef(nest.name), MemoryRef(copy.name))


def check_cache_read(
    p: Program, block: str, buffer: str, layout: Layout | None = None
) -> tuple[Buffer, Packing, tuple[Stmt, ...], int]:
    """The block reads the buffer and does not write it; the layout has an inverse. Gives the
    buffer, its packing, the block's path and where in it the copy goes: in front of the outermost
    statement in which nothing writes the buffer."""

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
    names = frozenset[str]().union(*(d.names for d in source.shape))
    if not names <= p.sizes:
        raise refuse(f"the shape of {buffer} varies")
    if not known_layout(layout, source.rank, p.sizes):
        raise refuse(f"the layout is not one of {source.rank} indices")
    packed = packing(source.shape, layout, p.facts)
    if packed is None:
        raise refuse("the layout has no inverse")
    at = place_in_front(p, path, source)
    if at is None:
        raise refuse(f"{buffer} is written where it is read")
    return source, packed, path, at


def place_in_front(p: Program, path: tuple[Stmt, ...], source: Buffer) -> int | None:
    """Where in `path` a copy of the buffer can be made: in front of the outermost statement in
    which nothing writes it. None if it is written all the way down."""
    flow = Flow(p)
    for k, s in enumerate(path):
        if isinstance(s, Alloc | Seq | Let) or not flow.in_scope(source, path[: k + 1]):
            continue
        if not any(a.write and a.buffer is source for a in accesses(s, p.invoked)):
            return k
    return None


class _Nest:
    def __init__(self, name: str, stmt: Stmt) -> None:
        self.name, self.stmt = name, stmt


def _copy_nest(
    source: Buffer,
    packed: Packing,
    scope: InnerScope,
    pad: int | float | None,
    names: Names,
) -> tuple[Buffer, _Nest]:
    label = names.buffer(f"{source.name}_cache")
    copy = buffer(label, packed.shape, source.dtype, scope=scope)
    name = names.block(label)
    loops = [names.variable(f"{name}_{d}") for d in range(copy.rank)]
    iters = [names.variable(f"{name}_v{d}") for d in range(copy.rank)]
    element, conditions = packed.back([var(i) for i in iters])
    value = Load(source, tuple(map(Index, element)))
    exists = conjoin(conditions)
    where = None
    if exists is not None and pad is not None:
        stored = Select(exists, value, const(pad, source.dtype))
        body = Store(copy, tuple(Index(var(i)) for i in iters), stored)
    else:
        body = Store(copy, tuple(Index(var(i)) for i in iters), value)
        where = exists
    made = Block(
        name,
        tuple(Iter(i, d, "S") for i, d in zip(iters, copy.shape, strict=True)),
        tuple(map(var, loops)),
        body,
        where=where,
    )
    return copy, _Nest(name, for_(list(zip(loops, copy.shape, strict=True)), made))


def with_alloc(root: Stmt, made: Buffer) -> Stmt:
    """The program with one more allocation, after those and the sizes at its beginning."""
    if isinstance(root, Alloc | Let):
        return root.replace(body=with_alloc(root.body, made))
    return Alloc(made, root)
