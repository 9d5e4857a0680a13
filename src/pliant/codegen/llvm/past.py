"""Stores past the caches (`schedule.stream`): which are, and when that is decided.

A vector goes past where it lies as those do that fill cache lines, and its buffer is large. Where
every iteration of a loop decides as the first one does, the loop is there twice, and the vectors in
it ask no more:

    if large and aligned:
        for j in grid(n): past the caches
    else:
        for j in grid(n): as ever
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pliant.codegen.llvm import ints
from pliant.loop.stmt import (
    LINE,
    STREAM,
    Alloc,
    Buffer,
    For,
    Invoke,
    Seq,
    Stmt,
    Store,
    offset_of,
    own_statements,
)
from pliant.sym.expr import Int, as_int

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter


class Vector(NamedTuple):
    """What a vectorized loop stores."""

    buffer: Buffer
    at: Int  # where its first element lies
    lanes: int
    at_least: int  # bytes of the buffer from which it goes past the caches

    @property
    def align(self) -> int:
        """Bytes of which its address is a multiple where such vectors fill lines."""
        return min(LINE, self.lanes * self.buffer.dtype.bytes)


def goes(e: Emitter, v: Vector, offset: str) -> str:
    """Whether a vector that lies at `offset` goes past the caches."""
    t, size = e.text, v.buffer.dtype.bytes
    large = is_large(e, v.buffer, v.at_least)
    # As a sum of integers LLVM sees that the low bits do not change from vector to vector.
    base = t.assign(f"ptrtoint ptr {e.place(v.buffer).pointer} to i64")
    at = t.assign(f"add i64 {base}, {t.assign(f'mul i64 {offset}, {size}')}")
    whole = t.assign(f"icmp eq i64 {t.assign(f'and i64 {at}, {v.align - 1}')}, 0")
    return t.assign(f"and i1 {large}, {whole}")


def is_large(e: Emitter, buffer: Buffer, at_least: int) -> str:
    """Whether a buffer has so many bytes."""
    room = ints.emit_uniform(e, buffer.room * buffer.dtype.bytes)
    return e.text.assign(f"icmp sge i64 {room}, {at_least}")


def asked_once(e: Emitter, loop: str, body: Stmt) -> str:
    """Whether all vectors that the loop's body stores so go past the caches in every iteration;
    empty where iterations may differ, the body is more than such, or none are stored so."""
    every = dict[Vector, None]()
    for v in _vectors(e, body):
        if v is None:
            return ""
        split = e.resolve(v.at).linear(loop)
        if split is None or not e.facts.divisible(split[0] * v.buffer.dtype.bytes, v.align):
            return ""
        if not e.knows(split[1]):
            return ""
        every[v._replace(at=split[1])] = None
    all_of = ""
    for v in every:
        one = goes(e, v, ints.emit_uniform(e, v.at))
        all_of = e.text.assign(f"and i1 {all_of}, {one}") if all_of else one
    return all_of


def streams(s: Stmt) -> bool:
    """Whether vectors, or parts of them, are stored so in a function of this body."""
    return any(isinstance(x, For) and STREAM in dict(x.notes) for x in own_statements(s))


def _vectors(e: Emitter, s: Stmt) -> Iterator[Vector | None]:
    """The vectors that the statement stores so. None for what is more than vectors and calls, or is
    not known to lie where: such loops are not worth being there twice."""
    match s:
        case Seq(stmts):
            for child in stmts:
                yield from _vectors(e, child)
        case For(var, extent, body, "unrolled"):
            for v in _vectors(e, body):
                for k in range(e.resolve(extent).value):
                    yield v and v._replace(at=v.at.subs({var: as_int(k)}))
        case For(var, extent, Store(buffer, indices), "vectorized", notes):
            at, notes_of = offset_of(buffer, indices), dict(notes)
            if STREAM in notes_of and at is not None:
                start = at.subs({var: as_int(0)})
                yield Vector(buffer, start, e.resolve(extent).value, notes_of[STREAM])
            elif STREAM in notes_of:
                yield None
        case Alloc(body=body):
            yield from _vectors(e, body)
        case Invoke():
            pass
        case _:
            yield None
