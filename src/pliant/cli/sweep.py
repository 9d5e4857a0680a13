"""Shapes to sweep: `batch=1,4 seq=16..128` as every combination of sizes.

a,b,c    these          a..b    a, then powers of two, then b          a..b:s    in steps of s
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pliant.base.errors import ShapeError
from pliant.runtime.manifest import Function, Symbol

Sizes = Mapping[str, tuple[int, ...]]

USUAL: Final = (1, 16, 128)  # of a symbol nothing is said about


def parse_sizes(text: str) -> tuple[str, tuple[int, ...]]:
    """A symbol and its sizes. Raises ValueError."""
    name, _, values = text.partition("=")
    sizes = tuple(itertools.chain.from_iterable(map(_span, values.split(","))))
    if not (name and sizes):
        raise ValueError(f"{text!r} is not NAME=SIZES")
    return name, tuple(dict.fromkeys(sizes))


def _span(text: str) -> Iterator[int]:
    ends, _, step = text.partition(":")
    low, dots, high = ends.partition("..")
    if not dots:
        if int(low) < 0:
            raise ValueError(f"{text!r} is no size")
        yield int(low)
        return
    first, last = int(low), int(high)
    if first < 0 or last < first or (step and int(step) < 1):
        raise ValueError(f"{text!r} is no range")
    if step:
        yield from range(first, last + 1, int(step))
        return
    yield first
    yield from (1 << k for k in range(63) if first < 1 << k < last)
    yield last


def combinations(function: Function, given: Sizes) -> list[dict[str, int]]:
    """Every combination of the sizes of a function's symbols. Raises ShapeError."""
    known = {s.name: s for s in function.symbols}
    unknown = [n for n in given if n not in known]
    if unknown:
        have = ", ".join(known) or "none"
        raise ShapeError(f"no symbolic dimension {', '.join(unknown)}; there are: {have}")
    axes: Sequence[tuple[int, ...]] = [given.get(n) or usual_sizes(s) for n, s in known.items()]
    return [dict(zip(known, sizes, strict=True)) for sizes in itertools.product(*axes)]


def usual_sizes(s: Symbol) -> tuple[int, ...]:
    """Some legal sizes of a symbol: what is usual, moved into its range and to its multiple."""
    out = []
    for size in USUAL:
        size = max(-(-max(size, s.min) // s.multiple) * s.multiple, 0)
        if s.max is not None and size > s.max:
            size = s.max // s.multiple * s.multiple
        out.append(size)
    return tuple(dict.fromkeys(out))
