"""Vectors whose elements lie in several pieces: a few loads of these instead of a gather.

    offset of lane l      where elements lie
    s*(l//2) + l%2        in runs of two, any way apart:   x0 x1 … | x(s) x(s+1) … | x(2s) …
    s*(l%2) + l//2        by turns in two runs:            x0 x1 x2 … | x(s) x(s+1) x(s+2) …

Such are the words of panels, each of several neighbours along what is summed (`lower.pack`). A
processor gathers an element at a time; a run takes one load, and the pieces are put together by
shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pliant.codegen.llvm import ints
from pliant.sym.expr import Int, as_int

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

RUNS = (8, 4, 2)  # elements in a run, or how many runs take turns


class Pieces(NamedTuple):
    """Runs of equally many elements, and which of these, one run after the other, each lane has."""

    starts: tuple[Int, ...]
    lanes: tuple[int, ...]


def pieces_of(e: Emitter, offset: Int) -> Pieces | None:
    """The pieces in which the elements of a vector lie; None where there are none."""
    if e.lanes <= min(RUNS) or offset.linear(e.lane_var) is not None:
        return None
    at = [offset.subs({e.lane_var: as_int(k)}) for k in range(e.lanes)]
    lanes = range(e.lanes)
    for n in (n for n in RUNS if e.lanes % n == 0 and n < e.lanes):
        if all(_apart(at[k], at[k - k % n], k % n) for k in lanes):
            return Pieces(tuple(at[::n]), tuple(lanes))
        if all(_apart(at[k], at[k % n], k // n) for k in lanes):
            many = e.lanes // n
            return Pieces(tuple(at[:n]), tuple(k % n * many + k // n for k in lanes))
    return None


def load_pieces(e: Emitter, pointer: str, element: str, align: int, pieces: Pieces) -> str:
    """The vector, where all of its elements may be read."""
    t, size = e.text, e.lanes // len(pieces.starts)
    parts = list[str]()
    for start in pieces.starts:
        at = t.assign(f"getelementptr {element}, ptr {pointer}, i64 {ints.emit_uniform(e, start)}")
        parts.append(t.assign(f"load <{size} x {element}>, ptr {at}, align {align}"))
    return joined(e, element, size, parts, pieces.lanes)


def _apart(a: Int, b: Int, by: int) -> bool:
    return a - b == by


def joined(e: Emitter, element: str, size: int, parts: Sequence[str], lanes: Sequence[int]) -> str:
    """These lanes of vectors of `size` elements, one behind the other."""
    parts = list(parts)
    while len(parts) > 1:
        if len(parts) % 2:
            parts.append("poison")
        parts = [
            shuffle(e, element, size, a, b, range(2 * size))
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        size *= 2
    if tuple(lanes) == tuple(range(size)):
        return parts[0]
    return shuffle(e, element, size, parts[0], parts[0], lanes)


def shuffle(e: Emitter, element: str, size: int, a: str, b: str, lanes: Sequence[int]) -> str:
    """These lanes of two vectors of `size` elements, one behind the other."""
    kind, places = f"<{size} x {element}>", ", ".join(f"i32 {k}" for k in lanes)
    return e.text.assign(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{places}>")
