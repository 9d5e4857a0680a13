"""What an unrolled loop computes in several of its steps is computed once.

An expression of what the loop does not write has one value for one set of its variables' values. So
values are kept under both, with all that decides how they are computed, and where code runs
straight on: what comes after a branch may find that it was not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pliant.ir.expr import Binary, Cast, Const, Expr, Index, Load, Select, Unary, Var
from pliant.ir.node import Node
from pliant.loop.regions import written
from pliant.loop.stmt import Stmt

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter
    from pliant.sym.facts import Facts

_PLAIN: Final = (Binary, Cast, Const, Index, Load, Select, Unary, Var)


class Steady:
    """Values during a loop of this body. Nothing else points into the buffers that are `local`; the
    `others` are what the loop may read besides. An index that is the same for all that the `facts`
    say of a variable has no value of it."""

    def __init__(
        self, body: Stmt, local: frozenset[str], others: frozenset[str], facts: Facts
    ) -> None:
        names = {b.name for b in written(body)}
        self._unwritten = (local | others) - names if names <= local else frozenset()
        self._facts = facts
        self._names: dict[Node, tuple[str, ...] | None] = {}

    def key(self, e: Emitter, x: Expr) -> Any:
        """What the value of `x` is kept under; None where it may change, or is none's."""
        names = self._names_in(x)
        if names is None:
            return None
        values = [e.text_of(n) for n in names]
        return (x, e.mask, e.to_bf16, e.unpacked, e.lane_var, e.lanes, *values)

    def is_common(self, x: Expr, steps: frozenset[str]) -> bool:
        """Whether `x` has one value, whatever these variables are."""
        names = self._names_in(x)
        return names is not None and steps.isdisjoint(names)

    def _names_in(self, x: Node) -> tuple[str, ...] | None:
        """The variables of an expression that has a value as steady as theirs."""
        if x in self._names:
            return self._names[x]
        found: set[str] = set()
        parts: Sequence[Node] = ()
        steady = isinstance(x, _PLAIN)
        match x:
            case Index(i):
                found = set(self._facts.simplify(i).names)
            case Var(name):
                found = {name}
            case Load(source, indices):
                parts, steady = indices, source.name in self._unwritten
            case _:
                parts = x.children()
        for part in parts if steady else ():
            names = self._names_in(part)
            steady = steady and names is not None
            found.update(names or ())
        self._names[x] = tuple(sorted(found)) if steady else None
        return self._names[x]
