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

A loop that is not vectorized says with `of` and `runs` what of that its iterations ask for: with
`runs=(2, size("n"), 16)` two runs of 16 elements, n apart, `ahead` elements behind the place where
the next iteration of `of` begins to read.

With `cache=2` it comes into the second level of the caches: for what would drive out of the first
what is still wanted there.

A loop that is not vectorized asks at the start of each iteration, for the lines of all that its
first load of the buffer will read in it, from the first to the last. With `share=2` all its
iterations ask for the first half of that, one piece behind the other: where several passes go over
what they read, each can ask for its part of what comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.ir.expr import loads_of
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at
from pliant.loop.rows_ahead import first_read
from pliant.loop.stmt import PREFETCH, For, Stmt, offset_of
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import Int, IntLike, as_int


@primitive
def prefetch(
    p: Program,
    loop: str,
    buffer: str,
    ahead: IntLike,
    of: str = "",
    cache: int = 1,
    share: int = 1,
    runs: Sequence[IntLike] | None = None,
) -> Program:
    """Where the vectors of the loop read the buffer, or only store it, what lies `ahead` so many
    elements further is asked for, or what is read so many iterations of the loop `of` later; of a
    serial or unrolled loop, what it reads in an iteration, or the first of `share` equal parts of
    what all its iterations read. With `of` and `runs` (how many, how far apart, of how many
    elements) such a loop asks for these, `ahead` elements behind the place where the next iteration
    of `of` begins to read. It comes into that level of the caches, 1 or 2, and those behind it."""
    check_prefetch(p, loop, buffer, ahead, of, cache, share, runs)
    path = p.loop_path("prefetch", loop)
    target = path[-1]
    assert isinstance(target, For)
    part: object = share
    if runs is not None:
        count, step, size = map(as_int, runs)
        part = (count.value, step, size.value)
    notes = (*target.notes, (PREFETCH, (buffer, as_int(ahead), str(of), cache, part)))
    return p.with_body(replace_at(path, target.replace(notes=notes)))


def check_prefetch(
    p: Program,
    loop: str,
    buffer: str,
    ahead: IntLike,
    of: str = "",
    cache: int = 1,
    share: int = 1,
    runs: Sequence[IntLike] | None = None,
) -> None:
    """The loop is not shared between threads, asks for nothing yet, and accesses the parameter:
    a vectorized one element after element along the lanes, others in a load. `ahead` is in terms
    of sizes. With `of`, which is around it, it is vectorized, and reads the parameter; with `runs`
    it is serial, and `ahead` may be in terms of the loops inside of `of`, too."""
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
    if runs is not None:
        _check_runs(p, path, buffer, as_int(ahead), of, runs)
        return
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


def _check_runs(
    p: Program, path: Sequence[Stmt], buffer: str, ahead: Int, of: str, runs: Sequence[IntLike]
) -> None:
    """The loop at the end of the path can ask for such runs."""
    *outer, target = (s for s in path if isinstance(s, For))
    place, around = f"loop {target.var}", [s.var for s in outer]
    if target.kind == "vectorized" or of not in around:
        raise SchedulingError(
            "prefetch", place, f"it is no serial loop inside of {of or 'another'}"
        )
    if len(runs) != 3 or not all(as_int(n).is_const and as_int(n).value > 0 for n in runs[::2]):
        reason = "runs are how many, how far apart, and of how many elements: both numbers"
        raise SchedulingError("prefetch", place, reason)
    inside = {target.var, *around[around.index(of) + 1 :]}
    strange = (ahead.names - inside | as_int(runs[1]).names) - p.sizes
    if strange:
        what = ", ".join(sorted(strange))
        reason = f"runs are told by {what}, which are no sizes and no loops inside of {of}"
        raise SchedulingError("prefetch", place, reason)
    if first_read(target, buffer) is None:
        raise SchedulingError("prefetch", place, f"it has no {buffer} to read")
