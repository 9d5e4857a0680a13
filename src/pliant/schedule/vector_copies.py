"""Copies around an intrinsic: in vectors along what lies side by side, where that is known.

for i, j in grid(rows, k):  t[i, j] = x[j, i]     rows <= 256: lines of x that are read in part
->                                                would be gone when their rest is wanted
for j, i in grid(k, rows):  t[i, j] = x[j, i]

for i, j in grid(k, 32):  t[i, j] = x[j, i]       likewise where they lie in the same places of
->                                                the cache
for i0, j, i1 in grid(k//16, 32, 16):  t[16*i0 + i1, j] = x[j, 16*i0 + i1]

for j in grid(32):  y[i, j] = t[i, j]      ->     for j in vectorized(32): y[i, j] = t[i, j]
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pliant.ir.expr import Expr, Load, loads_of
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import LINE, Buffer, Flat, For, Store, offset_of, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program

WIDEST: Final = 64  # lanes of a loop that becomes a vector, or several
FEW: Final = 256  # lines that the first-level cache keeps while they are used up


def copies_in_vectors(p: Program) -> Program:
    """Every block that only moves elements, one by one, moves several at once where it can."""
    for name in p.blocks:
        if _moves(p, name):
            p = _short_loop_inside(p, name)
            p = _vectorized(p, name)
    return p


def _moves(p: Program, name: str) -> bool:
    block = p.block(name)
    found = [s for s in statements(block.body) if not isinstance(s, For)]
    plain = len(found) == 1 and isinstance(found[0], Store)
    return plain and all(i.kind == "S" for i in block.iters) and len(p.loops(name)) > 0


def _short_loop_inside(p: Program, name: str) -> Program:
    """Of the two innermost loops, that along which the source lies goes inside: the whole of it
    where it is short, else as much as fills a line."""
    *_, outer, inner = ("", *p.loops(name))
    if not outer:
        return p
    _, loads = _accesses(p, name)
    across = [x for x in loads if _step(x, outer) == 1 and _step(x, inner) not in (0, 1)]
    if not across:
        return p
    facts = p.inside(p.loop_path("loop", outer)[:-1])
    with suppress(SchedulingError):
        if facts.le(p.loop(outer).extent, FEW):
            return p if facts.le(p.loop(inner).extent, FEW) else p.reorder(inner, outer)
        q = p.split(outer, LINE // across[0][0].dtype.bytes, tail="clip")
        lines, element = q.made
        return q.reorder(lines, inner, element)
    return p


def _vectorized(p: Program, name: str) -> Program:
    loop = p.loops(name)[-1]
    extent, kind = p.loop(loop).extent, p.loop(loop).kind
    if kind != "serial" or not extent.is_const or not 2 <= extent.value <= WIDEST:
        return p
    store, loads = _accesses(p, name)
    if _step(store, loop) == 1 and all(_step(x, loop) in (0, 1) for x in loads):
        with suppress(SchedulingError):
            return p.vectorize(loop)
    return p


Place = tuple[Buffer | Flat, tuple[Expr, ...]]


def _accesses(p: Program, name: str) -> tuple[Place, list[Place]]:
    """Where the block writes and reads, by the loops around it."""
    block = p.block(name)
    (store,) = (s for s in statements(block.body) if isinstance(s, Store))
    store = subst(store, bindings_of(block))
    loads: list[Load] = list(loads_of(store.value))
    return (store.buffer, store.indices), [(x.source, x.indices) for x in loads]


def _step(place: Place, loop: str) -> int | None:
    """Elements between what two iterations touch; None where that is not one number."""
    offset = offset_of(*place)
    line = None if offset is None else offset.linear(loop)
    return line[0].value if line is not None and line[0].is_const else None
