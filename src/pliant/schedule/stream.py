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

The note is a wish: vectors that do not begin where one does that fills its cache line are stored as
ever, and so are all where the buffer has fewer bytes than `at_least`. Both are known when the
program runs; neither changes a value.

Vectors of which some lanes are under a mask are stored as ever, too, but with `parts`: then each
element goes past by itself, for an end of a row whose line another row begins or ends in soon. In
the caches that line would be read from memory first, and all stores behind wait for it.
"""

from __future__ import annotations

from typing import Final

from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import LINE, PARTS, STREAM, For, offset_of
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive

SHORTEST: Final = 16  # bytes of a vector that there is such a store for
ELEMENTS: Final = (4, 8)  # … and of an element


@primitive
def stream(p: Program, loop: str, at_least: int = 0, *, parts: bool = False) -> Program:
    """The vectors that the loop stores go to memory past the caches, where the buffer has
    `at_least` so many bytes; with `parts` also those of which not all lanes are stored."""
    check_stream(p, loop, at_least, parts=parts)
    path = p.loop_path("stream", loop)
    target = path[-1]
    assert isinstance(target, For)
    notes = (*target.notes, (STREAM, at_least), *[(PARTS, at_least)] * parts)
    return p.with_body(replace_at(path, target.replace(notes=notes)))


def check_stream(p: Program, loop: str, at_least: int = 0, *, parts: bool = False) -> None:
    """The loop is vectorized, and does not stream yet. Its one store is of vectors that fill cache
    lines, or of which some fill one, of a parameter that is never read, element after element along
    the lanes; with `parts` of 4 or 8 bytes each. The lanes are a number; nothing else need be
    constant."""
    path = p.loop_path("stream", loop)
    target, place = path[-1], f"loop {loop}"
    assert isinstance(target, For)
    if target.kind != "vectorized":
        raise SchedulingError("stream", place, f"it is {target.kind}, not vectorized")
    if STREAM in dict(target.notes):
        raise SchedulingError("stream", place, "it streams already")
    if not isinstance(at_least, int) or isinstance(at_least, bool) or at_least < 0:
        raise SchedulingError("stream", place, "at_least is a number of bytes")
    stores = [a for a in accesses(target.body, p.invoked) if a.write]
    if len(stores) != 1:
        raise SchedulingError("stream", place, f"it has {len(stores)} stores, not one")
    (store,) = stores
    buffer = store.buffer
    if all(b is not buffer for b in p.function.buffers):
        raise SchedulingError("stream", place, f"{buffer.name} is no parameter")
    if parts and buffer.dtype.bytes not in ELEMENTS:
        reason = f"an element of {buffer.name} is not of 4 or 8 bytes"
        raise SchedulingError("stream", place, reason)
    size = target.extent.value * buffer.dtype.bytes
    if size < SHORTEST or (size % LINE and LINE % size):
        reason = f"{target.extent} elements of {buffer.name} do not fill cache lines"
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
