"""Apply an elementwise consumer where its input is produced, instead of storing the input.

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

    p = p.reverse_compute_inline('u')

After:

    for i in grid(n):
        with block("t", S(i, n)) as (a,):
            u[a] = x[a] * x[a] + 1.0
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Expr, Index, Load, as_expr, loads_of
from pliant.loop.rebuild import subst_exprs
from pliant.loop.rewrite import replace_at, replace_loads
from pliant.loop.stmt import Block, Buffer, Nop, Store
from pliant.schedule.compute_inline import Refuse, check_only_writer, without_alloc
from pliant.schedule.coverage import life_of, runs_through, writes_all
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, common_loops, only_domain, unconditional
from pliant.schedule.program import Program, primitive


@primitive
def reverse_compute_inline(p: Program, block: str, *, buffer: str | None = None) -> Program:
    """The block, a consumer of `buffer` (needed where it reads several), is folded into the block
    that writes it; the buffer goes away."""
    fold = check_reverse_compute_inline(p, block, buffer)
    at: dict[str, Expr] = {
        str(i.int_): e
        for i, e in zip(fold.load.indices, fold.made.indices, strict=True)
        if isinstance(i, Index)
    }
    at |= {i.var: as_expr(0) for i in fold.consumer.iters if i.var not in at}
    indices = tuple(subst_exprs(i, at) for i in fold.store.indices)
    moved = subst_exprs(fold.store.value, at)
    value = replace_loads(moved, fold.made.buffer, lambda _: fold.made.value)
    folded = fold.producer.replace(body=Store(fold.store.buffer, indices, value))
    body = replace_at(p.block_path("reverse_compute_inline", block), Nop())
    q = p.with_body(body)
    path = q.block_path("reverse_compute_inline", fold.producer.name)
    return p.with_body(without_alloc(replace_at(path, folded), fold.made.buffer))


@dataclass(frozen=True)
class _Fold:
    producer: Block
    made: Store
    consumer: Block
    store: Store
    load: Load


def check_reverse_compute_inline(p: Program, block: str, buffer: str | None = None) -> _Fold:
    """The block is one store that reads the buffer only at its own distinct iterators, all of
    them; it is the only reader, and the only writer is one store of a block that is no reduction.
    What else it reads is there already, and nothing sees its result too early."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("reverse_compute_inline", f"block {block}", reason)

    path = p.block_path("reverse_compute_inline", block)
    consumer = path[-1]
    assert isinstance(consumer, Block)
    store, flow = consumer.body, Flow(p)
    if not isinstance(store, Store) or consumer.init is not None:
        raise refuse("it is more than one store")
    if any(i.kind != "S" for i in consumer.iters):
        raise refuse("not all of its iterators are data parallel")
    if not unconditional(path[:-1]) or not only_domain(consumer, p.around(path)):
        raise refuse("it runs under a condition")
    source = _source(p, flow, block, buffer, refuse)
    load = _only_load(store, source, refuse)
    _check_load(p, consumer, load, refuse)
    check_only_writer(flow, flow.writers(source)[0].block, source, refuse)
    producer = p.block(flow.writers(source)[0].block)
    made = producer.body
    if producer.init is not None or not isinstance(made, Store):
        raise refuse(f"block {producer.name} is a reduction or more than one store")
    # Else the block would run for other elements than it does.
    if not writes_all(p, p.block_path("flow", producer.name), source):
        raise refuse(f"block {producer.name} does not write all of {source.name}")
    if not runs_through(p, path, life_of(source, path)):
        raise refuse("its loops do not run through all of its iterators")
    if any(i.kind != "S" for i in producer.iters):
        raise refuse(f"block {producer.name} is a reduction")
    if any(a.block != block for a in flow.readers(source)):
        raise refuse(f"it is not the only reader of {source.name}")
    if not all(isinstance(i, Index) for i in made.indices):
        raise refuse(f"block {producer.name} stores at places that depend on data")
    _check_order(flow, block, producer, source, store.buffer, refuse)
    return _Fold(producer, made, consumer, store, load)


def _source(p: Program, flow: Flow, block: str, name: str | None, refuse: Refuse) -> Buffer:
    reads = {a.buffer: None for a in flow.of_block(block) if not a.write}
    inside = [b for b in reads if b in flow.allocated]
    if name is not None:
        inside = [b for b in inside if b.name == name]
    if len(inside) != 1:
        known = ", ".join(b.name for b in inside) or "none"
        raise refuse(f"it must read one buffer of the function's own, not {known}")
    source = inside[0]
    writers = {a.block for a in flow.writers(source)}
    if len(writers) != 1 or "" in writers:
        raise refuse(f"{source.name} is not written by one block")
    return source


def _only_load(store: Store, source: Buffer, refuse: Refuse) -> Load:
    loads = [x for x in loads_of(store) if x.source is source]
    if len(loads) != 1:
        raise refuse(f"it reads {source.name} at several places")
    return loads[0]


def _check_load(p: Program, consumer: Block, load: Load, refuse: Refuse) -> None:
    iters = {i.var: i for i in consumer.iters}
    used = [str(i.int_) if isinstance(i, Index) else "" for i in load.indices]
    if len(set(used)) != len(used) or not set(used) <= set(iters):
        raise refuse(f"it does not read {load.source.name} at distinct iterators")
    if any(i.var not in used and i.extent != 1 for i in consumer.iters):
        raise refuse(f"not every iterator indexes {load.source.name}")
    for name, extent in zip(used, load.source.shape, strict=True):
        if not p.facts.equal(iters[name].extent, extent):
            raise refuse(f"it does not read all of {load.source.name}")


def _check_order(
    flow: Flow, block: str, producer: Block, source: Buffer, out: Buffer, refuse: Refuse
) -> None:
    mine, made = flow.of_block(block), flow.of_block(producer.name)
    start, loops = made[0].position, [x.var for x in mine[0].loops]
    if start > mine[0].position:
        raise refuse(f"block {producer.name} comes after it")
    if out in {a.buffer for a in made}:
        raise refuse(f"block {producer.name} uses {out.name} too")
    reads = {a.buffer for a in mine if not a.write} - {source}
    if out in reads:
        raise refuse(f"it reads {out.name} itself")
    why = flow.out_of_scope({out, *reads}, flow.p.block_path("flow", producer.name))
    why = why or flow.moved_value(producer.name, reads, start, loops)
    if why:
        raise refuse(why)
    for a in (*flow.readers(out), *flow.writers(out)):
        shared = [x.var for x in common_loops(a.loops, made[0].loops)]
        late = a.position > mine[-1].position and all(v in loops for v in shared)
        if a.block != block and not late:
            raise refuse(f"{out.name} is used before it")
