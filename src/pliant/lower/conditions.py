"""Conditions over symbolic integers that facts decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pliant.base.dtypes import boolean
from pliant.ir.expr import Binary, Cast, Const, Expr, Index, Select, Unary, const
from pliant.ir.node import Node, transform
from pliant.sym.facts import Facts


def always(cond: Expr, facts: Facts) -> bool | None:
    """True or False where `cond` provably is so for all indices; None where it depends."""
    match cond:
        case Const():
            return bool(cond.value)
        case Unary("not", a):
            inner = always(a, facts)
            return None if inner is None else not inner
        case Binary("and", a, b):
            sides = (always(a, facts), always(b, facts))
            return False if False in sides else True if sides == (True, True) else None
        case Binary("or", a, b):
            sides = (always(a, facts), always(b, facts))
            return True if True in sides else False if sides == (False, False) else None
        case Binary("lt", Index(a), Index(b)):
            return True if facts.lt(a, b) else False if facts.le(b, a) else None
        case Binary("le", Index(a), Index(b)):
            return True if facts.le(a, b) else False if facts.lt(b, a) else None
        case Binary("eq", Index(a), Index(b)):
            if facts.equal(a, b):
                return True
            return False if facts.lt(a, b) or facts.lt(b, a) else None
    return None


def simplify_condition(cond: Expr, facts: Facts) -> Expr:
    """Drop the parts of a conjunction that always hold."""
    if isinstance(cond, Binary) and cond.op == "and":
        a, b = simplify_condition(cond.a, facts), simplify_condition(cond.b, facts)
        if always(a, facts) is True:
            return b
        if always(b, facts) is True:
            return a
        return cond if (a, b) == (cond.a, cond.b) else Binary("and", a, b)
    return cond


def conjuncts(cond: Expr) -> Iterator[Expr]:
    """The parts of a conjunction."""
    if isinstance(cond, Binary) and cond.op == "and":
        yield from conjuncts(cond.a)
        yield from conjuncts(cond.b)
    else:
        yield cond


def needed(term: Expr) -> Iterator[Expr]:
    """Conditions without which a term of a sum is zero."""
    match term:
        case Select(cond, a, b) if b is const(0, b.dtype):
            yield from conjuncts(cond)
            yield from needed(a)
        case Binary("mul", a, b):
            yield from needed(a)
            yield from needed(b)
        case Cast(_, a):
            yield from needed(a)


def assuming(term: Expr, conditions: Sequence[Expr]) -> Expr:
    """`term` where the conditions hold."""
    true = const(True, boolean)

    def visit(node: Node) -> Node:
        if isinstance(node, Binary) and node.op == "and":
            return node.b if node.a is true else node.a if node.b is true else node
        if isinstance(node, Select) and node.cond is true:
            return node.a
        return node

    return transform(term, visit, dict.fromkeys(conditions, true))  # type: ignore[no-any-return]
