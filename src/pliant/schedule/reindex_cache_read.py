"""Read a copy that is indexed by the block's iterators, as an index map says.

Where `cache_read` arranges the elements of the buffer, this arranges what iterations read. An
element that several of them read is there several times, so that what slides along the buffer lies
in rows of its own.

Before:

    @loop
    def windows(x: f32["k", "n + 2"], w: f32[3, "k"], y: f32["n"], n: i64, k: i64):
        for i, r, c in grid(n, 3, k):
            with block("y", S(i, n), R(r, 3), R(c, k)) as (a, s, d):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[d, a + s] * w[s, d]

Steps:

    p = p.reindex_cache_read('y', 'x', (sym('_0'), sym('_1*k + _2')))

After:

    x_cache = alloc(f32[n, 3*k], scope="scratch")
    for x_cache_0, x_cache_1 in grid(n, 3*k):
        with block("x_cache", S(x_cache_0, n), S(x_cache_1, 3*k)) as (x_cache_v0, x_cache_v1):
            x_cache[x_cache_v0, x_cache_v1] = x[x_cache_v1%k, x_cache_v0 + x_cache_v1//k]
    for i, r, c in grid(n, 3, k):
        with block("y", S(i, n), R(r, 3), R(c, k)) as (a, s, d):
            with init():
                y[a] = 0.0
            y[a] = y[a] + x_cache[a, k*s + d] * w[s, d]
"""

from __future__ import annotations

from pliant.ir.expr import Expr, Load, Select, loads_of
from pliant.ir.node import Node, walk
from pliant.loop.stmt import Block, Buffer, Flat
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow
from pliant.schedule.layout import Layout
from pliant.schedule.program import Program, primitive
from pliant.schedule.set_scope import InnerScope
from pliant.schedule.staging import Staging, check_leaf, check_staging, staged


@primitive
def reindex_cache_read(
    p: Program,
    block: str,
    buffer: str,
    index_map: Layout,
    scope: InnerScope = "scratch",
    *,
    pad: int | float | None = None,
) -> Program:
    """Makes the copying block and the copy that `block` reads. `index_map` tells the copy's
    indices as integers over `_0`, `_1`, …, the block's iterators; where it leaves gaps, they hold
    `pad`, or nothing. Zeros around the buffer, as a window has them, are in the copy."""
    plan = check_reindex_read(p, "reindex_cache_read", block, buffer, index_map)
    return staged(p, "reindex_cache_read", plan, f"{buffer}_cache", scope, pad)


def check_reindex_read(
    p: Program, primitive: str, block: str, buffer: str, index_map: Layout | None
) -> Staging:
    """The block reads the buffer at one place and does not write it; what `check_staging` asks
    holds of that. Without `index_map` the copy's indices are the iterators in the access."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError(primitive, f"block {block}", reason)

    path, memory = p.block_path(primitive, block), p.buffer(buffer)
    target = path[-1]
    assert isinstance(target, Block)
    check_leaf(target, path, refuse)
    mine = [a for a in Flow(p).of_block(block) if a.buffer is memory]
    if any(a.write for a in mine):
        raise refuse(f"it writes {buffer}")
    if any(a.indices is None for a in mine):
        raise refuse(f"a call takes the address of {buffer}")
    part = with_padding(target, _only_load(target, memory, refuse))
    return check_staging(p, path, part, index_map, refuse)


def _only_load(target: Block, memory: Buffer, refuse: Refuse) -> Load:
    roots: list[Node] = [target.body, *([target.init] if target.init else [])]
    found = dict.fromkeys(x for root in roots for x in loads_of(root) if x.source is memory)
    if target.where is not None and any(x.source is memory for x in loads_of(target.where)):
        raise refuse(f"its condition reads {memory.name}")
    if len(found) != 1:
        raise refuse(f"it reads {memory.name} at {len(found)} places, not one")
    return next(iter(found))


def with_padding(target: Block, load: Load) -> Expr:
    """The load, and what stands for it where it is outside: the choices right around it which
    depend on no data and hold nothing else that does."""
    part: Expr = load
    while True:
        around = _parents(target, part)
        if len(around) != 1 or not isinstance(around[0], Select):
            return part
        (choice,) = around
        assert isinstance(choice, Select)
        others = [x for x in choice.children() if x is not part]
        if len(others) != 2 or any(_is_data(x) for x in others):
            return part
        part = choice


def _parents(target: Block, part: Expr) -> list[Node]:
    roots: list[Node] = [target.body, *([target.init] if target.init else [])]
    found = (x for root in roots for x in walk(root) if any(c is part for c in x.children()))
    return list(dict.fromkeys(found))


def _is_data(root: Node) -> bool:
    return any(isinstance(x, Load | Flat) for x in walk(root))
