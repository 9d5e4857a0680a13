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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from pliant.ir.mapping import likely_value
from pliant.lower.canonical import Launch
from pliant.sym.expr import Int, as_int, ceildiv, maximum, var
from pliant.sym.facts import Facts

ALIGNMENT: Final = 64
FEW: Final = 4  # ends of which it is asked whether one is always the last

HUGE: Final = 1 << 40  # bytes: what is larger is planned as that, and sums stay 64-bit integers

Life = tuple[int, int]


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


def plan_memory(
    launches: Sequence[Launch],
    sizes: Mapping[str, Int],
    facts: Facts,
    lies: Mapping[str, tuple[str, Int]] = MappingProxyType({}),
) -> MemoryPlan:
    """Place the values in `sizes` (name -> bytes), which launches write and read. Others lie in
    these: `lies` says in which, and how many bytes behind its beginning."""
    room = {n: ceildiv(size, ALIGNMENT) * ALIGNMENT for n, size in sizes.items()}
    lives = _lives(launches, room, {n: whole for n, (whole, _) in lies.items()})
    symbols = frozenset[str]().union(*(size.names for size in room.values()))
    likely = {name: likely_value(var(name), facts) for name in symbols}
    usual = {n: min(max(room[n].eval(likely), ALIGNMENT), HUGE) for n in lives}
    names = _lowest_first(lives, usual)
    steps: list[tuple[str, Int]] = []
    used = symbols.union(*(x.names for launch in launches for x in launch.sizes))
    prefix = "at"
    while any(s.startswith(prefix) for s in used):
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

    ends: list[Int] = []
    offsets: dict[str, Int] = {}
    under = set[int]()
    for name, direct in zip(names, _directly_below([lives[n] for n in names]), strict=True):
        under.update(direct)
        offsets[name] = last([ends[k] for k in direct])
        ends.append(offsets[name] + room[name])
    total = last([end for k, end in enumerate(ends) if k not in under])
    most = as_int(0)
    for size in room.values():
        most = most + size
    places = {n: offsets[n] for n in lives}
    places |= {n: offsets[whole] + at for n, (whole, at) in lies.items()}
    return MemoryPlan(places, total, tuple(steps), most)


def _lives(
    launches: Sequence[Launch], room: Mapping[str, Int], wholes: Mapping[str, str]
) -> dict[str, Life]:
    """The first and the last launch that has to do with each value, in the order in which they are
    made. Values whose lives have a launch in common are wanted at the same time. Those that lie in
    others live as long as these."""
    final: dict[str, int] = {}
    for k, launch in enumerate(launches):
        final |= {wholes.get(n, n): k for n in (*launch.inputs, *launch.outputs)}
    lives: dict[str, Life] = {}
    for k, launch in enumerate(launches):
        for name in (wholes.get(n, n) for n in launch.outputs):
            if name in room and name not in lives:
                lives[name] = k, final[name]
    return lives


def _lowest_first(lives: Mapping[str, Life], sizes: Mapping[str, int]) -> list[str]:
    """The values by where they lie if these are their sizes."""
    at: dict[str, int] = {}
    # Of those that are placed, by where they begin: begin, end, first launch, last one.
    placed = np.zeros((4, len(lives)), np.int64)
    for count, name in enumerate(sorted(lives, key=lambda n: -sizes[n])):
        (first, last), size = lives[name], sizes[name]
        starts, ends, made, final = placed[:, :count]
        beside = (made <= last) & (final >= first)
        upto = np.maximum.accumulate(np.concatenate([[0], ends[beside]]))
        gaps = np.append(starts[beside], upto[-1] + size) - upto >= size
        at[name] = place = int(upto[np.argmax(gaps)])
        k = int(np.searchsorted(starts, place, "right"))
        placed[:, k + 1 : count + 1] = placed[:, k:count].copy()
        placed[:, k] = place, place + size, first, last
    return sorted(lives, key=lambda n: at[n])


def _directly_below(lives: Sequence[Life]) -> Iterator[list[int]]:
    """For each of the values, the lowest first: which of those before it are wanted at the same
    time, and not below another of these anyway; the highest first."""
    made, final = np.array(lives, np.int64).reshape(-1, 2).T

    def below(k: int, upto: int) -> Any:
        return (made[:upto] <= final[k]) & (final[:upto] >= made[k])

    for k in range(len(lives)):
        beside, direct = below(k, k), list[int]()
        left = beside.copy()
        for j in np.flatnonzero(beside)[::-1].tolist():
            if left[j]:
                direct.append(j)
                left[j] = False
            left[:j] &= ~below(j, j)
            if not left.any():
                break
        yield direct


def _exceeded(end: Int, ends: Sequence[Int], k: int, facts: Facts) -> bool:
    """Whether another of the ends is never less; of equal ones the first stays."""
    return any(
        facts.le(end, other) and (i < k or not facts.le(other, end))
        for i, other in enumerate(ends)
        if i != k
    )
