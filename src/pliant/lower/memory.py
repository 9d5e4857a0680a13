"""Where intermediate values live: offsets in one arena per call, as formulas over the symbols.

Linear scan over the launches. A value takes over a place that has fallen free if that is provably
large enough for it, else it gets a new one (Relax, static memory planning; sizes stay symbolic).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pliant.lower.canonical import Launch
from pliant.sym.expr import Int, as_int, ceildiv
from pliant.sym.facts import Facts

ALIGNMENT: Final = 64
MAX_TRIED: Final = 32  # places that are compared with a value's size


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offset of each value in the arena, and the arena's size."""

    offsets: dict[str, Int]
    total: Int


@dataclass
class _Place:
    size: Int
    offset: Int


class _Free:
    """Places that have fallen free, oldest first."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._places: dict[int, _Place] = {}
        self._by_size: dict[Int, list[_Place]] = {}

    def give(self, place: _Place) -> None:
        self._places[id(place)] = place
        self._by_size.setdefault(place.size, []).append(place)

    def take(self, size: Int) -> _Place | None:
        """A place of the same size, else the first of the latest that is provably larger."""
        place = next(iter(self._by_size.get(size, ())), None) or self._larger(size)
        if place is not None:
            del self._places[id(place)]
            self._by_size[place.size].remove(place)
        return place

    def _larger(self, size: Int) -> _Place | None:
        latest = list(islice(reversed(self._places.values()), MAX_TRIED))
        return next((p for p in reversed(latest) if self._facts.le(size, p.size)), None)


def plan_memory(launches: Sequence[Launch], sizes: Mapping[str, Int], facts: Facts) -> MemoryPlan:
    """Place the values in `sizes` (name -> bytes), which launches write and read."""
    last: dict[str, int] = {}
    for k, launch in enumerate(launches):
        for name in (*launch.inputs, *launch.outputs):
            last[name] = k
    free = _Free(facts)
    held: dict[str, _Place] = {}
    offsets: dict[str, Int] = {}
    total = as_int(0)
    for k, launch in enumerate(launches):
        for name in launch.outputs:
            if name not in sizes:
                continue
            size = ceildiv(sizes[name], ALIGNMENT) * ALIGNMENT
            place = free.take(size)
            if place is None:
                place = _Place(size, total)
                total = total + size
            held[name] = place
            offsets[name] = place.offset
        for name in dict.fromkeys((*launch.inputs, *launch.outputs)):
            if name in held and last[name] == k:
                free.give(held.pop(name))
    return MemoryPlan(offsets, total)
