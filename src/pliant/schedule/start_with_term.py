"""Start a sum with what is added to it wherever it is read.

The last value of a sum is then what is wanted, and nothing waits for it to add another. (Floats are
rounded in another order.)

Before:

    @loop
    def rows(x: f32["n", 8], b: f32["n"], y: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for i, r in grid(n, 8):
            with block("t", S(i, n), R(r, 8)) as (a, c):
                with init():
                    t[a] = 0.0
                t[a] = t[a] + x[a, c]
        for j in grid(n):
            with block("y", S(j, n)) as (d,):
                y[d] = max(t[d] + b[d], 0.0)

Steps:

    p = p.start_with_term('t')

After:

    t = alloc(f32[n], scope="scratch")
    for i, r in grid(n, 8):
        with block("t", S(i, n), R(r, 8)) as (a, c):
            with init():
                t[a] = b[a]
            t[a] = t[a] + x[a, c]
    for j in grid(n):
        with block("y", S(j, n)) as (d,):
            y[d] = max(t[d], 0.0)
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.ir.expr import Binary, Expr, Guard, Index, Load, Reduce, Var
from pliant.ir.node import Node, transform, walk
from pliant.loop.reduction import as_update
from pliant.loop.rewrite import int_names, replace_at, subst
from pliant.loop.stmt import Block, Buffer, Store
from pliant.schedule.compute_inline import Refuse, check_only_writer
from pliant.schedule.conflicts import strict_order
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, invert_store, only_domain, single_iterator
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import Int, var


@primitive
def start_with_term(p: Program, block: str) -> Program:
    """The init of the reduction `block` stores the term, and its readers add it no more."""
    plan = check_start_with_term(p, block)
    target = p.block(block)
    assert isinstance(target.init, Store)
    q = p.with_body(
        replace_at(
            p.block_path("start_with_term", block),
            target.replace(init=target.init.replace(value=plan.term)),
        )
    )
    for name, sums in plan.readers.items():
        reader = q.block(name)
        made = reader.replace(body=transform(reader.body, lambda node: node, dict(sums)))
        q = q.with_body(replace_at(q.block_path("start_with_term", name), made))
    return q


@dataclass(frozen=True)
class _Plan:
    """The term, in terms of the reduction's iterators; for each block that reads the sum, its sums
    with the term and what they become."""

    term: Expr
    readers: dict[str, dict[Node, Expr]]


def check_start_with_term(p: Program, block: str) -> _Plan:
    """The block is a sum that starts with 0, of a buffer that nothing else writes. Blocks that read
    it, under no condition, read the same elements and add the same term to each: of what nothing
    writes, at the sum's own iterators."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("start_with_term", f"block {block}", reason)

    target, flow = p.block(block), Flow(p)
    update = as_update(target)
    if update is None or update.combiner != "sum" or not isinstance(target.init, Store):
        raise refuse("it is no sum of one element with an init")
    if strict_order(p) and update.rounds:
        raise refuse("the numerics are strict: the order of the sum must be kept")
    if target.init.value is not update.identity[0]:
        raise refuse("it does not start with 0")
    buffer, places = target.init.buffer, invert_store(target, target.init)
    if buffer not in flow.allocated:
        raise refuse(f"{buffer.name} is not a buffer of the function's own")
    if places is None:
        raise refuse("it does not start at distinct iterators")
    check_only_writer(flow, block, buffer, refuse)
    terms: set[Expr] = set()
    readers: dict[str, dict[Node, Expr]] = {}
    for use in flow.readers(buffer):
        if use.block == block or use.block in readers:
            continue
        if not use.block:
            raise refuse(f"{buffer.name} is read outside of blocks")
        sums = readers[use.block] = _sums(p.block(use.block), buffer, refuse)
        for total, load in sums.items():
            assert isinstance(total, Binary) and isinstance(load, Load)
            other = total.b if total.a is load else total.a
            path = p.block_path("start_with_term", use.block)
            if not only_domain(p.block(use.block), p.inside(path)):
                raise refuse(f"block {use.block} runs under a condition")
            terms.add(_at_sum(p, target, p.block(use.block), load, other, places, refuse))
    if len(terms) != 1:
        raise refuse("there is no one term that is added wherever it is read")
    (term,) = terms
    for source in (n.source for n in walk(term) if isinstance(n, Load)):
        if not isinstance(source, Buffer) or flow.writers(source):
            raise refuse(f"{source.name}, which the term reads, is written")
    return _Plan(term, readers)


def _sums(reader: Block, buffer: Buffer, refuse: Refuse) -> dict[Node, Expr]:
    """The sums of an element of the buffer and something else, in all of which it is read."""
    nodes = list(walk(reader))
    loads = {n for n in nodes if isinstance(n, Load) and n.source is buffer}
    sums: dict[Node, Expr] = {}
    for n in nodes:
        if isinstance(n, Binary) and n.op == "add" and (n.a in loads) != (n.b in loads):
            sums[n] = n.a if n.a in loads else n.b
        elif not loads.isdisjoint(n.children()):
            raise refuse(f"block {reader.name} reads {buffer.name} and adds nothing to it")
    return sums


def _at_sum(
    p: Program, target: Block, reader: Block, load: Load, term: Expr,
    places: dict[str, tuple[int, Int]], refuse: Refuse,
) -> Expr:  # fmt: skip
    """The term at the iterators of the sum."""
    if any(isinstance(n, Guard | Reduce | Var) for n in walk(term)):
        raise refuse("the term is more than a formula of what is read")
    extents = {i.var: i.extent for i in (*target.iters, *reader.iters)}
    own = {i.var for i in reader.iters}
    at: dict[str, Int] = {}
    for name, (d, offset) in places.items():
        index = load.indices[d]
        found = single_iterator(index.int_, own) if isinstance(index, Index) else None
        if found is None or not found[0]:
            continue
        if p.facts.equal(found[1], offset) and p.facts.equal(extents[name], extents[found[0]]):
            at[found[0]] = var(name)
    if int_names(term) - at.keys() - p.sizes:
        raise refuse("the term depends on more than the place of the sum")
    return subst(term, at)
