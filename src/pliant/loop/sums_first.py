"""Sums in expressions get memory and statements of their own, before what reads them.

    y[i] = sum(x[i, j]                        s = alloc(f32[()])
               for j in grid(m)) / m    ->    s[()] = sum(x[i, j] for j in grid(m))
                                              y[i] = s[()] / m

A sum that alone is what is stored stays, and so does one of a few values, which is an expression.
One in a branch of a choice is done only where the branch is taken: elsewhere what it reads may not
be there.
"""

from __future__ import annotations

from typing import Any, Final

from pliant.base.dtypes import DType, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr, Index, Load, Reduce, Select, Var
from pliant.ir.node import Node, transform, walk
from pliant.ir.scalar import COMBINER_OPS
from pliant.loop.reduction import best_of, combine, identity, start_of_best
from pliant.loop.rewrite import Names, conjoin
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Combine,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    buffer,
    seq,
)
from pliant.sym.expr import var

FEW: Final = 64  # values of a sum that stays an expression


def sums_first(s: Stmt, names: Names) -> Stmt:
    """The statement with no sums in its expressions but those that stay. Memory has new names."""
    match s:
        case Store(value=Reduce() as value) if value.combiner in COMBINER_OPS:
            if any(_has_sums(e) for e in (*s.indices, value.body)):
                return (
                    _apart(s, names)
                    if any(map(_has_sums, s.indices))
                    else _added_up(s, value, names)
                )
            return s
        case While() if _has_sums(s.cond):
            raise InvalidModelError("the condition of a while has a sum in it: store it before")
        case Let(variable, Reduce() as value, body) if _stays_apart(value):
            return _named(variable, value, body, names)
        case For() | Alloc() | While() | Block():
            return s.replace(body=sums_first(s.body, names))
        case Seq(stmts=parts):
            return seq(*(sums_first(x, names) for x in parts))
    return _apart(s, names)


def _named(variable: Var, value: Reduce, body: Stmt, names: Names) -> Stmt:
    """A sum that has a name is what lies in its memory; an integer stays one to index by."""
    memory = _memory(names.buffer(variable.name), value)
    if variable.type is i64:
        rest: Stmt = Let(variable, memory[()], body)
    else:
        rest = transform(body, lambda node: memory[()] if node is variable else node)
    return Alloc(memory, seq(_filled(memory, value, names), sums_first(rest, names)))


def _apart(s: Stmt, names: Names) -> Stmt:
    """The statement after all sums in its own expressions."""
    found: dict[tuple[Reduce, tuple[Expr, ...]], Buffer] = {}

    def visit(e: Expr, where: tuple[Expr, ...]) -> Expr:
        if not _has_sums(e):
            return e
        match e:
            case Reduce() if _stays_apart(e):
                if (e, where) not in found:
                    found[e, where] = _memory(names.buffer(e.combiner), e)
                return found[e, where][()]
            case Select(cond, a, b):
                asked = visit(cond, where)
                first, second = visit(a, (*where, asked)), visit(b, (*where, ~asked))
                return Select(asked, first, second)
        return e.map_children(lambda x: visit(x, where) if isinstance(x, Expr) else x)

    def own(child: Any) -> Any:
        match child:
            case Stmt():
                return sums_first(child, names)
            case Expr():
                return visit(child, ())
            case BufferRef(of, indices):
                return BufferRef(of, tuple(visit(i, ()) for i in indices))
        return child

    rest = s.map_children(own)
    assert isinstance(rest, Stmt)
    for (value, where), memory in reversed(found.items()):
        fill, cond = _filled(memory, value, names), conjoin(list(where))
        rest = Alloc(memory, seq(fill if cond is None else If(cond, fill), rest))
    return rest


def _filled(memory: Buffer, r: Reduce, names: Names) -> Stmt:
    """The sum, stored in its memory."""
    if r.combiner in COMBINER_OPS:
        return sums_first(Store(memory, (), r), names)
    (axis,), by = r.axes, best_of(r.combiner, r.body.dtype)
    best = buffer(names.buffer(f"{memory.name}_best"), (), r.body.dtype, scope="register")
    targets = BufferRef(best, ()), BufferRef(memory, ())
    start = start_of_best(by, targets, axis.extent)
    step = sums_first(Combine(by, targets, (r.body, Index(var(axis.var)))), names)
    return Alloc(best, seq(start, For(axis.var, axis.extent, step)))


def _added_up(s: Store, r: Reduce, names: Names) -> Stmt:
    """The sum step by step, since each of its terms is made of sums."""
    value = combine(r.combiner, Load(s.buffer, s.indices), r.body)
    body = sums_first(s.replace(value=value), names)
    for axis in reversed(r.axes):
        body = For(axis.var, axis.extent, body)
    return seq(s.replace(value=identity(r.combiner, s.buffer.dtype)), body)


def _memory(name: str, r: Reduce) -> Buffer:
    dtype: DType = i64 if r.combiner in ("argmax", "argmin") else r.body.dtype
    return buffer(name, (), dtype, scope="register")


def _stays_apart(r: Reduce) -> bool:
    """Whether it is more than an expression of a few values."""
    few = len(r.axes) == 1 and r.axes[0].extent.is_const and r.axes[0].extent.value <= FEW
    return not few or r.combiner not in COMBINER_OPS or _has_sums(r.body)


def _has_sums(e: Node) -> bool:
    return any(isinstance(x, Reduce) and _stays_apart(x) for x in walk(e))
