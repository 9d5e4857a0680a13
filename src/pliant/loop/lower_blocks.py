"""Blocks to plain statements: the last step before code.

    with block("m", S(v := i*8 + j), R(r := k), where=p):        if p:
        init: m[v] = -inf                                 ->         if k == 0: m[i*8 + j] = -inf
        m[v] = max(m[v], x[v, r])                                    m[i*8 + j] = max(…)
"""

from __future__ import annotations

from pliant.ir.expr import Binary, Expr, Index
from pliant.ir.node import transform
from pliant.ir.tensor import all_of
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Block, Function, If, Stmt, seq
from pliant.sym.expr import as_int


def lower_blocks(f: Function) -> Function:
    """The same program without blocks."""
    return f.replace(body=lower_statement(f.body))


def lower_statement(s: Stmt) -> Stmt:
    def visit(node: object) -> object:
        return _plain(node) if isinstance(node, Block) else node

    return transform(s, visit)  # type: ignore[no-any-return]


def _plain(block: Block) -> Stmt:
    values = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    body = subst(block.body, values)
    if block.init is not None:
        body = seq(_at_start(block, subst(block.init, values)), body)
    if block.where is not None:
        body = If(subst(block.where, values), body)
    return body


def _at_start(block: Block, init: Stmt) -> Stmt:
    """`init`, at the first iteration of the reduction iterators."""
    zero = Index(as_int(0))
    first: list[Expr] = [
        Binary("eq", Index(b), zero)
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == "R" and not (b.is_const and b.value == 0)
    ]
    return If(all_of(first), init) if first else init


