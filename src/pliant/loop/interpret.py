"""Run a loop program on NumPy arrays: the meaning of the loop level, one scalar at a time.

    interpret(function, [x, y], {"n": 4})          # y is written in place

Every access is checked against its buffer's shape and memory (IndexError), fresh memory holds
poison, and block iterators must stay in their domains, so a run is also a test of the program.
Iterations of parallel and vectorized loops, and of those bound to thread axes, run one after the
other, in an order of one's choice: a correct program gives the same result in any. Threads that
wait for one another (`@device`) are run by `interpret_threads`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pliant.base import errors
from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError, PliantError
from pliant.ir.evaluator import Env, Evaluator, Number, Value
from pliant.ir.expr import Expr
from pliant.ir.scalar import Scalar, poison
from pliant.loop.lower_init import lower_init
from pliant.loop.rewrite import asked
from pliant.loop.stmt import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    BufferRef,
    Check,
    Combine,
    Flat,
    For,
    Function,
    If,
    Invoke,
    Let,
    Nop,
    Seq,
    Stmt,
    Store,
    While,
)  # fmt: skip

STACK_LIMIT: Final = 200_000

Callee = Callable[..., object] | Function
Order = Callable[[range], Iterable[int]]
Run = Callable[[Env], None]


@dataclass
class Traffic:
    """Bytes moved, by buffer name (for called functions: `function.buffer`)."""

    loads: dict[str, int] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)


def interpret(
    function: Function,
    arrays: Sequence[np.ndarray],
    sizes: Sequence[int] | Mapping[str, int] = (),
    callees: Mapping[str, Callee] | None = None,
    *,
    traffic: Traffic | None = None,
    order: Order = iter,
    outputs: dict[str, np.ndarray] | None = None,
) -> None:
    """Run `function`; `arrays` are its buffers, flat or shaped, and change in place.

    `callees` are what `Invoke` calls: loop functions, or Python functions that take a flat view of
    the memory from each address on and integers. `order` permutes the iterations of parallel and
    vectorized loops. A host function needs in `sizes` the symbols of its parameters' shapes, and
    `outputs` gets what it gives back, by scope ("output0" …). Raises what the program's checks and
    guards raise.
    """
    Session(callees or {}, traffic, order, outputs).run(function, arrays, sizes)


@dataclass(slots=True)
class Memory:
    """Elements of one type; element 0 of the buffer is at `start`."""

    flat: np.ndarray
    start: int = 0

    def seen_as(self, dtype: np.dtype) -> Memory:
        """The memory from `start` on as elements of another type."""
        rest = self.flat[self.start :]
        return Memory(rest[: rest.nbytes // dtype.itemsize * dtype.itemsize].view(dtype))


@dataclass(slots=True)
class Place:
    """A buffer in a run: its memory, and its extents and strides as numbers."""

    memory: Memory
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    loaded: int = 0
    stored: int = 0


@dataclass(slots=True)
class Session:
    """What calls share: callees, options, and functions already translated."""

    callees: Mapping[str, Callee]
    traffic: Traffic | None
    order: Order
    outputs: dict[str, np.ndarray] | None = None
    translated: dict[Function, Translator] = field(default_factory=dict)

    def run(
        self,
        function: Function,
        arrays: Sequence[np.ndarray],
        sizes: Sequence[int] | Mapping[str, int],
    ) -> None:
        """Run `function` on arrays."""
        if len(arrays) != len(function.buffers):
            raise InvalidModelError(f"{function.name} takes {len(function.buffers)} buffers")
        if not isinstance(sizes, Mapping):
            sizes = dict(zip(function.sizes, sizes, strict=True))
        memories = [_memory_of(a, b) for a, b in zip(arrays, function.buffers, strict=True)]
        with np.errstate(all="ignore"), _deep_stack():
            self.call(function, memories, {n: int(k) for n, k in sizes.items()}, prefix="")

    def translator(self, function: Function, prefix: str) -> Translator:
        """What runs the statements of `function`."""
        return Translator(self, prefix)

    def call(
        self, function: Function, memories: list[Memory], sizes: Mapping[str, int], prefix: str
    ) -> None:
        if len(memories) != len(function.buffers) or not sizes.keys() >= set(function.sizes):
            raise InvalidModelError(f"{function.name}: wrong number of arguments")
        translator = self.translated.get(function)
        if translator is None:
            translator = self.translated[function] = self.translator(function, prefix)
            translator.body = lower_init(function).body
        env = Env(sizes)
        outer = dict(translator.places)
        for buffer, memory in zip(function.buffers, memories, strict=True):
            translator.enter(buffer, memory, env)
        try:
            translator.statement(translator.body)(env)
        finally:
            for buffer in function.buffers:
                translator.leave(buffer)
            translator.places.update(outer)


class Translator:
    """Turns statements of one function into Python functions of the environment."""

    def __init__(self, session: Session, prefix: str) -> None:
        self.session = session
        self.prefix = prefix
        self.body: Stmt = Nop()
        self.places: dict[Buffer, Place] = {}
        self._evaluator = Evaluator(self._loader)
        self._statements: dict[Stmt, Run] = {}

    def enter(self, buffer: Buffer, memory: Memory, env: Env) -> None:
        """From now on `buffer` is at `memory`."""
        number = self._evaluator.number
        shape = tuple([number(d)(env) for d in buffer.shape])
        if memory.flat.dtype != buffer.dtype.numpy:  # a part of an arena of bytes
            memory = memory.seen_as(buffer.dtype.numpy)
        strides = tuple([number(s)(env) for s in buffer.strides])
        self.places[buffer] = Place(memory, shape, strides)

    def leave(self, buffer: Buffer) -> None:
        """The end of the buffer's life; its traffic is counted."""
        place = self.places.pop(buffer)
        if self.session.traffic is not None:
            name, size = self.prefix + buffer.name, buffer.dtype.bytes
            for counts, n in (
                (self.session.traffic.loads, place.loaded),
                (self.session.traffic.stores, place.stored),
            ):
                counts[name] = counts.get(name, 0) + n * size

    def statement(self, stmt: Stmt) -> Run:
        """The statement as a function of the environment."""
        found = self._statements.get(stmt)
        if found is None:
            found = self._statements[stmt] = self._translate(stmt)
        return found

    def _translate(self, stmt: Stmt) -> Run:
        match stmt:
            case Nop():
                return lambda env: None
            case Seq(stmts):
                return self._seq([self.statement(s) for s in stmts])
            case Store():
                return self._store(stmt)
            case Combine():
                return self._combine(stmt)
            case For():
                return self._for(stmt)
            case Block():
                return self._block(stmt)
            case Alloc():
                return self._alloc(stmt)
            case Let():
                return self._let(stmt)
            case If():
                return self._if(stmt)
            case While():
                return self._while(stmt)
            case Check():
                return self._check(stmt)
            case Invoke():
                return self._invoke(stmt)
            case Barrier():
                raise InvalidModelError("threads that meet at a barrier: use interpret_threads")
        raise InvalidModelError(f"cannot run {type(stmt).__name__}")

    def _value(self, expr: Expr) -> Value:
        return self._evaluator.value(expr)

    def _seq(self, runs: list[Run]) -> Run:
        def run(env: Env) -> None:
            for each in runs:
                each(env)

        return run

    def _place(self, buffer: Buffer) -> Place:
        place = self.places.get(buffer)
        if place is None:
            raise InvalidModelError(f"buffer {buffer.name} is used but not declared here")
        return place

    def _loader(self, source: Any) -> Callable[[Env, tuple[int, ...]], Scalar]:
        if isinstance(source, Flat):
            return self._flat_loader(source.buffer)

        def load(env: Env, at: tuple[int, ...]) -> Scalar:
            place = self._place(source)
            place.loaded += 1
            return place.memory.flat[address_of(source, place, at)]

        return load

    def _flat_loader(self, buffer: Buffer) -> Callable[[Env, tuple[int, ...]], Scalar]:
        def load(env: Env, at: tuple[int, ...]) -> Scalar:
            place = self._place(buffer)
            place.loaded += 1
            address = place.memory.start + at[0]
            if not 0 <= address < len(place.memory.flat):
                raise IndexError(f"{buffer.name}.flat{list(at)} is outside its memory")
            return place.memory.flat[address]

        return load

    def _store(self, stmt: Store) -> Run:
        buffer, value = stmt.buffer, self._value(stmt.value)
        positions = [self._evaluator.position(i) for i in stmt.indices]

        def run(env: Env) -> None:
            new = value(env)
            place = self._place(buffer)
            place.stored += 1
            at = address_of(buffer, place, tuple([p(env) for p in positions]))
            place.memory.flat[at] = new

        return run

    def _combine(self, stmt: Combine) -> Run:
        targets, values = stmt.targets, [self._value(v) for v in stmt.values]
        old = [self._value(t.load) for t in targets]
        places = [[self._evaluator.position(i) for i in t.indices] for t in targets]
        results = [self._value(r) for r in stmt.reducer.results]
        parameters = stmt.reducer.parameters

        def run(env: Env) -> None:
            inner = Env()
            for p, v in zip(parameters, (*old, *values), strict=True):
                inner[p.name] = int(v(env)) if p.type is i64 else v(env)
            made = [r(inner) for r in results]
            for target, at, new in zip(targets, places, made, strict=True):
                place = self._place(target.buffer)
                place.stored += 1
                address = address_of(target.buffer, place, tuple([p(env) for p in at]))
                place.memory.flat[address] = new

        return run

    def _for(self, stmt: For) -> Run:
        name, extent = stmt.var, self._evaluator.number(stmt.extent)
        body = self.statement(stmt.body)
        order = iter if stmt.kind in ("serial", "unrolled") else self.session.order

        def run(env: Env) -> None:
            hidden = env.get(name)
            for k in order(range(extent(env))):
                env[name] = k
                body(env)
            restore(env, name, hidden)

        return run

    def _block(self, stmt: Block) -> Run:
        number = self._evaluator.number
        extents = [number(i.extent) for i in stmt.iters]
        bindings = [number(b) for b in stmt.bindings]
        where = [self._value(c) for c in asked(stmt.where)]
        body = self.statement(stmt.body)

        def run(env: Env) -> None:
            values = [b(env) for b in bindings]
            inner = Env(env)
            for it, k in zip(stmt.iters, values, strict=True):
                inner[it.var] = k
            if not all(holds(inner) for holds in where):
                return
            for it, extent, k in zip(stmt.iters, extents, values, strict=True):
                if not 0 <= k < extent(env):
                    raise IndexError(
                        f"block {stmt.name}: {it.var} = {k} is outside [0, {extent(env)})"
                    )
            body(inner)

        return run

    def _alloc(self, stmt: Alloc) -> Run:
        buffer, body = stmt.buffer, self.statement(stmt.body)
        number, filler = self._evaluator.number, poison(stmt.buffer.dtype)
        pairs = [(number(d), number(s)) for d, s in zip(buffer.shape, buffer.strides, strict=True)]

        def run(env: Env) -> None:
            dims = [(d(env), s(env)) for d, s in pairs]
            span = 1 + sum((d - 1) * s for d, s in dims)
            size = 0 if any(d <= 0 for d, _ in dims) else span
            outer = self.places.get(buffer)
            fresh = np.full(size, filler, buffer.dtype.numpy)
            if self.session.outputs is not None and buffer.scope.startswith("output"):
                self.session.outputs[buffer.scope] = fresh.reshape([d for d, _ in dims])
            self.enter(buffer, Memory(fresh), env)
            body(env)
            self.leave(buffer)
            if outer is not None:
                self.places[buffer] = outer

        return run

    def _let(self, stmt: Let) -> Run:
        name, value = stmt.var.name, self._value(stmt.value)
        body = self.statement(stmt.body)
        is_size = stmt.var.type is i64

        def run(env: Env) -> None:
            hidden = env.get(name)
            new = value(env)
            env[name] = int(new) if is_size else new
            body(env)
            restore(env, name, hidden)

        return run

    def _if(self, stmt: If) -> Run:
        cond, then = self._value(stmt.cond), self.statement(stmt.then)
        otherwise = self.statement(stmt.otherwise or Nop())
        return lambda env: then(env) if cond(env) else otherwise(env)

    def _while(self, stmt: While) -> Run:
        cond, body = self._value(stmt.cond), self.statement(stmt.body)

        def run(env: Env) -> None:
            while cond(env):
                body(env)

        return run

    def _check(self, stmt: Check) -> Run:
        cond = self._value(stmt.cond)
        values = [self._value(v) for v in stmt.values]
        error = error_class(stmt.error)

        def run(env: Env) -> None:
            if not cond(env):
                raise error(stmt.message.format(*[v(env) for v in values]))

        return run

    def _invoke(self, stmt: Invoke) -> Run:
        refs: list[tuple[Buffer, list[Number]]] = []
        scalars: list[Value] = []
        for arg in stmt.args:
            if isinstance(arg, BufferRef):
                refs.append((arg.buffer, [self._evaluator.position(i) for i in arg.indices]))
            elif isinstance(arg, Expr):
                scalars.append(self._value(arg))
            else:
                raise InvalidModelError(f"{stmt.callee}: {arg!r} is no argument")
        callee = self.session.callees.get(stmt.callee)
        if callee is None:
            raise InvalidModelError(f"no callee {stmt.callee!r} was given")

        def run(env: Env) -> None:
            memories = [self._reference(b, [p(env) for p in at]) for b, at in refs]
            numbers = [v(env).item() for v in scalars]
            if isinstance(callee, Function):
                if len(numbers) != len(callee.sizes):
                    raise InvalidModelError(f"{callee.name}: wrong number of arguments")
                sizes = dict(zip(callee.sizes, numbers, strict=True))
                self.session.call(callee, memories, sizes, prefix=f"{callee.name}.")
            else:
                callee(*[m.flat[m.start :] for m in memories], *numbers)

        return run

    def _reference(self, buffer: Buffer, at: list[int]) -> Memory:
        place = self._place(buffer)
        offset = place.memory.start
        offset += sum(k * s for k, s in zip(at, place.strides, strict=True))
        if 0 in place.shape:  # of nothing, wherever that is: rows may lie apart all the same
            offset = place.memory.start
        if not 0 <= offset <= len(place.memory.flat):
            raise IndexError(f"address of {buffer.name}{at} is outside its memory")
        return Memory(place.memory.flat, offset)


@contextmanager
def _deep_stack() -> Iterator[None]:
    """Room for long chains of scopes: calls of Python functions take no C stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, STACK_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def error_class(name: str) -> type[PliantError]:
    """The class of the error tree with this name; raises InvalidModelError when there is none."""
    found = getattr(errors, name, None)
    if not (isinstance(found, type) and issubclass(found, PliantError)):
        raise InvalidModelError(f"no error class {name!r}")
    return found


def restore(env: Env, name: str, hidden: Any) -> None:
    if hidden is None:
        env.pop(name, None)
    else:
        env[name] = hidden


def address_of(buffer: Buffer, place: Place, at: tuple[int, ...]) -> int:
    address = place.memory.start
    for k, extent, stride in zip(at, place.shape, place.strides, strict=True):
        if not 0 <= k < extent:
            raise IndexError(f"{buffer.name}{list(at)} is outside its shape {list(place.shape)}")
        address += k * stride
    if not 0 <= address < len(place.memory.flat):
        raise IndexError(
            f"{buffer.name}{list(at)} is element {address} of {len(place.memory.flat)}"
        )
    return address


def _memory_of(array: np.ndarray, buffer: Buffer) -> Memory:
    if array.dtype != buffer.dtype.numpy:
        raise InvalidModelError(f"{buffer.name} holds {buffer.dtype}, not {array.dtype}")
    if array.flags.c_contiguous:
        return Memory(array.reshape(-1))
    # Any strides: all memory between the lowest and the highest element.
    step = array.itemsize
    if array.size == 0 or any(s % step for s in array.strides):
        raise InvalidModelError(f"{buffer.name}: strides are not whole elements")
    jumps = [(n - 1) * s // step for n, s in zip(array.shape, array.strides, strict=True)]
    start = -sum(j for j in jumps if j < 0)
    lowest = array[tuple(slice(-1, None) if j < 0 else slice(0, 1) for j in jumps)]
    length = start + sum(j for j in jumps if j > 0) + 1
    flat = np.lib.stride_tricks.as_strided(lowest, (length,), (step,))
    return Memory(flat, start)
