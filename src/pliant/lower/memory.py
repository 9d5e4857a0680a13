"""Where intermediate values live: offsets in one arena per call, as formulas over the symbols.

Linear scan over the launches. A value takes over a place that has fallen free if that is provably
large enough for it, else it gets a new one (Relax, static memory planning; sizes stay symbolic).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.lower.canonical import Launch
from pliant.lower.pack import product
from pliant.sym.expr import Int, as_int, ceildiv
from pliant.sym.facts import Facts

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offset of each value in the arena, and the arena's size."""

    offsets: dict[str, Int]
    total: Int


@dataclass
class _Place:
    size: Int
    offset: Int


def plan_memory(launches: Sequence[Launch], sizes: Mapping[str, Int], facts: Facts) -> MemoryPlan:
    """Place the values in `sizes` (name -> bytes), which launches write and read."""
    last: dict[str, int] = {}
    for k, launch in enumerate(launches):
        for name in (*launch.inputs, *launch.outputs):
            last[name] = k
    free: list[_Place] = []
    held: dict[str, _Place] = {}
    offsets: dict[str, Int] = {}
    total = as_int(0)
    for k, launch in enumerate(launches):
        for name in launch.outputs:
            if name not in sizes:
                continue
            size = ceildiv(sizes[name], ALIGNMENT) * ALIGNMENT
            place = _fitting(free, size, facts)
            if place is None:
                place = _Place(size, total)
                total = total + size
            held[name] = place
            offsets[name] = place.offset
        for name in dict.fromkeys((*launch.inputs, *launch.outputs)):
            if name in held and last[name] == k:
                free.append(held.pop(name))
    return MemoryPlan(offsets, total)


def _fitting(free: list[_Place], size: Int, facts: Facts) -> _Place | None:
    """Take a free place of the same size, else the first provably larger one."""
    for same in (True, False):
        for k, place in enumerate(free):
            if (place.size is size) if same else facts.le(size, place.size):
                return free.pop(k)
    return None


def bytes_of(shape: Sequence[Int], element: int) -> Int:
    return product(list(shape)) * element
