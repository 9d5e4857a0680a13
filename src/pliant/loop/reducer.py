"""Reducers: how two tuples of values become one, declared associative and commutative.

    @reducer(-inf, 0.0)
    def normal(_a0: f32, _a1: f32, _b0: f32, _b1: f32):
        _e0 = max(_a0, _b0)
        return _e0, _a1 * exp(_a0 - _e0) + _b1 * exp(_b0 - _e0)

The values of the first tuple are `_a0`, `_a1`, …, those of the second `_b0`, `_b1`, …; the
arguments of the decorator are the identity, which leaves the other tuple as it is. That the laws
hold is the word of who writes it: up to rounding, and up to that only where something is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pliant.base.dtypes import DType, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Binary, Cast, Const, Expr, Index, Select, Unary, Var
from pliant.ir.node import Node, transform, walk
from pliant.loop.rebuild import subst_exprs
from pliant.sym.expr import var

Values = tuple[Expr, ...]
_EXACT = frozenset({"min", "max", "fmin", "fmax", "eq", "ne", "lt", "le"})


class Reducer(Node):
    """`results` and `identity` are as many, of the same types; nothing but the parameters is free
    in them. Parameters of type i64 are symbolic integers."""

    name: str
    results: Values
    identity: Values

    def __post_init__(self) -> None:
        if not self.results or self.types != tuple(r.dtype for r in self.results):
            raise InvalidModelError(f"reducer {self.name}: results and identity do not fit")
        for value in self.identity:
            if not isinstance(value, Const) and not (
                isinstance(value, Index) and value.int_.is_const
            ):
                raise InvalidModelError(f"reducer {self.name}: its identity is not constant")
        known = {p.name: p.type for p in self.parameters}
        for node in (n for r in self.results for n in walk(r)):
            names = node.int_.names if isinstance(node, Index) else frozenset[str]()
            if isinstance(node, Var):
                names = frozenset({node.name})
            wanted = node.dtype if isinstance(node, Index | Var) else None
            if any(known.get(name) is not wanted for name in names):
                raise InvalidModelError(f"reducer {self.name}: {', '.join(names)} is not its own")
            if not isinstance(node, Binary | Cast | Const | Index | Select | Unary | Var):
                what = type(node).__name__
                raise InvalidModelError(f"reducer {self.name}: a {what} cannot be in it")

    def __call__(self, a: Sequence[Expr], b: Sequence[Expr]) -> Values:
        """What the tuples `a` and `b` become."""
        given = dict(zip([p.name for p in self.parameters], (*a, *b), strict=True))

        def visit(node: Any) -> Any:
            return given[node.name] if isinstance(node, Var) else node

        integers = {p.name: given[p.name] for p in self.parameters if p.type is i64}
        return tuple(subst_exprs(transform(r, visit), integers) for r in self.results)

    @property
    def types(self) -> tuple[DType, ...]:
        return tuple(v.dtype for v in self.identity)

    @property
    def parameters(self) -> tuple[Var, ...]:
        """First those of the one tuple, then those of the other."""
        return tuple(Var(f"_{side}{k}", t) for side in "ab" for k, t in enumerate(self.types))

    @property
    def rounds(self) -> bool:
        """Whether the last bits may depend on the order: something is computed in floats that does
        not just choose one of its operands."""
        nodes = (n for r in self.results for n in walk(r))
        return any(
            (isinstance(n, Binary) and n.a.dtype.is_float and n.op not in _EXACT)
            or (isinstance(n, Unary) and n.dtype.is_float and n.op not in ("neg", "abs", "sign"))
            or (isinstance(n, Cast) and (n.a.dtype.is_float or n.dtype.is_float))
            for n in nodes
        )


def parameter(p: Var) -> Expr:
    """The parameter as a value."""
    return Index(var(p.name)) if p.type is i64 else p


def reducer(name: str, identity: Values, rule: Callable[[Values, Values], Values]) -> Reducer:
    """The reducer that computes `rule(a, b)`."""
    types = tuple(v.dtype for v in identity)
    a, b = (tuple(parameter(Var(f"_{s}{k}", t)) for k, t in enumerate(types)) for s in "ab")
    return Reducer(name, rule(a, b), identity)
