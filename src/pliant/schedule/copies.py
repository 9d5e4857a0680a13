"""Copies of what a block uses: the nests that fill them and bring them back, and where these go.

for a in grid(n):                     fill_nest, in front of all that reads the copy
    x_copy[a] = x[a]
…
for a in grid(n):                     store_nest, behind all that writes it
    x[a] = x_copy[a]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pliant.ir.expr import Expr, Index, Load, Select, const
from pliant.loop.regions import accesses
from pliant.loop.rewrite import Names, conjoin, subst
from pliant.loop.stmt import Alloc, Block, Buffer, For, Iter, Let, Seq, Stmt, Store, buffer, for_
from pliant.schedule.compute_inline import Refuse
from pliant.schedule.coverage import runs_through
from pliant.schedule.flow import Flow
from pliant.schedule.layout import Packing
from pliant.schedule.nest import check_marked_loops
from pliant.schedule.program import Program
from pliant.schedule.set_scope import InnerScope, require_scope
from pliant.sym.expr import Int, IntLike, var


@dataclass(frozen=True)
class Copy:
    """A buffer, and the block that fills it or brings it back, in its loops."""

    buffer: Buffer
    block: str
    nest: Stmt


def fill_nest(
    names: Names,
    label: str,
    packed: Packing,
    value: Expr,
    scope: InnerScope,
    *,
    pad: int | float | None = None,
) -> Copy:
    """A copy called `label`, laid out as `packed` says, of `value`, an expression over what is
    packed: `_0`, `_1`, …. Gaps hold `pad`, or nothing."""
    copy = buffer(names.buffer(label), packed.shape, value.dtype, scope=scope)
    name = names.block(copy.name)
    loops = [names.variable(f"{name}_{d}") for d in range(copy.rank)]
    iters = [names.variable(f"{name}_v{d}") for d in range(copy.rank)]
    element, exists = packed.back([var(i) for i in iters])
    at: dict[str, IntLike] = {f"_{d}": x for d, x in enumerate(element)}
    value = subst(value, at)
    inside = conjoin(exists)
    if inside is not None and pad is not None:
        value, exists = Select(inside, value, const(pad, value.dtype)), []
    made = Block(
        name,
        tuple(Iter(i, d, "S") for i, d in zip(iters, copy.shape, strict=True)),
        tuple(map(var, loops)),
        Store(copy, tuple(Index(var(i)) for i in iters), value),
        where=conjoin(exists),
    )
    return Copy(copy, name, for_(list(zip(loops, copy.shape, strict=True)), made))


def store_nest(
    names: Names, label: str, packed: Packing, copy: Buffer, target: Buffer, at: Sequence[Expr]
) -> Copy:
    """Brings `copy` back to `target`, to the place `at`, which is over what was packed."""
    name = names.block(label)
    extents = packed.source_shape
    loops = [names.variable(f"{name}_{d}") for d in range(len(extents))]
    iters = [names.variable(f"{name}_v{d}") for d in range(len(extents))]
    own: dict[str, IntLike] = {f"_{d}": var(i) for d, i in enumerate(iters)}
    here = tuple(Index(var(i)) for i in iters)
    made = Block(
        name,
        tuple(Iter(i, d, "S") for i, d in zip(iters, extents, strict=True)),
        tuple(map(var, loops)),
        Store(target, tuple(subst(x, own) for x in at), Load(copy, packed.place(here))),
    )
    return Copy(copy, name, for_(list(zip(loops, extents, strict=True)), made))


def whole(memory: Buffer) -> tuple[Index, ...]:
    """Every place of a buffer: `_0`, `_1`, …."""
    return tuple(Index(var(f"_{d}")) for d in range(memory.rank))


def with_alloc(root: Stmt, made: Buffer) -> Stmt:
    """The program with one more allocation, after those and the sizes at its beginning."""
    require_scope("alloc", made)
    if isinstance(root, Alloc | Let):
        return root.replace(body=with_alloc(root.body, made))
    return Alloc(made, root)


def varies(extents: Iterable[Int], p: Program) -> bool:
    """Whether memory of these extents cannot be allocated at the beginning of the program."""
    return not all(x.names <= p.sizes for x in extents)


# ---- places


def place_in_front(p: Program, path: tuple[Stmt, ...], sources: Iterable[Buffer]) -> int | None:
    """Where in `path` a copy of what is in the buffers can be made: in front of the outermost
    statement in which nothing writes them. None if they are written all the way down, or so far
    that a reduction would have started with them before."""
    flow, sources = Flow(p), tuple(sources)
    starting = [a.before for a in accesses(path[-1], p.invoked) if a.buffer in sources]
    before = frozenset[str]().union(*starting)
    for k, s in enumerate(path):
        if any(isinstance(x, For) and x.var in before for x in path[:k]):
            return None
        if isinstance(s, Alloc | Seq | Let):
            continue
        if not all(flow.in_scope(b, path[: k + 1]) for b in sources):
            continue
        if not any(a.write and a.buffer in sources for a in accesses(s, p.invoked)):
            return k
    return None


def place_behind(
    p: Program, path: tuple[Stmt, ...], memory: Buffer, writing: Iterable[str], refuse: Refuse
) -> int:
    """Where in `path` the place is behind which what the blocks `writing` have written can be
    brought to the buffer: the outermost statement in which they alone use it. That runs the
    path's block through its whole domain, and no loop repeats it."""
    flow, blocks = Flow(p), set(writing)
    for k, s in enumerate(path):
        if isinstance(s, Alloc | Seq | Let):
            continue
        inside = [a for a in accesses(s, p.invoked) if a.buffer is memory]
        if any(a.block not in blocks for a in inside):
            continue
        for loop in path[:k]:
            if isinstance(loop, For):
                raise refuse(f"{memory.name} is used in loop {loop.var} as well")
        why = flow.out_of_scope([memory], path[: k + 1])
        if why:
            raise refuse(why)
        if not runs_through(p, path, k):
            raise refuse("it is not known to run for all values of its iterators")
        return k
    raise refuse(f"{memory.name} is used where it is written")


def check_shared(p: Program, primitive: str, block: str, path: tuple[Stmt, ...], at: int) -> None:
    """Now that a copy is filled inside the loops of `path[:at]`, those that are parallel or
    vectorized still have independent iterations."""
    loops = [s.var for s in path[:at] if isinstance(s, For)]
    if loops:
        check_marked_loops(p, primitive, block, loops[-1])
