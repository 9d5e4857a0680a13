"""Pairs of accesses whose order matters, and loops whose iterations are independent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations_with_replacement

from pliant.loop.dependence import agreed_loops
from pliant.loop.reduction import as_update
from pliant.loop.regions import Access, accesses
from pliant.loop.stmt import For
from pliant.schedule.program import Program
from pliant.sym.facts import Facts


def conflicting_pairs(
    found: Sequence[Access], in_order: Collection[str] = ()
) -> Iterator[tuple[Access, Access]]:
    """Accesses of one buffer, one of them a store; without pairs of updates of one reduction
    (but of the blocks `in_order`: there the order counts). A store pairs with itself too."""
    written = {a.buffer for a in found if a.write}
    for a, b in combinations_with_replacement([a for a in found if a.buffer in written], 2):
        if a.buffer is not b.buffer or not (a.write or b.write):
            continue
        if a.commutes and b.commutes and a.block == b.block and a.block not in in_order:
            continue
        yield a, b


def strict_order(p: Program) -> bool:
    """Whether the numerics contract fixes the order of reductions."""
    return ("numerics", "strict") in p.function.notes


def reduced_in_order(p: Program) -> frozenset[str]:
    """The blocks in whose reductions the order counts: with strict numerics those that round."""
    if not strict_order(p):
        return frozenset()
    updates = ((name, as_update(p.block(name))) for name in p.blocks)
    return frozenset(name for name, update in updates if update is None or update.rounds)


def describe(a: Access, b: Access) -> str:
    """What two accesses do, for an error's text."""
    verbs = {True: "writes", False: "reads"}
    where_a, where_b = (f"block {x.block}" if x.block else "a statement" for x in (a, b))
    if a is b or (a.block and a.block == b.block):
        return f"{where_a} may touch an element of {a.buffer.name} twice"
    return (
        f"{where_a} {verbs[a.write]} and {where_b} {verbs[b.write]} "
        f"perhaps the same element of {a.buffer.name}"
    )


def carried(
    p: Program, loop: For, facts: Facts, together: Collection[str] = ()
) -> tuple[Access, Access] | None:
    """Two accesses in different iterations of `loop` that may touch one element, one of them a
    store; None if there are none. Memory allocated inside is each iteration's own, and updates of
    one reduction by the blocks `together` do not count."""
    shared = [a for a in accesses(loop.body, p.invoked) if not a.local]
    for a, b in conflicting_pairs(shared, {a.block for a in shared}):
        if a.commutes and b.commutes and a.block == b.block and a.block in together:
            continue
        if loop.var not in agreed_loops(a, b, [loop], facts):
            return a, b
    return None
