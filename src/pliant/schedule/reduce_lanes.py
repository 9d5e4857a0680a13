"""Write a reduction over a few elements as one expression, to be done as a tree.

Before:

    @loop
    def sums(x: f32["n", 8], y: f32["n"], n: i64):
        for i, r in grid(n, 8):
            with block("y", S(i, n), R(r, 8)) as (a, c):
                with init():
                    y[a] = 0.0
                y[a] = y[a] + x[a, c]

Steps:

    p = p.reduce_lanes('y')

After:

    for i in grid(n):
        with block("y", S(i, n)) as (a,):
            y[a] = sum(x[a, _r0] for _r0 in grid(8))
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pliant.ir.expr import Axis, Expr, Reduce, Select
from pliant.ir.node import walk
from pliant.loop.reducer import Reducer
from pliant.loop.reduction import Update, as_update, combine
from pliant.loop.rewrite import conjoin, conjuncts, int_names, replace_at, subst
from pliant.loop.stmt import Block, For, Iter, Store
from pliant.schedule.conflicts import strict_order
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import Int, ceildiv, var

MAX_LANES: Final = 64
LANE: Final = "_r0"


@primitive
def reduce_lanes(p: Program, block: str) -> Program:
    """The innermost loop around the reduction `block` goes into its expression: one of its
    iterators, or the last part of one that was split."""
    loop, update = check_reduce_lanes(p, block)
    path = p.block_path("reduce_lanes", block)
    target = path[-1]
    assert isinstance(target, Block)
    at = next(k for k, b in enumerate(target.bindings) if loop.var in b.names)
    lane, left = {loop.var: var(LANE)}, _without(target.iters[at], target.bindings[at], loop)
    lane[target.iters[at].var] = var(LANE) if left is None else left.position
    (place,), (value,), (nothing,) = update.places, update.values, update.identity
    assert isinstance(update.combiner, str)
    value = subst(value, lane)
    conditions = conjuncts(target.where)
    inside = conjoin([subst(c, lane) for c in conditions if loop.var in int_names(c)])
    if inside is not None:
        value = Select(inside, value, nothing)
    total: Expr = Reduce(update.combiner, (Axis(LANE, loop.extent),), value)
    iters = list(zip(target.iters, target.bindings, strict=True))
    iters[at : at + 1] = [] if left is None else [(left.iter, left.binding)]
    alone = not any(i.kind == "R" for i, _ in iters)
    starts = isinstance(target.init, Store) and target.init.value is nothing
    if not (alone and starts):
        total = combine(update.combiner, place.load, total)
    made = target.replace(
        iters=tuple(i for i, _ in iters),
        bindings=tuple(b for _, b in iters),
        body=Store(place.buffer, place.indices, total),
        init=None if alone and starts else target.init,
        where=conjoin([c for c in conditions if loop.var not in int_names(c)]),
    )
    return p.with_body(replace_at(path[:-1], made))


class _Left(NamedTuple):
    """What is left of an iterator without the elements of a loop: it counts runs of them;
    `position` is where the lane's element is."""

    iter: Iter
    binding: Int
    position: Int


def _without(i: Iter, binding: Int, loop: For) -> _Left | None:
    """The iterator over runs of the loop; None where it is the loop alone."""
    if binding is var(loop.var):
        return None
    runs = _runs(binding, loop)
    assert runs is not None
    n = loop.extent
    return _Left(i.replace(extent=ceildiv(i.extent, n)), runs, n * var(i.var) + var(LANE))


def _runs(binding: Int, loop: For) -> Int | None:
    """r, where the binding is extent * r + loop."""
    linear = binding.linear(loop.var)
    if linear is None or linear[0] != 1:
        return None
    runs = linear[1] // loop.extent
    return runs if runs * loop.extent is linear[1] else None


def check_reduce_lanes(p: Program, block: str) -> tuple[For, Update]:
    """The block is an update by a known combiner; the loop around it has a small constant extent
    and is one of its "R" iterators. Gives the loop and the update."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("reduce_lanes", f"block {block}", reason)

    path = p.block_path("reduce_lanes", block)
    target, loop = path[-1], path[-2] if len(path) > 1 else None
    assert isinstance(target, Block)
    if not isinstance(loop, For):
        raise refuse("it is not all that is in a loop")
    update = as_update(target)
    if update is None:
        raise refuse("it is no update by a known combiner")
    if isinstance(update.combiner, Reducer):
        raise refuse(f"it reduces by {update.combiner.name}, which is no operator")
    if strict_order(p) and update.rounds:
        raise refuse("the numerics are strict: the order of the reduction must be kept")
    if not loop.extent.is_const or not 1 <= loop.extent.value <= MAX_LANES:
        raise refuse(f"the extent {loop.extent} of {loop.var} is not a number up to {MAX_LANES}")
    over = [
        i.kind
        for i, b in zip(target.iters, target.bindings, strict=True)
        if loop.var in b.names and (_runs(b, loop) is not None or i.kind != "R")
    ]
    uses = sum(loop.var in b.names for b in target.bindings)
    if over != ["R"] or uses != 1:
        raise refuse(f"loop {loop.var} is not one of its reduction iterators")
    if any(isinstance(n, Reduce) for n in walk(update.values[0])):
        raise refuse("it reduces over lanes already")
    if target.init is not None and not isinstance(target.init, Store):
        raise refuse("it starts with more than one store")
    return loop, update
