"""Random steps that lead to primitives that are seldom legal by chance: they make what these want.

Each is a list of steps, of which any may be refused; the last is the one that is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from pliant.loop.regions import accesses
from pliant.loop.stmt import Alloc, Block, Buffer, For, statements
from pliant.schedule.program import Program
from pliant.sym.expr import var

Move = tuple[str, tuple[Any, ...], dict[str, Any]]
Draw = Callable[[Any], Any]


def pad_block(draw: Draw, p: Program) -> list[Move]:
    """Copies with padding of all that a block uses, then whole tiles of one of its loops."""
    blocks = [s for s in p.statements() if isinstance(s, Block)]
    if not blocks:
        return []
    block = draw(st.sampled_from(blocks))
    mine = [a for a in accesses(block) if a.indices is not None]
    made = [_move("cache_write", block.name)] if _written(p, block) - _own(p) else []
    for name in dict.fromkeys(a.buffer.name for a in mine if not a.write):
        rank = p.buffer(name).rank
        if rank and draw(st.integers(0, 3)):
            d = draw(st.integers(0, rank - 1))
            at = [var(f"_{k}") for k in range(rank)]
            tiles = (*at[:d], at[d] // 4, *at[d + 1 :], at[d] % 4)
            made.append(_move("cache_read", block.name, name, layout=tiles, pad=0.0))
    spatial = {n for i, b in _bound(block) if i.kind == "S" for n in b.names}
    for loop in [x for x in p.loops(block.name) if x in spatial][-2:]:
        if draw(st.integers(0, 3)):
            made.append(_move("split", loop, draw(st.sampled_from([2, 4, 4, 8])), tail="mask"))
    return [*made, _move("pad_block", block.name)]


def rolling_buffer(draw: Draw, p: Program) -> list[Move]:
    """What a loop needs, computed in it; then in a ring."""
    pairs = _handed_on(p)
    if not pairs:
        return []
    buffer, maker, reader = draw(st.sampled_from(pairs))
    moved = [x for x in p.loops(reader) if x not in p.loops(maker)]
    first = [_move("compute_at", maker, draw(st.sampled_from(moved)))] if moved else []
    axis = draw(st.integers(0, max(buffer.rank - 1, 0)))
    return [*first, _move("rolling_buffer", buffer.name, axis)]


def reverse_compute_at(draw: Draw, p: Program) -> list[Move]:
    """A block to a loop in which something is made that it reads."""
    pairs = [(m, r) for _, m, r in _handed_on(p) if p.loops(m)]
    if not pairs:
        return []
    maker, reader = draw(st.sampled_from(pairs))
    return [_move("reverse_compute_at", reader, draw(st.sampled_from(p.loops(maker))))]


def store_in(draw: Draw, p: Program) -> list[Move]:
    """A buffer into another of its shape and type, which a reader of it writes."""
    pairs = [
        (b.name, new.name)
        for b, _, reader in _handed_on(p)
        for new in sorted(_written(p, p.block(reader)), key=lambda x: x.name)
        if new is not b and (new.shape, new.dtype) == (b.shape, b.dtype)
    ]
    return [_move("store_in", *draw(st.sampled_from(pairs)))] if pairs else []


def unannotate(draw: Draw, p: Program) -> list[Move]:
    """A note there is, or was just made."""
    places = [s for s in p.statements() if isinstance(s, For | Block)]
    found = [(_name(s), k) for s in places for k, _ in s.notes]
    if found and draw(st.booleans()):
        return [_move("unannotate", *draw(st.sampled_from(found)))]
    if not places:
        return []
    place = _name(draw(st.sampled_from(places)))
    return [_move("annotate", place, "passing", 1), _move("unannotate", place, "passing")]


LEADS: Final = {
    f.__name__: f for f in (pad_block, reverse_compute_at, rolling_buffer, store_in, unannotate)
}


def _move(name: str, *args: Any, **options: Any) -> Move:
    return name, args, options


def _name(s: For | Block) -> str:
    return s.var if isinstance(s, For) else s.name


def _own(p: Program) -> set[Buffer]:
    return {s.buffer for s in p.statements() if isinstance(s, Alloc)}


def _written(p: Program, block: Block) -> set[Buffer]:
    return {p.buffer(name) for name in p.written(block.name)}


def _bound(block: Block) -> list[tuple[Any, Any]]:
    return list(zip(block.iters, block.bindings, strict=True))


def _handed_on(p: Program) -> list[tuple[Buffer, str, str]]:
    """(buffer, block that writes it, another that reads it) of the function's own buffers."""
    own = _own(p)
    blocks = [s for s in statements(p.function.body) if isinstance(s, Block)]
    uses = {b.name: [a for a in accesses(b) if a.buffer in own] for b in blocks}
    return [
        (b, maker, reader)
        for maker in uses
        for reader in uses
        if maker != reader
        for b in dict.fromkeys(a.buffer for a in uses[maker] if a.write)
        if any(a.buffer is b and not a.write for a in uses[reader])
    ]
