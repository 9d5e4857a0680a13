"""Words of two numbers of 16 bits that lie in memory as an instruction takes them (`pairs`).

    s + sum(f32(x[r, c]) * f32(p[c//4 % 2, c//8, c % 4, r]) for r in grid(2))       c: a lane

What a lane multiplies are neighbours in `p`: a word. Those of a vector lie in a few runs, here in
one for each register of sums in the order of unpacking (`lower.pair_filters`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pliant.base.dtypes import bf16
from pliant.codegen.llvm import ints, memory, pieces
from pliant.codegen.llvm.types import vector_type
from pliant.codegen.x86.dot import BF16
from pliant.ir.expr import Axis, Expr, Index, Load
from pliant.loop.stmt import Buffer
from pliant.sym.expr import Int, as_int

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

_FIRST: Final = 0xFFFF  # of the bits of a word, those of the number in front


Found = tuple[Int, tuple[int, ...]]


class Words(NamedTuple):
    """Words of `buffer` from element `first` on, and which of them each lane has. `alone`: only the
    first number of each is wanted, with a zero next to it."""

    buffer: Buffer
    first: Int
    lanes: tuple[int, ...]
    alone: bool


def words_of(e: Emitter, x: Expr, axis: Axis | None) -> Words | None:
    """The words that an operand is, of a sum of two products along an axis or of one product; None
    where it does not lie so, some lanes may not be read, or they are not in the order of memory."""
    if not isinstance(x, Load) or not isinstance(x.source, Buffer) or x.dtype is not bf16:
        return None
    buffer, place = x.source, e.place(x.source)
    if e.mask is not None or e.unpacked or place.lanes > 1 or place.unpacked:
        return None
    if not all(isinstance(i, Index) for i in x.indices):
        return None
    found = _found(e, buffer, memory.offset_in(e, buffer, x.indices), axis.var if axis else "")
    return None if found is None else Words(buffer, *found, axis is None)


def _found(e: Emitter, buffer: Buffer, offset: Int, axis: str) -> Found | None:
    """The first lane's element, and which word from there each lane has, whose numbers are along
    an axis. Kept, as sums of an unrolled loop ask for the same."""
    key = buffer, offset, axis, e.lane_var, e.lanes
    if key not in e.words:
        e.words[key] = None
        first, second = (offset.subs({axis: as_int(k)}) for k in range(BF16.group))
        if first.linear(e.lane_var) is None and (not axis or second - first == 1):
            first = e.facts.simplify(first)
            start = first.subs({e.lane_var: as_int(0)})
            lanes = _words(first - start, e.lane_var, e.lanes)
            # What lies next to a number that is alone is read, too.
            ends = () if axis else (start, e.resolve(buffer.room))
            if lanes is not None and all(e.facts.divisible(x, BF16.group) for x in ends):
                e.words[key] = start, lanes
    return e.words[key]


@lru_cache(maxsize=256)
def _words(apart: Int, lane: str, lanes: int) -> tuple[int, ...] | None:
    """Which word each lane has, counted from the first lane's; None where it is none."""
    at = [apart.subs({lane: as_int(k)}) for k in range(lanes)]
    if not all(x.is_const and x.value % BF16.group == 0 for x in at):
        return None
    return tuple(x.value // BF16.group for x in at)


def load(e: Emitter, words: Words, lanes: Sequence[int]) -> str:
    """The words of these lanes."""
    wanted = [words.lanes[k] for k in lanes]
    size = _run(wanted)
    parts = list[str]()
    for start in wanted[::size]:
        at = ints.emit_uniform(e, words.first + start * BF16.group)
        address = memory.element_at(e, e.place(words.buffer).pointer, at, words.buffer.dtype)
        parts.append(
            e.text.assign(f"load {vector_type('i32', size)}, ptr {address}, align {bf16.bytes}")
        )
    found = pieces.joined(e, "i32", size, parts, range(len(wanted)))
    if not words.alone:
        return found
    kind = vector_type("i32", len(wanted))
    return e.text.assign(f"and {kind} {found}, splat (i32 {_FIRST})")


def _run(wanted: Sequence[int]) -> int:
    """How many follow one another in each of equally long runs."""
    size = len(wanted)
    while any(wanted[k] - wanted[k - k % size] != k % size for k in range(len(wanted))):
        size //= 2
    return size
