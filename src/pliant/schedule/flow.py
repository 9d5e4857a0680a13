"""What flows where: the questions that moving and inlining blocks raise.

A statement may be moved, or its value recomputed elsewhere, if what it reads has the same value
there. That holds when all writers come before it, and no loop repeats a writer between the old and
the new place with other values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import dropwhile

from pliant.ir.expr import Binary, Expr, Index
from pliant.loop.bounds import declare_loops
from pliant.loop.regions import Access, accesses
from pliant.loop.rewrite import conjuncts, path_to
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Combine,
    For,
    If,
    Invoke,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    statements,
    stored,
)
from pliant.schedule.program import Program
from pliant.sym.expr import Int, const
from pliant.sym.facts import ContradictionError, Facts


class Flow:
    """All accesses of a program, with their order."""

    def __init__(self, p: Program) -> None:
        self.p = p
        self.all = accesses(p.function.body, p.invoked)

    @cached_property
    def allocated(self) -> frozenset[Buffer]:
        """Buffers that the function allocates itself."""
        return frozenset(s.buffer for s in self.p.statements() if isinstance(s, Alloc))

    def of_block(self, name: str) -> list[Access]:
        return [a for a in self.all if a.block == name]

    def under(self, loop: str) -> list[Access]:
        return [a for a in self.all if any(x.var == loop for x in a.loops)]

    def writers(self, buffer: Buffer) -> list[Access]:
        return [a for a in self.all if a.write and a.buffer is buffer]

    def readers(self, buffer: Buffer) -> list[Access]:
        return [a for a in self.all if not a.write and a.buffer is buffer]

    def in_scope(self, buffer: Buffer, path: Sequence[Stmt]) -> bool:
        """Whether the buffer can be used at the end of `path`."""
        return buffer not in self.allocated or any(
            isinstance(s, Alloc) and s.buffer is buffer for s in path
        )

    def out_of_scope(self, buffers: Iterable[Buffer], path: Sequence[Stmt]) -> str:
        """Why not all of these buffers can be used at the end of `path`; empty if they can."""
        for buffer in buffers:
            if not self.in_scope(buffer, path):
                return f"{buffer.name}, which it uses, is not allocated there"
        return ""

    def moved_value(
        self,
        block: str,
        reads: Iterable[Buffer],
        start: int,
        new_loops: Sequence[str],
        use: Access | None = None,
    ) -> str:
        """Why the value that `block` computes from `reads` may differ when computed later, inside
        the loops `new_loops`; empty if it cannot. `start` is the block's position. Where all that
        it moves to is one `use`, what comes after that does not matter."""
        old_loops = next(iter(self.of_block(block))).loops
        for buffer in reads:
            for w in self.writers(buffer):
                if w.block == block:
                    continue
                if w.position > start and use is not None and self._never_before(w, use):
                    continue
                if w.position > start:
                    return f"{buffer.name}, which it reads, is written after it"
                both = common_loops(w.loops, old_loops)
                if any(x.var not in new_loops for x in both):
                    return f"{buffer.name}, which it reads, is written again in loop {both[-1].var}"
                if both and not self.is_function_of_place(buffer) and not self._fresh(buffer, both):
                    return f"{buffer.name}, which it reads, may change in loop {both[-1].var}"
        return ""

    def _never_before(self, a: Access, b: Access) -> bool:
        """Whether `a` happens after all of `b` has."""
        repeated = common_loops(a.loops, b.loops) or any(
            isinstance(s, While) for s in self.p.statements()
        )
        return a.position > b.position and not repeated

    def moved_up(
        self,
        block: str,
        reads: Iterable[Buffer],
        outs: Iterable[Buffer],
        to: Access,
        shared: Collection[str],
        path: Sequence[Stmt],
    ) -> str:
        """Why `block` cannot run soon after the access `to`, which comes before it, at the end of
        `path`; empty if it can. It reads `reads` and writes `outs`; the loops `shared` are around
        it now and then."""
        reads, outs = frozenset(reads), frozenset(outs)
        why = self.out_of_scope(reads | outs, path)
        if why:
            return why
        end = self.of_block(block)[0].position
        for a in self.all:
            if a.block == block:
                continue
            again = any(x.var not in shared for x in common_loops(a.loops, to.loops))
            if a.buffer in reads and a.write and (a.position >= to.position or again):
                return f"{a.buffer.name}, which it reads, is written after the loop begins"
            if a.buffer in outs and (to.position <= a.position < end or again):
                return f"{a.buffer.name} is used before it"
        return ""

    def _fresh(self, buffer: Buffer, loops: Sequence[For]) -> bool:
        """Whether the buffer is allocated inside all of `loops`."""
        path = path_to(self.p.function.body, lambda s: isinstance(s, Alloc) and s.buffer is buffer)
        return path is not None and all(x in path for x in loops)

    def is_function_of_place(
        self,
        buffer: Buffer,
        fixed: frozenset[str] = frozenset(),
        seen: frozenset[Buffer] = frozenset(),
    ) -> bool:
        """Whether, while the loops `fixed` stay where they are, each element, once final, is the
        same whenever it is computed again: one block writes it, at its data parallel iterators,
        from buffers of which the same is true. What it adds to, it starts itself."""
        writers = self.writers(buffer)
        if not writers:
            return True
        blocks = {w.block for w in writers}
        if len(blocks) > 1 or "" in blocks or buffer in seen:
            return False
        block = self.p.block(blocks.pop())
        own = {x.buffer for x in stored(block.body)}
        reads = {a.buffer for a in self.of_block(block.name) if not a.write}
        if reads & own and block.init is None:
            return False
        together = own if reads & own else {buffer}
        if any(w.block != block.name for other in together for w in self.writers(other)):
            return False
        fixed |= self.p.sizes
        places = [x for x in stored(block.body) if x.buffer in together]
        if not all(_at_spatial(block, x, fixed) for x in places):
            return False
        return all(self.is_function_of_place(r, fixed, seen | together) for r in reads - own)


def _at_spatial(block: Block, place: BufferRef, fixed: frozenset[str]) -> bool:
    """Whether the place is given by all of the block's data parallel iterators, each in a
    dimension plus what is `fixed`, and none runs in order."""
    indices = [i.int_ for i in place.indices if isinstance(i, Index)]
    if len(indices) < len(place.indices):
        return False
    found = [single_iterator(i, [it.var for it in block.iters]) for i in indices]
    names = {at[0] for at in found if at is not None and at[1].names <= fixed}
    spatial = [i for i in block.iters if i.kind != "R"]
    return all(i.kind == "S" and (i.var in names or i.extent == 1) for i in spatial)


def common_loops(a: Sequence[For], b: Sequence[For]) -> list[For]:
    """Loops around both."""
    names = {x.var for x in b}
    return [x for x in a if x.var in names]


def is_leaf(block: Block) -> bool:
    """Whether the block does nothing but stores and calls: no loops, no blocks inside."""
    return all(isinstance(s, Store | Combine | Seq | Invoke | If) for s in statements(block.body))


def unconditional(path: Sequence[Stmt]) -> bool:
    """Whether nothing but loops, sequences and allocations lies on the path, after what is named
    at its beginning."""
    inner = dropwhile(lambda s: isinstance(s, Let | Alloc), path)
    return not any(isinstance(s, If | While | Let | Block) for s in inner)


def only_domain(block: Block, facts: Facts) -> bool:
    """Whether the block's condition says no more than that its iterators are in their domains."""
    return all(is_domain(c, block, facts) for c in conjuncts(block.where))


def is_domain(cond: Expr, block: Block, facts: Facts) -> bool:
    """Whether the condition follows from the iterators being in their domains."""
    ends = bound_ends(cond)
    if ends is None:
        return False
    low, high = ends
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if facts.equal(high, it.extent) and facts.equal(low, binding + 1):
            return True
        if facts.equal(low, 0) and facts.equal(high, binding):
            return True
    return False


def bound_ends(cond: Expr) -> tuple[Int, Int] | None:
    """(a, b) where the condition is a <= b on integers; None for other conditions."""
    if not isinstance(cond, Binary) or cond.op not in ("lt", "le"):
        return None
    if not isinstance(cond.a, Index) or not isinstance(cond.b, Index):
        return None
    return cond.a.int_ + (1 if cond.op == "lt" else 0), cond.b.int_


def where_all(facts: Facts, conditions: Iterable[Expr]) -> Facts | None:
    """The facts where all of the conditions hold; None where they never do."""
    inside = facts.copy()
    try:
        for cond in conditions:
            ends = bound_ends(cond)
            if ends is not None:
                inside.assume_le(*ends)
    except ContradictionError:
        return None
    return inside


def in_bounds(a: Access, facts: Facts) -> bool:
    """Whether the access is known to be inside its buffer. `facts` hold outside its loops."""
    if a.indices is None:
        return False
    inside = where_all(declare_loops(facts, a.loops), a.where)
    if inside is None:
        return True
    for d, extent in enumerate(a.buffer.shape):
        index = a.index(d)
        if index is None or not (inside.nonneg(index) and inside.lt(index, extent)):
            return False
    return True


def stores_everywhere(block: Block, buffer: Buffer, facts: Facts) -> bool:
    """Whether the block, run through its domain, stores to every element of the buffer. (That loops
    do run through it is for `coverage` to say.)"""
    place = next((x for x in stored(block.body) if x.buffer is buffer), None)
    places = None if place is None else invert_store(block, place)
    if places is None or not only_domain(block, facts) or any(i.kind == "O" for i in block.iters):
        return False
    if not isinstance(block.body, Store | Combine | Seq):
        return False
    extents = {i.var: i.extent for i in block.iters}
    starts = {d: (extents[name], offset) for name, (d, offset) in places.items()}
    for d, extent in enumerate(buffer.shape):
        covered, offset = starts.get(d, (const(1), const(0)))
        if not (facts.equal(covered, extent) and facts.equal(offset, 0)):
            return False
    return True


def single_iterator(index: Int | None, iters: Collection[str]) -> tuple[str, Int] | None:
    """(name, offset) where the index is that iterator + offset; ("", index) without iterators."""
    if index is None:
        return None
    used = index.names & frozenset(iters)
    if not used:
        return "", index
    if len(used) > 1:
        return None
    (name,) = used
    line = index.linear(name)
    return (name, line[1]) if line is not None and line[0] == 1 else None


def invert_store(block: Block, store: Store | BufferRef) -> dict[str, tuple[int, Int]] | None:
    """Iterators by the dimension that they index: name -> (dimension, offset), where the index is
    iterator + offset. None unless every index is such, each iterator in at most one dimension,
    or free of iterators."""
    found: dict[str, tuple[int, Int]] = {}
    names = {i.var for i in block.iters}
    for d, index in enumerate(store.indices):
        if not isinstance(index, Index):
            return None
        used = index.int_.names & names
        if not used:
            continue
        if len(used) > 1:
            return None
        (name,) = used
        line = index.int_.linear(name)
        if line is None or line[0] != 1 or name in found:
            return None
        found[name] = (d, line[1])
    return found
