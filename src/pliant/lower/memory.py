"""Where intermediate values live: offsets in one arena per call, as formulas over the symbols.

Values that are wanted at the same time lie beside one another; which of two is below is decided,
once for all sizes, by a plan for likely sizes: the largest value first, each as low as it fits
among those that are placed. A value then begins where the last of those below it ends:

    at0 = max(bytes of a, bytes of b);    a: 0    b: 0    c: at0    d: at0 + bytes of c

For likely sizes that is no worse than the plan, and right for all: offsets are chains of values
that are wanted at the same time, whatever these take.

Source: Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference"
(MLSys 2020 workshop on on-device intelligence), section 5.2: greedy by size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pliant.ir.mapping import likely_value
from pliant.lower.canonical import Launch
from pliant.sym.expr import Int, as_int, ceildiv, maximum, var
from pliant.sym.facts import Facts

ALIGNMENT: Final = 64
FEW: Final = 4  # ends of which it is asked whether one is always the last


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offset of each value in the arena, and the arena's size, in terms of the symbols and of
    `steps`: names and what they stand for, each in terms of earlier ones. Nothing in it is more
    than `most`."""

    offsets: dict[str, Int]
    total: Int
    steps: tuple[tuple[str, Int], ...]
    most: Int

    @property
    def bytes(self) -> Int:
        """The arena's size in terms of the symbols alone."""
        known: dict[str, Int] = {}
        for name, value in self.steps:
            known[name] = value.subs(known)
        return self.total.subs(known)


def plan_memory(launches: Sequence[Launch], sizes: Mapping[str, Int], facts: Facts) -> MemoryPlan:
    """Place the values in `sizes` (name -> bytes), which launches write and read."""
    room = {n: ceildiv(size, ALIGNMENT) * ALIGNMENT for n, size in sizes.items()}
    beside = _beside(launches, room)
    symbols = frozenset[str]().union(*(size.names for size in room.values()))
    likely = {name: likely_value(var(name), facts) for name in symbols}
    usual = {n: max(room[n].eval(likely), ALIGNMENT) for n in beside}
    rank = {n: k for k, n in enumerate(_lowest_first(beside, usual))}
    below = {n: {x for x in others if rank[x] < rank[n]} for n, others in beside.items()}
    steps: list[tuple[str, Int]] = []
    prefix = "at"
    while any(s.startswith(prefix) for s in symbols):
        prefix += "_"

    def last(ends: Sequence[Int]) -> Int:
        """The greatest of the ends."""
        ends = list(dict.fromkeys(ends))
        if len(ends) <= FEW:
            ends = [e for k, e in enumerate(ends) if not _exceeded(e, ends, k, facts)]
        if len(ends) < 2:
            return ends[0] if ends else as_int(0)
        steps.append((f"{prefix}{len(steps)}", maximum(*ends)))
        return var(steps[-1][0])

    offsets: dict[str, Int] = {}
    under = set[str]()
    for name in rank:
        direct = _direct(below[name], below, rank)
        under.update(direct)
        offsets[name] = last([offsets[x] + room[x] for x in direct])
    total = last([offsets[n] + room[n] for n in rank if n not in under])
    most = as_int(0)
    for size in room.values():
        most = most + size
    return MemoryPlan({n: offsets[n] for n in beside}, total, tuple(steps), most)


def _beside(launches: Sequence[Launch], room: Mapping[str, Int]) -> dict[str, set[str]]:
    """Which values are wanted at the same time as each, in the order in which they are made."""
    final: dict[str, int] = {}
    for k, launch in enumerate(launches):
        final |= dict.fromkeys((*launch.inputs, *launch.outputs), k)
    beside: dict[str, set[str]] = {}
    live: dict[str, None] = {}
    for k, launch in enumerate(launches):
        for name in launch.outputs:
            if name in room and name not in beside:
                beside[name] = set(live)
                for other in live:
                    beside[other].add(name)
                live[name] = None
        for name in (*launch.inputs, *launch.outputs):
            if final[name] == k:
                live.pop(name, None)
    return beside


def _lowest_first(beside: Mapping[str, set[str]], sizes: Mapping[str, int]) -> list[str]:
    """The values by where they lie if these are their sizes."""
    at: dict[str, int] = {}
    for name in sorted(beside, key=lambda n: -sizes[n]):
        place = 0
        for start, end in sorted((at[x], at[x] + sizes[x]) for x in beside[name] if x in at):
            if start - place >= sizes[name]:
                break
            place = max(place, end)
        at[name] = place
    return sorted(beside, key=lambda n: at[n])


def _direct(
    names: set[str], below: Mapping[str, set[str]], rank: Mapping[str, int]
) -> dict[str, None]:
    """Those of the names that are not below another of them anyway."""
    found: dict[str, None] = {}
    left = set(names)
    for name in sorted(names, key=lambda n: -rank[n]):
        if name in left:
            found[name] = None
            left.remove(name)
        left -= below[name]
        if not left:
            break
    return found


def _exceeded(end: Int, ends: Sequence[Int], k: int, facts: Facts) -> bool:
    """Whether another of the ends is never less; of equal ones the first stays."""
    return any(
        facts.le(end, other) and (i < k or not facts.le(other, end))
        for i, other in enumerate(ends)
        if i != k
    )
