"""What a choice between two expressions comes to, however they are nested.

    select(c, a, select(d, b, a))      is   select(c or not d, a, b)
    select(c, 2*x, x + 1)              needs x, whatever c is

Choices between values that are made of the same value are as many paths as there are combinations:
code for them should have each value once.
"""

from __future__ import annotations

from pliant.ir.expr import Binary, Const, Expr, Index, Reduce, Select, Unary
from pliant.ir.node import Node, walk


def one_choice(choice: Select) -> Select:
    """One choice for two of which the second has one of the alternatives of the first.

    Both conditions are asked then, so the second must be one that cannot fail."""
    cond, a, b = choice.cond, choice.a, choice.b
    match a, b:
        case _, Select(inner, other, same) if same is a:
            cond, a, b = Binary("or", cond, Unary("not", inner)), a, other
        case _, Select(inner, same, other) if same is a:
            cond, a, b = Binary("or", cond, inner), a, other
        case Select(inner, other, same), _ if same is b:
            cond, a, b = Binary("and", cond, inner), other, b
        case Select(inner, same, other), _ if same is b:
            cond, a, b = Binary("and", cond, Unary("not", inner)), other, b
        case _:
            return choice
    return Select(cond, a, b)


def certain(x: Expr, memo: dict[Expr, frozenset[Expr]]) -> frozenset[Expr]:
    """What is computed wherever `x` is: of choices, what both alternatives need. `memo` has what
    was found before."""
    found = memo.get(x)
    if found is None:
        found = memo[x] = _certain(x, memo)
    return found


def _certain(x: Expr, memo: dict[Expr, frozenset[Expr]]) -> frozenset[Expr]:
    match x:
        case Const() | Index():
            return frozenset()
        case Reduce():  # what is below has names of its own
            return frozenset((x,))
        case Select(cond, a, b):
            always = certain(a, memo) & certain(b, memo)
            return certain(cond, memo) | always | {x}
    below = (certain(c, memo) for c in x.children() if isinstance(c, Expr))
    return frozenset((x,)).union(*below)


def shared(a: Expr, b: Expr, memo: dict[Expr, frozenset[Expr]]) -> list[Expr]:
    """What both of two expressions certainly need, as few expressions as there can be."""
    both = certain(a, memo) & certain(b, memo)
    below = frozenset[Expr]().union(*(certain(x, memo) - {x} for x in both))
    first: frozenset[Node] = both - below
    ordered = walk(a) if first else ()  # the same order in every process
    return [x for x in ordered if isinstance(x, Expr) and x in first]
