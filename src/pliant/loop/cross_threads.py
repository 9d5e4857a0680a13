"""A reduction over threads as what each thread does: its own part, then a tree.

    for r in grid(k):                       p[0] = 0                            each thread
        for t in threadIdx.x(8):            for r in grid(k):
            y[i] = y[i] + x[8*r + t]   ->       p[0] = p[0] + x[8*r + t]
                                            q[0, t] = p[0]                      in shared memory
                                            q[1, t] = q[0, t] + q[0, t + 4]     where t < 4
                                            q[0, t] = q[1, t] + q[1, t + 2]     where t < 2
                                            q[1, t] = q[0, t] + q[0, t + 1]     where t < 1
                                            y[i] = y[i] + q[1, 0]               the first thread

A step of the tree reads one row of q and writes the other, so one barrier is enough between two.
An odd number of values keeps the middle one: the width goes from w to ceil(w/2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.ir.expr import Expr, Index
from pliant.loop.lower_init import reduction_loops
from pliant.loop.reduction import Update, as_update
from pliant.loop.rewrite import Names, conjoin, conjuncts, int_names, less, subst
from pliant.loop.stmt import Alloc, Block, Buffer, BufferRef, For, If, Stmt, Store, buffer, seq
from pliant.loop.threads import THREAD_AXES
from pliant.sym.expr import Int, IntLike, const, var


@dataclass(frozen=True)
class CrossThread:
    """A reduction some of whose loops are threads."""

    loops: tuple[For, ...]  # all that it reduces over, from the outermost
    block: Block
    update: Update

    @property
    def threads(self) -> tuple[For, ...]:
        return tuple(x for x in self.loops if x.kind in THREAD_AXES)

    @property
    def width(self) -> int:
        """How many threads work together."""
        total = 1
        for x in self.threads:
            total *= x.extent.value
        return total


def cross_thread(top: Stmt) -> CrossThread | None:
    """The reduction whose outermost loop is `top`, if threads do it together."""
    loops: list[For] = []
    s = top
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    if not isinstance(s, Block) or cross_thread_fault(loops, s):
        return None
    update = as_update(s)
    if update is None or not any(x.kind in THREAD_AXES for x in loops):
        return None
    return CrossThread(tuple(loops), s, update)


def cross_thread_fault(loops: Sequence[For], block: Block) -> str:
    """Why threads cannot do the reduction of `block` over all of `loops`, which are around it;
    empty if they can."""
    reduced = reduction_loops(block)
    if as_update(block) is None:
        return "it is no update by a known combiner"
    for loop in loops:
        if loop.var not in reduced:
            return f"loop {loop.var} inside is not one that it reduces over: reorder"
        if loop.kind in THREAD_AXES and not loop.extent.is_const:
            return f"the extent {loop.extent} of {loop.var} is not a number"
    names = {x.var for x in loops}
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind != "R" and binding.names & names:
            return f"its iterator {it.var} is not reduced over {', '.join(sorted(names))}"
    return ""


@dataclass(frozen=True)
class Tree:
    """What takes the place of the reduction, and the memory that it uses, one buffer a value."""

    shared: tuple[Buffer, ...]
    parts: tuple[Buffer, ...]
    own: Stmt  # by each thread, in its own memory
    steps: tuple[Stmt, ...]  # by all threads, one after another
    last: Stmt  # once

    def with_parts(self, body: Stmt) -> Stmt:
        for part in reversed(self.parts):
            body = Alloc(part, body)
        return body


def tree(
    found: CrossThread, at: Mapping[str, str], around: Sequence[tuple[str, Int]], names: Names
) -> Tree:
    """The steps of a reduction. `at` gives each thread axis its variable; `around` are the other
    axes of threads that the reduction is done for, each with its variable and extent."""
    block, update = found.block, found.update
    rows: list[IntLike] = [n for _, n in around]
    parts, shared = [], []
    for to in (place.buffer for place in update.places):
        parts.append(buffer(names.buffer(f"{to.name}_part"), (1,), to.dtype, scope="local"))
        shape = (2, *rows, found.width)
        shared.append(buffer(names.buffer(f"{to.name}_tree"), shape, to.dtype, scope="shared"))
    lane: Int = const(0)
    for x in found.threads:
        lane = lane * x.extent + var(at[x.kind])
    own = [BufferRef(part, (Index(const(0)),)) for part in parts]

    def row(turn: int, where: Int) -> list[BufferRef]:
        indices = tuple(Index(i) for i in (const(turn), *(var(v) for v, _ in around), where))
        return [BufferRef(b, indices) for b in shared]

    bound = {x.var: var(at[x.kind]) for x in found.threads}
    mine: Stmt = block.replace(
        name=names.block(f"{block.name}_part"), body=update.at(own, update.values)
    )
    for x in reversed(found.loops):
        mine = x.replace(body=mine) if x not in found.threads else mine
    mine = subst(mine, bound)
    steps: list[Stmt] = [_move(row(0, lane), own)]
    width, turn = found.width, 0
    while width > 1:
        half = (width + 1) // 2
        here, other, next_row = row(turn, lane), row(turn, lane + half), row(1 - turn, lane)
        both = seq(_move(next_row, here), update.at(next_row, [x.load for x in other]))
        if width % 2:
            kept = If(less(lane, half), _move(next_row, here))
            both = seq(If(less(lane, width - half), both), If(less(width - half - 1, lane), kept))
            steps.append(both)
        else:
            steps.append(If(less(lane, half), both))
        width, turn = half, 1 - turn
    total = [x.load for x in row(turn, const(0))]
    start = seq(update.start(own), mine)
    return Tree(tuple(shared), tuple(parts), start, tuple(steps), _last(found, total))


def _move(to: Sequence[BufferRef], values: Sequence[BufferRef]) -> Stmt:
    return seq(*(Store(t.buffer, t.indices, v.load) for t, v in zip(to, values, strict=True)))


def _last(found: CrossThread, total: Sequence[Expr]) -> Block:
    """The block that puts the total to what the reduction began with."""
    block, update = found.block, found.update
    gone = {x.var for x in found.loops}
    own = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    kept = [k for k, i in enumerate(block.iters) if i.kind != "R"]
    where = [c for c in conjuncts(block.where) if not int_names(subst(c, own)) & gone]
    return block.replace(
        iters=tuple(block.iters[k] for k in kept),
        bindings=tuple(block.bindings[k] for k in kept),
        body=update.at(update.places, total),
        where=conjoin(where),
    )
