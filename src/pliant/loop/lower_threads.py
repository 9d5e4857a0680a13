"""Launches to device form: one loop for each axis of threads, and barriers between them.

    for b in blockIdx.x(m):                     for b in blockIdx.x(m):
        s = alloc(f32[32], scope="shared")          s = alloc(f32[32], scope="shared")
        for t in threadIdx.x(32):                   for tx in threadIdx.x(32):
            s[t] = x[32*b + t]              ->          s[tx] = x[32*b + tx]
        s[0] = 0.0                                      if tx < 1:
        for u in threadIdx.x(32):                           s[0] = 0.0
            y[32*b + u] = s[31 - u]                     barrier()
                                                        y[32*b + tx] = s[31 - tx]

What is not in a loop of an axis is done by the first thread along it, if others see the result, and
by each for itself if it goes to memory of its own. That memory (`local`, `register`, `scratch`),
where it lies around loops of threads, must hand nothing from one thread to another; each keeps the
part that it uses. Reductions over threads become trees (`cross_threads`); then come the barriers
(`fences`). `vthread` loops become serial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pliant.base.errors import InvalidModelError
from pliant.ir.node import transform
from pliant.loop.bounds import declare_loops
from pliant.loop.boxes import touched_box
from pliant.loop.cross_threads import CrossThread, cross_thread, tree
from pliant.loop.fences import Fences, first_only
from pliant.loop.launch import Checks, Launch, Limits, Use
from pliant.loop.lower_init import lower_init, reduction_loops
from pliant.loop.regions import accesses
from pliant.loop.rewrite import Names, conjoin, conjuncts, replace_buffer, subst
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    Check,
    For,
    Function,
    If,
    Let,
    Nop,
    Seq,
    Stmt,
    While,
    compact_strides,
    seq,
    statements,
)
from pliant.loop.threads import (
    BLOCK_AXES,
    DEVICE_NOTE,
    THREAD_AXES,
    VIRTUAL,
    WARP_SCOPES,
    is_bound,
    is_device,
    private_axes,
)
from pliant.loop.verify import verify_function
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts

_OUTER_FIRST: Final = tuple(reversed(THREAD_AXES))


def lower_threads(
    f: Function, facts: Facts | None = None, *, limits: Limits | None = None
) -> Function:
    """The device form of a function with bound loops; `facts` are about its sizes.

    Raises InvalidModelError where threads would need each other's own memory, where no barrier can
    order them, where blocks meet, where shared memory is read that nobody fills, and where a block
    has more than `limits` allow.
    """
    if is_device(f):
        raise InvalidModelError(f"{f.name} is in device form already")
    if not any(is_bound(s) for s in statements(f.body)):
        raise InvalidModelError(f"{f.name}: no loop is bound to a thread axis")
    f = lower_init(f)
    verify_function(f)
    known = Facts() if facts is None else facts.copy()
    if facts is None:
        for size in f.sizes:
            known.declare(size)
    lowering = _Function(f.name, Names(f), known, limits or Limits())
    body = lowering.outside(f.body, ())
    device = f.replace(body=body, notes=(DEVICE_NOTE, *f.notes))
    verify_function(device)
    return device


Loops = tuple[For, ...]  # serial ones of the launch around a statement


@dataclass
class _Function:
    name: str
    names: Names
    facts: Facts
    limits: Limits

    def refuse(self, why: str) -> InvalidModelError:
        return InvalidModelError(f"{self.name}: {why}")

    def outside(self, s: Stmt, loops: tuple[For, ...]) -> Stmt:
        """A statement that is in no launch."""
        if is_bound(s):
            assert isinstance(s, For)
            return self.launch(s, loops)
        inner = (*loops, s) if isinstance(s, For) else loops

        def visit(child: Any) -> Any:
            return self.outside(child, inner) if isinstance(child, Stmt) else child

        return s.map_children(visit)

    # ---- a launch

    def launch(self, root: For, loops: tuple[For, ...]) -> Stmt:
        """A kernel of the device."""
        blocks, body = _frame(root)
        extents = {s.kind: s.extent for s in statements(root) if isinstance(s, For)}
        nest: dict[str, For] = {
            axis: For(self.names.variable(f"t{axis[-1]}"), extents[axis], Nop(), axis)
            for axis in _OUTER_FIRST
            if axis in extents
        }
        if "threadIdx.x" not in nest:
            nest["threadIdx.x"] = For(self.names.variable("tx"), as_int(1), Nop(), "threadIdx.x")
        if not blocks:
            blocks = (For(self.names.variable("bx"), as_int(1), Nop(), "blockIdx.x"),)
        found = Launch(nest, blocks)
        done = self.statement(body, found, frozenset(), ())
        facts = declare_loops(self.facts, (*loops, *blocks, *nest.values()))
        for s in statements(done):
            if isinstance(s, For):
                facts.declare_index(s.var, s.extent)
        Checks(self.name, found, facts, self.limits).run()
        inner = _compact(done, facts)
        inner, _ = Fences(self.name, tuple(nest.values()), facts).fence(inner)
        return _assemble(found, inner)

    def statement(self, s: Stmt, found: Launch, bound: frozenset[str], loops: Loops) -> Stmt:
        """What a thread does of `s`, which is in loops of the axes `bound`."""
        match s:
            case Nop():
                return s
            case Seq(stmts):
                return seq(*(self.statement(x, found, bound, loops) for x in stmts))
            case For():
                return self._for(s, found, bound, loops)
            case Alloc():
                return self._alloc(s, found, bound, loops)
            case Let():
                self._note(Let(s.var, s.value, Nop()), found, bound, loops)
                return s.replace(body=self.statement(s.body, found, bound, loops))
            case If():
                self._note(If(s.cond, Nop()), found, bound, loops)
                then = self.statement(s.then, found, bound, loops)
                other = s.otherwise and self.statement(s.otherwise, found, bound, loops)
                return s.replace(then=then, otherwise=other)
            case While():
                self._note(While(s.cond, Nop()), found, bound, loops)
                return s.replace(body=self.statement(s.body, found, bound, loops))
            case Check():
                raise self.refuse("a check is inside a launch: do it before")
        return self._leaf(s, found, bound, loops)

    def _for(self, s: For, found: Launch, bound: frozenset[str], loops: Loops) -> Stmt:
        together = cross_thread(s)
        if together is not None:
            return self._together(together, found, bound, loops)
        if s.kind in THREAD_AXES:
            body = subst(s.body, {s.var: var(found.nest[s.kind].var)})
            return self.statement(body, found, bound | {s.kind}, loops)
        if s.kind == VIRTUAL:
            s = s.replace(kind="serial")
        return s.replace(body=self.statement(s.body, found, bound, (*loops, s)))

    def _together(self, r: CrossThread, found: Launch, bound: frozenset[str], loops: Loops) -> Stmt:
        """A reduction over threads."""
        for to in (place.buffer for place in r.update.places):
            if any(x.kind in private_axes(to.scope) for x in r.threads):
                raise self.refuse(
                    f"threads reduce together in block {r.block.name} into {to.name}, "
                    f"which is in {to.scope} memory that each has for itself"
                )
        at = {axis: loop.var for axis, loop in found.nest.items()}
        around = [(x.var, x.extent) for a, x in found.nest.items() if a in bound]
        parts = tree(r, at, around, self.names)
        found.shared += parts.shared
        inside = bound | {x.kind for x in r.threads}
        found.homes |= dict.fromkeys(parts.shared, frozenset[str]())
        found.homes |= dict.fromkeys(parts.parts, inside)
        work = [self._own(parts.own, found, inside, loops)]
        work += [self.statement(x, found, inside, loops) for x in parts.steps]
        work.append(self.statement(parts.last, found, bound, loops))
        return parts.with_parts(seq(*work))

    def _own(self, s: Stmt, found: Launch, bound: frozenset[str], loops: Loops) -> Stmt:
        """What each thread does for itself in a reduction: nothing to be changed."""
        for each in s.stmts if isinstance(s, Seq) else (s,):
            self._note(each, found, bound, loops)
        return s

    def _alloc(self, s: Alloc, found: Launch, bound: frozenset[str], loops: Loops) -> Stmt:
        b, own = s.buffer, private_axes(s.buffer.scope)
        if not own:
            raise self.refuse(f"{b.name}, in {b.scope} memory, is allocated inside a launch")
        seen = sorted(a for a in bound if a not in own)
        if seen:
            raise self.refuse(
                f"{b.name} is in {b.scope} memory, which threads of {seen[0]} share, and is "
                f"allocated inside a loop of theirs"
            )
        found.homes[b] = bound
        body = self.statement(s.body, found, bound, loops)
        if "threadIdx.x" in own:
            return s.replace(body=body)
        inner = {x.var for x in (*loops, *found.nest.values())}
        varying = sorted(n for d in b.shape for n in d.names & inner)
        if varying:
            raise self.refuse(f"the shape of {b.name}, in {b.scope} memory, varies: {varying[0]}")
        (found.rows if b.scope in WARP_SCOPES else found.shared).append(b)
        return body

    def _leaf(self, s: Stmt, found: Launch, bound: frozenset[str], loops: Loops) -> Stmt:
        """A statement that does something: by all threads, or by the first ones only."""
        names = {x.var for x in found.nest.values()}
        if isinstance(s, Block) and not names.isdisjoint(reduction_loops(s)):
            raise self.refuse(
                f"block {s.name} reduces over threads in a way that they cannot do together: "
                "all loops from its outermost reduction loop inwards must be reduced over, and "
                "nothing else be in them"
            )
        missing = [a for a in found.nest if a not in bound]
        stored = {a.buffer for a in accesses(s) if a.write}
        first = [a for a in missing if any(a not in private_axes(b.scope) for b in stored)]
        if any(a in private_axes(b.scope) for a in first for b in stored):
            raise self.refuse(
                f"a statement outside of a loop of {first[0]} writes memory of each thread and "
                f"memory that threads share: {', '.join(sorted(b.name for b in stored))}"
            )
        conditions = [first_only(found.nest[a]) for a in first if found.nest[a].extent != 1]
        if conditions:
            s = _guarded(s, conditions)
        self._note(s, found, bound, loops)
        return s

    def _note(self, s: Stmt, found: Launch, bound: frozenset[str], loops: Loops) -> None:
        for a in accesses(s):
            whole = replace(a, loops=(*loops, *a.loops), position=len(found.uses))
            found.uses.append(Use(whole, bound))


def _compact(body: Stmt, facts: Facts) -> Stmt:
    """Each thread's own memory holds the part that it uses."""

    def visit(node: Any) -> Any:
        if isinstance(node, Alloc) and "threadIdx.x" in private_axes(node.buffer.scope):
            return _part(node, facts)
        return node

    return transform(body, visit)  # type: ignore[no-any-return]


def _frame(root: For) -> tuple[tuple[For, ...], Stmt]:
    """The loops of blocks around a launch, and what is in them, with the memory between them."""
    blocks: list[For] = []
    between: list[Buffer] = []
    s: Stmt = root
    while True:
        if isinstance(s, For) and s.kind in BLOCK_AXES:
            blocks.append(s)
        elif isinstance(s, Alloc) and _has_blocks(s.body):
            between.append(s.buffer)
        else:
            break
        s = s.body
    for b in reversed(between):
        s = Alloc(b, s)
    return tuple(blocks), s


def _has_blocks(s: Stmt) -> bool:
    return any(isinstance(x, For) and x.kind in BLOCK_AXES for x in statements(s))


def _assemble(found: Launch, body: Stmt) -> Stmt:
    """The loops and the shared memory around what a thread does."""
    nest = list(found.nest.values())
    body = nest.pop().replace(body=body)
    for b in reversed(found.rows):
        body = Alloc(b, body)
    for loop in reversed(nest):
        body = loop.replace(body=body)
    for b in reversed(found.shared):
        body = Alloc(b, body)
    for loop in reversed(found.blocks):
        body = loop.replace(body=body)
    return body


def _guarded(s: Stmt, conditions: Sequence[Any]) -> Stmt:
    if isinstance(s, Block):
        return s.replace(where=conjoin([*conjuncts(s.where), *conditions]))
    cond = conjoin(list(conditions))
    assert cond is not None
    return If(cond, s)


def _part(s: Alloc, facts: Facts) -> Stmt:
    """The allocation of what is used of the buffer, if that is less."""
    old = s.buffer
    uses = [a for a in accesses(s.body) if a.buffer is old]
    if not uses or any(a.indices is None for a in uses):
        return s
    inner = {x.var for a in uses for x in a.loops}
    names = frozenset[str]()
    for a in uses:
        for d in range(old.rank):
            index = a.index(d)
            names |= index.names if index is not None else frozenset()
    box = touched_box(uses, names - inner, facts)
    shape: tuple[Int, ...] = tuple(facts.simplify(high - low + 1) for low, high in box)
    if shape == old.shape or not all(d.is_const for d in shape):
        return s
    new = old.replace(shape=shape, strides=compact_strides(shape))
    lows = [low for low, _ in box]

    def place(at: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(i - low for i, low in zip(at, lows, strict=True))

    return replace_buffer(s, old, new, place)
