"""What is known of a condition on sizes in the lanes of a vector, before any lane computes it.

`16*j + lane < n` may be proved to hold in all lanes or in none, or in all as soon as it does in the
first, or in the last. Then there is no mask, but a branch or nothing: what is stored under a mask
does not go past the caches, and takes long on processors without registers for masks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pliant.codegen.llvm import ints
from pliant.ir.expr import Binary, Expr, Index
from pliant.loop.rewrite import conjuncts
from pliant.loop.stmt import For, If, Invoke, Store, While, statements
from pliant.sym.expr import Int, var

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

Side = tuple[Int, Int]


def of(e: Emitter, cond: Expr) -> Condition | None:
    """A condition that asks for nothing but that sizes are less than others; None of all others,
    and outside of vectors: LLVM finds there what is known."""
    if e.lanes == 1:
        return None
    sides = []
    for part in conjuncts(cond):
        match part:
            case Binary("lt" | "le" as op, Index(a), Index(b)):
                sides.append((e.resolve(a), e.resolve(b + 1 if op == "le" else b)))
            case _:
                return None
    return Condition(e, sides)


@dataclass(frozen=True)
class Condition:
    """Of each pair the first size is less than the second. `e` is what emits it, in a vector."""

    e: Emitter
    sides: list[Side]

    @property
    def outcome(self) -> bool | None:
        """Whether it is proved to hold in all lanes, or in none."""
        facts = self.e.facts
        if any(facts.le(b, a) for a, b in self.sides):
            return False
        return True if all(facts.lt(a, b) for a, b in self.sides) else None

    @property
    def holds_in_first(self) -> bool:
        """Whether it is proved to hold in the first lane."""
        return all(self.e.facts.lt(a, b) for a, b in self._in_lane(0))

    def all_or_none(self) -> str | None:
        """Whether it holds, where it is proved that it does in all lanes or in none, as where whole
        vectors are left; None where that is not proved."""
        if not self._varies():
            return None
        facts, lane = self.e.facts, var(self.e.lane_var)
        first = self._in_lane(0)
        for (a, b), (x, y) in zip(self.sides, first, strict=True):
            along = facts.simplify(a - b - (x - y))
            if along is not lane or not facts.divisible(x - y, self.e.lanes):
                return None
        return self._emitted(first)

    def all_for(self, s: If) -> str | None:
        """Whether it holds in all lanes, where that is worth a branch around what `s` stores:
        without registers for masks, a store under one takes as long as a dozen others (AMD's
        processors before AVX-512), or is one branch for each lane (AArch64). None where it is not,
        or where the last lane does not answer for all."""
        if self.e.mask is not None or "avx512f" in self.e.options.features or not _stores(s):
            return None
        if not self._varies() or not all(self._grows(a - b) for a, b in self.sides):
            return None
        last = self._in_lane(self.e.lanes - 1)
        if any(self.e.facts.le(b, a) for a, b in last):
            return None  # what whole vectors left over
        return self._emitted(last)

    def _varies(self) -> bool:
        return any(self.e.is_varying(a - b) for a, b in self.sides)

    def _grows(self, x: Int) -> bool:
        """Whether it is known to be no less in a lane than in the one before."""
        lane = self.e.lane_var
        return self.e.facts.nonneg(x.subs({lane: var(lane) + 1}) - x)

    def _in_lane(self, k: int) -> list[Side]:
        lane = {self.e.lane_var: k}
        return [(a.subs(lane), b.subs(lane)) for a, b in self.sides]

    def _emitted(self, sides: Iterable[Side]) -> str:
        """Code for whether of all pairs, of uniform sizes, the first one is less."""
        t, every = self.e.text, ""
        for a, b in sides:
            x, y = (ints.emit_uniform(self.e, i) for i in (a, b))
            holds = t.assign(f"icmp slt i64 {x}, {y}")
            every = t.assign(f"and i1 {every}, {holds}") if every else holds
        return every


def _stores(s: If) -> bool:
    """Whether a branch does little more than to store, in memory: there may be two of it, and of
    registers lanes are chosen."""
    if s.otherwise is not None:
        return False
    inside = list(statements(s.then))
    if any(isinstance(x, For | While | Invoke) for x in inside):
        return False
    return any(isinstance(x, Store) and x.buffer.scope != "register" for x in inside)
