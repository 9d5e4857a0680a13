"""A program being scheduled: a loop function, what is known of its sizes, and the steps so far.

    p = program(function)
    p = p.split("i", 8)
    outer, inner = p.made                references to what the last step made
    p = p.reorder(inner, "j").parallel(outer)
    print(p)                             its text
    print(print_trace(p.trace))
    y = p.run(x)                         what it computes, by the interpreter

Programs are values: a primitive gives a new one and leaves the old one as it was. References are
names, which are unique in a function, so one stays good for as long as its loop or block exists. A
name is never given to something else later: one whose loop is gone is refused, with the step that
it went in. What sampling steps decided has names too (`chosen`), which stand for the values in the
arguments of later steps.
The primitives are functions in a table that the program carries; `p.name(…)` looks there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy.typing as npt

from pliant.base.dtypes import i64
from pliant.base.spans import Span
from pliant.graph.builder import Builder
from pliant.graph.function import Dim, Value
from pliant.loop.bounds import declare_loops
from pliant.loop.lanes import lanes_fault
from pliant.loop.lower_init import reduction_loops
from pliant.loop.lower_pipeline import broken_pipeline
from pliant.loop.outline import outline
from pliant.loop.printer import function_text
from pliant.loop.rewrite import Names
from pliant.loop.signature import Demand
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    Invoke,
    Let,
    Stmt,
    statements,
    stored,
)
from pliant.loop.threads import thread_fault
from pliant.ops.program import TensorProgram, call_program, run_program
from pliant.schedule.arguments import check_arguments, check_divisions, place_of
from pliant.schedule.errors import NoPrimitiveError, SchedulingError, close_names
from pliant.schedule.gone import Gone, gone_in
from pliant.schedule.intrinsic import Intrinsic, meaning
from pliant.schedule.trace import Decided, Trace, plain, step
from pliant.sym.expr import Int
from pliant.sym.facts import Facts

P = ParamSpec("P")


class LoopRef(str):
    """A loop, by its variable."""

    __slots__ = ()


class BlockRef(str):
    """A block, by its name."""

    __slots__ = ()


class MemoryRef(str):
    """A buffer, by its name."""

    __slots__ = ()


Ref = LoopRef | BlockRef | MemoryRef
Primitive = Callable[..., "Program"]


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """An immutable program with its history."""

    function: Function
    facts: Facts
    primitives: Mapping[str, Primitive] = field(default_factory=dict)
    intrinsics: Mapping[str, Intrinsic] = field(default_factory=dict)
    trace: Trace = ()
    made: tuple[Ref, ...] = ()  # by the last step
    chosen: tuple[Any, ...] = ()  # by the last sampling step: its variables, Int or Decided
    decisions: Mapping[str, Any] = field(default_factory=dict)  # the values of such variables
    gone: Mapping[tuple[str, str], Gone] = field(default_factory=dict)  # (kind, name) of old things
    scopes: dict[Hashable, Facts] = field(default_factory=dict)  # `inside`, with what was proved
    dims: tuple[tuple[str, Dim], ...] = ()  # what `facts` take for granted, for callers to check
    demands: tuple[Demand, ...] = ()  # of the sizes, for callers to check as well

    def __getattr__(self, name: str) -> Callable[..., Program]:
        if name.startswith("_"):  # of Python's own protocols; there may be no `primitives` yet
            raise AttributeError(name)
        found = self.primitives.get(name)
        if found is None:
            raise NoPrimitiveError(name, close_names(name, self.primitives))

        def apply(*args: Any, **options: Any) -> Program:
            for value in (*args, *options.values()):
                try:
                    plain(value)  # what cannot stand in a trace is refused before anything is tried
                except TypeError as error:
                    raise SchedulingError(name, place_of(args), str(error)) from error
            return found(self, *args, **options)

        return apply

    def __repr__(self) -> str:
        steps = "; ".join(map(str, self.trace))
        return f"<program {self.function.name}: {steps or 'as it came'}>"

    def __str__(self) -> str:
        return function_text(self.function)

    def with_dims(self, dims: Mapping[str, Dim]) -> Program:
        """The program with a record of what its facts take for granted of its sizes."""
        return replace(self, dims=tuple(sorted(dims.items())))

    def run(self, *arrays: npt.ArrayLike) -> Any:
        """What the program computes of its inputs, by the interpreter, one scalar at a time: one
        array, or a tuple of them. Elements that nothing is stored into hold NaN, or another value
        that stands out. Raises ShapeError where the arrays do not fit."""
        return run_program(self.tensor_program, arrays)

    def call(self, builder: Builder, *operands: Value, span: Span | None = None) -> Any:
        """Call the program in a graph function that is being built: one value, or a tuple."""
        return call_program(builder, self.tensor_program, *operands, span=span)

    @property
    def tensor_program(self) -> TensorProgram:
        """The program as an operator of graphs."""
        own = [(i.name, i.semantics) for i in self.intrinsics.values() if i.callee == i.name]
        return TensorProgram(self.function, self.dims, tuple(own), self.demands)

    # ---- looking

    @property
    def blocks(self) -> tuple[BlockRef, ...]:
        """All blocks, in program order."""
        return tuple(BlockRef(s.name) for s in self.statements() if isinstance(s, Block))

    @property
    def sizes(self) -> frozenset[str]:
        """Integers known everywhere: the function's sizes, and those with a name at its top."""
        names = set(self.function.sizes)
        root = self.function.body
        while isinstance(root, Let | Alloc):
            if isinstance(root, Let) and root.var.type is i64:
                names.add(root.var.name)
            root = root.body
        return frozenset(names)

    def loops(self, block: str) -> tuple[LoopRef, ...]:
        """The loops around a block, outermost first."""
        path = self.block_path("loops", block)
        return tuple(LoopRef(s.var) for s in path if isinstance(s, For))

    def statements(self) -> tuple[Stmt, ...]:
        """All statements, parents first, in program order."""
        return tuple(statements(self.function.body))

    def loop(self, name: str) -> For:
        """The loop itself."""
        found = self.loop_path("loop", name)[-1]
        assert isinstance(found, For)
        return found

    def block(self, name: str) -> Block:
        """The block itself."""
        found = self.block_path("block", name)[-1]
        assert isinstance(found, Block)
        return found

    def written(self, block: str) -> tuple[MemoryRef, ...]:
        """The buffers that a block writes, in order, each once; not those of its init alone."""
        places = stored(self.block(block).body)
        return tuple(MemoryRef(name) for name in dict.fromkeys(x.buffer.name for x in places))

    def innermost(self, loop: str = "") -> tuple[LoopRef, ...]:
        """The loops under `loop` (without one: all) that have none inside, in program order."""
        root = self.loop(loop).body if loop else self.function.body
        loops = [s for s in statements(root) if isinstance(s, For)]
        outer = {s for s in loops if any(isinstance(x, For) for x in statements(s.body))}
        return tuple(LoopRef(s.var) for s in loops if s not in outer)

    @property
    def numbers(self) -> tuple[Int, ...]:
        """The variables of the last sampling step, which decided integers."""
        assert not any(isinstance(x, Decided) for x in self.chosen)
        return tuple(x for x in self.chosen if not isinstance(x, Decided))

    @property
    def allocated(self) -> tuple[MemoryRef, ...]:
        """The function's own buffers, in program order."""
        return tuple(MemoryRef(s.buffer.name) for s in self.statements() if isinstance(s, Alloc))

    def buffer(self, name: str) -> Buffer:
        """A buffer: a parameter or one allocated inside."""
        found = self._buffers().get(name)
        if found is None:
            raise SchedulingError("buffer", name, self._missing("buffer", name))
        return found

    def decided(self, value: Any) -> Any:
        """`value`, an argument of a step, with what was decided for the variables in it."""
        match value:
            case Int():
                numbers = {n: self.decisions.get(n) for n in value.names}
                return value.subs({n: v for n, v in numbers.items() if isinstance(v, int)})
            case Decided(name):
                if name not in self.decisions:
                    raise SchedulingError("decided", name, "no step before decides it")
                return self.decisions[name]
            case tuple() | list():
                return tuple(self.decided(v) for v in value)
        return value

    def _buffers(self) -> dict[str, Buffer]:
        inside = (s.buffer for s in self.statements() if isinstance(s, Alloc))
        return {b.name: b for b in (*self.function.buffers, *inside)}

    # ---- for primitives

    def loop_path(self, primitive: str, name: str) -> tuple[Stmt, ...]:
        """Statements from the root down to a loop; refuses where there is none of that name."""
        path = outline(self.function.body).path("loop", name)
        if path is None:
            raise SchedulingError(primitive, f"loop {name}", self._missing("loop", name))
        return path

    def block_path(self, primitive: str, name: str) -> tuple[Stmt, ...]:
        """Statements from the root down to a block; refuses where there is none of that name."""
        path = outline(self.function.body).path("block", name)
        if path is None:
            raise SchedulingError(primitive, f"block {name}", self._missing("block", name))
        return path

    def _missing(self, kind: str, name: str) -> str:
        gone = self.gone.get((kind, name))
        if gone:
            return f"there is no such {kind}: {gone}"
        table = outline(self.function.body).statements
        names = {
            "loop": [s.var for s in table if isinstance(s, For)],
            "block": [s.name for s in table if isinstance(s, Block)],
            "buffer": list(self._buffers()),
        }
        other = next((k for k, found in names.items() if name in found and k != kind), "")
        if other:
            return f"there is no such {kind}; it is a {other}"
        near = close_names(name, names[kind])
        return f"there is no such {kind}" + (f"; there is {', '.join(near)}" if near else "")

    def inside(self, path: tuple[Stmt, ...]) -> Facts:
        """What holds below the loops of `path`. Not to be added to: make a copy for that."""
        scope, key = self.facts, tuple[Hashable, ...]()
        for loop in path:
            if isinstance(loop, For):
                key = (*key, loop.var, loop.extent)
                outer, found = scope, self.scopes.get(key)
                scope = declare_loops(outer, [loop]) if found is None else found
                self.scopes[key] = scope
        return scope

    def around(self, path: tuple[Stmt, ...]) -> Facts:
        """What holds around the last statement of `path`, for starts of sums in it, too: these
        happen also where the loops that their sum runs over do not. Not to be added to."""
        starting = (s for s in statements(path[-1]) if isinstance(s, Block) and s.init is not None)
        reduced = frozenset[str]().union(*map(reduction_loops, starting))
        outer = (s for s in path[:-1] if not isinstance(s, For) or s.var not in reduced)
        return self.inside(tuple(outer))

    def names(self) -> Names:
        """Names in use, now or before, to make new ones."""
        names = Names(self.function)
        for kind, used in (
            ("loop", names.variables),
            ("block", names.blocks),
            ("buffer", names.buffers),
        ):
            used.update(n for k, n in self.gone if k == kind)
        names.variables.update(self.decisions)
        return names

    def invoked(self, call: Invoke) -> Stmt | frozenset[int] | None:
        """What a call to an intrinsic means, or which arguments it writes through; None for other
        callees."""
        found = self.intrinsics.get(call.callee)
        return None if found is None else meaning(found, call) or found.written

    def with_body(self, body: Stmt, *made: Ref) -> Program:
        """The program with another body."""
        return replace(self, function=self.function.replace(body=body), made=made)


def primitive(
    fn: Callable[Concatenate[Program, P], Program],
) -> Callable[Concatenate[Program, P], Program]:
    """Records the call in the trace of the program that it gives. `fn` gets values for variables
    that were decided; the trace keeps the variables. Refuses a program in which bound loops would
    break the rules of loop/threads.py, iterations of a vectorized one could not be lanes any more,
    or a noted loop could not be pipelined."""

    @wraps(fn)
    def recorded(p: Program, /, *args: P.args, **options: P.kwargs) -> Program:
        values = plain(p.decided(args)) if p.decisions else args
        given = {k: plain(p.decided(v)) for k, v in options.items()} if p.decisions else options
        check_arguments(fn, values, given)
        check_divisions(fn, values, given, p.function.body, p.facts)
        result = fn(p, *values, **given)
        place = place_of(values)
        fault = thread_fault(result.function)
        if fault is not None:
            raise SchedulingError(fn.__name__, place, f"then {fault[1]}")
        apart = lanes_fault(result.function)
        if apart is not None:
            reason = f"then loop {apart[0].var} could not be vectorized: {apart[1]}"
            raise SchedulingError(fn.__name__, place, reason)
        broken = broken_pipeline(result.function, result.facts, result.invoked)
        if broken is not None:
            reason = f"then loop {broken[0].var} cannot be pipelined as was noted: {broken[1]}"
            raise SchedulingError(fn.__name__, place, reason)
        options_as_given: dict[str, Any] = dict(options)
        done = step(fn.__name__, args, options_as_given)
        number = len(p.trace) + 1
        gone = dict(p.gone) | gone_in(p.function, result.function, number, done, result.made)
        return replace(result, trace=(*p.trace, done), gone=gone)

    return recorded


def replay(trace: Trace, p: Program) -> Program:
    """Apply recorded steps to a fresh program."""
    for s in trace:
        p = getattr(p, s.name)(*s.args, **dict(s.options))
    return p
