"""Compute a consumer inside a loop of its producer, for what one iteration has made ready.

Before:

    @loop
    def two(x: f32["n"], u: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for i_0, i_1 in grid((n + 7)//8, 8):
            with block("t", S(8*i_0 + i_1, n), where=8*i_0 + i_1 < n) as (a,):
                t[a] = x[a] * x[a]
        for j in grid(n):
            with block("u", S(j, n)) as (b,):
                u[b] = t[b] + 1.0

Steps:

    p = p.reverse_compute_at('u', 'i_0')

After:

    t = alloc(f32[n], scope="scratch")
    for i_0 in grid((n + 7)//8):
        for i_1 in grid(8):
            with block("t", S(8*i_0 + i_1, n), where=8*i_0 + i_1 < n) as (a,):
                t[a] = x[a] * x[a]
        for j in grid(8):
            with block("u", S(8*i_0 + j, n), where=8*i_0 + j < n) as (b,):
                u[b] = t[b] + 1.0
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.loop.bounds import Span
from pliant.loop.boxes import touched_box
from pliant.loop.regions import Access, accesses
from pliant.loop.rewrite import int_names, replace_at
from pliant.loop.stmt import Block, Buffer, For, Nop, Seq, Stmt, seq
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.coverage import runs_through, writes_all
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import (
    Flow,
    common_loops,
    is_leaf,
    only_domain,
    single_iterator,
    unconditional,
)
from pliant.schedule.nest import check_marked_loops, inner_accesses
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.schedule.region_nest import region_nest
from pliant.sym.expr import Int
from pliant.sym.facts import Facts


@primitive
def reverse_compute_at(p: Program, block: str, loop: str) -> Program:
    """Moves the block under `loop`, after the last of its inputs made there. Makes its loops."""
    ranges, inputs = check_reverse_compute_at(p, block, loop)
    target = p.block(block)
    q = p.with_body(replace_at(p.block_path("reverse_compute_at", block), Nop()))
    path = q.loop_path("reverse_compute_at", loop)
    body = path[-1]
    assert isinstance(body, For)
    nest, made = region_nest(target, ranges, q.inside(path), q.names())
    parts = list(body.body.stmts) if isinstance(body.body, Seq) else [body.body]
    last = max(k for k, s in enumerate(parts) if _writes(p, s, inputs))
    inside = seq(*parts[: last + 1], nest, *parts[last + 1 :])
    moved = p.with_body(replace_at(path, body.replace(body=inside)), *map(LoopRef, made))
    check_marked_loops(moved, "reverse_compute_at", block, loop)
    return moved


def check_reverse_compute_at(
    p: Program, block: str, loop: str
) -> tuple[dict[str, Span], frozenset[Buffer]]:
    """The block is data parallel, with no condition but its domain; it reads what the loop makes
    at distinct iterators, and each iteration of the loop makes its elements for good. What else
    it reads is there before the loop; nothing between uses its result. Gives the ranges of its
    iterators and the inputs made under the loop."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("reverse_compute_at", f"block {block}", reason)

    source, path = (
        p.block_path("reverse_compute_at", block),
        p.loop_path("reverse_compute_at", loop),
    )
    target, flow = source[-1], Flow(p)
    assert isinstance(target, Block)
    if path[-1] in source:
        raise refuse(f"loop {loop} is around it already")
    if not is_leaf(target):
        raise refuse("it holds loops or blocks of its own")
    if target.init is not None or any(i.kind != "S" for i in target.iters):
        raise refuse("not all of its iterators are data parallel")
    if not unconditional(source[:-1]) or not only_domain(target, p.inside(source)):
        raise refuse("it runs under a condition")
    around = [s.var for s in path if isinstance(s, For)]
    # Else it would be run for more than it is.
    if not any(runs_through(p, source, k) for k in (0, _behind(path, source))):
        raise refuse("its loops do not run through all of its iterators")
    extents = frozenset[str]().union(*(i.extent.names for i in target.iters))
    used = int_names(target.body) | (extents - set(around))
    if used - {i.var for i in target.iters} - p.sizes:
        raise refuse("it uses variables of the loops around it")
    mine, under = flow.of_block(block), flow.under(loop)
    if under and under[0].position > mine[0].position:
        raise refuse(f"loop {loop} comes after it")
    reads = {a.buffer for a in mine if not a.write}
    outs = {a.buffer for a in mine if a.write}
    made = frozenset(a.buffer for a in under if a.write) & reads
    if not made:
        raise refuse(f"nothing that it reads is computed under loop {loop}")
    if reads & outs:
        raise refuse("it reads what it writes")
    shared = {x.var for x in common_loops(under[0].loops, mine[0].loops)}
    for buffer in made:
        _check_final(p, flow, buffer, loop, [v for v in around if v not in shared], refuse)
    why = flow.moved_up(block, reads - made, outs, under[0], shared, path)
    if why:
        raise refuse(why)
    inner = inner_accesses(p, path)
    ranges = _ranges(p, target, mine, inner, made, path, around, refuse)
    # What no input made there tells is what it is now: the loops around both stay.
    for it, binding in zip(target.iters, target.bindings, strict=True):
        fixed = binding.names & shared
        if it.var not in ranges and fixed:
            if not binding.names <= fixed:
                raise refuse(f"iterator {it.var} is of loop {min(fixed)} and of others")
            ranges[it.var] = binding, binding
    return ranges, made


def _behind(path: Sequence[Stmt], other: Sequence[Stmt]) -> int:
    """Where the paths part."""
    pairs = enumerate(zip(path, other, strict=False))
    return next((k for k, (a, b) in pairs if a is not b), min(len(path), len(other)))


def _check_final(
    p: Program, flow: Flow, buffer: Buffer, loop: str, private: Sequence[str], refuse: Refuse
) -> None:
    """All writers are under the loop, and none adds to an element in several of its iterations."""
    if not flow.is_function_of_place(buffer):
        raise refuse(f"{buffer.name} may be written more than once")
    for w in flow.writers(buffer):
        if all(x.var != loop for x in w.loops):
            raise refuse(f"{buffer.name} is written outside of loop {loop} too")
        writer = p.block(w.block)
        for it, binding in zip(writer.iters, writer.bindings, strict=True):
            late = binding.names & set(private)
            if it.kind == "R" and late:
                reason = f"block {w.block} still reduces over {', '.join(sorted(late))}"
                raise refuse(reason)


def _ranges(
    p: Program,
    target: Block,
    mine: Sequence[Access],
    inner: Sequence[Access],
    made: frozenset[Buffer],
    path: tuple[Stmt, ...],
    around: Sequence[str],
    refuse: Refuse,
) -> dict[str, Span]:
    """For each iterator that indexes an input made under the loop, the part that is ready."""
    iters = {i.var for i in target.iters}
    facts, known = p.inside(path), frozenset(around) | p.sizes
    ranges: dict[str, Span] = {}
    whole: list[set[str]] = []  # iterators that a load which always happens determines
    for load in accesses(target.body, p.invoked):
        if load.buffer not in made or load.write:
            continue
        box = touched_box([a for a in inner if a.buffer is load.buffer and a.write], known, facts)
        for d, (low, high) in enumerate(box):
            at = single_iterator(load.index(d), iters)
            if at is None:
                raise refuse(f"it does not read {load.buffer.name} at distinct iterators")
            name, offset = at
            if not name:
                continue
            ready = low - offset, high - offset
            old = ranges.setdefault(name, ready)
            if not (facts.equal(old[0], ready[0]) and facts.equal(old[1], ready[1])):
                raise refuse(f"its inputs are ready for different values of {name}")
        used = [single_iterator(load.index(d), iters) for d in range(load.buffer.rank)]
        names = [u[0] for u in used if u is not None and u[0]]
        if len(set(names)) < len(names):
            raise refuse(f"it does not read {load.buffer.name} at distinct iterators")
        if not load.where or _reaches_all(p, target, load, used, facts):
            whole.append(set(names))
    # Else some of its elements might belong to no iteration.
    if not any(names >= ranges.keys() for names in whole):
        raise refuse("no input made under the loop is read for each of its elements")
    return ranges


def _reaches_all(
    p: Program, target: Block, load: Access, used: Sequence[tuple[str, Int] | None], facts: Facts
) -> bool:
    """Whether what is made for the load covers the domain of the iterators that it reads at, so
    that each element belongs to an iteration although not all of them read."""
    extents = {i.var: i.extent for i in target.iters}
    for at, extent in zip(used, load.buffer.shape, strict=True):
        if at is None or (at[0] and not facts.equal(extents[at[0]], extent)) or at[1] != 0:
            return False
    writers = {w.block for w in Flow(p).writers(load.buffer)}
    paths = [p.block_path("reverse_compute_at", w) for w in writers if w]
    return len(paths) == len(writers) and any(writes_all(p, x, load.buffer) for x in paths)


def _writes(p: Program, s: Stmt, buffers: frozenset[Buffer]) -> bool:
    return any(a.write and a.buffer in buffers for a in accesses(s, p.invoked))
