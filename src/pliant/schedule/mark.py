"""What kind of loop a loop is: parallel, vectorized or unrolled.

Before:

    @loop
    def scale(x: f32["n", 32], y: f32["n", 32], n: i64):
        for i, j_0, j_1 in grid(n, 4, 8):
            with block("y", S(i, n), S(8*j_0 + j_1, 32)) as (a, b):
                y[a, b] = x[a, b] * 2.0

Steps:

    p = p.parallel('i', grain=4)

After:

    for i in parallel(n, notes={"grain": size("4")}):
        for j_0, j_1 in grid(4, 8):
            with block("y", S(i, n), S(8*j_0 + j_1, 32)) as (a, b):
                y[a, b] = x[a, b] * 2.0

Steps:

    p = p.unroll('j_0')
    p = p.vectorize('j_1')

After:

    for i in grid(n):
        for j_0 in unrolled(4):
            for j_1 in vectorized(8):
                with block("y", S(i, n), S(8*j_0 + j_1, 32)) as (a, b):
                    y[a, b] = x[a, b] * 2.0
"""

from __future__ import annotations

from pliant.loop.lanes import why_not_lanes
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import For
from pliant.loop.threads import is_bound
from pliant.schedule.conflicts import carried, describe
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import blocks_in, iterators_over, require_serial
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import IntLike, as_int


@primitive
def parallel(p: Program, loop: str, *, grain: IntLike | None = None) -> Program:
    """Iterations run on several threads; a loop inside another parallel one runs serially.

    `grain` is the least number of iterations worth a thread, in terms of the function's sizes.
    """
    check_parallel(p, loop, grain)
    q = _marked(p, "parallel", loop, "parallel")
    if grain is None:
        return q
    path = q.loop_path("parallel", loop)
    target = path[-1]
    assert isinstance(target, For)
    notes = (*target.notes, ("grain", as_int(grain)))
    return q.with_body(replace_at(path, target.replace(notes=notes)))


@primitive
def vectorize(p: Program, loop: str) -> Program:
    """Iterations run as lanes of vectors."""
    check_vectorize(p, loop)
    return _marked(p, "vectorize", loop, "vectorized")


@primitive
def unroll(p: Program, loop: str) -> Program:
    """The body is repeated in the code."""
    check_unroll(p, loop)
    return _marked(p, "unroll", loop, "unrolled")


def check_parallel(p: Program, loop: str, grain: IntLike | None = None) -> None:
    """No iteration touches what another one writes; the grain is known before the loop."""
    target = _serial(p, "parallel", loop)
    strange = as_int(1 if grain is None else grain).names - p.sizes
    if strange:
        reason = f"the grain mentions {', '.join(sorted(strange))}, which are not sizes"
        raise SchedulingError("parallel", f"loop {loop}", reason)
    _check_independent(p, "parallel", target)
    if _inside(p, target, "vectorized"):
        raise SchedulingError("parallel", f"loop {loop}", "it is inside a vectorized loop")
    for s in p.loop_path("parallel", loop):
        if is_bound(s):
            raise SchedulingError("parallel", f"loop {loop}", "it is inside a loop of threads")


def check_vectorize(p: Program, loop: str) -> None:
    """The extent is a number, no iteration touches what another one writes, and control flow
    inside is the same for all iterations."""
    target = _serial(p, "vectorize", loop)
    place = f"loop {loop}"
    if not target.extent.is_const:
        raise SchedulingError("vectorize", place, f"its extent {target.extent} is not a number")
    if _inside(p, target, "vectorized"):
        raise SchedulingError("vectorize", place, "it is inside a vectorized loop")
    why = why_not_lanes(target)
    if why:
        raise SchedulingError("vectorize", place, why)
    _check_independent(p, "vectorize", target)


def check_unroll(p: Program, loop: str) -> None:
    """The extent is a number."""
    target = _serial(p, "unroll", loop)
    if not target.extent.is_const:
        reason = f"its extent {target.extent} is not a number"
        raise SchedulingError("unroll", f"loop {loop}", reason)


def _serial(p: Program, primitive: str, loop: str) -> For:
    target = p.loop_path(primitive, loop)[-1]
    assert isinstance(target, For)
    require_serial(primitive, target)
    return target


def _check_independent(p: Program, primitive: str, loop: For) -> None:
    place = f"loop {loop.var}"
    for block in blocks_in(loop):
        kinds = iterators_over(block, loop.var)
        if "R" in kinds or "O" in kinds:
            word = "reduces over it" if "R" in kinds else "must run over it in order"
            raise SchedulingError(primitive, place, f"block {block.name} {word}")
    facts = p.around(p.loop_path(primitive, loop.var))
    pair = carried(p, loop, facts)
    if pair is not None:
        reason = describe(*pair) + " in different iterations"
        raise SchedulingError(primitive, place, reason)


def _inside(p: Program, loop: For, kind: str) -> bool:
    path = p.loop_path("loop", loop.var)
    return any(isinstance(s, For) and s.kind == kind for s in path[:-1])


def _marked(p: Program, primitive: str, loop: str, kind: str) -> Program:
    path = p.loop_path(primitive, loop)
    return p.with_body(replace_at(path, path[-1].replace(kind=kind)))
