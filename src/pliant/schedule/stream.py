"""Stores that go past the caches.

What is far larger than a cache, and is not read again here, had better not push out of it what is:
a store of a whole cache line then need not read that line first either.

Before:

    @loop
    def twice(x: f32["n", 16], y: f32["n", 16], n: i64):
        for i in grid(n):
            for j in vectorized(16):
                with block("y", S(i, n), S(j, 16)) as (a, b):
                    y[a, b] = x[a, b] * 2.0

Steps:

    p = p.stream('j', at_least=4194304)

After:

    for i in grid(n):
        for j in vectorized(16, notes={"stream": 4194304}):
            with block("y", S(i, n), S(j, 16)) as (a, b):
                y[a, b] = x[a, b] * 2.0

The note is a wish: lines that do not begin where a cache line does are stored as ever, and so are
buffers of fewer bytes than `at_least`, which are known when the program runs.
"""

from __future__ import annotations

from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import LINE, STREAM, Alloc, Buffer, For, Stmt, offset_of
from pliant.schedule.conflicts import conflicting_pairs, describe
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive


@primitive
def stream(p: Program, loop: str, at_least: int = 0) -> Program:
    """The vectors that the loop stores go to memory past the caches, where the buffer has
    `at_least` so many bytes."""
    check_stream(p, loop, at_least)
    path = p.loop_path("stream", loop)
    target = path[-1]
    assert isinstance(target, For)
    notes = (*target.notes, (STREAM, at_least))
    return p.with_body(replace_at(path, target.replace(notes=notes)))


def check_stream(p: Program, loop: str, at_least: int = 0) -> None:
    """The loop is vectorized, and not noted yet. What it stores is whole cache lines of one
    parameter, element after element along the lanes; each element is stored in one
    iteration of the loops around, and never read. The lanes are a number; nothing else need be constant."""
    path = p.loop_path("stream", loop)
    target, place = path[-1], f"loop {loop}"
    assert isinstance(target, For)
    if target.kind != "vectorized":
        raise SchedulingError("stream", place, f"it is {target.kind}, not vectorized")
    if STREAM in dict(target.notes):
        raise SchedulingError("stream", place, "it streams already")
    if not isinstance(at_least, int) or isinstance(at_least, bool) or at_least < 0:
        raise SchedulingError("stream", place, "at_least is a number of bytes")
    own = {s.buffer for s in p.statements() if isinstance(s, Alloc)}
    found = accesses(target.body, p.invoked)
    stores = [a for a in found if a.write]
    if len(stores) != 1:
        raise SchedulingError("stream", place, f"it has {len(stores)} stores, not one")
    (store,) = stores
    buffer = store.buffer
    if buffer in own:
        raise SchedulingError("stream", place, f"{buffer.name} is no parameter")
    if target.extent.value * buffer.dtype.bytes % LINE:
        reason = f"{target.extent} elements of {buffer.name} are no whole cache lines"
        raise SchedulingError("stream", place, reason)
    offset = None if store.indices is None else offset_of(buffer, store.indices)
    along = None if offset is None else offset.linear(loop)
    if along is None or along[0] != 1:
        reason = f"{buffer.name} is not stored element after element"
        raise SchedulingError("stream", place, reason)
    for a in accesses(p.function.body, p.invoked):
        if a.buffer is buffer and not a.write:
            where = f"block {a.block}" if a.block else "a statement"
            raise SchedulingError("stream", place, f"{where} reads {buffer.name}")
    _check_once(p, path, place, buffer)


def _check_once(p: Program, path: tuple[Stmt, ...], place: str, buffer: Buffer) -> None:
    """No element is stored in two iterations of a loop around."""
    for k, around in enumerate(path):
        if not isinstance(around, For):
            continue
        facts = p.inside(path[:k])
        found = accesses(around.body, p.invoked)
        for a, b in conflicting_pairs([x for x in found if x.buffer is buffer], strict=True):
            if around.var not in agreed_loops(a, b, [around], facts):
                raise SchedulingError("stream", place, describe(a, b))
