"""Fuse nested loops into one.

Before:

    @loop
    def scale(x: f32["n", "m"], y: f32["n", "m"], n: i64, m: i64):
        for i, j in grid(n, m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[a, b] * 2.0

Steps:

    p = p.fuse('i', 'j')

After:

    for i_f in grid(m*n):
        with block("y", S(i_f//m, n), S(i_f%m, m)) as (a, b):
            y[a, b] = x[a, b] * 2.0
"""

from __future__ import annotations

from pliant.loop.rewrite import int_names, replace_at, subst
from pliant.loop.stmt import For, Stmt
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import blocks_in, iterators_over, perfect_chain, require_serial
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.expr import IntLike, const, var


@primitive
def fuse(p: Program, *loops: str) -> Program:
    """Makes one loop of adjacent perfectly nested `loops`, given from the outermost inwards: a
    parallel one of parallel ones, with the grain of the innermost."""
    path = check_fuse(p, loops)
    chain = [s for s in path[-len(loops) :] if isinstance(s, For)]
    name = p.names().variable(f"{loops[0]}_f")
    many = [x for x in chain if x.extent != 1]
    at: dict[str, IntLike] = {x.var: 0 for x in chain}
    rest, total = var(name), const(1)
    for loop in reversed(many):
        at[loop.var] = rest if loop is many[0] else rest % loop.extent
        rest = rest // loop.extent
        total = total * loop.extent
    body = subst(chain[-1].body, at)
    top = path[: len(path) - len(chain) + 1]
    fused = For(name, total, body, chain[0].kind, chain[-1].notes)
    return p.with_body(replace_at(top, fused), LoopRef(name))


def check_fuse(p: Program, loops: tuple[str, ...]) -> tuple[Stmt, ...]:
    """The loops are all serial or all parallel, each is the only thing in the one before, and no
    extent depends on another; no block has some in "R" iterators and others in "S" or "O" ones,
    or in the condition of its init, or, if it starts itself, in none. Gives their path."""
    place = f"loops {', '.join(loops)}"
    if not loops:
        raise SchedulingError("fuse", place, "no loops were given")
    path = perfect_chain(p, "fuse", loops)
    chain = [s for s in path[-len(loops) :] if isinstance(s, For)]
    if [c.var for c in chain] != list(loops):
        raise SchedulingError("fuse", place, "they do not follow each other from outer to inner")
    all_parallel = all(loop.kind == "parallel" for loop in chain)
    for loop in chain:
        if not all_parallel:
            require_serial("fuse", loop)
        if loop.extent.is_const and loop.extent.value < 1:
            raise SchedulingError("fuse", place, f"{loop.var} never runs")
        if not loop.extent.names.isdisjoint(loops):
            reason = f"the extent {loop.extent} of {loop.var} depends on another"
            raise SchedulingError("fuse", place, reason)
    for block in blocks_in(chain[-1]):
        kinds = {k for name in loops for k in iterators_over(block, name)}
        if block.init is not None:  # which happens again in loops that it is not bound to
            kinds |= {"" for c in chain if c.extent != 1 and not iterators_over(block, c.var)}
        if "R" in kinds and len(kinds) > 1:
            reason = f"block {block.name} reduces over some of them only"
            raise SchedulingError("fuse", place, reason)
        if block.init is not None and block.where is not None:
            # The init heeds only conditions on loops that are not reduced over.
            reduced = {name for name in loops if "R" in iterators_over(block, name)}
            if reduced and not int_names(block.where).isdisjoint(set(loops) - reduced):
                reason = f"the start of block {block.name} is under a condition on some of them"
                raise SchedulingError("fuse", place, reason)
    return path
