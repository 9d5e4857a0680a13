"""Software pipelining: parts of one iteration run while parts of others do.

    for k in grid(n):  notes={"pipeline": ((0, 1), (0, 1))}     s has two versions
        s = alloc(f32[8])
        s[…] = x[k, …]                          if 0 < n: s[0, …] = x[0, …]
        y[…] = y[…] + s[…]          ->          for k in grid(max(n - 1, 0)):
                                                    s[(k + 1)%2, …] = x[k + 1, …]
                                                    y[…] = y[…] + s[k%2, …]
                                                if 1 <= n: y[…] = y[…] + s[(n - 1)%2, …]

The note is (stages, orders), a number each for every part, that is for every statement of the body.
At time t the parts run for iteration t - stage, those of one time in the order of `orders`. The
first times, in which some parts have no iteration yet, are the prologue, the last ones the
epilogue. As a loop program a loop with the note means what it means without; `lower_pipelines`
takes the note at its word. (The scheme is modulo scheduling, Rau 1994, with the schedule given.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr, Index
from pliant.loop.bounds import declare_loops
from pliant.loop.dependence import agreed_loops
from pliant.loop.lower_init import reduction_loops
from pliant.loop.outline import outline
from pliant.loop.regions import Access, Invoked, accesses
from pliant.loop.rewrite import Names, copy_of, less, replace_buffer, subst
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Seq,
    Stmt,
    compact_strides,
    seq,
    statements,
)
from pliant.sym.expr import Int, as_int, maximum, var
from pliant.sym.facts import Facts

PIPELINE: Final = "pipeline"


@dataclass(frozen=True)
class Pipeline:
    """A loop's parts, when they run, and memory that each iteration has for itself."""

    loop: For
    parts: tuple[Stmt, ...]
    buffers: tuple[Buffer, ...]
    stages: tuple[int, ...]
    orders: tuple[int, ...]

    @property
    def depth(self) -> int:
        """How many iterations later the last part runs."""
        return max(self.stages)

    def versions(self, uses: Sequence[Sequence[Access]]) -> dict[Buffer, int]:
        """How many iterations' contents of each buffer are in use at once."""
        found: dict[Buffer, int] = {}
        for b in self.buffers:
            mine = [k for k, part in enumerate(uses) if any(a.buffer is b for a in part)]
            most = 1
            for p in mine:
                for q in mine:  # p of iteration i + versions must not come before q of i
                    late = self.orders[q] >= self.orders[p]
                    most = max(most, self.stages[q] - self.stages[p] + late)
            found[b] = most
        return found


def pipeline_of(loop: For, stages: Sequence[int], orders: Sequence[int]) -> Pipeline:
    """The parts of a loop: the statements of its body, whatever is allocated around them."""
    parts: list[Stmt] = []
    buffers: list[Buffer] = []
    stack = [loop.body]
    while stack:
        s = stack.pop()
        match s:
            case Seq(stmts):
                stack += reversed(stmts)
            case Alloc(buffer, body):
                buffers.append(buffer)
                stack.append(body)
            case _:
                parts.append(s)
    return Pipeline(loop, tuple(parts), tuple(buffers), tuple(stages), tuple(orders))


def noted_pipeline(loop: For) -> Pipeline:
    """That of a loop with the note, without it."""
    stages, orders = dict(loop.notes)[PIPELINE]
    notes = tuple(x for x in loop.notes if x[0] != PIPELINE)
    return pipeline_of(loop.replace(notes=notes), stages, orders)


def _is_noted(s: Stmt) -> bool:
    return isinstance(s, For) and PIPELINE in dict(s.notes)


def broken_pipeline(
    f: Function, facts: Facts, invoked: Invoked = lambda _: None
) -> tuple[For, str] | None:
    """The first noted loop that cannot run as its note says, and why; None if there is none."""

    def find(s: Stmt, facts: Facts) -> tuple[For, str] | None:
        if not any(map(_is_noted, statements(s))):
            return None
        inner = facts
        if isinstance(s, For):
            fault = pipeline_fault(noted_pipeline(s), facts, invoked) if _is_noted(s) else ""
            if fault:
                return s, fault
            inner = declare_loops(facts, [s])
        found = (find(x, inner) for x in s.nested())
        return next((x for x in found if x is not None), None)

    return find(f.body, facts) if any(map(_is_noted, outline(f.body).statements)) else None


def pipeline_fault(p: Pipeline, facts: Facts, invoked: Invoked = lambda _: None) -> str:
    """Why the parts cannot run at these times; empty if they can. `facts` hold around the loop."""
    if p.loop.kind not in ("serial", "unrolled"):
        return f"it is {p.loop.kind}, so that its iterations have no order"
    count = len(p.parts)
    if len(p.stages) != count or len(p.orders) != count:
        return f"it has {count} parts, and there are {len(p.stages)} stages, {len(p.orders)} orders"
    if min(p.stages) != 0:
        return f"the first stage is {min(p.stages)}, not 0"
    if sorted(p.orders) != list(range(count)):
        return f"the orders {p.orders} are not the numbers from 0 to {count - 1}, each once"
    for part in p.parts:
        for s in statements(part):
            if isinstance(s, Block) and s.init is not None and p.loop.var in reduction_loops(s):
                return f"block {s.name} has its init inside; decompose_reduction first"
    for b in p.buffers:
        if any(p.loop.var in d.names for d in (*b.shape, *b.strides)):
            return f"the shape of {b.name} depends on it"
    uses = [accesses(part, invoked) for part in p.parts]
    for a in (a for part in uses for a in part):
        if a.buffer in p.buffers and a.indices is None:
            return f"a call takes the address of {a.buffer.name}, which would have versions"
    return _order_fault(p, uses, facts)


def _order_fault(p: Pipeline, uses: Sequence[Sequence[Access]], facts: Facts) -> str:
    """Why two uses of an element would come in another order."""
    for k, first in enumerate(uses):
        for j, then in enumerate(uses[k:], k):
            for a in first:
                for b in then:
                    if a.buffer is not b.buffer or not (a.write or b.write) or a.local or b.local:
                        continue
                    if k != j and (p.stages[k], p.orders[k]) > (p.stages[j], p.orders[j]):
                        return f"{_part(p, k, a)} would come after {_part(p, j, b)} in an iteration"
                    if a.buffer in p.buffers or p.loop.var in agreed_loops(a, b, [p.loop], facts):
                        continue
                    if not _before(p, j, k):
                        return (
                            f"{_part(p, j, b)} would come after {_part(p, k, a)} in the iteration "
                            "after"
                        )
    return ""


def _before(p: Pipeline, k: int, j: int) -> bool:
    """Whether part k of an iteration comes before part j of the next one."""
    return (p.stages[k], p.orders[k]) <= (p.stages[j] + 1, p.orders[j])


def _part(p: Pipeline, k: int, a: Access) -> str:
    verb = "writes" if a.write else "reads"
    block = f"block {a.block}" if a.block else f"part {k}"
    return f"{block}, which {verb} {a.buffer.name},"


def lower_pipelines(
    f: Function, facts: Facts | None = None, invoked: Invoked = lambda _: None
) -> Function:
    """The function with every loop that has the note as prologue, steady state and epilogue.
    `invoked` says what a call does.

    Raises InvalidModelError where the loop changed since it was noted so that it cannot be.
    """
    known = Facts() if facts is None else facts
    if facts is None:
        for size in f.sizes:
            known.declare(size)
    return f.replace(body=_Lowering(f.name, Names(f), invoked).statement(f.body, known))


def written_out(loop: For, names: Names, facts: Facts, invoked: Invoked) -> Stmt:
    """One noted loop, whose note holds, as prologue, steady state and epilogue. `facts` hold
    around it."""
    return _Lowering("", names, invoked).pipelined(noted_pipeline(loop), facts)


@dataclass(frozen=True)
class _Lowering:
    name: str
    names: Names
    invoked: Invoked

    def statement(self, s: Stmt, facts: Facts) -> Stmt:
        if not any(map(_is_noted, statements(s))):
            return s
        inner = declare_loops(facts, [s]) if isinstance(s, For) else facts

        def visit(child: Any) -> Any:
            return self.statement(child, inner) if isinstance(child, Stmt) else child

        if not isinstance(s, For) or not _is_noted(s):
            return s.map_children(visit)
        p = noted_pipeline(s)
        fault = pipeline_fault(p, facts, self.invoked)
        if fault:
            raise InvalidModelError(f"{self.name}: loop {s.var} cannot be pipelined: {fault}")
        # Parts as they were noted: one that is pipelined itself becomes several statements.
        return self.pipelined(replace(p, parts=tuple(map(visit, p.parts))), facts)

    def pipelined(self, p: Pipeline, facts: Facts) -> Stmt:
        versions = p.versions([accesses(part) for part in p.parts])
        parts: list[Stmt] = list(p.parts)
        allocated: list[Buffer] = []
        for b in p.buffers:
            new = _versioned(b, versions[b])
            allocated.append(new)
            if versions[b] > 1:
                turn = Index(var(p.loop.var) % versions[b])
                parts = [replace_buffer(x, b, new, _with_version(turn)) for x in parts]
        n, depth = p.loop.extent, p.depth
        order = sorted(range(len(parts)), key=lambda k: p.orders[k])
        done: list[Stmt] = []
        for time in range(depth):
            for k in (k for k in order if p.stages[k] <= time):
                at = as_int(time - p.stages[k])
                if not facts.le(n, at):
                    made = self._copy(parts[k], p.loop.var, at)
                    done.append(made if facts.lt(at, n) else If(less(at, n), made))
        steady = [
            subst(parts[k], {p.loop.var: var(p.loop.var) + (depth - p.stages[k])}) for k in order
        ]
        trips = n - depth if facts.le(depth, n) else maximum(n - depth, 0)
        done.append(p.loop.replace(extent=facts.simplify(trips), body=seq(*steady)))
        for late in range(depth):
            for k in (k for k in order if p.stages[k] > late):
                if not facts.lt(n + late, depth):
                    made = self._copy(parts[k], p.loop.var, n + late - p.stages[k])
                    sure = facts.le(depth, n + late)
                    done.append(made if sure else If(less(depth - 1, n + late), made))
        body = seq(*done)
        for b in reversed(allocated):
            body = Alloc(b, body)
        return body

    def _copy(self, part: Stmt, loop: str, at: Int) -> Stmt:
        made, _ = copy_of(subst(part, {loop: at}), self.names, "_p")
        return made


def _versioned(b: Buffer, count: int) -> Buffer:
    """The buffer as many times, one version after another."""
    if count == 1:
        return b
    shape = (as_int(count), *b.shape)
    if b.strides == compact_strides(b.shape):
        return b.replace(shape=shape, strides=compact_strides(shape))
    span = as_int(1)
    for extent, stride in zip(b.shape, b.strides, strict=True):
        span = span + (extent - 1) * stride
    return b.replace(shape=shape, strides=(span, *b.strides))


def _with_version(turn: Expr) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    return lambda at: (turn, *at)
