"""Quotients by a run-time size that advance with a loop, instead of a division each time round.

    for i in grid(n):                          q, r = a//d, a%d
        … (a + i)//d … (a + i)%d …      →      for i in grid(n):
                                                   … q … r …
                                                   r += 1; if r == d: q, r = q + 1, 0

Division by a constant is a multiplication; by a run-time size it takes some 20 cycles, as many as a
micro-kernel takes for a row. LLVM does not do this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pliant.codegen.llvm.writer import FunctionText, Lines
from pliant.sym.expr import Int

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

MOST: Final = 8  # quotients of a loop; each takes two registers


class Quotient(NamedTuple):
    """Of `rest` plus the variable of a loop, by `den`."""

    rest: Int
    den: Int


@dataclass
class Loop:
    """A counted loop whose body is being emitted."""

    var: str
    first: str  # its value in the first iteration
    names: frozenset[str]  # what has a value before the loop
    scopes: int  # of values, before the loop
    preheader: str
    latch: str
    before: Lines
    phis: Lines
    last: Lines = field(default_factory=list)  # instructions at the end of an iteration
    found: dict[Quotient, tuple[str, str]] = field(default_factory=dict)


def quotient_of(e: Emitter, num: Int, den: Int) -> tuple[Loop, Quotient] | None:
    """The loop around whose iterations advance the dividend by one; None where none does so, it has
    enough of them, or the divisor is a constant."""
    num, den = e.resolve(num), e.resolve(den)
    loop = next((x for x in reversed(e.loops) if x.var in num.names), None)
    if loop is None or den.is_const:
        return None
    split = num.linear(loop.var)
    if split is None or split[0] != 1 or not split[1].names | den.names <= loop.names:
        return None
    wanted = Quotient(split[1], den)
    return (loop, wanted) if wanted in loop.found or len(loop.found) < MOST else None


def advance(t: FunctionText, loop: Loop, q0: str, r0: str, d: str) -> tuple[str, str]:
    """Quotient and remainder in each iteration, from those in the first; `d` is the divisor."""
    q, r, q_next, r_next = (t.name(hint) for hint in ("q", "r", "q", "r"))
    for x, start, step in ((q, q0, q_next), (r, r0, r_next)):
        phi = f"  {x} = phi i64 [ {start}, %{loop.preheader} ], [ {step}, %{loop.latch} ]"
        loop.phis.append(phi)
    with t.into(loop.last):
        more = t.assign(f"add nsw i64 {r}, 1")
        full = t.assign(f"icmp eq i64 {more}, {d}")
        t.line(f"{r_next} = select i1 {full}, i64 0, i64 {more}")
        t.line(f"{q_next} = add nsw i64 {q}, {t.assign(f'zext i1 {full} to i64')}")
    return q, r
