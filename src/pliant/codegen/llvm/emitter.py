"""Statements of a loop program to LLVM IR text.

A kernel becomes `int32 @name(ctx*, ptr…, i64…)`. The body of a parallel loop becomes a function of
its own, called by the runtime for sub-ranges; what it uses of its surroundings travels in a
closure. Blocks are gone by now (`loop.lower_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pliant.base.dtypes import DType, bf16, boolean, i64
from pliant.base.errors import InvalidModelError
from pliant.codegen.llvm import (
    conditions,
    context,
    exprs,
    ints,
    memory,
    multiply_add,
    pairs,
    past,
    square,
    unpacked,
    words,
)
from pliant.codegen.llvm.advance import Loop
from pliant.codegen.llvm.steady import Steady
from pliant.codegen.llvm.types import memory_type, value_type, vector_type
from pliant.codegen.llvm.uses import uses
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.codegen.x86 import tiles
from pliant.ir.expr import Expr, Guard, Index, Load, Var
from pliant.ir.node import walk
from pliant.loop.stmt import (
    PARTS,
    PREFETCH,
    STREAM,
    Alloc,
    Buffer,
    BufferRef,
    Check,
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
    own_statements,
    statements,
)  # fmt: skip
from pliant.loop.threads import AXES
from pliant.runtime.manifest import Site
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts

Val = exprs.Val

KEPT: Final = 1024  # bytes of memory on the stack whose place in a page matters
UNASKED: Final = 16  # lanes; masks of several registers take those that others need: measured


@dataclass(frozen=True)
class Place:
    """Where a buffer is; `lanes` > 1 when every lane has a private copy. `unpacked`: its rows are
    in that order."""

    pointer: str
    lanes: int = 1
    unpacked: bool = False


@dataclass
class Options:
    """How to emit. `contract` allows fused multiply-add; `features` are the processor's; `flushes`:
    subnormal numbers may become 0 with what becomes bf16."""

    contract: bool = True
    features: frozenset[str] = frozenset()
    flushes: bool = False

    @staticmethod
    def of(f: Function, features: Collection[str]) -> Options:
        """As a program's notes say, for a processor with these features."""
        notes = dict(f.notes)
        fast, flushes = notes.get("numerics", "fast") == "fast", notes.get("flushes", False)
        return Options(fast, frozenset(features), flushes)


@dataclass
class _Scope:
    """`values` stay what they are in the whole scope. `memo` has values of expressions; a scope of
    an expression's part has those around it, too, as nothing is written meanwhile. `straight`: it
    runs whenever the scope around it does, and once."""

    values: dict[Any, Any] = field(default_factory=dict)
    memo: dict[Expr, Val] = field(default_factory=dict)
    of_part: bool = False
    straight: bool = False


# A buffer, how far ahead it is asked for, or what is, into which level of the caches, and for which
# part of it; or the places of lines, and how many elements of each.
Ask = tuple[str, Int | Load | tuple[Int, ...], str, int, int]


class Emitter:
    """Emits one LLVM function."""

    def __init__(self, module: ModuleText, name: str, facts: Facts, options: Options) -> None:
        self.text = FunctionText(module)
        self.name = name
        self.facts = facts
        self.options = options
        self.sites: dict[Site, None] = {}
        self.lanes = 1
        self.lane_var = ""
        self.stream_from: int | None = None  # bytes from which vectors go past the caches
        self.parts_from: int | None = None  # … and elements of those under a mask
        self.past: bool | None = None  # whether those of this loop do; None: each asks for itself
        self.streams = False  # whether some do
        self.tiles = False  # whether it calls micro-kernels in tiles
        self.ahead: Ask | None = None  # what the vectors of the loop ask for
        self.ahead_to_write = False  # whether it is stored, and not read, in the loop
        self.to_bf16 = False  # whether what is computed becomes bf16, for products only
        self.unpacked = False  # whether it is computed in that order
        self.mask: str | None = None
        self.mask_is_nonempty = False
        self.numbers: frozenset[Buffer] = frozenset()  # float buffers that hold no NaN
        self._sizes: dict[str, str] = {}
        self._const_sizes: dict[str, int] = {}
        self.offsets: dict[tuple[Buffer | Flat, tuple[Expr, ...]], Int] = {}  # of accesses
        self.words: dict[tuple[Any, ...], words.Found | None] = {}  # of accesses
        self.certain: dict[Expr, frozenset[Expr]] = {}  # what is computed wherever another is
        self._resolved: dict[tuple[Any, ...], Int] = {}  # (an Int, the values of its variables)
        self._vars: dict[str, Val] = {}
        self._places: dict[str, tuple[Buffer, Place]] = {}
        self._noalias: frozenset[str] = frozenset()  # buffers that nothing else points into
        self._params: frozenset[str] = frozenset()  # buffers that come from outside
        self.steady: Steady | None = None  # in an unrolled loop
        self._scopes: list[_Scope] = [_Scope()]
        self.loops: list[Loop] = []  # counted ones around, outermost first
        self._bodies = 0

    # -- names -----------------------------------------------------------------------------------

    def size(self, name: str, lanes: int) -> str:
        """The i64 called `name`; a vector for the vectorized variable."""
        if name == self.lane_var:
            numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
            return f"<{numbers}>"
        if name not in self._sizes:
            raise InvalidModelError(f"{self.name}: the size {name!r} is not defined here")
        return self._sizes[name]

    def variable(self, name: str, dtype: DType) -> Val:
        if name in self._vars:
            return self._vars[name]
        if dtype is i64:
            return Val(self.size(name, 1), i64, 1)
        raise InvalidModelError(f"{self.name}: the variable {name!r} is not defined here")

    def text_of(self, name: str) -> str:
        """What a variable is here; of that of the lanes its name."""
        if name in self._vars:
            return self._vars[name].text
        return self._sizes.get(name, name)

    def place(self, buffer: Buffer | Flat) -> Place:
        found = self._places.get(buffer.name)
        if found is None:
            raise InvalidModelError(f"{self.name}: the buffer {buffer.name!r} is not defined here")
        return found[1]

    def resolve(self, x: Int) -> Int:
        """`x` with the variables of unrolled loops replaced by their values."""
        known = self._const_sizes
        if x.names.isdisjoint(known):
            return x
        key = (x, *map(known.get, x.names))
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = x.subs(known)
        return found

    def knows(self, x: Int) -> bool:
        """Whether all names in `x` have values here."""
        return all(n in self._sizes or n in self._const_sizes for n in x.names)

    def is_varying(self, x: Int) -> bool:
        return self.lanes > 1 and self.lane_var in x.names

    # -- caches ----------------------------------------------------------------------------------

    @property
    def memo(self) -> dict[Expr, Val]:
        return self._scopes[-1].memo

    def known(self, x: Expr) -> Val | None:
        """The value of an expression, where it was computed already."""
        for scope in reversed(self._scopes):
            found = scope.memo.get(x)
            if found is not None or not scope.of_part:
                return found
        return None

    def cached(self, key: Any) -> Any:
        """What was kept under a key; None if nothing was."""
        for scope in reversed(self._scopes):
            if key in scope.values:
                return scope.values[key]
        return None

    def cache(self, key: Any, value: str) -> None:
        """Keep it to the end of the scope."""
        self._scopes[-1].values[key] = value

    def cache_steady(self, key: Any, value: Any) -> None:
        """Keep it as long as what is here comes before all else: to the end of the next scope
        around that is entered at a branch."""
        entered = (s for s in reversed(self._scopes) if not s.straight)
        next(entered).values[key] = value

    @contextmanager
    def scope(self, *, of_part: bool = False, straight: bool = False) -> Iterator[None]:
        """Code whose values are forgotten at its end, as it does not dominate what follows or, if
        it runs `straight` on, as names mean something else there. `of_part`: it is a part of an
        expression."""
        self._scopes.append(_Scope(of_part=of_part, straight=straight))
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def outside(self, loop: Loop) -> Iterator[None]:
        """Code that comes before a loop whose body is being emitted: in another block than this."""
        around, self._scopes = self._scopes, [*self._scopes[: loop.scopes], _Scope()]
        loops, self.loops = self.loops, self.loops[: self.loops.index(loop)]
        with self.text.into(loop.before):
            yield
        self._scopes, self.loops = around, loops

    @contextmanager
    def masked(
        self, condition: str, *, negate: bool = False, of_part: bool = False
    ) -> Iterator[None]:
        """Only lanes where `condition` holds (or, negated, does not) are active."""
        flag = value_type(boolean, self.lanes)
        if negate:
            condition = self.text.assign(f"xor {flag} {condition}, splat (i1 true)")
        before = self.mask, self.mask_is_nonempty
        if self.mask is not None:
            condition = self.text.assign(f"and {flag} {self.mask}, {condition}")
        self.mask, self.mask_is_nonempty = condition, False
        with self.scope(of_part=of_part, straight=True):
            yield
        self.mask, self.mask_is_nonempty = before

    @contextmanager
    def vector(self, name: str, lanes: int) -> Iterator[None]:
        """The variable `name` runs over `lanes` lanes at once inside."""
        self.lanes, self.lane_var = lanes, name
        with self.scope(straight=True):
            yield
        self.lanes, self.lane_var = 1, ""

    @contextmanager
    def bound(self, name: str, value: int) -> Iterator[None]:
        """The loop variable `name` is the constant `value` inside."""
        self._const_sizes[name] = value
        self._sizes[name] = str(value)
        with self.scope(straight=True):
            yield
        del self._const_sizes[name], self._sizes[name]

    # -- small helpers ---------------------------------------------------------------------------

    def splat(self, text: str, element: str) -> str:
        if text[0] in "-0123456789tfu" or text == "true":
            return f"splat ({element} {text})"
        key = ("splat", text)
        found: str | None = self.cached(key)
        if found is None:
            kind = vector_type(element, self.lanes)
            one = self.text.assign(f"insertelement {kind} poison, {element} {text}, i64 0")
            zeros = f"<{self.lanes} x i32> zeroinitializer"
            found = self.text.assign(f"shufflevector {kind} {one}, {kind} poison, {zeros}")
            self.cache(key, found)
        return found

    def any_active(self) -> str:
        assert self.mask is not None
        flag = value_type(boolean, self.lanes)
        return self.text.intrinsic(
            f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", [(flag, self.mask)]
        )

    def has_effects(self, x: Expr) -> bool:
        """Whether evaluating `x` where it is not wanted could go wrong: a guard, or a load that is
        not known to be in bounds."""
        return any(
            isinstance(n, Guard) or (isinstance(n, Load) and not self.in_bounds(n))
            for n in walk(x)
            if isinstance(n, Expr)
        )

    def in_bounds(self, x: Load) -> bool:
        for index, extent in zip(x.indices, x.source.shape, strict=True):
            if not isinstance(index, Index):
                return False
            if not (self.facts.nonneg(index.int_) and self.facts.lt(index.int_, extent)):
                return False
        return True

    def may_vary(self, x: Expr) -> bool:
        """Whether `x` may differ between lanes (conservative)."""
        for node in walk(x):
            if isinstance(node, Index) and self.is_varying(node.int_):
                return True
            if isinstance(node, Load) and self.place(node.source).lanes > 1:
                return True
            if isinstance(node, Var):
                known = self._vars.get(node.name)
                if known is not None and known.lanes > 1:
                    return True
        return False

    # -- failures --------------------------------------------------------------------------------

    def fail_unless(self, ok: Val, error: str, message: str, values: tuple[str, ...] = ()) -> None:
        """Leave the function with an error unless `ok` (in every active lane)."""
        t = self.text
        condition = ok.text
        if ok.lanes > 1 or self.mask is not None:
            lanes_ok = exprs.widen(self, ok)
            bad = t.assign(f"xor {lanes_ok.type} {lanes_ok.text}, splat (i1 true)")
            if self.mask is not None:
                bad = t.assign(f"and {lanes_ok.type} {bad}, {self.mask}")
            some = t.intrinsic(
                f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", [(lanes_ok.type, bad)]
            )
            condition = t.assign(f"xor i1 {some}, true")
        good, bad_label = t.label("ok"), t.label("fail")
        t.branch(condition, good, bad_label)
        t.start(bad_label)
        site = Site(message, error)
        self.sites[site] = None
        context.store_error(t, site.id, values)
        self.leave("1")
        t.start(good)

    def leave_on_error(self, code: str) -> None:
        t = self.text
        good, bad = t.label("ok"), t.label("fail")
        t.branch(t.assign(f"icmp eq i32 {code}, 0"), good, bad)
        t.start(bad)
        self.leave(code)
        t.start(good)

    def leave(self, code: str) -> None:
        """End the function. What it stored past the caches is seen by whoever sees its end, also
        where it failed: the memory may get another use."""
        if self.streams:
            memory.fence(self)
        if self.tiles:
            tiles.release(self.text)
        self.text.line(f"ret i32 {code}")

    # -- statements ------------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        self.memo.clear()
        match s:
            case Nop():
                pass
            case Seq(stmts):
                for child in stmts:
                    self.statement(child)
            case Store(buffer, indices):
                whole = self.mask is not None and memory.keeps_others(self, s)
                memory.store(self, buffer, indices, self.stored(s), whole=whole)
            case For():
                self._loop(s)
            case Alloc() if s.buffer.scope.startswith("output"):
                self._outputs(s)
            case Alloc():
                self._alloc(s)
            case Let(variable, value, body):
                self._let(variable, value, body)
            case If():
                self._if(s)
            case While():
                self._while(s)
            case Check(cond, error, message, values):
                shown = tuple(exprs.emit(self, v).text for v in values)
                self.fail_unless(exprs.emit(self, cond), error, message, shown)
            case Invoke():
                self._invoke(s)
            case _:
                raise InvalidModelError(f"{self.name}: cannot emit a {type(s).__name__}")

    def stored(self, s: Store) -> Val:
        """The value that a statement stores."""
        with self._computing(s):
            value = exprs.emit(self, s.value)
            return unpacked.by_lanes(self, value) if self.unpacked else value

    @contextmanager
    def _computing(self, s: Store) -> Iterator[None]:
        """Code for what a statement stores."""
        self.to_bf16 = self.options.flushes and s.value.dtype is bf16
        self.unpacked = unpacked.stays(self, s)
        yield
        self.to_bf16 = self.unpacked = False

    def _loop(self, s: For) -> None:
        if s.kind in AXES:  # run one by one they would be right, and a schedule for nothing
            raise InvalidModelError(
                f"{self.name}: loop {s.var} is bound to {s.kind}, and this target has no threads "
                "of that kind; there is parallel"
            )
        self.facts.declare_index(s.var, s.extent)
        match s.kind:
            case "vectorized":
                self._vectorized(s)
            case "unrolled":
                self._unrolled(s)
            case "parallel":
                self._parallel(s)
            case _:
                self._serial(s)

    def _unrolled(self, s: For) -> None:
        outermost = self.steady is None
        if outermost:
            ours = frozenset(self._places) - self._params | self._noalias
            self.steady = Steady(s.body, ours, self._params, self.facts)
        with self.scope(straight=True):
            for k in range(self.resolve(s.extent).value):
                with self.bound(s.var, k):
                    self._iteration(s.var, s.body, dict(s.notes).get(PREFETCH))
        if outermost:
            self.steady = None

    def _serial(self, s: For) -> None:
        extent = self.resolve(s.extent)
        ask = dict(s.notes).get(PREFETCH)
        if extent.is_const and extent.value == 1:
            with self.bound(s.var, 0):
                self._iteration(s.var, s.body, ask)
            return
        count = ints.emit_uniform(self, extent)
        self._count_loop("0", count, s.var, s.body, ask)

    def _iteration(self, name: str, body: Stmt, ask: Ask | None) -> None:
        """A loop's body, once, and first what it asks for."""
        if ask is not None:
            memory.ask_for(self, name, body, ask)
        self.statement(body)

    def _count_loop(
        self, first: str, last: str, name: str, body: Stmt, ask: Ask | None = None
    ) -> None:
        """for name in [first, last): body; twice, where that saves asking how to store."""
        t = self.text
        some = past.asked_once(self, name, body) if self.streams and self.past is None else ""
        if not some:
            self._counted(first, last, name, body, ask)
            return
        then, other, done = t.label("past"), t.label("plain"), t.label("done")
        t.branch(some, then, other)
        for label, self.past in ((then, True), (other, False)):
            t.start(label)
            self._counted(first, last, name, body, ask)
            t.jump(done)
        self.past = None
        t.start(done)

    def _counted(self, first: str, last: str, name: str, body: Stmt, ask: Ask | None) -> None:
        t = self.text
        head, inside, done = t.label("head"), t.label("body"), t.label("done")
        before = t.block
        known, scopes, setup = frozenset(self._sizes), len(self._scopes), t.hole()
        t.jump(head)
        t.start(head)
        i, step = t.name("i"), t.name("n")
        latch = t.label("latch")
        t.line(f"{i} = phi i64 [ {first}, %{before} ], [ {step}, %{latch} ]")
        loop = Loop(name, first, known, scopes, before, latch, setup, t.hole())
        t.branch(t.assign(f"icmp slt i64 {i}, {last}"), inside, done)
        t.start(inside)
        self._sizes[name] = i
        self.loops.append(loop)
        with self.scope():
            self._iteration(name, body, ask)
        self.loops.pop()
        del self._sizes[name]
        t.jump(latch)
        t.start(latch)
        t.hole().extend(loop.last)
        t.line(f"{step} = add nsw i64 {i}, 1")
        t.jump(head)
        t.start(done)

    def _vectorized(self, s: For) -> None:
        if self.lanes > 1:
            raise InvalidModelError(f"{self.name}: a vectorized loop inside another")
        extent = self.resolve(s.extent)
        if extent.value < 1:
            return  # no lanes: there is no such vector
        if extent.value == 1:
            with self.bound(s.var, 0):
                self.statement(s.body)
            return
        notes = dict(s.notes)
        self.stream_from, self.ahead = notes.get(STREAM), notes.get(PREFETCH)
        self.parts_from = notes.get(PARTS)
        if self.ahead is not None:
            loads = (n for n in walk(s.body) if isinstance(n, Load))
            self.ahead_to_write = all(n.source.name != self.ahead[0] for n in loads)
        with self.vector(s.var, extent.value):
            self.statement(s.body)
        self.stream_from = self.parts_from = self.ahead = None

    def _if(self, s: If) -> None:
        sizes = conditions.of(self, s.cond)
        if sizes is None:
            self._choice(s, sizes)
        elif (known := sizes.outcome) is not None:
            body = s.then if known else s.otherwise
            if body is not None:
                with self.scope(straight=True):
                    self.statement(body)
        elif (all_lanes := sizes.all_or_none()) is not None:
            self._branch(all_lanes, s)
        elif (whole := sizes.all_for(s)) is not None:
            t = self.text
            then, part, done = t.label("whole"), t.label("part"), t.label("done")
            t.branch(whole, then, part)
            t.start(then)
            with self.scope():
                self.statement(s.then)
            t.jump(done)
            t.start(part)
            with self.scope():
                self._choice(s, sizes)
            t.jump(done)
            t.start(done)
        else:
            self._choice(s, sizes)

    def _choice(self, s: If, sizes: conditions.Condition | None) -> None:
        """Lanes under masks, or a branch where all lanes share the condition, of which `sizes` is
        what is known."""
        c = exprs.emit(self, s.cond)
        if c.lanes > 1:
            alone = s.otherwise is None and self.mask is None and c.lanes <= UNASKED
            some = alone and sizes is not None and sizes.holds_in_first
            self._masked_branch(c.text, s.then, some=some)
            if s.otherwise is not None:
                self._masked_branch(c.text, s.otherwise, negate=True)
            return
        if s.otherwise is None and isinstance(s.then, Store) and memory.store_if(self, c, s.then):
            return
        # What registers take up is loaded next to the sum that it goes into.
        if isinstance(s.then, Store) and s.then.buffer.scope != "register":
            self._ahead(s.cond, s.then)
        self._branch(c.text, s)

    def _branch(self, condition: str, s: If) -> None:
        t = self.text
        then, done = t.label("then"), t.label("done")
        other = done if s.otherwise is None else t.label("else")
        t.branch(condition, then, other)
        for label, body in ((then, s.then), (other, s.otherwise)):
            if body is not None:
                t.start(label)
                with self.scope():
                    self.statement(body)
                t.jump(done)
        t.start(done)

    def _ahead(self, cond: Expr, s: Store) -> None:
        """Compute before a branch what a value stored in it has in common with those of other steps
        of an unrolled loop, which have branches of their own."""
        if self.steady is None:
            return
        chosen = {n for x in walk(cond) if isinstance(x, Index) for n in x.int_.names}
        with self._computing(s):
            steps = frozenset(chosen & self._const_sizes.keys())
            exprs.emit_common(self, self.steady, s.value, steps)

    def _masked_branch(
        self, condition: str, body: Stmt, *, negate: bool = False, some: bool = False
    ) -> None:
        """`body` for the lanes where the condition holds; skipped where there are none, unless it
        is known that there are `some`."""
        t = self.text
        with self.masked(condition, negate=negate):
            done = ""
            if not some:
                here, done = t.label("some"), t.label("done")
                t.branch(self.any_active(), here, done)
                t.start(here)
            self.mask_is_nonempty = True
            with self.scope(straight=some):
                self.statement(body)
            if done:
                t.jump(done)
                t.start(done)

    def _while(self, s: While) -> None:
        t = self.text
        head, inside, done = t.label("head"), t.label("body"), t.label("done")
        t.jump(head)
        t.start(head)
        with self.scope():
            t.branch(exprs.emit(self, s.cond).text, inside, done)
            t.start(inside)
            with self.scope():
                self.statement(s.body)
        t.jump(head)
        t.start(done)

    def _let(self, variable: Var, value: Expr, body: Stmt) -> None:
        v = exprs.emit(self, value)
        if variable.dtype is i64 and v.lanes == 1:
            self._sizes[variable.name] = v.text
            if isinstance(value, Index) and value.int_.flags:
                self.facts.define(variable.name, value.int_)
            elif isinstance(value, Index):
                self.facts.assume_equal(var(variable.name), value.int_)
        else:
            self._vars[variable.name] = v
        self.statement(body)
        self._sizes.pop(variable.name, None)
        self._vars.pop(variable.name, None)

    def _alloc(self, s: Alloc, then: Callable[[], None] | None = None) -> None:
        """The buffer, and what is done while it lives: the body, or `then`."""
        buffer, t = s.buffer, self.text
        inside = then or (lambda: self.statement(s.body))
        if buffer.scope == "register":
            self._register(buffer, unpacked=self.lanes == 1 and pairs.keeps_unpacked(self, s))
            known = self.numbers
            if buffer.dtype.is_float and _holds_numbers(s):
                self.numbers = known | {buffer}
            inside()
            self.numbers = known
        elif buffer.scope == "scratch":
            size = self._most(buffer.room * memory.vector_bytes(buffer, self.lanes))
            mark = context.scratch_mark(t)
            pointer = context.scratch(self, size)
            self._places[buffer.name] = (buffer, Place(pointer, self.lanes))
            inside()
            context.scratch_release(t, mark, pointer)
        elif buffer.scope == "arena":
            size = ints.emit_uniform(self, buffer.room * buffer.dtype.bytes)
            self._places[buffer.name] = (buffer, Place(context.arena(self, size)))
            inside()
        else:
            raise InvalidModelError(f"{buffer.name}: cannot allocate scope {buffer.scope!r} here")
        del self._places[buffer.name]

    def _outputs(self, s: Stmt) -> None:
        """Many outputs are no deep nest: `prepare` has one for each weight."""
        opened: list[Buffer] = []
        while isinstance(s, Alloc) and s.buffer.scope.startswith("output"):
            b = s.buffer
            shape = [ints.emit_uniform(self, d) for d in b.shape]
            pointer = context.output(self, int(b.scope[len("output") :]), b.dtype, shape)
            self._places[b.name] = (b, Place(pointer))
            opened.append(b)
            s = s.body
        self.statement(s)
        for b in opened:
            del self._places[b.name]

    def _register(self, buffer: Buffer, *, unpacked: bool) -> None:
        count = self.resolve(buffer.room).value
        element = vector_type(memory_type(buffer.dtype), self.lanes)
        size = count * buffer.dtype.bytes
        if size >= KEPT:
            pointer = self.text.kept(size * self.lanes)
        else:
            align = max(memory.align_of(buffer, self.lanes), min(64, _power_of_two(size)))
            pointer = self.text.alloca(f"[{count} x {element}]", align)
        self._places[buffer.name] = (buffer, Place(pointer, self.lanes, unpacked))

    def _most(self, size: Int) -> str:
        """A size; in lanes, the greatest of theirs."""
        if not self.is_varying(size):
            return ints.emit_uniform(self, size)
        kind, text = vector_type("i64", self.lanes), ints.emit_varying(self, size)
        name = f"llvm.vector.reduce.smax.v{self.lanes}i64"
        return self.text.intrinsic(name, "i64", [(kind, text)])

    def _invoke(self, s: Invoke) -> None:
        t = self.text
        args = [("ptr", "%ctx")]
        for arg in s.args:
            if isinstance(arg, BufferRef):
                args.append(("ptr", memory.address_of(self, arg)))
            else:
                assert isinstance(arg, Expr)
                args.append(("i64", exprs.emit(self, arg).text))
        params = ", ".join(kind for kind, _ in args)
        if not square.define(t.module, s.callee) and not multiply_add.define(
            t.module, s.callee, self.options.contract
        ):
            t.module.declare(f"declare i32 @{s.callee}({params})")
        actual = ", ".join(f"{kind} {text}" for kind, text in args)
        self.leave_on_error(t.assign(f"call i32 @{s.callee}({actual})"))

    # -- parallel loops --------------------------------------------------------------------------

    def _parallel(self, s: For) -> None:
        t = self.text
        if self.lanes > 1:
            raise InvalidModelError(f"{self.name}: a parallel loop inside a vectorized one")
        count = ints.emit_uniform(self, self.resolve(s.extent))
        captured = self._captures(s)
        self._bodies += 1
        inner = Emitter(t.module, f"{self.name}.par{self._bodies}", self.facts, self.options)
        inner.sites = self.sites
        inner._noalias, inner._params = self._noalias, self._params
        inner._const_sizes = dict(self._const_sizes)
        inner._sizes = {n: str(v) for n, v in self._const_sizes.items()}
        closure = t.alloca(f"[{max(len(captured), 1)} x i64]", 16)
        for k, (kind, name, _) in enumerate(captured):
            slot = t.assign(f"getelementptr i64, ptr {closure}, i64 {k}")
            t.line(f"store {kind} {self._captured_text(kind, name)}, ptr {slot}, align 8")
        inner.parallel_body(s, captured)
        grain = ints.emit_uniform(self, as_int(dict(s.notes).get("grain", 1)))
        code = context.parallel(self, inner.name, closure, count, grain)
        if self.tiles:  # this thread had a share of the loop, and gave them up
            tiles.configure(t)
        self.leave_on_error(code)

    def _captured_text(self, kind: str, name: str) -> str:
        if kind == "ptr":
            return self._places[name][1].pointer
        return self._sizes[name] if name in self._sizes else self._vars[name].text

    def _captures(self, s: For) -> list[tuple[str, str, Any]]:
        """(LLVM type, name, buffer or variable's type) of what the loop body uses from outside."""
        used = uses(s)
        out: list[tuple[str, str, Any]] = []
        out += [("ptr", n, b) for n, b in used.buffers.items() if n in self._places]
        names = [*used.sizes, *(n for n in used.scalars if n not in used.sizes)]
        for n in names:
            if n in self._sizes and n not in self._const_sizes:
                out.append(("i64", n, None))
            elif n in self._vars:
                out.append((value_type(used.scalars[n], 1), n, used.scalars[n]))
        return out

    def parallel_body(self, s: For, captured: list[tuple[str, str, Any]]) -> None:
        """Emit the function that runs iterations [begin, end) of the loop.

        What it captures comes as parameters, which can say that nothing else points into a buffer;
        the pool calls another one, which takes them out of the closure.
        """
        outer = FunctionText(self.text.module)
        params, args = ["ptr %ctx"], ["ptr %ctx"]
        for k, (kind, name, what) in enumerate(captured):
            slot = outer.assign(f"getelementptr i64, ptr %closure, i64 {k}")
            args.append(f"{kind} {outer.assign(f'load {kind}, ptr {slot}, align 8')}")
            params.append(f"{kind}{' noalias' * (name in self._noalias)} %c{k}")
            if kind == "ptr":
                self._places[name] = (what, Place(f"%c{k}"))
            elif what is None:
                self._sizes[name] = f"%c{k}"
            else:
                self._vars[name] = Val(f"%c{k}", what, 1)
        ends = ["i64 %begin", "i64 %end"]
        self._begin(s.body)
        self._iterations(s.var, s.body)
        self.leave("0")
        body = f"{self.name}.body"
        header = f"define internal i32 @{body}({', '.join([*params, *ends])})"
        self.text.module.functions.append(self.text.render(header))
        status = outer.assign(f"call i32 @{body}({', '.join([*args, *ends])})")
        outer.line(f"ret i32 {status}")
        header = f"define internal i32 @{self.name}(ptr %ctx, ptr %closure, i64 %begin, i64 %end)"
        outer.module.functions.append(outer.render(header))

    def _begin(self, body: Stmt) -> None:
        """What a function of this body does before all else, and undoes where it is left."""
        self.streams = past.streams(body)
        calls = (s for s in own_statements(body) if isinstance(s, Invoke))
        self.tiles = any(tiles.uses_tiles(s.callee) for s in calls)
        if self.tiles:
            tiles.configure(self.text)

    def _iterations(self, name: str, body: Stmt) -> None:
        """The sub-range of a parallel loop. Memory of the thread is got once, not each time round:
        an iteration never relies on what it finds there."""
        match body:
            case Alloc(buffer, inner) if buffer.scope == "scratch" and all(
                name not in extent.names for extent in (*buffer.shape, *buffer.strides)
            ):
                self._alloc(body.replace(body=Nop()), lambda: self._iterations(name, inner))
            case _:
                self._count_loop("%begin", "%end", name, body)

    # -- whole functions -------------------------------------------------------------------------

    def function(self, f: Function) -> None:
        """Emit a kernel."""
        notes = dict(f.notes)
        self._noalias = frozenset(notes.get("noalias", ()))
        self._params = frozenset(b.name for b in f.buffers)
        params = ["ptr %ctx"]
        for k, b in enumerate(f.buffers):
            attribute = " noalias" if b.name in self._noalias else ""
            params.append(f"ptr{attribute} %b{k}")
            self._places[b.name] = (b, Place(f"%b{k}"))
        signed = set(notes.get("signed", ()))
        for k, name in enumerate(f.sizes):
            params.append(f"i64 %s{k}")
            self._sizes[name] = f"%s{k}"
            if name in signed:
                self.facts.declare(name, min=None)
            else:
                self.facts.declare(name)
        self._begin(f.body)
        self.statement(f.body)
        self.leave("0")
        header = f"define i32 @{f.name}({', '.join(params)})"
        self.text.module.functions.append(self.text.render(header))

    def host(self, f: Function) -> None:
        """Emit an entry point `int32 @name(ctx*)`; buffers come from the context."""
        self._params = frozenset(b.name for b in f.buffers)
        for b in f.buffers:
            self._places[b.name] = (b, Place(context.host_buffer(self, b)))
        self.statement(f.body)
        self.leave("0")
        self.text.module.functions.append(self.text.render(f"define i32 @{f.name}(ptr %ctx)"))


def _holds_numbers(s: Alloc) -> bool:
    """Whether only what is no NaN is ever stored in the buffer."""
    known = (s.buffer,)
    stores = [x for x in statements(s.body) if isinstance(x, Store) and x.buffer is s.buffer]
    calls = any(isinstance(x, Invoke) for x in statements(s.body))
    return not calls and all(exprs.is_number(x.value, known) for x in stores)


def emit_kernel(f: Function, options: Options | None = None) -> tuple[str, tuple[Site, ...]]:
    """The LLVM IR text of a kernel, and the checks in it that can fail."""
    module = ModuleText()
    e = Emitter(module, f.name, Facts(), options or Options())
    e.function(f)
    return module.render(), tuple(e.sites)


def emit_host(f: Function, options: Options | None = None) -> tuple[str, tuple[Site, ...]]:
    """The LLVM IR text of a host function, and the checks in it that can fail."""
    module = ModuleText()
    e = Emitter(module, f.name, Facts(), options or Options())
    e.host(f)
    return module.render(), tuple(e.sites)


def emit_inside(
    t: FunctionText, f: Function, pointers: Mapping[str, str], sizes: Mapping[str, str],
    options: Options,
) -> None:  # fmt: skip
    """A program as part of another function; where its buffers are, and its sizes' values."""
    e = Emitter(t.module, f.name, Facts(), options)
    e.text = t
    e._noalias = frozenset(dict(f.notes).get("noalias", ()))
    e._params = frozenset(pointers)
    e._places = {b.name: (b, Place(pointers[b.name])) for b in f.buffers}
    for name, value in sizes.items():
        e._sizes[name] = value
        e.facts.declare(name, min=None)
    e.statement(f.body)


def _power_of_two(n: int) -> int:
    p = 1
    while p < n:
        p *= 2
    return p
