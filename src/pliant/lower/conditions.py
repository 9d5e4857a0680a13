"""Conditions over symbolic integers that facts decide."""

from __future__ import annotations

from pliant.ir.expr import Binary, Const, Expr, Index, Unary
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
