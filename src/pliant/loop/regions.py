"""What a statement reads and writes: one `Access` for every load and store in it.

Indices are in terms of loop variables: iterators of blocks are replaced by their bindings. An
index that depends on data is kept as an expression that no range is known of; an access through a
call, or to memory by element offset, has no indices at all, which means anywhere in the buffer.

What a `Let` names in a loop differs from one iteration to the next: a name for a symbolic integer
is replaced by that, and an index by a name for data depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Final

from pliant.base.dtypes import i64
from pliant.ir.expr import Axis, Expr, Index, Load, Reduce, Select, Var, loads_of
from pliant.ir.node import Node, walk
from pliant.loop.lower_init import reduction_loops
from pliant.loop.rebuild import subst_exprs
from pliant.loop.reduction import as_update
from pliant.loop.rewrite import conjuncts, int_names, subst
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Check,
    Combine,
    Flat,
    For,
    If,
    Invoke,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    statements,
    stored,
)
from pliant.sym.expr import Int, IntLike


@dataclass(frozen=True)
class Access:
    """A load from or a store to a buffer, somewhere below a statement."""

    buffer: Buffer
    indices: tuple[Expr, ...] | None  # None: anywhere in the buffer
    write: bool
    loops: tuple[For, ...]  # around it, outermost first, from the statement on
    where: tuple[Expr, ...]  # what holds when it happens
    block: str  # the innermost block; empty outside of blocks
    commutes: bool  # part of a reduction's update: order among its own kind does not matter
    local: bool  # the buffer is allocated within the statement
    position: int  # in program order
    before: frozenset[str] = frozenset()  # loops that a reduction runs over, before which it starts
    # with this
    named: tuple[Let, ...] = ()  # integers that get their names around it, outside of `loops`
    sure: bool = True  # it happens in all iterations of its loops, under no condition

    def index(self, dim: int) -> Int | None:
        """The index as a symbolic integer; None where it is not one."""
        if self.indices is None:
            return None
        at = self.indices[dim]
        return at.int_ if isinstance(at, Index) else None


PATHS: Final = 8  # ways to an expression, by choices, that are told apart

Invoked = Callable[[Invoke], Stmt | frozenset[int] | None]


def without_names(a: Access) -> Access:
    """The access as one of iterations of a loop around its statement sees it: what has a name there
    is another integer in each."""
    if not a.named:
        return a
    pure: dict[str, IntLike] = {}
    data = set[str]()
    for s in a.named:
        if isinstance(s.value, Index) and s.value.int_.names.isdisjoint(data):
            pure[s.var.name] = s.value.int_.subs(pure)
        else:
            data.add(s.var.name)
    if pure:
        loops = tuple(x.replace(extent=x.extent.subs(pure), body=_NOTHING) for x in a.loops)
        indices = None if a.indices is None else tuple(subst(i, pure) for i in a.indices)
        a = replace(a, loops=loops, indices=indices, where=tuple(subst(c, pure) for c in a.where))
    return _unknown(replace(a, named=()), data)


def _unknown(a: Access, names: Collection[str]) -> Access:
    """The access with indices by these names, and by loops that run as often as they say, as ones
    that nothing is known of."""
    if not names or a.indices is None:
        return a
    found = set(names)
    for x in a.loops:
        if not x.extent.names.isdisjoint(found):
            found.add(x.var)
    values = {name: Var(name, i64) for name in found}
    return replace(a, indices=tuple(subst_exprs(i, values) for i in a.indices))


def accesses(root: Stmt, invoked: Invoked = lambda _: None) -> tuple[Access, ...]:
    """All accesses below `root`, in program order; `invoked` tells what a call means, or at least
    which of its arguments, by position, it writes through, if known."""
    return tuple(_Walk(invoked).statement(root, _Context()))


@dataclass(frozen=True)
class _Context:
    loops: tuple[For, ...] = ()
    where: tuple[Expr, ...] = ()
    block: str = ""
    commutes: frozenset[Buffer] = frozenset()
    locals: frozenset[Buffer] = frozenset()
    before: frozenset[str] = frozenset()
    named: tuple[Let, ...] = ()
    data: frozenset[str] = frozenset()  # names of integers that differ between iterations
    repeats: bool = False  # in a loop that has no variable
    sure: bool = True


class _Walk:
    def __init__(self, invoked: Invoked) -> None:
        self.invoked = invoked
        self.positions = count()

    def statement(self, s: Stmt, c: _Context) -> Iterator[Access]:
        match s:
            case For():
                yield from self.statement(s.body, replace(c, loops=(*c.loops, s)))
            case Seq():
                for part in s.stmts:
                    yield from self.statement(part, c)
            case Block():
                yield from self.block(s, c)
            case Store():
                for e in (*s.indices, s.value):
                    yield from self.expr(e, c)
                yield self.access(s.buffer, s.indices, True, c)
            case Combine():
                for t in s.targets:
                    yield from self.expr(t.load, c)
                for e in s.values:
                    yield from self.expr(e, c)
                for t in s.targets:
                    yield self.access(t.buffer, t.indices, True, c)
            case Alloc():
                yield from self.statement(s.body, replace(c, locals=c.locals | {s.buffer}))
            case Let():
                yield from self.expr(s.value, c)
                yield from self.named(s, c)
            case If():
                yield from self.expr(s.cond, c)
                inside = replace(c, where=(*c.where, *conjuncts(s.cond)), sure=False)
                yield from self.statement(s.then, inside)
                if s.otherwise is not None:
                    yield from self.statement(s.otherwise, replace(c, sure=False))
            case While():
                yield from self.expr(s.cond, c)
                yield from self.statement(s.body, replace(c, repeats=True, sure=False))
            case Check():
                for e in (s.cond, *s.values):
                    yield from self.expr(e, c)
            case Invoke():
                yield from self.invoke(s, c)

    def named(self, s: Let, c: _Context) -> Iterator[Access]:
        """What is below a name: for what is one integer, or differs between iterations."""
        if s.var.type is not i64:
            yield from self.statement(s.body, c)
        elif not c.loops and not c.repeats:
            yield from self.statement(s.body, replace(c, named=(*c.named, s)))
        elif isinstance(s.value, Index):
            yield from self.statement(subst(s.body, {s.var.name: s.value.int_}), c)
        else:
            yield from self.statement(s.body, replace(c, data=c.data | {s.var.name}))

    def block(self, s: Block, c: _Context) -> Iterator[Access]:
        """Schedules ask again and again for blocks that stay as they are: those without calls are
        remembered."""
        around = frozenset(x.var for x in c.loops)
        if _calls(s):
            found = tuple(self.opened(s, _Context(), around))
        else:
            found = _of_block(s, _over(s) & around)
        for a in found:
            if c.loops or c.repeats:
                a = without_names(a)
            loops, where = (*c.loops, *a.loops), (*c.where, *a.where)
            local = a.local or a.buffer in c.locals
            at = a.buffer, a.indices, a.write
            how = a.block, a.commutes, local
            last, named = next(self.positions), (*c.named, *a.named)
            made = Access(*at, loops, where, *how, last, a.before, named, a.sure and c.sure)
            yield _unknown(made, c.data)

    def opened(self, s: Block, c: _Context, around: frozenset[str]) -> Iterator[Access]:
        """Accesses in terms of the loops `around` the block. Sizes may stand beside loops in what
        is reduced over; a condition on them is one on the start all the same."""
        given = bindings_of(s)
        where = tuple(subst(w, given) for w in conjuncts(s.where))
        reduced = _over(s)
        early = [w for w in where if int_names(w).isdisjoint(reduced & around)]
        for w in where:
            first = where if w not in early else early  # what loads nothing is asked first
            here = (*c.where, *(x for x in first if not any(loads_of(x))))
            before = c.before | reduced if w in early else c.before
            asking = replace(
                c, before=before, block=s.name, where=here, sure=c.sure and here == c.where
            )
            yield from self.expr(w, asking)
        own = frozenset[Buffer]()
        if any(i.kind == "R" for i in s.iters) and as_update(s) is not None:
            own = frozenset(x.buffer for x in stored(s.body))
        sure = c.sure and not where
        inner = replace(c, where=(*c.where, *where), block=s.name, commutes=own, sure=sure)
        if s.init is not None:
            start = replace(inner, before=inner.before | reduced, where=(*c.where, *early))
            yield from self.statement(subst(s.init, given), start)
        yield from self.statement(subst(s.body, given), inner)

    def invoke(self, s: Invoke, c: _Context) -> Iterator[Access]:
        meaning = self.invoked(s)
        if isinstance(meaning, Stmt):
            yield from self.statement(meaning, c)
            return
        for a in s.args:
            if isinstance(a, BufferRef):
                yield self.access(a.buffer, None, False, c)
            elif isinstance(a, Expr):
                yield from self.expr(a, c)
        for k, a in enumerate(s.args):
            if isinstance(a, BufferRef) and (meaning is None or k in meaning):
                yield self.access(a.buffer, None, True, c)

    def expr(self, e: Expr, c: _Context) -> Iterator[Access]:
        """Loads in an expression; the condition of a lazy choice holds in its branch, and is kept
        where it says something of places. What many choices lead to counts as read under none of
        their conditions: nested choices between values that are made of the same would be as many
        paths as there are combinations."""
        stack: list[tuple[Node, _Context]] = [(e, c)]
        seen: dict[Node, set[_Context]] = {}
        anyhow = replace(c, sure=False)
        while stack:
            node, here = stack.pop()
            before = seen.setdefault(node, set())
            if here in before or (anyhow in before and not here.sure):
                continue
            if len(before) >= PATHS and not here.sure and here.loops == c.loops:
                here = anyhow
            before.add(here)
            match node:
                case Load():
                    source, at = node.source, node.indices
                    if isinstance(source, Flat):
                        yield self.access(source.buffer, None, False, here)
                    else:
                        yield self.access(source, at, False, here)
                    stack += [(i, here) for i in node.indices]
                    continue
                case Select():
                    places = (x for x in conjuncts(node.cond) if _is_of_places(x))
                    inside = replace(here, where=(*here.where, *places), sure=False)
                    other = replace(here, sure=False)
                    stack += [(node.cond, here), (node.a, inside), (node.b, other)]
                    continue
                case Reduce():
                    loops = tuple(For(a.var, a.extent, _NOTHING) for a in node.axes)
                    stack.append((node.body, replace(here, loops=(*here.loops, *loops))))
                    continue
            stack += [(k, here) for k in node.children() if not isinstance(k, Axis)]

    def access(
        self, b: Buffer, indices: tuple[Expr, ...] | None, write: bool, c: _Context
    ) -> Access:
        local = b in c.locals
        commutes = b in c.commutes
        at = b, indices, write
        how = c.block, commutes, local
        last = next(self.positions)
        made = Access(*at, c.loops, c.where, *how, last, c.before, c.named, c.sure)
        return _unknown(made, c.data)


_NOTHING = Seq(())


@lru_cache(4096)
def _is_of_places(cond: Expr) -> bool:
    """Whether no data has a part in it."""
    return not any(isinstance(n, Load | Var) for n in walk(cond))


@lru_cache(4096)
def _of_block(s: Block, around: frozenset[str]) -> tuple[Access, ...]:
    return tuple(_Walk(lambda _: None).opened(s, _Context(), around))


def _over(s: Block) -> frozenset[str]:
    """Names in what a block which starts itself reduces over."""
    return frozenset() if s.init is None else reduction_loops(s)


@lru_cache(4096)
def _calls(s: Block) -> bool:
    return any(isinstance(x, Invoke) for x in statements(s))


def bindings_of(block: Block) -> Mapping[str, IntLike]:
    """The block's iterators as expressions of the loops around."""
    return {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}


@lru_cache(4096)
def used(root: Stmt) -> frozenset[Buffer]:
    """Buffers that something at or below `root` loads from, stores to or passes on."""
    found = set[Buffer]()
    for part in (root.body,) if isinstance(root, Alloc) else root.children():
        if isinstance(part, Stmt):
            found |= used(part)
        else:
            found.update(n for n in walk(part) if isinstance(n, Buffer))
    return frozenset(found)


def written(root: Stmt) -> set[Buffer]:
    """Buffers that something below `root` may write, itself or by a call."""
    calls = (s for s in statements(root) if isinstance(s, Invoke))
    passed = {arg.buffer for s in calls for arg in s.args if isinstance(arg, BufferRef)}
    return passed.union(place.buffer for place in stored(root))
