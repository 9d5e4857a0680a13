"""Split a sum whose terms are zero but in steps into its phases, each without those zeros.

A transposed convolution with stride s adds to an output every s-th position of its window; which
ones, the remainder of the output's index by s says. The outputs of each remainder become a block of
their own, whose window has these positions only, as an ordinary convolution has. What multiplies a
zero is taken for finite, as where a sum is padded.

Before:

    @loop
    def spread(x: f32["n + 1"], w: f32[3], y: f32["2*n"], n: i64):
        for i, r in grid(2*n, 3):
            with block("y", S(i, 2*n), R(r, 3)) as (o, k):
                with init():
                    y[o] = 0.0
                y[o] = y[o] + select((o - k)%2 == 0, x[(o - k)//2 + 1], 0.0) * w[k]

Steps:

    p = p.phases_apart('y')

After:

    for y_at_0_0, y_at_0_1 in grid(n, 2):
        with block("y_at_0", S(y_at_0_0, n), R(y_at_0_1, 2)) as (y_at_0_v0, y_at_0_v1):
            with init():
                y[2*y_at_0_v0] = 0.0
            y[2*y_at_0_v0] = y[2*y_at_0_v0] + x[y_at_0_v0 - y_at_0_v1 + 1] * w[2*y_at_0_v1]
    for y_at_1_0, y_at_1_1 in grid(n, 1):
        with block("y_at_1", S(y_at_1_0, n), R(y_at_1_1, 1)) as (y_at_1_v0, y_at_1_v1):
            with init():
                y[2*y_at_1_v0 + 1] = 0.0
            y[2*y_at_1_v0 + 1] = y[2*y_at_1_v0 + 1] + x[y_at_1_v0 + 1] * w[1]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final

from pliant.ir.expr import Axis, Index, Select
from pliant.ir.node import transform
from pliant.loop.reduction import Update
from pliant.loop.rewrite import Names, replace_at, subst
from pliant.loop.stmt import Block, Iter, Stmt, for_, seq
from pliant.lower.conditions import always, assuming, simplify_condition
from pliant.lower.phases import Phase, phases_of
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import own_sum
from pliant.schedule.program import BlockRef, Program, primitive
from pliant.sym.expr import Int, ceildiv, var
from pliant.sym.facts import Facts

MOST: Final = 64  # blocks that one becomes


@primitive
def phases_apart(p: Program, block: str) -> Program:
    """Makes the blocks of the phases, those of a first iterator's remainder 0 first."""
    plan = check_phases_apart(p, block)
    names = p.names()
    made = [
        _phase_nest(names, plan, dict(zip((f.outer for f in plan.phases), at, strict=True)))
        for at in product(*(range(f.step) for f in plan.phases))
    ]
    body = replace_at(plan.path[: plan.at + 1], seq(*(nest for nest, _ in made)))
    return p.with_body(body, *(BlockRef(label) for _, label in made))


@dataclass(frozen=True)
class _Plan:
    path: tuple[Stmt, ...]
    at: int  # of the outermost of the block's loops
    block: Block
    update: Update
    phases: tuple[Phase, ...]
    facts: Facts  # around the block's loops


def check_phases_apart(p: Program, block: str) -> _Plan:
    """The block is a sum that starts itself, under no condition; its loops are its iterators, in
    serial. It writes at its data parallel iterators, each its own dimension. Its terms are zero
    but where a number divides an expression of one of these and one that is reduced over."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("phases_apart", f"block {block}", reason)

    path = p.block_path("phases_apart", block)
    target = path[-1]
    assert isinstance(target, Block)
    update, at = own_sum(p, path, refuse)
    (place,) = update.places
    axes = [Axis(i.var, i.extent) for i in target.iters if i.kind == "S"]
    reduced = [Axis(i.var, i.extent) for i in target.iters if i.kind == "R"]
    indices = [str(i.int_) if isinstance(i, Index) else "" for i in place.indices]
    if sorted(indices) != sorted(a.var for a in axes):
        raise refuse(f"it does not write {place.buffer.name} at its iterators")
    found = phases_of(update.values[0], axes, reduced, aligned=False)
    if not found:
        raise refuse("no divisibility says where its terms are zero")
    count = prod(f.step for f in found)
    if count > MOST:
        raise refuse(f"{count} phases are more than {MOST}")
    return _Plan(path, at, target, update, found, p.inside(path[:at]))


def _phase_nest(names: Names, plan: _Plan, at: Mapping[str, int]) -> tuple[Stmt, str]:
    """The loops over a block for outputs with these remainders, and its name."""
    target, phases = plan.block, plan.phases
    label = names.block("_".join([target.name, "at", *map(str, at.values())]))
    outer = {f.outer: f for f in phases}
    inner = {f.inner: f for f in phases}
    loops = [names.variable(f"{label}_{d}") for d in range(len(target.iters))]
    iters: list[Iter] = []
    where: dict[str, Int] = {}
    facts = plan.facts.copy()
    for d, i in enumerate(target.iters):
        here, extent = var(names.variable(f"{label}_v{d}")), i.extent
        where[i.var] = here
        if i.var in outer:
            step = outer[i.var].step
            extent = ceildiv(extent - at[i.var], step)
            where[i.var] = here * step + at[i.var]
        elif i.var in inner:
            phase = inner[i.var]
            start = {phase.outer: at[phase.outer]}
            where[i.var] = phase.position.subs(start | {i.var: here})
            extent = phase.extent if phase.count is None else phase.count.subs(start)
        iters.append(Iter(str(here), plan.facts.simplify(extent), i.kind))
        facts.declare_index(str(here), iters[-1].extent)

    def visit(node: Any) -> Any:
        if isinstance(node, Select):
            held = always(node.cond, facts) is True
            return node.a if held else node.replace(cond=simplify_condition(node.cond, facts))
        return Index(facts.simplify(node.int_)) if isinstance(node, Index) else node

    (place,), (value,) = plan.update.places, plan.update.values
    value = assuming(value, [f.condition for f in phases])
    body = subst(plan.update.at([place], [value]), where)
    start_ = subst(plan.update.start([place]), where)
    made = Block(
        label,
        tuple(iters),
        tuple(map(var, loops)),
        transform(body, visit),
        init=transform(start_, visit),
    )
    extents = [i.extent for i in iters]
    return for_(list(zip(loops, extents, strict=True)), made), label
