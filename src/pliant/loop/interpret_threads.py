"""Run a program in device form: the threads of a block at the same time, with their barriers.

    interpret_threads(function, [x, y], {"n": 100}, order=shuffled)

Threads of a block run one by one up to their next barrier, in an order of one's choice, blocks one
after the other likewise. That is one of many ways in which they could run, so it is also checked
that all give the same: InvalidModelError tells of

    a race          two threads use an element, one of them writes it, and they have not met since
    divergence      threads wait at different barriers, or some have ended

Where nobody has written, memory that threads share holds poison, as all memory does: a copy of a
larger part than was written is legal, and what is computed of poison shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import numpy as np

from pliant.base.errors import InvalidModelError
from pliant.ir.evaluator import Env
from pliant.ir.scalar import Scalar, poison
from pliant.loop.interpret import (
    Memory,
    Order,
    Place,
    Run,
    Session,
    Translator,
    address_of,
    restore,
)
from pliant.loop.stmt import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    BufferRef,
    Combine,
    Flat,
    For,
    Function,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    statements,
)
from pliant.loop.threads import AXES, BLOCK_AXES, THREAD_AXES, is_device, private_axes

# Where a thread stands: what it goes through to the barrier, and the barrier's scope.
Stop = tuple[tuple[Any, ...], str]
Steps = Callable[[Env], Iterator[Stop]]
NO_STEPS: Final = iter(())


def interpret_threads(
    function: Function,
    arrays: Sequence[np.ndarray],
    sizes: Sequence[int] | Mapping[str, int] = (),
    *,
    order: Order = iter,
) -> None:
    """Run `function`; `arrays` are its buffers and change in place. `order` permutes blocks, and
    threads between barriers. Raises InvalidModelError as said above."""
    if not is_device(function):
        raise InvalidModelError(f"{function.name} is not in device form: lower_threads")
    _DeviceSession({}, None, order).run(function, arrays, sizes)


class _DeviceSession(Session):
    __slots__ = ()

    def translator(self, function: Function, prefix: str) -> Translator:
        return _Threads(self, prefix, function.name)


@dataclass(slots=True)
class _Thread:
    """A thread of a block, and how often it has met others."""

    block: int
    name: str  # threadIdx.x = 3, …
    place: str  # blockIdx.x = 0, …
    row: tuple[int, ...]  # of equal threadIdx.y and .z
    env: Env
    places: dict[Buffer, Place]
    at: Stop | None = None
    steps: Iterator[Stop] = NO_STEPS
    meetings: int = 0
    row_meetings: int = 0
    doing: str = ""  # the block of statements that it is in


@dataclass(slots=True)
class _Use:
    """That a thread used an element, and after how many meetings."""

    thread: _Thread
    doing: str
    meetings: int
    row_meetings: int

    def before(self, t: _Thread) -> bool:
        """Whether what `t` does now comes after this."""
        u = self.thread
        if u is t:
            return True
        if u.block != t.block:
            return False
        return self.meetings < t.meetings or (u.row == t.row and self.row_meetings < t.row_meetings)


@dataclass(slots=True)
class _Element:
    written: _Use | None = None
    read: list[_Use] = field(default_factory=list)


@dataclass(slots=True)
class _Launch:
    """Uses of memory that several threads see, since the launch began."""

    elements: dict[tuple[int, int], _Element] = field(default_factory=dict)
    kept: list[np.ndarray] = field(default_factory=list)  # so that no two have one identity
    blocks: int = 0


class _Threads(Translator):
    """Runs launches thread by thread; what is outside of them as any other program."""

    def __init__(self, session: Session, prefix: str, name: str) -> None:
        super().__init__(session, prefix)
        self.name = name
        self._now: _Thread | None = None
        self._launched = _Launch()
        self._steps: dict[Stmt, Steps] = {}

    # ---- launches

    def _for(self, stmt: For) -> Run:
        return self._launch(stmt) if stmt.kind in AXES else super()._for(stmt)

    def _launch(self, root: For) -> Run:
        chain: list[For | Alloc] = []
        inner: Stmt = root
        while _is_frame(inner):
            chain.append(inner)
            inner = inner.body
        steps = self.steps(inner)

        def run(env: Env) -> None:
            self._launched = _Launch()
            self._expand(chain, Env(env), {}, steps)

        return run

    def _expand(
        self, chain: Sequence[For | Alloc], env: Env, at: Mapping[str, int], steps: Steps
    ) -> None:
        """The blocks of a launch, from here on."""
        first = chain[0] if chain else None
        if first is None or (isinstance(first, For) and first.kind in THREAD_AXES):
            self._block_of_threads(list(self._threads(chain, env, at)), steps)
        elif isinstance(first, Alloc):
            with_memory = self._fresh(first.buffer, env)
            outer = dict(self.places)
            self.enter(first.buffer, with_memory, env)
            self._expand(chain[1:], env, at, steps)
            self.places = outer
        else:
            extent = self._evaluator.number(first.extent)(env)
            for k in self.session.order(range(extent)):
                here = Env(env)
                here[first.var] = k
                self._expand(chain[1:], here, {**at, first.kind: k}, steps)

    def _threads(
        self, chain: Sequence[For | Alloc], env: Env, at: Mapping[str, int]
    ) -> Iterator[_Thread]:
        """The threads of a block, each with its variables and memory."""
        match chain:
            case []:
                block = ", ".join(f"{a} = {k}" for a, k in at.items() if a in BLOCK_AXES)
                name = ", ".join(f"{a} = {k}" for a, k in at.items() if a in THREAD_AXES)
                row = tuple(at.get(a, 0) for a in THREAD_AXES[1:])
                yield _Thread(self._launched.blocks, name, block, row, Env(env), dict(self.places))
            case [Alloc(buffer, _), *rest]:
                outer = dict(self.places)
                self.enter(buffer, self._fresh(buffer, env), env)
                yield from self._threads(rest, env, at)
                self.places = outer
            case [For() as loop, *rest]:
                for k in range(self._evaluator.number(loop.extent)(env)):
                    here = Env(env)
                    here[loop.var] = k
                    yield from self._threads(rest, here, {**at, loop.kind: k})

    def _fresh(self, buffer: Buffer, env: Env) -> Memory:
        number = self._evaluator.number
        dims = [
            (number(d)(env), number(s)(env))
            for d, s in zip(buffer.shape, buffer.strides, strict=True)
        ]
        span = 0 if any(d <= 0 for d, _ in dims) else 1 + sum((d - 1) * s for d, s in dims)
        memory = np.full(span, poison(buffer.dtype), buffer.dtype.numpy)
        if _is_seen(buffer):
            self._launched.kept.append(memory)
        return Memory(memory)

    def _block_of_threads(self, threads: list[_Thread], steps: Steps) -> None:
        """All threads of one block, until each has ended."""
        outer = self.places
        self._launched.blocks += 1
        for t in threads:
            t.steps = steps(t.env)
        going = threads
        while going:
            for k in self.session.order(range(len(going))):
                self._advance(going[k])
            going = self._released(threads)
        self._now, self.places = None, outer

    def _advance(self, t: _Thread) -> None:
        """The thread runs to its next barrier, or to its end."""
        self._now, self.places = t, t.places
        t.at = next(t.steps, None)

    def _released(self, threads: list[_Thread]) -> list[_Thread]:
        """Those that go on, when all have come to a barrier or ended."""
        rows: dict[tuple[int, ...], list[_Thread]] = {}
        for t in threads:
            rows.setdefault(t.row, []).append(t)
        waiting = [r for r in rows.values() if any(t.at and t.at[1] == "warp" for t in r)]
        if waiting:
            going = [t for r in waiting for t in self._meet(r)]
            for t in going:
                t.row_meetings += 1
            return going
        if all(t.at is None for t in threads):
            return []
        for t in self._meet(threads):
            t.meetings += 1
        return threads

    def _meet(self, threads: list[_Thread]) -> list[_Thread]:
        first = threads[0]
        for t in threads:
            if t.at != first.at:
                raise InvalidModelError(
                    f"{self.name}: {_in(t)}threads do not come to the same barrier: "
                    f"({first.name}) {_stand(first)}, ({t.name}) {_stand(t)}"
                )
        return threads

    def _alloc(self, stmt: Alloc) -> Run:
        body = self.statement(stmt.body)

        def run(env: Env) -> None:
            self.enter(stmt.buffer, self._fresh(stmt.buffer, env), env)
            body(env)
            self.leave(stmt.buffer)

        return run

    # ---- statements that wait

    def steps(self, stmt: Stmt) -> Steps:
        """The statement as a function of the environment that stops at each barrier."""
        found = self._steps.get(stmt)
        if found is None:
            waits = any(isinstance(s, Barrier) for s in statements(stmt))
            found = self._steps[stmt] = self._stops(stmt) if waits else self._at_once(stmt)
        return found

    def _at_once(self, stmt: Stmt) -> Steps:
        run = self.statement(stmt)

        def steps(env: Env) -> Iterator[Stop]:
            run(env)
            yield from NO_STEPS

        return steps

    def _stops(self, stmt: Stmt) -> Steps:
        match stmt:
            case Barrier(scope):
                return lambda env: iter((((), scope),))
            case Seq(stmts):
                return self._seq_steps([self.steps(s) for s in stmts])
            case For():
                return self._for_steps(stmt)
            case If():
                return self._if_steps(stmt)
            case Let():
                return self._let_steps(stmt)
            case Alloc():
                return self._alloc_steps(stmt)
        raise InvalidModelError(f"{self.name}: a barrier inside a {type(stmt).__name__}")

    def _seq_steps(self, parts: list[Steps]) -> Steps:
        def steps(env: Env) -> Iterator[Stop]:
            for k, part in enumerate(parts):
                for path, scope in part(env):
                    yield (k, *path), scope

        return steps

    def _for_steps(self, stmt: For) -> Steps:
        name, extent, body = stmt.var, self._evaluator.number(stmt.extent), self.steps(stmt.body)

        def steps(env: Env) -> Iterator[Stop]:
            hidden = env.get(name)
            for k in range(extent(env)):
                env[name] = k
                for path, scope in body(env):
                    yield (f"{name} = {k}", *path), scope
            restore(env, name, hidden)

        return steps

    def _if_steps(self, stmt: If) -> Steps:
        cond, then = self._value(stmt.cond), self.steps(stmt.then)
        otherwise = None if stmt.otherwise is None else self.steps(stmt.otherwise)

        def steps(env: Env) -> Iterator[Stop]:
            holds = bool(cond(env))
            branch = then if holds else otherwise
            for path, scope in branch(env) if branch is not None else ():
                yield ("where a condition holds" if holds else "where it does not", *path), scope

        return steps

    def _let_steps(self, stmt: Let) -> Steps:
        # As the base class does it, but for the body.
        name, value, body = stmt.var.name, self._value(stmt.value), self.steps(stmt.body)

        def steps(env: Env) -> Iterator[Stop]:
            hidden, new = env.get(name), value(env)
            env[name] = int(new) if stmt.var.type.name == "i64" else new
            yield from body(env)
            restore(env, name, hidden)

        return steps

    def _alloc_steps(self, stmt: Alloc) -> Steps:
        body = self.steps(stmt.body)

        def steps(env: Env) -> Iterator[Stop]:
            self.enter(stmt.buffer, self._fresh(stmt.buffer, env), env)
            yield from body(env)
            self.leave(stmt.buffer)

        return steps

    # ---- uses of memory

    def _block(self, stmt: Block) -> Run:
        inside = super()._block(stmt)

        def run(env: Env) -> None:
            t = self._now
            if t is not None:
                t.doing = f" in block {stmt.name}"
            inside(env)
            if t is not None:
                t.doing = ""

        return run

    def _loader(self, source: Any) -> Callable[[Env, tuple[int, ...]], Scalar]:
        read = super()._loader(source)
        buffer = source.buffer if isinstance(source, Flat) else source

        def load(env: Env, at: tuple[int, ...]) -> Scalar:
            value = read(env, at)  # checks the place
            if self._now is not None and _is_seen(buffer):
                place = self._place(buffer)
                flat = isinstance(source, Flat)
                address = place.memory.start + at[0] if flat else address_of(buffer, place, at)
                self._use(self._now, buffer, place, address, at, write=False)
            return value

        return load

    def _store(self, stmt: Store) -> Run:
        return self._seen(super()._store(stmt), [BufferRef(stmt.buffer, stmt.indices)])

    def _combine(self, stmt: Combine) -> Run:
        return self._seen(super()._combine(stmt), stmt.targets)

    def _seen(self, write: Run, targets: Sequence[BufferRef]) -> Run:
        """`write`, which writes the targets, and a note of that."""
        positions = [[self._evaluator.position(i) for i in t.indices] for t in targets]

        def run(env: Env) -> None:
            write(env)
            for target, where in zip(targets, positions, strict=True):
                buffer = target.buffer
                if self._now is not None and _is_seen(buffer):
                    place, at = self._place(buffer), tuple([p(env) for p in where])
                    address = address_of(buffer, place, at)
                    self._use(self._now, buffer, place, address, at, write=True)

        return run

    def _use(
        self,
        t: _Thread,
        buffer: Buffer,
        place: Place,
        address: int,
        at: tuple[int, ...],
        *,
        write: bool,
    ) -> None:
        """Note that `t` uses an element; refuses a race."""
        key = (id(place.memory.flat), address)
        element = self._launched.elements.setdefault(key, _Element())
        what = f"{buffer.name}{list(at)}"
        earlier = [element.written] if element.written is not None else []
        for use in [*earlier, *element.read] if write else earlier:
            if not use.before(t):
                self._race(use, use is element.written, t, write, what)
        now = _Use(t, t.doing, t.meetings, t.row_meetings)
        if write:
            element.written, element.read = now, []
        else:
            element.read = [u for u in element.read if not u.before(t)]
            element.read.append(now)

    def _race(self, use: _Use, wrote: bool, t: _Thread, write: bool, what: str) -> None:
        u, words = use.thread, {True: "writes", False: "reads"}
        if u.block != t.block:
            raise InvalidModelError(
                f"{self.name}: thread block ({u.place}) {words[wrote]} {what}{use.doing} and "
                f"another ({t.place}) {words[write]} it{t.doing}: nothing orders blocks"
            )
        raise InvalidModelError(
            f"{self.name}: {_in(t)}thread ({u.name}) {words[wrote]} {what}{use.doing} and "
            f"({t.name}) {words[write]} it{t.doing}, with no barrier between"
        )


def _is_frame(s: Stmt) -> TypeGuard[For | Alloc]:
    """Whether it is part of what is around the work of all threads."""
    if isinstance(s, For):
        return s.kind in AXES
    rest: Iterable[Stmt] = statements(s)
    return isinstance(s, Alloc) and any(isinstance(x, For) and x.kind in AXES for x in rest)


def _is_seen(buffer: Buffer) -> bool:
    """Whether several threads can use the buffer's memory."""
    return "threadIdx.x" not in private_axes(buffer.scope)


def _in(t: _Thread) -> str:
    return f"in thread block ({t.place}) " if t.place else ""


def _stand(t: _Thread) -> str:
    """Where a thread stands, in words."""
    if t.at is None:
        return "has ended"
    way = [str(x) for x in t.at[0] if not isinstance(x, int)]
    where = f", {', '.join(way)}" if way else ""
    which = ".".join(str(x + 1) for x in t.at[0] if isinstance(x, int))
    kind = "" if t.at[1] == "block" else f" {t.at[1]}"
    return f"waits at the{kind} barrier{' ' * bool(which)}{which}{where}"
