"""Quotients by a run-time size that advance with a loop, instead of a division each time round.

    for i in grid(n):                          q, r = a//d, a%d
        … (a + i)//d … (a + i)%d …      →      for i in grid(n):
                                                   … q … r …
                                                   r += 1; if r == d: q, r = q + 1, 0

A quotient of a quotient advances where that does: `(a + i)//d//e` as r begins anew, `(a + i)//8//e`
likewise.

Division by a constant is a multiplication; by a run-time size it takes some 20 cycles, as many as a
micro-kernel takes for a row. LLVM does not do this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pliant.codegen.llvm.writer import FunctionText, Lines
from pliant.sym.atoms import DivAtom
from pliant.sym.expr import Int, var

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

MOST: Final = 12  # quotients of a loop; each takes two registers, or memory of the stack


class Quotient(NamedTuple):
    """Of `rest` plus the variable of a loop, or plus another quotient of it, by `den`."""

    rest: Int
    den: Int
    of: Quotient | None = None

    def dividend(self, variable: str) -> Int:
        """What is divided."""
        of = self.of
        return self.rest + (var(variable) if of is None else of.dividend(variable) // of.den)


class Advanced(NamedTuple):
    """A quotient and its remainder in each iteration; the quotient in the first; and whether it is
    one more in the next, which is known at the end of an iteration."""

    quotient: str
    remainder: str
    first: str
    steps: str


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
    found: dict[Quotient, Advanced] = field(default_factory=dict)


def quotient_of(e: Emitter, num: Int, den: Int) -> tuple[Loop, Quotient] | None:
    """The loop around whose iterations advance the dividend by one or not at all; None where none
    does so, it has enough of them, or the divisor is a constant of which nothing else is made."""
    num, den = e.resolve(num), e.resolve(den)
    loop = next((x for x in reversed(e.loops) if x.var in num.names), None)
    wanted = None if loop is None else _advancing(loop, num, den)
    if loop is None or wanted is None:
        return None
    if wanted in loop.found:
        return loop, wanted
    return None if den.is_const or len(loop.found) + _depth(wanted) > MOST else (loop, wanted)


def _advancing(loop: Loop, num: Int, den: Int) -> Quotient | None:
    """The quotient of numbers that the loop advances by one or not at all."""
    if not den.names <= loop.names:
        return None
    if (split := num.linear(loop.var)) is not None:
        fits = split[0] == 1 and split[1].names <= loop.names
        return Quotient(split[1], den) if fits else None
    for coefficient, factors in num.terms():
        match coefficient, factors:
            case 1, ((DivAtom() as atom, 1),) if loop.var in atom.names:
                rest, of = num - atom.num // atom.den, _advancing(loop, atom.num, atom.den)
                return Quotient(rest, den, of) if of and rest.names <= loop.names else None
    return None


def _depth(x: Quotient) -> int:
    return 1 if x.of is None else 1 + _depth(x.of)


def advance(t: FunctionText, loop: Loop, q0: str, r0: str, d: str, of: Advanced | None) -> Advanced:
    """From quotient and remainder in the first iteration; `d` is the divisor, `of` the quotient
    that is divided, None for the loop's variable."""
    q, r, q_next, r_next = (t.name(hint) for hint in ("q", "r", "q", "r"))
    for x, start, step in ((q, q0, q_next), (r, r0, r_next)):
        phi = f"  {x} = phi i64 [ {start}, %{loop.preheader} ], [ {step}, %{loop.latch} ]"
        loop.phis.append(phi)
    with t.into(loop.last):
        one = "1" if of is None else t.assign(f"zext i1 {of.steps} to i64")
        more = t.assign(f"add nsw i64 {r}, {one}")
        full = t.assign(f"icmp eq i64 {more}, {d}")
        t.line(f"{r_next} = select i1 {full}, i64 0, i64 {more}")
        t.line(f"{q_next} = add nsw i64 {q}, {t.assign(f'zext i1 {full} to i64')}")
    return Advanced(q, r, q0, full)
