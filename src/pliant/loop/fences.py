"""Put a barrier wherever threads of a block would use memory that others have written, or write
what others have used, since they met last.

    s[t] = x[t]                 s[t] = x[t]
    y[t] = s[31 - t]    ->      barrier()
                                y[t] = s[31 - t]

Two uses of an element are in order by themselves if the same thread does both: the indices tell
which thread that is (`dependence.agreed_loops`), or both are done by the first one alone. Barriers
are never put where some threads only would come: that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr, Load, loads_of
from pliant.loop.bounds import declare_loops, span
from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import Access, accesses
from pliant.loop.rewrite import int_names, less
from pliant.loop.stmt import Alloc, Barrier, For, If, Let, Seq, Stmt, seq, statements
from pliant.loop.threads import WARP_SCOPES, private_axes
from pliant.sym.atoms import ModAtom
from pliant.sym.expr import Int, var
from pliant.sym.facts import Facts

_ORDER = ("", "warp", "block")  # what a barrier of one kind does, a later one does too


@dataclass(frozen=True)
class Fences:
    """Where barriers go in what the threads of `nest` do. `facts` hold inside the nest."""

    name: str
    nest: tuple[For, ...]
    facts: Facts

    def fence(self, s: Stmt, before: Sequence[Access] = ()) -> tuple[Stmt, list[Access]]:
        """The statement with its barriers, and the uses since the last one, where there were those
        of `before` at its beginning. Raises InvalidModelError where no barrier can be."""
        if isinstance(s, Seq):
            parts: list[Stmt] = []
            since = list(before)
            for each in s.stmts:
                part, since = self.fence(each, since)
                parts.append(part)
            return seq(*parts), since
        here = accesses(s)
        kind = self._between(before, here)
        since = _after(kind, before)
        inside = s if not self._between(here, here) else self._enter(s)
        done = seq(Barrier(kind), inside) if kind else inside
        if not any(isinstance(x, Barrier) for x in statements(inside)):
            return done, [*since, *here]
        return done, [*since, *_tail(inside, here)]

    def _enter(self, s: Stmt) -> Stmt:
        """A statement in which threads meet."""
        match s:
            case For() if s.kind in ("serial", "unrolled"):
                self._require_uniform(s, s.extent.names, f"loop {s.var}")
                body, last = self.fence(s.body)
                kind = self._between(_again(last, s), _again(_head(body), s))
                return s.replace(body=seq(body, Barrier(kind)) if kind else body)
            case If():
                read = any(isinstance(x, Load) for x in loads_of(s.cond))
                self._require_uniform(s, int_names(s.cond), "a condition", data=read)
                then, _ = self.fence(s.then)
                otherwise = None if s.otherwise is None else self.fence(s.otherwise)[0]
                return s.replace(then=then, otherwise=otherwise)
            case Alloc() | Let():
                return s.replace(body=self.fence(s.body)[0])
        raise InvalidModelError(f"{self.name}: {self._clash(s)}, with no place between")

    def _require_uniform(
        self, s: Stmt, names: frozenset[str], what: str, data: bool = False
    ) -> None:
        mine = sorted(names & {x.var for x in self.nest})
        if not mine and not data:
            return
        why = "data" if data else ", ".join(mine)
        raise InvalidModelError(
            f"{self.name}: {self._clash(s)}; a barrier would be needed inside {what} that depends "
            f"on {why}, where not all threads of a block come alike"
        )

    def _clash(self, s: Stmt) -> str:
        """What two threads do to each other in `s`."""
        found = accesses(s)
        a, b = next((x, y) for x in found for y in found if self._level(x, y))
        verb = {True: "writes", False: "reads"}
        if a is b or (a.write and b.write and a.block == b.block):
            return f"several threads may write an element of {a.buffer.name}{_place(a)}"
        return (
            f"a thread {verb[a.write]} {a.buffer.name}{_place(a)} and another "
            f"{verb[b.write]} perhaps the same element{_place(b)}"
        )

    # ---- which uses are not in order

    def _between(self, first: Iterable[Access], then: Sequence[Access]) -> str:
        """The barrier that is needed between, if one is."""
        needed = 0
        for a in first:
            for b in then:
                needed = max(needed, _ORDER.index(self._level(a, b)))
        return _ORDER[needed]

    def _level(self, a: Access, b: Access) -> str:
        if a.buffer is not b.buffer or not (a.write or b.write) or a.local or b.local:
            return ""
        own = private_axes(a.buffer.scope)
        nest = [x for x in self.nest if x.kind not in own and x.extent != 1]
        if not nest or self._apart(a, b):
            return ""
        same = agreed_loops(a, b, nest, self.facts)
        for x in nest:
            first = first_only(x)
            if x.var not in same and not (first in a.where and first in b.where):
                return "warp" if a.buffer.scope in WARP_SCOPES else "block"
        return ""

    def _apart(self, a: Access, b: Access) -> bool:
        """Whether the two never touch the same element, whatever threads do them."""
        for d in range(a.buffer.rank):
            i, j = self._ends(a, d), self._ends(b, d)
            if i is None or j is None:
                continue
            if self.facts.lt(i[1], j[0]) or self.facts.lt(j[1], i[0]):
                return True
            if i[0] is i[1] and j[0] is j[1] and _differ(i[0], j[0]):
                return True
        return False

    def _ends(self, a: Access, d: int) -> tuple[Int, Int] | None:
        index = a.index(d)
        if index is None:
            return None
        ranges = {x.var: x.extent for x in (*self.nest, *a.loops)}
        return span(index, ranges, declare_loops(self.facts, a.loops))


def _differ(i: Int, j: Int) -> bool:
    """Whether two remainders by one divisor differ: those of k and k + 1, the turns of a buffer
    with versions."""
    a, b = i.sole_atom, j.sole_atom
    if not isinstance(a, ModAtom) or not isinstance(b, ModAtom) or a.den is not b.den:
        return False
    gap = (a.num - b.num) % a.den
    return gap.is_const and gap.value != 0


def _place(a: Access) -> str:
    return f" in block {a.block}" if a.block else ""


def _again(found: Iterable[Access], loop: For) -> list[Access]:
    """The same uses in any iteration of the loop."""
    return [replace(a, loops=(loop, *a.loops)) for a in found]


def _after(kind: str, uses: Iterable[Access]) -> list[Access]:
    """Uses that a barrier leaves unordered."""
    if kind == "block":
        return []
    return [a for a in uses if not (kind and a.buffer.scope in WARP_SCOPES)]


def _head(s: Stmt) -> list[Access]:
    """What may be used before the first barrier."""
    if not isinstance(s, Seq):
        return list(accesses(s))
    found: list[Access] = []
    for part in s.stmts:
        if isinstance(part, Barrier) and part.scope == "block":
            break
        found += accesses(part)
    return found


def _tail(s: Stmt, here: Sequence[Access]) -> list[Access]:
    """What may have been used since the last barrier: all of it, unless it ends with one."""
    last = s
    while isinstance(last, Alloc | Let):
        last = last.body
    if isinstance(last, Seq):
        found: list[Access] = []
        for part in last.stmts:
            ends = isinstance(part, Barrier) and part.scope == "block"
            found = [] if ends else [*found, *accesses(part)]
        return found
    return list(here)


def first_only(loop: For) -> Expr:
    """The condition that only the first thread along an axis meets."""
    return less(var(loop.var), 1)
