"""Decide a value that a schedule leaves open: a candidate, the sizes of tiles, a place.

Without a `decision` it is the default: the policy of who wrote the schedule, computed from what is
known there (it may be an integer over variables decided before). So a schedule is a space of
programs, and untuned it is one good point of it. Which others there are, `pliant.schedule.explore`
finds out from the trace. A decision outside of the space is refused.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for i in grid(n):
            with block("y", S(i, n)) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.sample_categorical('width', (4, 8, 16), default=8)
    p = p.split('i', sym('2*width'))

After:

    for i_0, i_1 in grid((n + 15)//16, 16):
        with block("y", S(16*i_0 + i_1, n), where=16*i_0 + i_1 < n) as (a,):
            y[a] = x[a] * 2.0

Steps:

    p = p.sample_perfect_tile('tile', 'i', 3, 16, default=(2, 8))
    p = p.split('i', sym('tile_1*tile_2'))
    p = p.split('i_1', sym('tile_2'))

After:

    for i_0, i_1_0, i_1_1 in grid((n + 15)//16, 2, 8):
        with block("y", S(16*i_0 + 8*i_1_0 + i_1_1, n), where=16*i_0 + 8*i_1_0 + i_1_1 < n) as (a,):
            y[a] = x[a] * 2.0

Steps:

    p = p.sample_partitioned_tile('tile', 'i', 2, 1, 4, decision=(12,))
    p = p.split('i', sym('tile_1'))

After:

    for i_0, i_1 in grid((n + 11)//12, 12):
        with block("y", S(12*i_0 + i_1, n), where=12*i_0 + i_1 < n) as (a,):
            y[a] = x[a] * 2.0

Before:

    @loop
    def two(x: f32["n"], u: f32["n"], n: i64):
        t = alloc(f32[n], scope="scratch")
        for i in grid(n):
            with block("t", S(i, n)) as (a,):
                t[a] = x[a] * x[a]
        for j in grid(n):
            with block("u", S(j, n)) as (b,):
                u[b] = t[b] + 1.0

Steps:

    p = p.sample_compute_location('place', 't', decision='<inline>')

After:

    for j in grid(n):
        with block("u", S(j, n)) as (b,):
            u[b] = x[b] * x[b] + 1.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from pliant.loop.stmt import For
from pliant.schedule.compute_at import compute_at
from pliant.schedule.compute_inline import compute_inline
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program, primitive
from pliant.schedule.space import Choice, Space, Tiles
from pliant.schedule.trace import Decided, plain
from pliant.sym.expr import Int, var

STAY: Final = "<where it is>"  # places that are no loops
INLINE: Final = "<inline>"


@primitive
def sample_categorical(
    p: Program,
    name: str,
    candidates: Sequence[Any],
    probs: Sequence[float] | None = None,
    *,
    default: Any,
    decision: Any = None,
) -> Program:
    """One of `candidates` (numbers, texts, truth values), which is called `name` from here on.
    `probs` are their weights when it is drawn at random."""
    check_sample_categorical(p, name, candidates, probs)
    space = categorical(p, name, candidates, probs, default=default)
    value = _decide("sample_categorical", name, space, decision)
    return _chosen(p, {name: value})


@primitive
def sample_perfect_tile(
    p: Program,
    name: str,
    loop: str,
    loops: int,
    max_innermost: int = 16,
    *,
    default: Sequence[int] | None = None,
    decision: Sequence[int] | None = None,
) -> Program:
    """Sizes for splitting `loop` into `loops` ones: `name_1`, …, the outermost, which is as long as
    is left, excepted. Where the extent is a number their product divides it; otherwise there is a
    tail. Without a default the innermost is as large as is allowed."""
    check_sample_tile(p, "sample_perfect_tile", name, loop, loops, max_innermost)
    space = perfect_tile(p, name, loop, loops, max_innermost, default=default)
    return _tiles(p, "sample_perfect_tile", name, space, decision)


@primitive
def sample_partitioned_tile(
    p: Program,
    name: str,
    loop: str,
    loops: int,
    partition_pos: int,
    inner_factor: int,
    max_innermost: int = 16,
    *,
    default: Sequence[int] | None = None,
    decision: Sequence[int] | None = None,
) -> Program:
    """As `sample_perfect_tile`, and the loops from number `partition_pos` on (the outermost is 0)
    together run a multiple of `inner_factor` times; where that does not divide the extent there is
    a tail."""
    step = "sample_partitioned_tile"
    check_sample_tile(p, step, name, loop, loops, max_innermost, partition_pos, inner_factor)
    space = partitioned_tile(
        p, name, loop, loops, partition_pos, inner_factor, max_innermost, default=default
    )
    return _tiles(p, step, name, space, decision)


@primitive
def sample_compute_location(
    p: Program, name: str, block: str, *, default: str = STAY, decision: str | None = None
) -> Program:
    """Computes `block` where it is, in what reads it (`INLINE`), or at one of the loops around what
    reads it (by name), of those places that are legal. Makes what the move makes."""
    check_name(p, "sample_compute_location", name)
    p.block_path("sample_compute_location", block)
    place = default if decision is None else decision
    try:
        moved = _moved(p, block, place)
    except SchedulingError as error:
        reason = f"{place} is no place for block {block}: {error}"
        raise SchedulingError("sample_compute_location", name, reason) from None
    return replace(moved, chosen=(Decided(name),), decisions={**p.decisions, name: place})


def check_name(p: Program, primitive: str, *names: str) -> None:
    """Variables have names of their own."""
    used = p.names().variables
    for name in names:
        if not name.isidentifier():
            raise SchedulingError(primitive, repr(name), "that is no name")
        if name in used:
            raise SchedulingError(primitive, name, "the name is taken")


def check_sample_categorical(
    p: Program, name: str, candidates: Sequence[Any], probs: Sequence[float] | None
) -> None:
    """There are candidates, of one kind, and each has a weight."""
    check_name(p, "sample_categorical", name)
    if not candidates:
        raise SchedulingError("sample_categorical", name, "there are no candidates")
    if len({_is_number(c) for c in candidates}) > 1:
        reason = "numbers and other values are not candidates for one variable"
        raise SchedulingError("sample_categorical", name, reason)
    if not all(isinstance(c, int | str) for c in candidates):
        raise SchedulingError("sample_categorical", name, "a candidate is no plain value")
    if probs is not None and (
        len(probs) != len(candidates) or any(w < 0 for w in probs) or sum(probs) <= 0
    ):
        reason = f"{probs} are not weights for {len(candidates)} candidates"
        raise SchedulingError("sample_categorical", name, reason)


def check_sample_tile(
    p: Program,
    primitive: str,
    name: str,
    loop: str,
    loops: int,
    max_innermost: int,
    partition_pos: int = 1,
    inner_factor: int = 1,
) -> None:
    """The loop exists and is to become two or more; some tiling is legal."""
    p.loop(loop)
    if loops < 2:
        raise SchedulingError(primitive, f"loop {loop}", f"{loops} loops are no tiling")
    check_name(p, primitive, name, *_tile_names(name, loops))
    if max_innermost < 1 or inner_factor < 1:
        raise SchedulingError(primitive, f"loop {loop}", "a factor is at least 1")
    if not 0 <= partition_pos < loops:
        reason = f"there is no loop {partition_pos} among {loops}"
        raise SchedulingError(primitive, f"loop {loop}", reason)
    why = Tiles(None, loops, max_innermost, partition_pos, inner_factor).empty
    if why:
        raise SchedulingError(primitive, f"loop {loop}", why)


# ---- the spaces, from the arguments of the steps


def categorical(
    p: Program,
    name: str,
    candidates: Sequence[Any],
    probs: Sequence[float] | None = None,
    *,
    default: Any,
) -> Space:
    weights = None if probs is None else tuple(probs)
    return Choice(plain(candidates), plain(default), weights)


def perfect_tile(
    p: Program,
    name: str,
    loop: str,
    loops: int,
    max_innermost: int = 16,
    *,
    default: Sequence[int] | None = None,
) -> Space:
    return partitioned_tile(p, name, loop, loops, 1, 1, max_innermost, default=default)


def partitioned_tile(
    p: Program,
    name: str,
    loop: str,
    loops: int,
    partition_pos: int,
    inner_factor: int,
    max_innermost: int = 16,
    *,
    default: Sequence[int] | None = None,
) -> Space:
    extent = p.loop(loop).extent
    number = extent.value if extent.is_const else None
    policy = None if default is None else plain(default)
    return Tiles(number, loops, max_innermost, partition_pos, inner_factor, policy)


def compute_location(p: Program, name: str, block: str, *, default: str = STAY) -> Space:
    around = p.loops(block)
    places = [s.var for s in p.statements() if isinstance(s, For) and s.var not in around]
    legal = [STAY]
    for place in (INLINE, *places):
        with suppress(SchedulingError):
            _moved(p, block, place)
            legal.append(place)
    return Choice(tuple(legal), default)


SPACES: Final[Mapping[str, Callable[..., Space]]] = {
    "sample_categorical": categorical,
    "sample_perfect_tile": perfect_tile,
    "sample_partitioned_tile": partitioned_tile,
    "sample_compute_location": compute_location,
}


def _decide(primitive: str, place: str, space: Space, decision: Any) -> Any:
    value = space.default if decision is None else plain(decision)
    why = space.refuses(value)
    if why:
        raise SchedulingError(primitive, place, why)
    return value


def _tiles(
    p: Program, primitive: str, name: str, space: Space, decision: Sequence[int] | None
) -> Program:
    factors = _decide(primitive, name, space, decision)
    values = dict(zip(_tile_names(name, len(factors) + 1), factors, strict=True))
    return _chosen(replace(p, decisions={**p.decisions, name: factors}), values)


def _tile_names(name: str, loops: int) -> list[str]:
    return [f"{name}_{k}" for k in range(1, loops)]


def _moved(p: Program, block: str, place: str) -> Program:
    match place:
        case "<where it is>":
            return p
        case "<inline>":
            return compute_inline(p, block)
    return compute_at(p, block, place)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _chosen(p: Program, values: Mapping[str, Any]) -> Program:
    names: list[Int | Decided] = [
        var(n) if _is_number(v) else Decided(n) for n, v in values.items()
    ]
    return replace(p, made=(), chosen=tuple(names), decisions={**p.decisions, **values})
