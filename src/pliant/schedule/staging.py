"""A part of a block's value, computed in front of it into a copy that is indexed by iterators.

for i, j, k in grid(n, h, m):           for i, k in grid(n, m):
    y[i, j] += x[k, 2*i] * w[k, j]  ->      x_copy[i, k] = x[k, 2*i]
                                        for i, j, k in grid(n, h, m):
                                            y[i, j] += x_copy[i, k] * w[k, j]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pliant.base.dtypes import i64
from pliant.ir.expr import Expr, Guard, Index, Load, Select, Var, const, loads_of
from pliant.ir.node import transform, walk
from pliant.loop.regions import accesses
from pliant.loop.rewrite import conjoin, int_names, less, replace_at, subst
from pliant.loop.stmt import Block, Buffer, Iter, Let, Nop, Stmt, for_, seq
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.copies import (
    Copy,
    check_shared,
    fill_nest,
    place_in_front,
    varies,
    with_alloc,
)
from pliant.schedule.coverage import runs_through
from pliant.schedule.flow import in_bounds, is_leaf
from pliant.schedule.layout import Layout, Packing, known_layout, packing
from pliant.schedule.program import BlockRef, MemoryRef, Program
from pliant.schedule.set_scope import InnerScope
from pliant.sym.expr import Int, IntLike, as_int, var


@dataclass(frozen=True)
class Staging:
    """A part of a block's value that can be computed in front of it."""

    path: tuple[Stmt, ...]  # to the block
    at: int  # of the statement in it that the copy goes in front of
    part: Expr
    iters: tuple[Iter, ...]  # the copy's, before it is packed
    packed: Packing


def check_staging(
    p: Program,
    path: tuple[Stmt, ...],
    part: Expr,
    how: Layout | None,
    refuse: Refuse,
) -> Staging:
    """The part depends on iterators, sizes and buffers alone, which nothing writes where it is
    read; the layout `how`, over the block's iterators, has an inverse and mentions all that the
    part depends on. Where the block does not run for all of its domain, or reads the part only
    where a condition holds, the part must be known to read inside the buffers everywhere."""
    target = path[-1]
    assert isinstance(target, Block)
    used = int_names(part)
    iters, packed = layout_of_iterators(p, target, used, how, refuse)
    free = used - {i.var for i in iters} - p.sizes
    free |= {x.name for x in walk(part) if isinstance(x, Var) and x.type is not i64}
    if free:
        raise refuse(f"the part depends on {', '.join(sorted(free))}")
    if varies((i.extent for i in iters), p):
        raise refuse("how many iterations it has varies")
    late = [i.var for i in iters if i.kind == "R"]
    if late and target.init is not None and any(x is part for x in walk(target.init)):
        raise refuse(f"its start reads the part, before there is an iterator {late[0]}")
    sources = [_memory(x) for x in loads_of(part)]
    at = place_in_front(p, path, sources)
    if at is None:
        raise refuse(f"{_names(sources)} is written where it is read")
    plan = Staging(path, at, part, iters, packed)
    always = runs_through(p, path, 0)
    chosen = _is_chosen(target, part)
    if (chosen or not always) and not _reads_inside(p, plan):
        if always:
            why = f"it reads {_names(sources)} only where a condition holds, which it may need"
        else:
            why = f"it runs under a condition, which {_names(sources)} may need"
        raise refuse(why)
    return plan


def _is_chosen(target: Block, part: Expr) -> bool:
    """Whether the part is in a branch of a choice, or behind a check."""
    for root in (target.body, *([target.init] if target.init is not None else [])):
        for node in walk(root):
            branches: tuple[Expr, ...] = ()
            if isinstance(node, Select):
                branches = (node.a, node.b)
            elif isinstance(node, Guard):
                branches = (node.value,)
            if any(x is part for branch in branches for x in walk(branch)):
                return True
    return False


def layout_of_iterators(
    p: Program, target: Block, used: frozenset[str], how: Layout | None, refuse: Refuse
) -> tuple[tuple[Iter, ...], Packing]:
    """The iterators that the layout mentions (without one: those in `used`), and their packing."""
    rank = len(target.iters)
    if not known_layout(how, rank, p.sizes):
        raise refuse(f"the layout is not one of {rank} iterators")
    mentioned = used if how is None else _mentioned(target, how)
    iters = tuple(i for i in target.iters if i.var in mentioned)
    packed = packing(tuple(i.extent for i in iters), _over(target, iters, how), p.facts)
    if packed is None:
        raise refuse("the layout has no inverse")
    return iters, packed


def staged(
    p: Program,
    primitive: str,
    plan: Staging,
    label: str,
    scope: InnerScope = "scratch",
    pad: int | float | None = None,
) -> Program:
    """The program with the copy in front, which the block reads."""
    target = plan.path[-1]
    assert isinstance(target, Block)
    copy = filled(p, plan, label, scope, pad)
    at = tuple(Index(var(i.var)) for i in plan.iters)
    here = Load(copy.buffer, plan.packed.place(at))
    inner = replace_at(plan.path[plan.at :], replace_part(target, plan.part, here))
    nest = seq(copy.nest, inner)
    body = with_alloc(replace_at(plan.path[: plan.at + 1], nest), copy.buffer)
    q = p.with_body(body, BlockRef(copy.block), MemoryRef(copy.buffer.name))
    check_shared(q, primitive, target.name, plan.path, plan.at)
    return q


def filled(
    p: Program, plan: Staging, label: str, scope: InnerScope, pad: int | float | None
) -> Copy:
    """The copy. Where it might read what the block, for want of iterations, does not, it is not
    read: a block's body makes sense in all of its domain, but that may be empty."""
    own: dict[str, IntLike] = {i.var: var(f"_{d}") for d, i in enumerate(plan.iters)}
    value: Expr = subst(plan.part, own)
    runs = conjoin([less(0, x) for x in _needed_extents(p, plan)])
    if runs is not None:
        value = Select(runs, value, const(0, value.dtype))
    return fill_nest(p.names(), label, plan.packed, value, scope, pad=pad)


def _needed_extents(p: Program, plan: Staging) -> list[Int]:
    """Extents of the block's other iterators, which may be 0 and then tell nothing about where
    the part reads. One that has no size in common with that can be any."""
    target = plan.path[-1]
    assert isinstance(target, Block)
    sizes = int_names(plan.part).union(*(i.extent.names for i in plan.iters))
    for x in loads_of(plan.part):
        sizes = sizes.union(*(d.names for d in _memory(x).shape))
    others = [i.extent for i in target.iters if i not in plan.iters]
    open_ = [x for x in others if x.names & sizes and not p.facts.positive(x)]
    return [] if not open_ or _reads_inside(p, plan) else open_


def replace_part(target: Block, part: Expr, new: Expr) -> Block:
    """The block with `new` for a part of what it computes."""

    def visit(node: Any) -> Any:
        return new if node is part else node

    init = None if target.init is None else transform(target.init, visit)
    return target.replace(body=transform(target.body, visit), init=init)


def check_leaf(target: Block, path: tuple[Stmt, ...], refuse: Refuse) -> None:
    """The block holds neither loops nor blocks, and is in none."""
    if not is_leaf(target) or any(isinstance(s, Block) for s in path[:-1]):
        raise refuse("it holds loops or blocks, or is inside one")


def _mentioned(target: Block, how: Layout) -> frozenset[str]:
    places = frozenset[str]().union(*(x.names for x in map(as_int, how)))
    return frozenset(i.var for d, i in enumerate(target.iters) if f"_{d}" in places)


def _over(target: Block, iters: tuple[Iter, ...], how: Layout | None) -> Layout | None:
    """The layout over those iterators that it mentions."""
    if how is None:
        return None
    numbers: dict[str, IntLike] = {
        f"_{target.iters.index(i)}": var(f"_{d}") for d, i in enumerate(iters)
    }
    return tuple(as_int(x).subs(numbers) for x in how)


def _memory(x: Load) -> Buffer:
    found = getattr(x.source, "buffer", x.source)
    assert isinstance(found, Buffer)
    return found


def _names(sources: list[Buffer]) -> str:
    return ", ".join(dict.fromkeys(b.name for b in sources))


def _reads_inside(p: Program, plan: Staging) -> bool:
    """Whether the part is known to read inside its buffers wherever in their extents the copy's
    iterators are."""
    loops: list[tuple[str, IntLike]] = [(i.var, i.extent) for i in plan.iters]
    alone = for_(loops, Let(Var("part", plan.part.dtype), plan.part, Nop()))
    facts = p.inside(plan.path[: plan.at])
    return all(in_bounds(a, facts) for a in accesses(alone))
