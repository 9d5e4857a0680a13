"""Replace a loop nest by a call to the intrinsic that computes the same.

Before:

    @loop
    def sums(x: f32["n", 4], w: f32[4], y: f32["n"], n: i64):
        for i in grid(n):
            with block("init", S(i, n)) as (a,):
                y[a] = 0.0
            for r in grid(4):
                with block("y", S(i, n), R(r, 4)) as (b, c):
                    y[b] = y[b] + x[b, c] * w[c]

Intrinsic:

    @loop
    def dot4(a: f32[4], b: f32[4], c: f32[1]):
        for i in grid(4):
            c[0] = c[0] + a[i] * b[i]

Steps:

    p = p.tensorize('r', 'dot4')

After:

    for i in grid(n):
        with block("init", S(i, n)) as (a,):
            y[a] = 0.0
        dot4(address(x[i, 0]), w, address(y[i]))
"""

from __future__ import annotations

from pliant.ir.expr import Index
from pliant.ir.node import Node
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import For, Invoke
from pliant.schedule.errors import SchedulingError
from pliant.schedule.match import Match, NoMatch, match_nest
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import Int, as_int, var


@primitive
def tensorize(p: Program, loop: str, intrinsic: str, turn: str = "") -> Program:
    """The nest from `loop` on becomes a call to one of the program's intrinsics, by name. Sizes
    that the semantics does not mention say how, and not what: they are 0, or the iteration of the
    loop `turn`, which is around the nest."""
    found = check_tensorize(p, loop, intrinsic, turn)
    path = p.loop_path("tensorize", loop)
    known = p.intrinsics[intrinsic]
    values: dict[str, Node] = {b.name: found.address(b) for b in known.semantics.buffers}
    how = var(turn) if turn else as_int(0)
    values |= {s: Index(found.sizes.get(s, how)) for s in known.semantics.sizes}
    args = tuple(
        Index(x.subs(found.sizes)) if isinstance(x, Int) else values[x]
        for x in known.arguments or values
    )
    return p.with_body(replace_at(path, Invoke(known.callee, args)))


def check_tensorize(p: Program, loop: str, intrinsic: str, turn: str = "") -> Match:
    """The nest computes what the intrinsic's semantics says, for some values of its sizes, none
    greater than its code can do, and places of its buffers. Gives these. The loop `turn`, if
    there is one, is around it."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("tensorize", f"loop {loop}", reason)

    known = p.intrinsics.get(intrinsic)
    if known is None:
        raise refuse(f"the program has no intrinsic {intrinsic!r}")
    path = p.loop_path("tensorize", loop)
    if turn and all(s.var != turn for s in path[:-1] if isinstance(s, For)):
        raise refuse(f"{turn} is no loop around it")
    facts = p.inside(path[:-1])
    try:
        found = match_nest(known.semantics, path[-1], facts, p.sizes)
    except NoMatch as error:
        raise refuse(f"it does not match {intrinsic}: {error}") from error
    for size, most in known.most:
        if not facts.le(found.sizes[size], most):
            raise refuse(
                f"{intrinsic} does at most {size} = {most}, here {size} is {found.sizes[size]}"
            )
    return found
