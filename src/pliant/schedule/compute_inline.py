"""Compute a block's value where it is read, instead of storing it.

Before:

    @loop
    def two(x: f32["n"], u: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for i in grid(n):
            with block("t", S(i, n)) as (a,):
                t[a] = x[a] * x[a]
        for j in grid(n):
            with block("u", S(j, n)) as (b,):
                u[b] = t[b] + 1.0

Steps:

    p = p.compute_inline('t')

After:

    for j in grid(n):
        with block("u", S(j, n)) as (b,):
            u[b] = x[b] * x[b] + 1.0
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.ir.expr import Expr, Index, Reduce, Var, as_expr
from pliant.ir.node import walk
from pliant.loop.rebuild import subst_exprs
from pliant.loop.rewrite import int_names, path_to, replace_at, replace_loads
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Invoke,
    Nop,
    Stmt,
    Store,
    statements,
)
from pliant.schedule.coverage import writes_all
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, invert_store
from pliant.schedule.program import Program, primitive

Refuse = Callable[[str], SchedulingError]


@primitive
def compute_inline(p: Program, block: str, *, keep: bool = False) -> Program:
    """Every load of the buffer computes the value instead; the block and its buffer go away, or
    stay with `keep` (then the buffer may be a parameter)."""
    store = check_compute_inline(p, block, keep)
    target = p.block(block)
    places = invert_store(target, store)
    assert places is not None

    def value(indices: tuple[Expr, ...]) -> Expr:
        at = {n: indices[d] - Index(offset) for n, (d, offset) in places.items()}
        at |= {i.var: as_expr(0) for i in target.iters if i.var not in at}
        return subst_exprs(store.value, at)

    if keep:
        return p.with_body(replace_loads(p.function.body, store.buffer, value))
    body = replace_at(p.block_path("compute_inline", block), Nop())
    return p.with_body(without_alloc(replace_loads(body, store.buffer, value), store.buffer))


def check_compute_inline(p: Program, block: str, keep: bool = False) -> Store:
    """The block is one store, the only one to a buffer (of the function's own, unless it is to be
    kept), at distinct data parallel iterators that are all used; what it reads does not change
    before it is used. Gives the store."""
    path = p.block_path("compute_inline", block)
    target = path[-1]
    assert isinstance(target, Block)
    store = target.body
    flow = Flow(p)

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("compute_inline", f"block {block}", reason)

    if not isinstance(store, Store) or target.init is not None:
        raise refuse("it is more than one store")
    if any(i.kind != "S" for i in target.iters):
        raise refuse("not all of its iterators are data parallel")
    if store.buffer not in flow.allocated and not keep:
        raise refuse(f"{store.buffer.name} is not a buffer of the function's own")
    places = invert_store(target, store)
    if places is None:
        raise refuse("it does not store at distinct iterators")
    if any(i.var not in places and i.extent != 1 for i in target.iters):
        raise refuse(f"not every iterator indexes {store.buffer.name}")
    if not writes_all(p, path, store.buffer):
        raise refuse(f"it does not write all of {store.buffer.name}")
    _check_value(p, store, {i.var for i in target.iters}, refuse)
    check_only_writer(flow, block, store.buffer, refuse)
    reads = {a.buffer for a in flow.of_block(block) if not a.write}
    if store.buffer in reads:
        raise refuse(f"it reads {store.buffer.name} itself")
    calls = [s for s in statements(p.function.body) if isinstance(s, Invoke)]
    if any(isinstance(a, BufferRef) and a.buffer is store.buffer for s in calls for a in s.args):
        raise refuse(f"a call takes the address of {store.buffer.name}")
    start = flow.of_block(block)[-1].position
    for use in flow.readers(store.buffer):
        if use.position < start:
            raise refuse(f"{store.buffer.name} is read before it")
        why = flow.moved_value(block, reads, start, [x.var for x in use.loops], use)
        user = p.block_path("compute_inline", use.block) if use.block else None
        if user is None:
            raise refuse(f"{store.buffer.name} is read outside of blocks")
        why = why or flow.out_of_scope(reads, user)
        if why:
            raise refuse(why)
    return store


def check_only_writer(flow: Flow, block: str, buffer: Buffer, refuse: Refuse) -> None:
    """Nothing else writes the buffer, and no call takes its address."""
    for a in (*flow.writers(buffer), *flow.readers(buffer)):
        if a.indices is None:
            raise refuse(f"a call takes the address of {buffer.name}")
        if a.write and a.block != block:
            writer = f"block {a.block}" if a.block else "a statement"
            raise refuse(f"{writer} writes {buffer.name} too")


def _check_value(p: Program, store: Store, iters: set[str], refuse: Refuse) -> None:
    for node in walk(store.value):
        if isinstance(node, Reduce):
            raise refuse("its value is a reduction")
        if isinstance(node, Var):
            raise refuse(f"its value depends on {node.name}, which may not be known elsewhere")
    strange = int_names(store.value) - iters - p.sizes
    if strange:
        names = ", ".join(sorted(strange))
        raise refuse(f"its value depends on {names}, which may not be known elsewhere")


def without_alloc(root: Stmt, buffer: Buffer) -> Stmt:
    """The program without the buffer's allocation, if there is one."""
    path = path_to(root, lambda s: isinstance(s, Alloc) and s.buffer is buffer)
    if path is None:
        return root
    alloc = path[-1]
    assert isinstance(alloc, Alloc)
    return replace_at(path, alloc.body)
