"""Copies around an intrinsic: in vectors along what lies side by side, where that is known.

for i, j in grid(rows, k):  t[i, j] = x[j, i]     rows <= 256: lines of x that are read in part
->                                                would be gone when their rest is wanted
for j, i in grid(k, rows):  t[i, j] = x[j, i]

for i, j in grid(k, 32):  t[i, j] = x[j, i]       likewise where they lie in the same places of
->                                                the cache
for i0, j, i1 in grid(k//16, 32, 16):  t[16*i0 + i1, j] = x[j, 16*i0 + i1]

for i, j in grid(rows, 32):  y[j, i] = t[i, j]    a tile, which is close by: lines that are
->                                                written are finished one after the other
for j, i in grid(32, rows):  y[j, i] = t[i, j]

for j in grid(32):  y[i, j] = t[i, j]      ->     for j in vectorized(32): y[i, j] = t[i, j]

Where the program has the intrinsic for it, squares of the first two are turned in registers
(`schedule.recipes.square`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pliant.ir.expr import Expr, Load, loads_of
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import LINE, Buffer, Flat, For, Store, offset_of, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import step_along
from pliant.schedule.program import Program
from pliant.schedule.recipes.square import LARGEST, square_name
from pliant.schedule.recipes.turning import read_in_squares, turned

WIDEST: Final = 64  # lanes of a loop that becomes a vector, or several
FEW: Final = 256  # lines that the first-level cache keeps while they are used up

Place = tuple[Buffer | Flat, tuple[Expr, ...]]


def copies_in_vectors(p: Program) -> Program:
    """Every block that only moves elements, one by one, moves several at once where it can."""
    for name in p.blocks:
        if _moves(p, name):
            squares = _in_squares(p, name)
            p = _vectorized(_short_loop_inside(p, name), name) if squares is None else squares
    return p


def _moves(p: Program, name: str) -> bool:
    block = p.block(name)
    found = [s for s in statements(block.body) if not isinstance(s, For)]
    plain = len(found) == 1 and isinstance(found[0], Store)
    return plain and all(i.kind == "S" for i in block.iters) and len(p.loops(name)) > 0


def _in_squares(p: Program, name: str) -> Program | None:
    """The block that turns what it moves, by squares in registers and the rest by elements; None
    where it does not, or no square fits."""
    *_, outer, inner = ("", *p.loops(name))
    if not outer:
        return None
    store, loads = _accesses(p, name)
    (value,) = (s.value for s in statements(p.block(name).body) if isinstance(s, Store))
    if not (isinstance(value, Load) and isinstance(value.source, Buffer)):
        return None
    (load,) = loads
    offset = offset_of(*load)
    if _step(store, inner) != 1 or offset is None or not turned(offset, outer, inner):
        return None
    source = value.source
    sides = [n for n in range(LARGEST, 1, -1) if square_name(source.dtype, n) in p.intrinsics]
    extents = [p.loop(x).extent for x in (outer, inner)]
    if not sides or any(e.is_const and e.value < sides[0] for e in extents):
        return None
    try:
        p = p.reorder(inner, outer).split(inner, sides[0], tail="peel")
        row, line, *_ = p.made
        p = p.reorder(outer, row, line).split(outer, sides[0], tail="peel", tail_loop="exact")
        column, element, *_ = p.made
        p = p.reorder(column, row, element, line)
        p = read_in_squares(p, name, source.name, row)
        return p.unroll(element).vectorize(line)
    except SchedulingError:
        return None


def _short_loop_inside(p: Program, name: str) -> Program:
    """Of the two innermost loops, that along which the source lies goes inside: the whole of it
    where it is short, else as much as fills a line."""
    *_, outer, inner = ("", *p.loops(name))
    if not outer:
        return p
    store, loads = _accesses(p, name)
    if _is_tile(loads) and _step(store, outer) == 1 and _step(store, inner) not in (0, 1):
        with suppress(SchedulingError):
            return p.reorder(inner, outer)
        return p
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


def _is_tile(loads: Sequence[Place]) -> bool:
    """Whether what is read is a tile that an intrinsic has made, which is close by."""
    sources = [source for source, _ in loads if isinstance(source, Buffer)]
    return len(sources) == len(loads) == 1 and all(
        b.scope != "param" and all(x.is_const for x in b.shape) for b in sources
    )


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


def _accesses(p: Program, name: str) -> tuple[Place, list[Place]]:
    """Where the block writes and reads, by the loops around it."""
    block = p.block(name)
    (store,) = (s for s in statements(block.body) if isinstance(s, Store))
    store = subst(store, bindings_of(block))
    loads: list[Load] = list(loads_of(store.value))
    return (store.buffer, store.indices), [(x.source, x.indices) for x in loads]


def _step(place: Place, loop: str) -> int | None:
    """Elements between what two iterations touch; None where that is not one number."""
    return step_along(offset_of(*place), loop)
