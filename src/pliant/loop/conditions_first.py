"""Conditions that a loop does not change are asked once, before it.

for i in grid(n):             if c:
    if c:                ->       for i in grid(n):
        y[i] = ...                    y[i] = ...

What they were asked for in each iteration (a load for the lanes of a mask) can then be done before
the loop too. Loops of one iteration's work, unrolled ones and lanes, keep theirs: there a choice
around a store takes no branch.
"""

from __future__ import annotations

from pliant.ir.expr import Expr, loads_of
from pliant.ir.node import Node, transform
from pliant.loop.rewrite import int_names
from pliant.loop.stmt import For, Function, If


def conditions_first(f: Function) -> Function:
    """The same program, of plain statements. A condition on what is stored stays where it is."""

    def of(node: Node) -> Node:
        match node:
            case For(kind="serial", body=If(cond, then, None)):
                if _same_throughout(cond, node.var):
                    return If(cond, node.replace(body=then), None)
        return node

    body = transform(f.body, of)
    return f if body is f.body else f.replace(body=body)


def _same_throughout(cond: Expr, loop: str) -> bool:
    return next(loads_of(cond), None) is None and loop not in int_names(cond)
