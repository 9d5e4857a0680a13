"""Asking for memory before it is wanted.

A processor fetches ahead by itself what is read in a row. Where a program stays with what it has
read for a while, memory would rest meanwhile: it says then what it will want.

Before:

    @loop
    def twice(x: f32["n", 16], y: f32["n", 16], n: i64):
        for i in grid(n):
            for j in vectorized(16):
                with block("y", S(i, n), S(j, 16)) as (a, b):
                    y[a, b] = x[a, b] * 2.0

Steps:

    p = p.prefetch('j', 'x', 64)

After:

    for i in grid(n):
        for j in vectorized(16, notes={"prefetch": ("x", size("64"), "", 1, 1)}):
            with block("y", S(i, n), S(j, 16)) as (a, b):
                y[a, b] = x[a, b] * 2.0

What lies 64 elements behind what is read is asked for: here four rows ahead. What is only stored is
asked for as what will be written. It changes no value, and what is asked for need not exist: at the
end of a buffer the wish comes to nothing.

With `of`, a loop around them, vectors ask for what they will read `ahead` of its iterations later:
of rows that other values choose no row is behind the one before.

With `cache=2` it comes into the second level of the caches: for what would drive out of the first
what is still wanted there.

A loop that is not vectorized asks at the start of each iteration, for the lines of all that its
first load of the buffer will read in it, from the first to the last. With `share=2` all its
iterations ask for the first half of that, one piece behind the other: where several passes go over
what they read, each can ask for its part of what comes next.
"""

from __future__ import annotations

from pliant.ir.expr import loads_of
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import PREFETCH, For, offset_of
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import IntLike, as_int


@primitive
def prefetch(
    p: Program,
    loop: str,
    buffer: str,
    ahead: IntLike,
    of: str = "",
    cache: int = 1,
    share: int = 1,
) -> Program:
    """Where the vectors of the loop read the buffer, or only store it, what lies `ahead` so many
    elements further is asked for, or what is read so many iterations of the loop `of` later; of a
    serial or unrolled loop, what it reads in an iteration, or the first of `share` equal parts of
    what all its iterations read. It comes into that level of the caches, 1 or 2, and those behind
    it."""
    check_prefetch(p, loop, buffer, ahead, of, cache, share)
    path = p.loop_path("prefetch", loop)
    target = path[-1]
    assert isinstance(target, For)
    notes = (*target.notes, (PREFETCH, (buffer, as_int(ahead), str(of), cache, share)))
    return p.with_body(replace_at(path, target.replace(notes=notes)))


def check_prefetch(
    p: Program,
    loop: str,
    buffer: str,
    ahead: IntLike,
    of: str = "",
    cache: int = 1,
    share: int = 1,
) -> None:
    """The loop is not shared between threads, asks for nothing yet, and accesses the parameter:
    a vectorized one element after element along the lanes, others in a load. `ahead` is in terms
    of sizes. With `of`, which is around it, it is vectorized, and reads the parameter."""
    path = p.loop_path("prefetch", loop)
    target, place = path[-1], f"loop {loop}"
    assert isinstance(target, For)
    if target.kind not in ("vectorized", "serial", "unrolled"):
        raise SchedulingError("prefetch", place, f"it is {target.kind}")
    if PREFETCH in dict(target.notes):
        raise SchedulingError("prefetch", place, "it asks for something already")
    if cache not in (1, 2):
        raise SchedulingError("prefetch", place, f"the level of a cache is 1 or 2, not {cache}")
    if share < 1 or (share > 1 and target.kind != "serial"):
        raise SchedulingError("prefetch", place, f"iterations of no serial loop share {share}")
    strange = as_int(ahead).names - p.sizes
    if strange:
        reason = f"the distance mentions {', '.join(sorted(strange))}, which are not sizes"
        raise SchedulingError("prefetch", place, reason)
    if all(b.name != buffer for b in p.function.buffers):
        raise SchedulingError("prefetch", place, f"{buffer} is no parameter")
    vectors = target.kind == "vectorized"
    if of:
        around = [s.var for s in path[:-1] if isinstance(s, For)]
        if of not in around or not vectors:
            raise SchedulingError("prefetch", place, f"it is no vector inside of {of}")
        if all(x.source.name != buffer for x in loads_of(target)):
            raise SchedulingError("prefetch", place, f"it has no {buffer} to read")
        return
    for a in accesses(target.body, p.invoked):
        if a.buffer.name == buffer and a.indices is not None and (vectors or not a.write):
            offset = offset_of(a.buffer, a.indices)
            along = None if offset is None else offset.linear(loop)
            if offset is not None and (not vectors or (along is not None and along[0] == 1)):
                return
    how = "element after element" if vectors else "to read"
    raise SchedulingError("prefetch", place, f"it has no {buffer} {how}")
