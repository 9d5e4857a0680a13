"""Keep the values of a buffer where its last reader will store its own.

Less memory is touched, and a store that has to wait for its line to come from memory does so while
the values are computed, not when there is nothing else left to do.

Before:

    @loop
    def rows(x: f32["n"], y: f32["n"], n: i64):
        e = alloc(f32[n], scope="scratch")
        s = alloc(f32[1], scope="scratch")
        for i in grid(n):
            with block("e", S(i, n)) as (a,):
                e[a] = exp(x[a])
        for r in grid(n):
            with block("s", S(0, 1), R(r, n)) as (u, b):
                with init():
                    s[u] = 0.0
                s[u] = s[u] + e[b]
        for j in grid(n):
            with block("y", S(j, n)) as (c,):
                y[c] = e[c] / s[0]

Steps:

    p = p.store_in('e', 'y')

After:

    s = alloc(f32[1], scope="scratch")
    for i in grid(n):
        with block("e", S(i, n)) as (a,):
            y[a] = exp(x[a])
    for r in grid(n):
        with block("s", S(0, 1), R(r, n)) as (u, b):
            with init():
                s[u] = 0.0
            s[u] = s[u] + y[b]
    for j in grid(n):
        with block("y", S(j, n)) as (c,):
            y[c] = y[c] / s[0]
"""

from __future__ import annotations

from pliant.loop.regions import Access, accesses
from pliant.loop.rewrite import path_to, replace_buffer
from pliant.loop.stmt import Alloc, Buffer
from pliant.schedule.compute_inline import without_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import common_loops
from pliant.schedule.program import Program, primitive
from pliant.sym.index_map import IndexMap


@primitive
def store_in(p: Program, buffer: str, into: str) -> Program:
    """What is in `buffer` lies in `into` instead, until it is overwritten there."""
    old, new = check_store_in(p, buffer, into)
    body = replace_buffer(without_alloc(p.function.body, old), old, new, lambda at: at)
    return p.with_body(body)


def check_store_in(p: Program, buffer: str, into: str) -> tuple[Buffer, Buffer]:
    """`buffer` is the function's own and as large as `into`, which one block writes, at each place
    once, and nothing reads. That block reads `buffer` only at the place that it writes, and all
    other uses of `buffer` come before it."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("store_in", f"buffer {buffer}", reason)

    old, new = p.buffer(buffer), p.buffer(into)
    root = p.function.body
    path = path_to(root, lambda s: isinstance(s, Alloc) and s.buffer is old)
    if path is None:
        raise refuse("it is a parameter")
    if new not in p.function.buffers and not any(
        isinstance(s, Alloc) and s.buffer is new for s in path[:-1]
    ):
        raise refuse(f"{into} does not exist where it is used")
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise refuse(f"it is {old}, and {into} is {new}")
    all_uses = accesses(root)
    uses, others = ([a for a in all_uses if a.buffer is b] for b in (old, new))
    if any(a.indices is None for a in (*uses, *others)):
        raise refuse("a call takes the address of one of them")
    if any(not a.write for a in others):
        raise refuse(f"{into} is read")
    if len(others) != 1 or not others[0].block:
        raise refuse(f"not one block writes {into}")
    (last,) = others
    if not _once(p, last):
        raise refuse(f"block {last.block} may write a place of {into} twice")
    for a in uses:
        if a.block == last.block:
            if a.write or a.indices != last.indices:
                raise refuse(f"block {last.block} uses it at other places than it writes {into}")
        elif a.position > last.position or common_loops(a.loops, last.loops):
            user = f"block {a.block}" if a.block else "a statement"
            raise refuse(f"{user} may use it after block {last.block} has written {into}")
    return old, new


def _once(p: Program, store: Access) -> bool:
    """Whether different iterations store at different places."""
    places = [store.index(d) for d in range(store.buffer.rank)]
    known = tuple(x for x in places if x is not None)
    if len(known) < len(places):
        return False
    loops = store.loops
    inputs, extents = tuple(x.var for x in loops), tuple(x.extent for x in loops)
    if any(not x.names.isdisjoint(inputs) for x in extents):
        return False  # not a box
    return IndexMap(inputs, extents, known).is_injective(p.facts)
