"""Compute what one iteration of a consumer's loop needs, inside that loop.

Before:

    @loop
    def two(x: f32["n"], u: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for i in grid(n):
            with block("t", S(i, n)) as (a,):
                t[a] = x[a] * x[a]
        for j_0, j_1 in grid((n + 7)//8, 8):
            with block("u", S(8*j_0 + j_1, n), where=8*j_0 + j_1 < n) as (b,):
                u[b] = t[b] + 1.0

Steps:

    p = p.compute_at('t', 'j_0')

After:

    t = alloc(f32[n], scope="scratch")
    for j_0 in grid((n + 7)//8):
        for i in grid(8):
            with block("t", S(i + 8*j_0, n), where=i + 8*j_0 < n) as (a,):
                t[a] = x[a] * x[a]
        for j_1 in grid(8):
            with block("u", S(8*j_0 + j_1, n), where=8*j_0 + j_1 < n) as (b,):
                u[b] = t[b] + 1.0
"""

from __future__ import annotations

from pliant.loop.bounds import Span
from pliant.loop.boxes import touched_box
from pliant.loop.lower_init import reduction_loops
from pliant.loop.regions import accesses
from pliant.loop.rewrite import int_names, replace_at
from pliant.loop.stmt import Block, Buffer, For, Nop, Seq, Stmt, seq, stored
from pliant.schedule.compute_inline import Refuse, check_only_writer
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, invert_store, is_leaf, only_domain, unconditional
from pliant.schedule.nest import check_marked_loops, inner_accesses
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.schedule.region_nest import region_nest
from pliant.sym.expr import Int


@primitive
def compute_at(p: Program, block: str, loop: str, early: bool = False) -> Program:
    """Moves the block under `loop`, before the first use there, or `early`: before all that is
    there. Makes its new loops.

    Iterations that need the same elements compute them again. Elements are stored where they were;
    `shrink_buffer` makes the buffer no larger than one iteration needs.
    """
    box = check_compute_at(p, block, loop)
    target = p.block(block)
    store = next(stored(target.body))
    q = p.with_body(replace_at(p.block_path("compute_at", block), Nop()))
    path = q.loop_path("compute_at", loop)
    body = path[-1]
    assert isinstance(body, For)
    places = invert_store(target, store) or {}
    ranges = {name: _shift(box[d], offset) for name, (d, offset) in places.items()}
    nest, made = region_nest(target, ranges, q.inside(path), q.names())
    outputs = {x.buffer for x in stored(target.body)}
    parts = list(body.body.stmts) if isinstance(body.body, Seq) else [body.body]
    # All that it reads was written before it, so before the loop.
    first = 0 if early else next(k for k, s in enumerate(parts) if _touches(p, s, outputs))
    inside = seq(*parts[:first], nest, *parts[first:])
    moved = p.with_body(replace_at(path, body.replace(body=inside)), *map(LoopRef, made))
    check_marked_loops(moved, "compute_at", block, loop)
    return moved


def check_compute_at(p: Program, block: str, loop: str) -> tuple[Span, ...]:
    """The block stores at distinct iterators of a buffer of the function's own, starts its
    reduction itself, and runs under no condition but its domain; all uses are under the loop;
    what it reads does not change in between. Gives the box that one iteration needs."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("compute_at", f"block {block}", reason)

    source, path = p.block_path("compute_at", block), p.loop_path("compute_at", loop)
    target, flow = source[-1], Flow(p)
    assert isinstance(target, Block)
    if path[-1] in source:
        raise refuse(f"loop {loop} is around it already")
    if not unconditional(source[:-1]) or not only_domain(target, p.around(source)):
        raise refuse("it runs under a condition")
    _check_form(target, refuse)
    again = reduction_loops(target) & {s.var for s in path if s in source and isinstance(s, For)}
    if again:
        raise refuse(f"it still reduces over loop {min(again)}, which is around both")
    start = flow.of_block(block)[-1].position
    inner = inner_accesses(p, path)
    outputs = {x.buffer for x in stored(target.body)}
    new = {s.var for s in path if s not in source and isinstance(s, For)}
    for out in outputs:
        if out not in flow.allocated:
            raise refuse(f"{out.name} is not a buffer of the function's own")
        check_only_writer(flow, block, out, refuse)
        for use in flow.readers(out):
            if use.block != block and all(x.var != loop for x in use.loops):
                where = f"block {use.block}" if use.block else "a statement"
                raise refuse(f"{where}, not under loop {loop}, reads {out.name}")
            if use.block != block and use.position < start:
                raise refuse(f"{out.name} is read before it")
            late = use.before & new
            if late:
                raise refuse(f"block {use.block} reads {out.name} before loop {min(late)} begins")
    reads = {a.buffer for a in flow.of_block(block) if not a.write} - outputs
    around = [s.var for s in path if isinstance(s, For)]
    why = flow.moved_value(block, reads, start, around)
    why = why or flow.out_of_scope(reads | outputs, path) or _free_names(p, target, around)
    if why:
        raise refuse(why)
    needed = [a for a in inner if a.buffer in outputs]
    if not needed:
        raise refuse(f"nothing under loop {loop} reads what it computes")
    return touched_box(needed, frozenset(around) | p.sizes, p.inside(path))


def _check_form(target: Block, refuse: Refuse) -> None:
    if not is_leaf(target):
        raise refuse("it holds loops or blocks of its own")
    if any(i.kind == "O" for i in target.iters):
        raise refuse("it must run in order")
    if any(i.kind == "R" for i in target.iters) and target.init is None:
        raise refuse("its reduction is started elsewhere; move it before decompose_reduction")
    stores = list(stored(target.body))
    if target.init is not None:
        stores += stored(target.init)
    places = [invert_store(target, s) for s in stores]
    if not stores or places[0] is None or any(x != places[0] for x in places):
        raise refuse("it does not store at distinct iterators")
    if any(i.kind == "S" and i.var not in places[0] and i.extent != 1 for i in target.iters):
        raise refuse("not every data parallel iterator is an index of its result")


def _free_names(p: Program, target: Block, around: list[str]) -> str:
    free = int_names(target.body).union(*(i.extent.names for i in target.iters))
    free = free - {i.var for i in target.iters} - set(around) - p.sizes
    return f"it uses {', '.join(sorted(free))}" if free else ""


def _shift(ends: Span, offset: Int) -> Span:
    return ends[0] - offset, ends[1] - offset


def _touches(p: Program, s: Stmt, buffers: set[Buffer]) -> bool:
    return any(a.buffer in buffers for a in accesses(s, p.invoked))
