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
from pliant.loop.rewrite import path_to, replace_at, replace_buffer
from pliant.loop.stmt import Alloc, Buffer, For, Seq, Stmt
from pliant.schedule.compute_inline import without_alloc
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import common_loops
from pliant.schedule.program import Program, primitive
from pliant.sym.index_map import IndexMap


@primitive
def store_in(p: Program, buffer: str, into: str) -> Program:
    """What is in `buffer` lies in `into` instead, until it is overwritten there."""
    old, new = check_store_in(p, buffer, into)
    body = p.function.body
    if _allocated_inside(body, old, new):
        body = without_alloc(body, new)
        path = path_to(body, lambda s: isinstance(s, Alloc) and s.buffer is old)
        assert path is not None and isinstance(path[-1], Alloc)
        body = replace_at(path, Alloc(new, path[-1].body))
    else:
        body = without_alloc(body, old)
    return p.with_body(replace_buffer(body, old, new, lambda at: at))


def check_store_in(p: Program, buffer: str, into: str) -> tuple[Buffer, Buffer]:
    """`buffer` is the function's own and as large as `into`, which one block writes, at each place
    once, and which nothing reads before that is done. That block reads `buffer` only at the place
    that it writes, and all other uses of `buffer` come before it."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("store_in", f"buffer {buffer}", reason)

    old, new = p.buffer(buffer), p.buffer(into)
    root = p.function.body
    path = path_to(root, lambda s: isinstance(s, Alloc) and s.buffer is old)
    if path is None:
        raise refuse("it is a parameter")
    if (
        new not in p.function.buffers
        and not any(isinstance(s, Alloc) and s.buffer is new for s in path[:-1])
        and not _allocated_inside(root, old, new)
    ):
        raise refuse(f"{into} does not exist where it is used")
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise refuse(f"it is {old}, and {into} is {new}")
    all_uses = accesses(root)
    uses, others = ([a for a in all_uses if a.buffer is b] for b in (old, new))
    if any(a.indices is None for a in (*uses, *others)):
        raise refuse("a call takes the address of one of them")
    writes = [a for a in others if a.write]
    if len(writes) != 1 or not writes[0].block:
        raise refuse(f"not one block writes {into}")
    (last,) = writes
    begin = _begin(root, path, new)

    def together(a: Access) -> bool:
        """Whether a use is in a loop with the block, in each iteration of which the buffers are
        the same."""
        both = {x.var for x in common_loops(a.loops, last.loops)}
        return not both <= begin

    for a in others:
        if a.write:
            continue
        if a.block == last.block or a.position < last.position or together(a):
            raise refuse(f"{into} is read before block {last.block} has written all of it")
    if not _once(p, last, begin):
        raise refuse(f"block {last.block} may write a place of {into} twice")
    for a in uses:
        if a.block == last.block:
            if a.write or a.indices != last.indices:
                raise refuse(f"block {last.block} uses it at other places than it writes {into}")
        elif a.position > last.position or together(a):
            user = f"block {a.block}" if a.block else "a statement"
            raise refuse(f"{user} may use it after block {last.block} has written {into}")
    return old, new


def _allocated_inside(root: Stmt, old: Buffer, new: Buffer) -> bool:
    """Whether the allocation of `new` is in that of `old`, in no loop of its own."""
    path = path_to(root, lambda s: isinstance(s, Alloc) and s.buffer is new)
    if path is None:
        return False
    around = [k for k, s in enumerate(path) if isinstance(s, Alloc) and s.buffer is old]
    return bool(around) and all(isinstance(s, Alloc | Seq) for s in path[around[0] :])


def _begin(root: Stmt, path: tuple[Stmt, ...], new: Buffer) -> set[str]:
    """The loops around the allocations: their iterations have buffers of their own."""
    outer = path_to(root, lambda s: isinstance(s, Alloc) and s.buffer is new)
    if outer is None:
        return set()
    both = min(path, outer, key=len)
    return {s.var for s in both if isinstance(s, For)}


def _once(p: Program, store: Access, begin: set[str]) -> bool:
    """Whether different iterations of the loops inside `begin` store at different places."""
    places = [store.index(d) for d in range(store.buffer.rank)]
    known = tuple(x for x in places if x is not None)
    if len(known) < len(places):
        return False
    loops = [x for x in store.loops if x.var not in begin]
    inputs, extents = tuple(x.var for x in loops), tuple(x.extent for x in loops)
    if any(not x.names.isdisjoint(inputs) for x in extents):
        return False  # not a box
    return IndexMap(inputs, extents, known).is_injective(p.facts)
