"""Looking at loop nests: what primitives ask of the place where they work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pliant.loop.reduction import Update, as_update
from pliant.loop.regions import Access, accesses
from pliant.loop.stmt import Block, For, Stmt
from pliant.loop.threads import THREAD_AXES, is_bound
from pliant.schedule.conflicts import carried, describe
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.sym.expr import Int


def perfect_chain(p: Program, primitive: str, names: Sequence[str]) -> tuple[Stmt, ...]:
    """The path to the innermost of these loops; refuses unless, from the outermost of them on, it
    holds nothing but loops, each the only thing in the one around it."""
    if len(set(names)) != len(names):
        raise SchedulingError(primitive, f"loops {', '.join(names)}", "a loop is named twice")
    paths = [p.loop_path(primitive, n) for n in names]
    longest = max(paths, key=len)
    shortest = min(paths, key=len)
    for name, path in zip(names, paths, strict=True):
        if path != longest[: len(path)]:
            raise SchedulingError(
                primitive, f"loop {name}", f"it is not in one nest with {names[0]}"
            )
    for s in longest[len(shortest) - 1 :]:
        if not isinstance(s, For):
            outer = _innermost_loop(longest[: longest.index(s)])
            raise SchedulingError(
                primitive, f"loop {outer}", "the next loop is not the only thing in it"
            )
    return longest


def _innermost_loop(path: Sequence[Stmt]) -> str:
    return next(s.var for s in reversed(path) if isinstance(s, For))


def blocks_in(root: Stmt) -> list[Block]:
    """Blocks below, outermost only: not those inside other blocks."""
    found: list[Block] = []
    stack = [root]
    while stack:
        s = stack.pop()
        if isinstance(s, Block):
            found.append(s)
            continue
        stack += s.nested()[::-1]
    return found


def iterators_over(block: Block, loop: str) -> list[str]:
    """Kinds of the block's iterators whose binding uses the loop."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return [i.kind for i, b in pairs if loop in b.names]


def reducing(loop: For) -> list[str]:
    """Blocks that reduce over the loop."""
    return [b.name for b in blocks_in(loop) if "R" in iterators_over(b, loop.var)]


def require_serial(primitive: str, loop: For) -> None:
    if loop.kind != "serial":
        word = f"bound to {loop.kind}" if is_bound(loop) else loop.kind
        raise SchedulingError(primitive, f"loop {loop.var}", f"it is {word} already")


def inner_accesses(p: Program, path: Sequence[Stmt]) -> tuple[Access, ...]:
    """Accesses in the body of the loop at the end of `path`; their loops are those inside it."""
    loop = path[-1]
    assert isinstance(loop, For)
    return accesses(loop.body, p.invoked)


def check_marked_loops(p: Program, primitive: str, block: str, loop: str) -> None:
    """Loops from `loop` outwards that are parallel, vectorized or bound to a thread axis still have
    independent iterations, now that something was moved into them."""
    path = p.loop_path(primitive, loop)
    for k, s in enumerate(path):
        if isinstance(s, For) and s.kind not in ("serial", "unrolled"):
            pair = carried(
                p, s, p.around(path[: k + 1]), reducing(s) if s.kind in THREAD_AXES else ()
            )
            if pair is not None:
                reason = f"iterations of the {s.kind} loop {s.var} would meet: {describe(*pair)}"
                raise SchedulingError(primitive, f"block {block}", reason)


def own_loops(
    p: Program, path: tuple[Stmt, ...], refuse: Callable[[str], SchedulingError]
) -> tuple[int, dict[str, str]]:
    """Where in the path to a block its loops begin, and the iterator that each is: there are no
    others between, each runs through all of its iterator in serial, and there is no condition."""
    target = path[-1]
    assert isinstance(target, Block)
    if target.where is not None:
        raise refuse("it runs under a condition")
    wanted = {str(b): i for b, i in zip(target.bindings, target.iters, strict=True)}
    at = len(path) - 1
    while at > 0 and isinstance(loop := path[at - 1], For) and loop.var in wanted:
        it = wanted[loop.var]
        if loop.kind != "serial":
            raise refuse(f"loop {loop.var} is {loop.kind}")
        if loop.extent is not it.extent:
            raise refuse(f"loop {loop.var} does not run through all of iterator {it.var}")
        at -= 1
    found = {s.var: wanted[s.var].var for s in path[at:-1] if isinstance(s, For)}
    if len(found) < len(target.iters):
        raise refuse("its loops are not just its iterators")
    return at, found


def own_sum(
    p: Program, path: tuple[Stmt, ...], refuse: Callable[[str], SchedulingError], of: str = ""
) -> tuple[Update, int]:
    """The sum that a block is, perhaps `of` something, and where in the path to it its loops begin:
    it starts itself with 0, and its loops are its own (`own_loops`)."""
    target = path[-1]
    assert isinstance(target, Block)
    update = as_update(target)
    if update is None or update.combiner != "sum":
        raise refuse("it is no sum" + of)
    if target.init is None:
        raise refuse("its sum is started elsewhere; do this before decompose_reduction")
    if target.init is not update.start(update.places):
        raise refuse("its sum does not start with 0")
    return update, own_loops(p, path, refuse)[0]


def step_along(offset: Int | None, name: str) -> int | None:
    """How far an iteration goes in memory; None where that is not one number."""
    line = None if offset is None else offset.linear(name)
    return line[0].value if line is not None and line[0].is_const else None
