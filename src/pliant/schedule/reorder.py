"""Put loops of a nest in another order.

Before:

    @loop
    def scale(x: f32["n", "m"], y: f32["n", "m"], n: i64, m: i64):
        for i, j in grid(n, m):
            with block("y", S(i, n), S(j, m)) as (a, b):
                y[a, b] = x[a, b] * 2.0

Steps:

    p = p.reorder('j', 'i')

After:

    for j, i in grid(m, n):
        with block("y", S(i, n), S(j, m)) as (a, b):
            y[a, b] = x[a, b] * 2.0
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import accesses
from pliant.loop.rewrite import replace_at
from pliant.loop.stmt import For, Stmt
from pliant.schedule.conflicts import conflicting_pairs, describe, reduced_in_order
from pliant.schedule.errors import SchedulingError
from pliant.schedule.nest import perfect_chain
from pliant.schedule.program import Program, primitive


@primitive
def reorder(p: Program, *loops: str) -> Program:
    """The `loops`, of one perfect nest, take the places that they hold now in the order given."""
    path = check_reorder(p, loops)
    chain = _chain(path, loops)
    body = chain[-1].body
    for loop in reversed(_permuted(chain, loops)):
        body = loop.replace(body=body)
    return p.with_body(replace_at(path[: len(path) - len(chain) + 1], body))


def check_reorder(p: Program, loops: tuple[str, ...]) -> tuple[Stmt, ...]:
    """No extent comes to depend on a loop inside it, and no two accesses to an element, one of
    them a store, change order. Updates of one reduction may, if none starts in between. Gives the
    loops' path."""
    place = f"loops {', '.join(loops)}"
    if not loops:
        raise SchedulingError("reorder", place, "no loops were given")
    path = perfect_chain(p, "reorder", loops)
    chain = _chain(path, loops)
    new = _permuted(chain, loops)
    for k, loop in enumerate(new):
        late = loop.extent.names & {x.var for x in new[k:]}
        if late:
            reason = f"the extent of {loop.var} depends on {', '.join(sorted(late))}"
            raise SchedulingError("reorder", place, reason)
    if new == chain:
        return path
    facts = p.around(path[: len(path) - len(chain) + 1])
    old_names, new_names = [x.var for x in chain], [x.var for x in new]
    found = accesses(chain[-1].body, p.invoked)
    for a in found:
        if a.write and a.before:
            # Loops in which the sum of an element is started again, now around it or inside.
            again = set(old_names) - a.before - agreed_loops(a, a, chain, facts)
            mixed = again | a.before if again else again
            if [n for n in old_names if n in mixed] != [n for n in new_names if n in mixed]:
                reason = f"block {a.block} may start an element again in loop {min(again)}"
                raise SchedulingError("reorder", place, reason)
    for a, b in conflicting_pairs(found, reduced_in_order(p)):
        agreed = agreed_loops(a, b, chain, facts)
        if [n for n in old_names if n not in agreed] != [n for n in new_names if n not in agreed]:
            raise SchedulingError("reorder", place, describe(a, b) + " in another order")
    return path


def _chain(path: Sequence[Stmt], loops: tuple[str, ...]) -> list[For]:
    at = [k for k, s in enumerate(path) if isinstance(s, For) and s.var in loops]
    return [s for s in path[min(at) :] if isinstance(s, For)]


def _permuted(chain: list[For], loops: tuple[str, ...]) -> list[For]:
    by_name = {x.var: x for x in chain}
    queue = iter(loops)
    return [by_name[next(queue)] if x.var in loops else x for x in chain]
