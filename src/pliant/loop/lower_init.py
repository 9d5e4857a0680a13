"""Take the start of a reduction out of its block, to run before the loops that it reduces over.

    for i in range(n):                      for i in range(n):
        for r in range(k):                      with block("t_init", S(i, n)) as v:
            with block("t", …) as (v, u):           t[v] = 0
                with init():          ->        for r in range(k):
                    t[v] = 0                        with block("t", …) as (v, u):
                t[v] = t[v] + x[v, u]                   t[v] = t[v] + x[v, u]

This is what `init` means: it happens once for all values of the "R" iterators, before the first of
them, and also where there is none (k = 0).
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr
from pliant.loop.rewrite import (
    Names,
    conjoin,
    conjuncts,
    int_names,
    path_to,
    rename,
    replace_at,
    subst,
)
from pliant.loop.stmt import Alloc, Block, For, Function, If, Let, Stmt, seq, statements, stored
from pliant.sym.expr import IntLike


class CannotSeparateError(InvalidModelError):
    """A start cannot be taken out of its block; says why."""


def lower_init(function: Function) -> Function:
    """The function without `init` in any block. Raises CannotSeparateError."""
    body = function.body
    starting = [s.name for s in statements(body) if isinstance(s, Block) and s.init is not None]
    if not starting:
        return function
    names = Names(function)
    for name in starting:
        path = path_to(body, lambda s, name=name: isinstance(s, Block) and s.name == name)  # type: ignore[misc]
        assert path is not None and isinstance(path[-1], Block)
        loops = reduction_loops(path[-1])
        first = next(
            (k for k, s in enumerate(path) if isinstance(s, For) and s.var in loops), len(path) - 1
        )
        body = separate_init(path, first, names)
    return function.replace(body=body)


def reduction_loops(block: Block) -> frozenset[str]:
    """Variables in the bindings of "R" iterators."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return frozenset[str]().union(*(b.names for i, b in pairs if i.kind == "R"))


def reduced_loops(path: Sequence[Stmt]) -> frozenset[str]:
    """The loops of a path that the block at its end reduces over; sizes may stand beside them in
    its bindings."""
    block = path[-1]
    assert isinstance(block, Block)
    return reduction_loops(block) & {s.var for s in path if isinstance(s, For)}


def separate_init(path: Sequence[Stmt], at: int, names: Names) -> Stmt:
    """The root of `path`, which ends in a block, with the block's init done before the statement
    `path[at]`, for all data parallel loops from there on. Raises CannotSeparateError."""
    block = path[-1]
    assert isinstance(block, Block) and block.init is not None
    started = {place.buffer for place in stored(block.init)}
    for s in path[at:-1]:
        if isinstance(s, Block):
            raise CannotSeparateError(f"block {s.name} is in between")
        if isinstance(s, Alloc) and s.buffer in started:
            raise CannotSeparateError(f"{s.buffer.name} is allocated in between")
    start = _start_nest(path[at:], block, names)
    body = replace_at(tuple(path[at:]), block.replace(init=None))
    return replace_at(tuple(path[: at + 1]), seq(start, body))


def _start_nest(inside: Sequence[Stmt], block: Block, names: Names) -> Stmt:
    reduced = reduction_loops(block)
    kept = [i for i, it in enumerate(block.iters) if it.kind != "R"]
    spatial = frozenset[str]().union(*(block.bindings[i].names for i in kept))
    loops = [s for s in inside[:-1] if isinstance(s, For)]
    for loop in loops:
        if loop.var in reduced & spatial:
            raise CannotSeparateError(f"loop {loop.var} is both reduced over and not")
    dropped = {x.var for x in loops if x.var in reduced}
    again = [x for x in loops if x.var not in dropped and x.extent != 1]
    single: dict[str, IntLike] = {x.var: 0 for x in loops if x.extent == 1}
    lets = {s.var.name for s in inside[:-1] if isinstance(s, Let)}
    own = names.block(f"{block.name}_init")
    gone: dict[str, IntLike] = {
        it.var: b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "R"
    }
    where = [c for s in inside[:-1] if isinstance(s, If) for c in conjuncts(s.cond)]
    where += [subst(c, gone) for c in conjuncts(block.where)]
    where = [c for c in where if _keeps(c, dropped, lets)]
    made: Stmt = Block(
        own,
        tuple(block.iters[i] for i in kept),
        tuple(block.bindings[i] for i in kept),
        block.init or block.body,
        None,
        conjoin(where),
        block.notes,
        block.spans,
    )
    for loop in reversed(again):
        if not loop.extent.names.isdisjoint(dropped | lets):
            raise CannotSeparateError(f"the extent of loop {loop.var} varies")
        made = loop.replace(body=made)
    fresh = {x.var: names.variable(f"{x.var}_init") for x in again}
    fresh |= {block.iters[i].var: names.variable(f"{block.iters[i].var}_init") for i in kept}
    return rename(subst(made, single), fresh)


def _keeps(cond: Expr, dropped: set[str], lets: set[str]) -> bool:
    """Whether a condition concerns the start too: it does unless it is about reduced loops."""
    names = int_names(cond)
    if not names.isdisjoint(lets):
        raise CannotSeparateError("a condition depends on a value computed inside")
    return names.isdisjoint(dropped)
