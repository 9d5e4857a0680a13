"""Scatters: a copy of the base as a map, then what is combined into it.

    for the places that values choose, in order          parts of what is beside them, in threads
        for what lies beside them                 →          the places, in order
                                                                 vectors

Elements that two places have in common are combined in order; what an iterator of the values says
by itself is another element in each of its iterations, so these are independent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pliant.ir.einsum import names_in
from pliant.ir.expr import Index
from pliant.ir.tensor import Scatter
from pliant.lower.canonical import Spec
from pliant.schedule.program import Program
from pliant.schedule.recipes.nests import collapse, grain, in_parallel, vectors, work_of
from pliant.schedule.recipes.start import start
from pliant.sym.expr import as_int

PART: Final = 256  # columns, for which a thread goes through all places


def scatter_recipe(spec: Spec, lanes: int) -> Program:
    """A schedule for a scatter."""
    p = start(spec)
    copy, combined = p.blocks
    loops, kinds = p.loops(combined), [it.kind for it in p.block(combined).iters]
    beside = [n for n, kind in zip(loops, kinds, strict=True) if kind == "S"]
    ordered = [n for n in loops if n not in beside]
    p = _copied(p, copy, lanes)
    if not beside:
        return p
    work = as_int(work_of(p, [combined]))
    for loop in ordered:
        work = work * p.loop(loop).extent
    if beside[-1] != loops[-1]:
        p = p.reorder(*beside, *ordered).fuse(*beside)
        return p.parallel(p.made[0], grain=grain(work))
    *outer, last = beside
    p = p.split(last, PART, tail="clip")
    part, column = p.made
    if _chosen_by(spec, loops.index(last)):  # lanes would each have a place of their own
        p = p.reorder(part, *loops[:-1], column)
        return p.parallel(part, grain=grain(work * PART))
    p = p.reorder(*outer, part, *ordered, column).fuse(*outer, part)
    p = p.parallel(p.made[0], grain=grain(work * PART))
    p, _, inner = vectors(p, column, lanes)
    return _vectorized(p, inner)


def _chosen_by(spec: Spec, axis: int) -> bool:
    """Whether it depends on an axis of the values where they go."""
    ((_, tensor),) = spec.members
    assert isinstance(tensor, Scatter)
    name = tensor.axes[axis].var
    chosen = [w for w in tensor.where if not isinstance(w, Index)]
    chosen += [] if tensor.skip is None else [tensor.skip]
    return any(name in names_in(w) for w in chosen)


def _copied(p: Program, block: str, lanes: int) -> Program:
    p, loops = collapse(p, p.loops(block))
    if not loops:
        return p
    *outer, last = loops
    work = p.loop(last).extent if outer else as_int(lanes)
    p, blocks, inner = vectors(p, last, lanes)
    p, _ = in_parallel(p, outer or [blocks], grain(work))
    return _vectorized(p, inner)


def _vectorized(p: Program, loops: Iterable[str]) -> Program:
    """In the caches, where what comes next finds it."""
    for loop in loops:
        p = p.vectorize(loop)
    return p
