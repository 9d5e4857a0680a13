"""Substitute expressions, data-dependent ones too, for integer variables inside indices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, TypeVar

from pliant.ir.expr import Binary, Expr, Index, as_expr
from pliant.ir.node import Node, transform
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, IntLike, rebuild_atom

N = TypeVar("N", bound=Node)


def subst_exprs(root: N, values: Mapping[str, Expr]) -> N:
    """`root`, an expression, with i64 expressions for integer variables. Stays in the integer
    algebra where it can: what was affine stays so if the new values are."""
    ints: dict[str, IntLike] = {n: e.int_ for n, e in values.items() if isinstance(e, Index)}
    others = {n: e for n, e in values.items() if not isinstance(e, Index)}

    def visit(node: Any) -> Any:
        if not isinstance(node, Index):
            return node
        moved = node.int_.subs(ints)
        return Index(moved) if moved.names.isdisjoint(others) else _rebuild(moved, others)

    return transform(root, visit)  # type: ignore[no-any-return]


def _rebuild(x: Int, values: Mapping[str, Expr]) -> Expr:
    """The integer as arithmetic on expressions."""
    if x.names.isdisjoint(values):
        return Index(x)
    terms: list[Expr] = []
    for coefficient, factors in x.terms():
        parts = [_rebuild_atom(atom, values) for atom, power in factors for _ in range(power)]
        if coefficient != 1 or not parts:
            parts.insert(0, as_expr(coefficient))
        terms.append(reduce(lambda a, b: a * b, parts))
    return reduce(lambda a, b: a + b, terms)


def _rebuild_atom(atom: Atom, values: Mapping[str, Expr]) -> Expr:
    match atom:
        case VarAtom(name) if name in values:
            return values[name]
        case DivAtom(num, den):
            return Binary("floordiv", _rebuild(num, values), _rebuild(den, values))
        case ModAtom(num, den):
            return Binary("floormod", _rebuild(num, values), _rebuild(den, values))
        case MinAtom(args) | MaxAtom(args):
            op = "min" if isinstance(atom, MinAtom) else "max"
            parts = [_rebuild(a, values) for a in args]
            return reduce(lambda a, b: Binary(op, a, b), parts)
    return Index(rebuild_atom(atom, lambda inner: inner))
