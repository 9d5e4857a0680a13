"""Whether loops run a block through the whole of its iterators' domains.

    for i_0 in range(ceildiv(n, 8)):                    runs t for 0 <= v < n
        for i_1 in range(min(8, n - 8*i_0)):
            with block("t", S(8*i_0 + i_1, n)) as v:

A block's domain says what it makes sense for, not what happens: `loop_partition` makes two blocks
that run for a part of it each. What is brought back from a copy must have been written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pliant.loop.stmt import Alloc, Block, Buffer, For, Let, Stmt
from pliant.schedule.flow import only_domain, stores_everywhere, unconditional
from pliant.schedule.program import Program
from pliant.sym.atoms import DivAtom, MinAtom
from pliant.sym.expr import Int, minimum
from pliant.sym.facts import Facts
from pliant.sym.index_map import IndexMap


def iteration_map(
    block: Block, extents: Mapping[str, Int], facts: Facts
) -> tuple[IndexMap, tuple[Int, ...]]:
    """What loops of these extents make of the block's iterators, and the iterators' extents;
    without iterators that are one of the loops. `facts` hold outside."""
    pairs, rest = list(zip(block.iters, block.bindings, strict=True)), dict(extents)
    used = [x for _, b in pairs for x in b.names]
    for it, b in list(pairs):
        extent = rest.get(str(b))
        if extent is not None and used.count(str(b)) == 1 and facts.equal(extent, it.extent):
            del rest[str(b)]
            pairs.remove((it, b))
    to = IndexMap(tuple(rest), tuple(rest.values()), tuple(b for _, b in pairs))
    return to, tuple(it.extent for it, _ in pairs)


def runs_through(p: Program, path: tuple[Stmt, ...], at: int) -> bool:
    """Whether `path[at]` runs the block at the end of `path` for all values of its iterators."""
    while isinstance(path[at], Let | Alloc):
        at += 1
    block, loops = path[-1], [s for s in path[at:-1] if isinstance(s, For)]
    assert isinstance(block, Block)
    if not unconditional(path[at:-1]) or not only_domain(block, p.around(path)):
        return False
    names, extents = frozenset(x.var for x in loops), dict[str, Int]()
    facts = p.inside(path[:at])
    inside, endless = facts.copy(), facts.copy()
    for x in loops:
        endless.declare(x.var)
    for x in loops:
        extents[x.var] = _unclipped(x, block, names, inside, endless)
        inside.declare_index(x.var, extents[x.var])
    if not all(x.names.isdisjoint(names) for x in extents.values()):
        return False
    # What the block is not bound to repeats it.
    bound = frozenset[str]().union(*(b.names for b in block.bindings))
    if not all(v in bound or facts.positive(x) for v, x in extents.items()):
        return False
    run = {v: x for v, x in extents.items() if v in bound}
    to, domain = iteration_map(block, run, facts)
    return to.covers(domain, facts)


def writes_all(p: Program, path: tuple[Stmt, ...], buffer: Buffer) -> bool:
    """Whether the block at the end of `path` stores to every element of the buffer, for as long as
    that lives."""
    block = path[-1]
    assert isinstance(block, Block)
    return stores_everywhere(block, buffer, p.around(path)) and runs_through(
        p, path, life_of(buffer, path)
    )


def life_of(buffer: Buffer, path: Sequence[Stmt]) -> int:
    """Where in the path the buffer's life begins: behind its allocation, or with the program."""
    made = (k for k, s in enumerate(path) if isinstance(s, Alloc) and s.buffer is buffer)
    return next(made, -1) + 1


def _unclipped(loop: For, block: Block, names: frozenset[str], facts: Facts, endless: Facts) -> Int:
    """The loop's extent; where it varies with other loops, being clipped to what is left, that of
    a whole tile, if the block's iterators would leave their domains in the rest. `facts` know how
    long the loops around it are, `endless` only that none is negative."""
    ends = [facts.simplify(x) for x in _least_of(loop.extent)]
    fixed = [x for x in ends if x.names.isdisjoint(names)]
    if not fixed:
        return loop.extent
    for end in ends:
        if end in fixed or any(facts.le(x, end) for x in fixed):
            continue
        lines = (b.linear(loop.var) for b in block.bindings)
        outside = (
            line is not None
            and endless.positive(line[0])
            and endless.le(it.extent, line[0] * end + line[1])
            for it, line in zip(block.iters, lines, strict=True)
        )
        if not any(outside):
            return loop.extent
    return minimum(*fixed)


def _least_of(x: Int) -> tuple[Int, ...]:
    """Numbers of which `x` is the least."""
    parts = [(c, f[0]) for c, f in x.terms() if len(f) == 1]
    for coefficient, (atom, power) in parts:
        if coefficient != 1 or power != 1 or sum(atom in dict(f) for _, f in x.terms()) > 1:
            continue
        if isinstance(atom, MinAtom):
            ends: Iterable[Int] = atom.args
        elif isinstance(atom, DivAtom):
            ends = tuple(e // atom.den for e in _least_of(atom.num))
        else:
            continue
        if len(found := tuple(ends)) > 1:
            return tuple(y for e in found for y in _least_of(x.map_atoms({atom: e})))
    return (x,)
