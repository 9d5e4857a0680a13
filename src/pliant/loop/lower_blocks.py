"""Blocks to plain statements: the last step before code.

for r in range(k):                                      m[v] = -inf
    with block("m", S(v := 8*i + j), R(r), where=p):    for r in range(k):
        with init():                                ->      if p:
            m[v] = -inf                                         m[8*i + j] = max(…)
        m[v] = max(m[v], x[v, r])

A reducer becomes what it computes: all is read, then all is stored.
"""

from __future__ import annotations

from pliant.ir.expr import Const, Expr, Index, Var
from pliant.ir.node import transform
from pliant.loop.lower_init import lower_init
from pliant.loop.rewrite import Names, subst, where_holds
from pliant.loop.stmt import Block, Combine, Function, Let, Stmt, Store, seq


def lower_blocks(f: Function) -> Function:
    """The same program without blocks and reducers."""
    f, names = lower_init(f), Names(f)

    def plain(node: object) -> object:
        return opened(node, names) if isinstance(node, Combine) else _unblocked(node)

    return f.replace(body=transform(f.body, plain))


def _unblocked(node: object) -> object:
    if not isinstance(node, Block):
        return node
    values = {it.var: b for it, b in zip(node.iters, node.bindings, strict=True)}
    body: Stmt = subst(node.body, values)
    return body if node.where is None else where_holds(subst(node.where, values), body)


def opened(s: Combine, names: Names) -> Stmt:
    """The reducer's computation as scalars, and stores of them."""
    bound: list[tuple[Var, Expr]] = []

    def named(value: Expr, label: str) -> Expr:
        if isinstance(value, Const | Index):  # stays in the integer algebra, where it is one
            return value
        bound.append((Var(names.variable(label), value.dtype), value))
        return bound[-1][0]

    old = [named(t.load, f"{t.buffer.name}_old") for t in s.targets]
    new = [named(v, f"{t.buffer.name}_new") for t, v in zip(s.targets, s.values, strict=True)]
    results = [
        named(r, f"{t.buffer.name}_both")
        for t, r in zip(s.targets, s.reducer(old, new), strict=True)
    ]
    pairs = zip(s.targets, results, strict=True)
    body = seq(*(Store(t.buffer, t.indices, r) for t, r in pairs))
    for name, value in reversed(bound):
        body = Let(name, value, body)
    return body
