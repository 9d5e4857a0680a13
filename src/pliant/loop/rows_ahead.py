"""What a loop asks for in a later iteration of a loop around it, as an expression of its own.

    for i in grid(n):
        for j in vectorized(16, notes={"prefetch": ("x", 2, "i", 1, 1)}):
            y[i, j] = x[at[i], j]

asks for `x[at[min(i + 2, n - 1)], j]`. A check of an index is none here: the row may be another
that nobody comes to; so what is no index asks for the first row.

    for i in grid(n):
        for j in grid(4, notes={"prefetch": ("x", 16*j, "i", 1, (2, size("k"), 16))}):
            for a in grid(2):
                for b in vectorized(16):
                    y[2*i + a, 16*j + b] = x[2*i + a, 16*j + b]

asks from `x[2*min(i + 1, n - 1), 16*j]` on, and from the same place of the next line.
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.ir.expr import Guard, Load, Select, Var, const, loads_of
from pliant.ir.node import transform, walk
from pliant.loop.rewrite import int_names, subst
from pliant.loop.stmt import PREFETCH, BufferRef, For, Function, Stmt, offset_of
from pliant.sym.expr import Int, minimum, var


def rows_ahead(f: Function) -> Function:
    """The same program, of plain statements, whose wishes for later rows are loads; without those
    for what depends on more than sizes, the loops around, and lanes."""
    return f.replace(body=_inside(f.body, {}, frozenset(f.sizes)))


def _inside(s: Stmt, extents: Mapping[str, Int], sizes: frozenset[str]) -> Stmt:
    if isinstance(s, For):
        s = s.replace(body=_inside(s.body, {**extents, s.var: s.extent}, sizes))
        match dict(s.notes).get(PREFETCH):
            case (buffer, at, loop, cache, (count, step, size)) if loop:
                notes = tuple(n for n in s.notes if n[0] != PREFETCH)
                first = _start(s, buffer, loop, extents, sizes)
                if first is None:
                    return s.replace(notes=notes)
                lines = tuple(first + at + k * step for k in range(count))
                return s.replace(notes=(*notes, (PREFETCH, (buffer, lines, "", cache, size))))
            case (buffer, ahead, loop, cache, share) if loop:
                notes = tuple(n for n in s.notes if n[0] != PREFETCH)
                later = _later(s, buffer, ahead, loop, extents, sizes)
                asks = () if later is None else ((PREFETCH, (buffer, later, "", cache, share)),)
                return s.replace(notes=(*notes, *asks))
        return s
    return s.map_children(lambda c: _inside(c, extents, sizes) if isinstance(c, Stmt) else c)


def _later(
    s: For, buffer: str, ahead: Int, loop: str, extents: Mapping[str, Int], sizes: frozenset[str]
) -> Load | None:
    """What the first load of the buffer in a loop reads so many iterations later."""
    load = next((x for x in loads_of(s) if x.source.name == buffer), None)
    if load is None or loop not in extents:
        return None
    if not _names(load) <= {s.var, *extents, *sizes}:  # other loads may be where these are not
        return None
    later = subst(load, {loop: minimum(var(loop) + ahead, extents[loop] - 1)})
    found: Load = transform(later, _unchecked)
    return found


def first_read(s: Stmt, buffer: str) -> Load | None:
    """The first place of a buffer that a statement, or what it calls, reads."""
    found = (n.load if isinstance(n, BufferRef) else n for n in walk(s))
    return next((n for n in found if isinstance(n, Load) and n.source.name == buffer), None)


def _start(
    s: For, buffer: str, loop: str, extents: Mapping[str, Int], sizes: frozenset[str]
) -> Int | None:
    """Where the next iteration of an outer loop begins to read the buffer, in elements."""
    load = first_read(s, buffer)
    offset = None if load is None else offset_of(load.source, load.indices)
    if offset is None or loop not in extents:
        return None
    around = list(extents)
    inside = {*around[around.index(loop) + 1 :], *(x.var for x in walk(s) if isinstance(x, For))}
    later = {loop: minimum(var(loop) + 1, extents[loop] - 1)}
    first = offset.subs(dict.fromkeys(inside, 0)).subs(later)
    return first if first.names <= {*extents, *sizes} else None


def _names(load: Load) -> frozenset[str]:
    """What its indices mention."""
    return int_names(load).union(n.name for n in walk(load) if isinstance(n, Var))


def _unchecked(node: object) -> object:
    if isinstance(node, Guard):
        return Select(node.cond, node.value, const(0, node.dtype))
    return node
