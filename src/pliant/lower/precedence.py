"""Which of a growing number of things come before which, however they are joined.

Every one knows all that come before it, as a set of bits, so asking is immediate. An order that
is asked for is handed on to what comes later; what is recent has few of those.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class Precedence:
    """Numbers 0, 1, 2 … and what of them comes before what; never in a circle."""

    def __init__(self) -> None:
        self._before: list[int] = []
        self._next: list[set[int]] = []
        self._gone: dict[int, int] = {}

    def add(self, sources: Iterable[int]) -> int:
        """A new number, after these."""
        new = len(self._before)
        self._before.append(0)
        self._next.append(set())
        for source in sources:
            self.require(source, new)
        return new

    def is_before(self, a: int, b: int) -> bool:
        """Whether `a` comes before `b`, however far."""
        return bool(self._before[b] >> a & 1)

    def next_to(self, a: int) -> frozenset[int]:
        """Those that were said to come after `a`."""
        return frozenset(self._next[a])

    def require(self, a: int, b: int) -> None:
        """Let `a` come before `b`, which must not come before it."""
        assert a != b and not self.is_before(b, a), "an order is no circle"
        self._next[a].add(b)
        stack = [(b, self._before[a] | 1 << a)]
        while stack:
            at, earlier = stack.pop()
            if earlier & ~self._before[at]:
                self._before[at] |= earlier
                stack += [(later, self._before[at] | 1 << at) for later in self._next[at]]

    def absorb(self, gone: int, into: int) -> None:
        """One number for both: what one comes after the other must not be between them."""
        before = self._before[gone]
        self._gone[gone] = into
        after, self._next[gone] = self._next[gone] - {into}, set()
        for k, numbers in enumerate(self._next):
            if gone in numbers:
                numbers.discard(gone)
                if k != into:
                    self.require(k, into)
        self._before[into] |= before
        for later in after:
            self.require(into, later)

    def number(self, a: int) -> int:
        """The number that stands for `a` now."""
        while a in self._gone:
            a = self._gone[a]
        return a

    def order(self) -> list[int]:
        """All that are left, each after what comes before it, else by their numbers."""
        left = [k for k in range(len(self._before)) if k not in self._gone]
        waits = dict.fromkeys(left, 0)
        for k in left:
            for later in self._next[k]:
                waits[later] += 1
        ready = [k for k in left if not waits[k]]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            order.append(heapq.heappop(ready))
            for later in self._next[order[-1]]:
                waits[later] -= 1
                if not waits[later]:
                    heapq.heappush(ready, later)
        return order
