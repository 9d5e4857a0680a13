"""Blocks to plain statements: the last step before code.

for r in range(k):                                      m[v] = -inf
    with block("m", S(v := 8*i + j), R(r), where=p):    for r in range(k):
        with init():                                ->      if p:
            m[v] = -inf                                         m[8*i + j] = max(…)
        m[v] = max(m[v], x[v, r])
"""

from __future__ import annotations

from pliant.ir.node import transform
from pliant.loop.lower_init import lower_init
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Block, Function, If, Stmt


def lower_blocks(f: Function) -> Function:
    """The same program without blocks."""
    f = lower_init(f)
    return f.replace(body=transform(f.body, _plain))


def _plain(node: object) -> object:
    if not isinstance(node, Block):
        return node
    values = {it.var: b for it, b in zip(node.iters, node.bindings, strict=True)}
    body: Stmt = subst(node.body, values)
    return body if node.where is None else If(subst(node.where, values), body)
