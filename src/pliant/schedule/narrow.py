"""Run a loop only where something is done, or where a reduction has something to combine.

Before:

    @loop
    def visible(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
        for i, r in grid(n, k):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = -inf
                y[a] = fmax(y[a], select(c <= a, x[a, c], -inf))

Steps:

    p = p.narrow('r', 0, sym('min(k, i + 1)'))

After:

    for i in grid(n):
        for r in grid(min(i + 1, k)):
            with block("y", S(i, n), R(r, k)) as (a, c):
                with init():
                    y[a] = -inf
                y[a] = fmax(y[a], x[a, c])

Before:

    @loop
    def double(x: f32["4*n"], y: f32["4*n"], n: i64):
        for o in grid(n//2):
            for i in grid(8):
                with block("y", S(i + 8*o, 4*n)) as (a,):
                    y[a] = x[a] * 2.0
        for r in grid((n + 1)//2 - (n//2)):
            for j in grid(8):
                with block("z", S(j + 8*(n//2) + 8*r, 4*n), where=j + 8*(n//2) + 8*r < 4*n) as (b,):
                    y[b] = x[b] * 2.0

Steps:

    p = p.narrow('j', 0, 4)

After:

    for o, i in grid(n//2, 8):
        with block("y", S(i + 8*o, 4*n)) as (a,):
            y[a] = x[a] * 2.0
    for r, j in grid((n + 1)//2 - (n//2), 4):
        with block("z", S(j + 8*(n//2) + 8*r, 4*n)) as (b,):
            y[b] = x[b] * 2.0

Conditions that hold in all that is left are gone. Elsewhere no block runs, or one combines the
identity. Where that is not so by the choices in it alone, it is by rules of the real numbers: -inf
and a number are -inf, 0 times or through a number is 0. What is left out is no NaN any more that
came of an infinity or a NaN there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from pliant.base.dtypes import DType
from pliant.ir.expr import Binary, Const, Expr, Index, Load, const
from pliant.ir.node import transform
from pliant.ir.simplify import simplify
from pliant.loop.reduction import as_update
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import conjoin, conjuncts, int_names, replace_at, subst
from pliant.loop.stmt import Block, Buffer, For, Stmt, Store, buffer, statements
from pliant.schedule.conflicts import strict_order
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import Flow, invert_store
from pliant.schedule.loop_partition import between, is_idle, later, without_proved
from pliant.schedule.nest import blocks_in, iterators_over, require_serial
from pliant.schedule.program import Program, primitive
from pliant.sym.expr import Int, IntLike, as_int
from pliant.sym.facts import Facts


@primitive
def narrow(p: Program, loop: str, first: IntLike, end: IntLike) -> Program:
    """The loop does the iterations from `first` to before `end`; in the others no block would run,
    or the one that reduces over it combine nothing but the identity."""
    low, high = as_int(first), as_int(end)
    check_narrow(p, loop, low, high)
    path = p.loop_path("narrow", loop)
    target, facts = path[-1], p.around(path)
    assert isinstance(target, For)
    body = without_proved(target.body, between(target, low, high, facts))
    if isinstance(body, Block) and body.init is not None:
        body = body.replace(where=_with_start(target.body, body.where, target.var))
    body, extent = later(target.replace(body=body), low, p.sizes), facts.simplify(high - low)
    return p.with_body(replace_at(path, target.replace(extent=extent, body=body)))


def _with_start(block: Stmt, where: Expr | None, loop: str) -> Expr | None:
    """The conditions `where` of a block, and of those that it had the ones for its start as well:
    it starts also where nothing is left to combine."""
    assert isinstance(block, Block)
    along = {loop, *(i.var for i, x in zip(block.iters, block.bindings, strict=True)
                     if loop in x.names)}  # fmt: skip
    left = conjuncts(where)
    had = conjuncts(block.where)
    return conjoin([c for c in had if c in left or along.isdisjoint(int_names(c))])


def check_narrow(p: Program, loop: str, first: Int, end: Int) -> None:
    """0 <= first <= end <= extent is proved; the loop is serial. In its other iterations it is
    proved that the conditions of all blocks fail, none of which starts a reduction over it; or it
    holds nothing but one block, which reduces over it, and combines the identity there."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("narrow", f"loop {loop}", reason)

    path = p.loop_path("narrow", loop)
    target, facts = path[-1], p.around(path)
    assert isinstance(target, For)
    require_serial("narrow", target)
    known = {s.var for s in path[:-1] if isinstance(s, For)} | p.sizes
    unknown = (first.names | end.names) - known
    if unknown:
        raise refuse(f"{min(unknown)} is not known around it")
    if not (facts.nonneg(first) and facts.le(first, end) and facts.le(end, target.extent)):
        raise refuse(f"0 <= {first} <= {end} <= {target.extent} is not known")
    left_out = [(a, b) for a, b in ((as_int(0), first), (end, target.extent)) if a is not b]
    starts = any(b.init is not None and "R" in iterators_over(b, loop) for b in blocks_in(target))
    others = (between(target, low, high, facts) for low, high in left_out)
    if not starts and all(is_idle(target.body, other) for other in others):
        return
    block = target.body
    if not isinstance(block, Block) or "R" not in iterators_over(block, loop):
        raise refuse(
            "it does not hold one block alone, which reduces over it, and some may run there"
        )
    update = as_update(block)
    if update is None:
        raise refuse(f"block {block.name} is no update by a known combiner or reducer")
    if strict_order(p):
        raise refuse("the numerics are strict: 0 times a NaN must stay one")
    flow = Flow(p)
    around = [s for s in path[:-1] if isinstance(s, For) and s.var not in first.names | end.names]
    for value, identity in zip(update.values, update.identity, strict=True):
        whole = _written_out(flow, subst(value, bindings_of(block)))
        for low, high in left_out:
            if _in_reals(whole, around, between(target, low, high, facts)) is not identity:
                raise refuse(f"from {low} to {high} it may combine more than the identity")


def _written_out(flow: Flow, value: Expr) -> Expr:
    """The value with what maps before it computed in the place of loads."""

    def visit(node: Any) -> Any:
        if isinstance(node, Load) and isinstance(node.source, Buffer):
            made = _made(flow, node.source, node.indices)
            return node if made is None else _written_out(flow, made)
        return node

    return transform(value, visit)  # type: ignore[no-any-return]


def _made(flow: Flow, source: Buffer, indices: tuple[Expr, ...]) -> Expr | None:
    """What the one block that writes the buffer stores there, if it is a map of others."""
    names = {a.block for a in flow.writers(source)} if source in flow.allocated else set[str]()
    block = flow.p.block(min(names)) if len(names) == 1 and "" not in names else None
    if block is None or not isinstance(block.body, Store) or block.init is not None:
        return None
    if any(a.buffer is source and not a.write for a in flow.of_block(block.name)):
        return None
    places = invert_store(block, block.body) or {}
    at: dict[str, IntLike] = {}
    for it in block.iters:
        dimension, offset = places.get(it.var, (-1, as_int(0)))
        index = indices[dimension] if it.var in places else Index(as_int(0))
        if not isinstance(index, Index) or (it.var not in places and it.extent != 1):
            return None
        at[it.var] = index.int_ - offset
    return subst(block.body.value, at)


def _in_reals(value: Expr, loops: Sequence[For], facts: Facts) -> Expr:
    """The value under the facts, for all values of the loops, by the rules at the top."""
    nest: Stmt = Store(buffer("value", (), value.dtype), (), value)
    for loop in reversed(loops):
        nest = loop.replace(body=nest)
    known = list(statements(without_proved(nest, facts)))[-1]
    assert isinstance(known, Store)

    def visit(node: Any) -> Any:
        if isinstance(node, Binary) and node.dtype.is_float:
            found = _absorbed(node.op, node.dtype, _number(node.a), _number(node.b))
            return simplify(node) if found is None else found
        return simplify(node) if isinstance(node, Expr) else node

    return transform(known.value, visit)  # type: ignore[no-any-return]


def _absorbed(op: str, dtype: DType, a: float | None, b: float | None) -> Expr | None:
    """What an operation gives where one operand alone decides that; None for others."""
    match op, a, b:
        case (("add" | "sub"), float(left), None) if abs(left) == inf:
            return const(left, dtype)
        case (("add" | "sub"), None, float(right)) if abs(right) == inf:
            return const(right if op == "add" else -right, dtype)
        case (("mul" | "div"), 0.0, None) | ("mul", None, 0.0):
            return const(0.0, dtype)
    return None


def _number(value: Expr) -> float | None:
    return float(value.value) if isinstance(value, Const) else None
