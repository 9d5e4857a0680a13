"""What a statement reads and writes: one `Access` for every load and store in it.

Indices are in terms of loop variables: iterators of blocks are replaced by their bindings. An
index that depends on data is kept as an expression that no range is known of; an access through a
call, or to memory by element offset, has no indices at all, which means anywhere in the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from pliant.ir.expr import Axis, Expr, Index, Load, Reduce, Select
from pliant.ir.node import Node, walk
from pliant.loop.lower_init import reduction_loops
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

    def index(self, dim: int) -> Int | None:
        """The index as a symbolic integer; None where it is not one."""
        if self.indices is None:
            return None
        at = self.indices[dim]
        return at.int_ if isinstance(at, Index) else None


Invoked = Callable[[Invoke], Stmt | frozenset[int] | None]


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
                yield from self.statement(s.body, c)
            case If():
                yield from self.expr(s.cond, c)
                inside = replace(c, where=(*c.where, *conjuncts(s.cond)))
                yield from self.statement(s.then, inside)
                if s.otherwise is not None:
                    yield from self.statement(s.otherwise, c)
            case While():
                yield from self.expr(s.cond, c)
                yield from self.statement(s.body, c)
            case Check():
                for e in (s.cond, *s.values):
                    yield from self.expr(e, c)
            case Invoke():
                yield from self.invoke(s, c)

    def block(self, s: Block, c: _Context) -> Iterator[Access]:
        """Schedules ask again and again for blocks that stay as they are: those without calls are
        remembered."""
        found = self.opened(s, _Context()) if _calls(s) else _of_block(s)
        for a in found:
            loops, where = (*c.loops, *a.loops), (*c.where, *a.where)
            local = a.local or a.buffer in c.locals
            at = a.buffer, a.indices, a.write
            position = next(self.positions)
            yield Access(*at, loops, where, a.block, a.commutes, local, position, a.before)

    def opened(self, s: Block, c: _Context) -> Iterator[Access]:
        """Accesses in terms of the loops around the block."""
        given = bindings_of(s)
        where = tuple(subst(w, given) for w in conjuncts(s.where))
        reduced = frozenset[str]() if s.init is None else reduction_loops(s)
        for w in where:
            starts = reduced.isdisjoint(int_names(w))
            yield from self.expr(w, replace(c, before=c.before | reduced) if starts else c)
        own = frozenset[Buffer]()
        if any(i.kind == "R" for i in s.iters) and as_update(s) is not None:
            own = frozenset(x.buffer for x in stored(s.body))
        inner = replace(c, where=(*c.where, *where), block=s.name, commutes=own)
        if s.init is not None:
            start = replace(inner, before=inner.before | reduced)
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
        """Loads in an expression; the condition of a lazy choice holds in its branch."""
        stack: list[tuple[Node, _Context]] = [(e, c)]
        seen: set[tuple[Node, _Context]] = set()
        while stack:
            node, here = stack.pop()
            if (node, here) in seen:
                continue
            seen.add((node, here))
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
                    inside = replace(here, where=(*here.where, *conjuncts(node.cond)))
                    stack += [(node.cond, here), (node.a, inside), (node.b, here)]
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
        position = next(self.positions)
        return Access(*at, c.loops, c.where, c.block, commutes, local, position, c.before)


_NOTHING = Seq(())


@lru_cache(4096)
def _of_block(s: Block) -> tuple[Access, ...]:
    return tuple(_Walk(lambda _: None).opened(s, _Context()))


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


def written(root: Stmt) -> frozenset[Buffer]:
    """Buffers that something below `root` may write."""
    return frozenset(a.buffer for a in accesses(root) if a.write)
