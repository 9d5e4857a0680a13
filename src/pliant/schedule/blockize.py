"""Make the nest below a loop one block, whose iterators are the loops around.

Before:

    @loop
    def double(x: f32["8*n"], y: f32["8*n"], n: i64):
        for o, i in grid(n, 8):
            with block("y", S(i + 8*o, 8*n)) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.blockize('i')

After:

    for o in grid(n):
        with block("y_o", S(o, n)) as (y_o_vo,):
            for i in grid(8):
                with block("y", S(i + 8*y_o_vo, 8*n)) as (a,):
                    y[a] = x[a] * 2.0
"""

from __future__ import annotations

from pliant.loop.regions import used
from pliant.loop.rewrite import int_names, replace_at, subst
from pliant.loop.stmt import Alloc, Block, For, Iter, Let, Stmt, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import blocks_in
from pliant.schedule.program import BlockRef, Program, primitive
from pliant.sym.expr import IntLike, var


@primitive
def blockize(p: Program, loop: str) -> Program:
    """Makes the block."""
    kinds = check_blockize(p, loop)
    path, names = p.loop_path("blockize", loop), p.names()
    inner = blocks_in(path[-1])
    label = names.block(f"{inner[0].name}_o" if inner else f"{loop}_o")
    around = [s for s in path[:-1] if isinstance(s, For) and s.var in kinds]
    fresh = {s.var: names.variable(f"{label}_v{s.var}") for s in around}
    own: dict[str, IntLike] = {loop: var(it) for loop, it in fresh.items()}
    iters = tuple(Iter(fresh[s.var], s.extent, kinds[s.var]) for s in around)
    made = Block(label, iters, tuple(var(s.var) for s in around), subst(path[-1], own))
    return p.with_body(replace_at(path, made), BlockRef(label))


def check_blockize(p: Program, loop: str) -> dict[str, str]:
    """Reductions over loops outside are started outside, and no loop around is reduced over by
    one block and not by another, nor says how large memory is that is used inside. Gives the kind
    of iterator that each loop around becomes."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("blockize", f"loop {loop}", reason)

    path = p.loop_path("blockize", loop)
    if any(isinstance(s, Block) for s in path):
        raise refuse("it is inside a block")
    around = [s.var for s in path[:-1] if isinstance(s, For)]
    free = _free_names(path[-1])
    lets = {s.var.name for s in path if isinstance(s, Let)}
    if free & lets:
        raise refuse(f"it uses {', '.join(sorted(free & lets))}")
    made = {s.buffer for s in statements(path[-1]) if isinstance(s, Alloc)}
    for buffer in sorted(used(path[-1]) - made, key=lambda b: b.name):
        for name in frozenset[str]().union(*(x.names for x in (*buffer.shape, *buffer.strides))):
            if name in around:
                raise refuse(f"the shape of {buffer.name} depends on loop {name}")
    kinds: dict[str, str] = {}
    for block in blocks_in(path[-1]):
        for it, binding in zip(block.iters, block.bindings, strict=True):
            for name in sorted(binding.names & set(around)):
                if kinds.setdefault(name, it.kind) != it.kind:
                    raise refuse(f"loop {name} is bound to iterators of different kinds")
                if it.kind == "R" and block.init is not None:
                    reason = f"block {block.name} has its init inside; decompose_reduction first"
                    raise refuse(reason)
    for name in around:
        if name in free:
            kinds.setdefault(name, "S")
    return kinds


def _free_names(root: Stmt) -> frozenset[str]:
    bound = {s.var for s in statements(root) if isinstance(s, For)}
    return int_names(root) - bound
