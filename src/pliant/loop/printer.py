"""Loop programs as Python text that parses back to the same object.

    @loop
    def row_sums(x: f32["n", "k"], y: f32["n"], n: i64, k: i64):
        for a in parallel(n):
            for b in grid(k):
                with block("sum", S(a, n), R(b, k)) as (i, r):
                    with init():
                        y[i] = 0.0
                    y[i] = y[i] + x[i, r]

A reducer is defined first, and used like a function of what is there and what comes in:

    @loop
    def best(x: f32["n"], v: f32[()], at: i64[()], n: i64):
        @reducer(-inf, 9223372036854775807)
        def argmax_f32(_a0: f32, _a1: i64, _b0: f32, _b1: i64):
            …
            return select(_e0, _b0, _a0), select(_e0, _b1, _a1)
        for a in grid(n):
            with block("best", R(a, n)) as (r,):
                v[()], at[()] = argmax_f32(v[()], at[()], x[r], r)

`S(a, n)` is an iterator of extent n bound to a. `acc = alloc(f32[4], scope="register")` and
`m: i64 = n + 3` live to the end of their suite; where that would be too long they are written
`with alloc(…) as acc:` and `with let(i64, …) as m:`. A loop bound to a thread axis is
`for i in threadIdx.x(32):`; `@device` says that threads run at the same time (loop/threads.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from pliant.base.dtypes import DType, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr, Index
from pliant.ir.node import Node
from pliant.ir.printer import (
    as_name,
    dims_text,
    expr_text,
    int_text,
    is_name,
    pairs_text,
    quote,
    span_text,
    tuple_text,
    type_text,
)  # fmt: skip
from pliant.loop.reducer import Reducer
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
    compact_strides,
    statements,
)  # fmt: skip
from pliant.loop.threads import AXES, DEVICE_NOTE
from pliant.sym.expr import as_int

LOOP_WORDS: Final = {
    "serial": "grid", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled",
    **{axis: axis for axis in AXES},
}  # fmt: skip
HOST_NOTE: Final = ("level", "host")  # first note of a host function
LEVEL_WORDS: Final = {HOST_NOTE: "host", DEVICE_NOTE: "device"}  # what such functions print as: @
STATEMENT_WORDS: Final = frozenset({"alloc", "barrier", "check", "invoke"})
_INDENT: Final = "    "


def function_text(function: Function, name: str | None = None) -> str:
    """The program as text; `name` is what to call it in the text, if not by its name."""
    return "\n".join(_Printer().function(function, name))


def statement_lines(function: Function) -> tuple[list[str], dict[Node, int]]:
    """The text by lines, and the line (from 0) where each statement and reducer begins first."""
    printer = _Printer()
    return printer.function(function, None), printer.places


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: dict[Node, int] = {}
        self._reducers: dict[str, Reducer] = {}
        self._scalars: dict[str, DType] = {}
        self._parts = 0
        self._names: dict[Buffer, str] = {}

    def function(self, function: Function, name: str | None) -> list[str]:
        if not is_name(function.name):
            raise InvalidModelError(f"{function.name!r} cannot name a function")
        notes, word = function.notes, "loop"
        if notes[:1] and notes[0] in LEVEL_WORDS:
            notes, word = notes[1:], LEVEL_WORDS[notes[0]]
        options = [] if name in (None, function.name) else [f"name={quote(function.name)}"]
        options += [f"notes={pairs_text(notes)}"] if notes else []
        params = [f"{self._name(b)}: {self._buffer_text(b)}" for b in function.buffers]
        params += [f"{s}: i64" for s in function.sizes]
        self.lines.append(f"@{word}({', '.join(options)})" if options else f"@{word}")
        self.lines.append(f"def {name or function.name}({', '.join(params)}):")
        for stmt in statements(function.body):
            if isinstance(stmt, Combine):
                self._reducer(stmt.reducer)
        self.suite(function.body, 1)
        return self.lines

    def suite(self, stmt: Stmt, level: int) -> None:
        """The statement as an indented suite; what opens a scope at its end goes on flat."""
        opened: list[str] = []
        while True:
            self.places.setdefault(stmt, len(self.lines))
            if isinstance(stmt, Seq) and _is_plain(stmt):
                for each in stmt.stmts[:-1]:
                    self.statement(each, level)
                stmt = stmt.stmts[-1]
            elif isinstance(stmt, Alloc):
                self._line(level, f"{self._name(stmt.buffer)} = {self._alloc_text(stmt.buffer)}")
                stmt = stmt.body
            elif isinstance(stmt, Let):
                value = self._expr(stmt.value, level, stmt.var.type)
                self._line(level, f"{stmt.var.name}: {stmt.var.type} = {value}")
                if stmt.var.type is not i64 and stmt.var.name not in self._scalars:
                    self._scalars[stmt.var.name] = stmt.var.type
                    opened.append(stmt.var.name)
                stmt = stmt.body
            else:
                self.statement(stmt, level)
                break
            if isinstance(stmt, Seq) and not _is_plain(stmt):
                self.statement(stmt, level)
                break
        for name in opened:
            del self._scalars[name]

    def statement(self, stmt: Stmt, level: int) -> None:
        """One statement that leaves no scope open."""
        self.places.setdefault(stmt, len(self.lines))
        match stmt:
            case Nop():
                self._line(level, "pass")
            case Store(buffer, indices, value):
                at = self._at(buffer, indices, level)
                self._line(level, f"{at} = {self._expr(value, level, buffer.dtype)}")
            case Combine():
                self._combine(stmt, level)
            case Seq():
                self._line(level, "with sequence():")
                for each in stmt.stmts:
                    self.statement(each, level + 1)
                if not stmt.stmts:
                    self._line(level + 1, "...")
            case For():
                self._for(stmt, level)
            case Block():
                self._block(stmt, level)
            case Alloc(buffer, body):
                self._line(level, f"with {self._alloc_text(buffer)} as {self._name(buffer)}:")
                self.suite(body, level + 1)
            case Let():
                self._let(stmt, level)
            case If():
                self._if(stmt, level)
            case While(cond, body):
                self._line(level, f"while {self._expr(cond, level)}:")
                self.suite(body, level + 1)
            case Check():
                self._check(stmt, level)
            case Barrier(scope):
                self._line(level, f"barrier({'' if scope == 'block' else quote(scope)})")
            case Invoke(callee, args):
                parts = [self._argument(a, level) for a in args]
                if not is_name(callee) or callee in STATEMENT_WORDS:
                    parts, callee = [quote(callee), *parts], "invoke"
                self._line(level, f"{callee}({', '.join(parts)})")
            case _:
                raise InvalidModelError(f"cannot print {type(stmt).__name__}")

    def _reducer(self, by: Reducer) -> None:
        """The definition, if it is not there yet."""
        if self._reducers.setdefault(by.name, by) is not by:
            raise InvalidModelError(f"two reducers are called {by.name}")
        if by in self.places:
            return
        if not is_name(by.name):
            raise InvalidModelError(f"{by.name!r} cannot name a reducer")
        self.places[by] = len(self.lines)
        start = [expr_text(v, type=v.dtype)[1] for v in by.identity]
        self._line(1, f"@reducer({', '.join(start)})")
        params = [f"{p.name}: {p.type}" for p in by.parameters]
        self._line(1, f"def {by.name}({', '.join(params)}):")
        hidden, self._scalars = self._scalars, {p.name: p.type for p in by.parameters}
        results = [self._expr(r, 2, r.dtype) for r in by.results]
        self._line(2, f"return {', '.join(results)}")
        self._scalars = hidden

    def _combine(self, stmt: Combine, level: int) -> None:
        places = ", ".join(self._at(t.buffer, t.indices, level) for t in stmt.targets)
        values = ", ".join(self._expr(v, level, v.dtype) for v in stmt.values)
        self._line(level, f"{places} = {stmt.reducer.name}({places}, {values})")

    def _for(self, stmt: For, level: int) -> None:
        names, extents, body, kind = [stmt.var], [stmt.extent], stmt.body, stmt.kind
        notes = f", notes={pairs_text(stmt.notes)}" if stmt.notes else ""
        while not notes and _continues(body, stmt, names):
            self.places.setdefault(body, len(self.lines))
            names.append(body.var)
            extents.append(body.extent)
            body = body.body
        count = ", ".join(map(int_text, extents))
        word = LOOP_WORDS.get(kind)
        run = f"{word}({count}{notes})" if word else f"each({count}, kind={quote(kind)}{notes})"
        self._line(level, f"for {', '.join(names)} in {run}:")
        self.suite(body, level + 1)

    def _block(self, stmt: Block, level: int) -> None:
        parts = [quote(stmt.name)]
        for it, binding in zip(stmt.iters, stmt.bindings, strict=True):
            parts.append(f"{it.kind}({int_text(binding)}, {int_text(it.extent)})")
        if stmt.where is not None:
            parts.append(f"where={self._expr(stmt.where, level)}")
        if stmt.notes:
            parts.append(f"notes={pairs_text(stmt.notes)}")
        if stmt.spans:
            parts.append(f"spans={tuple_text(map(span_text, stmt.spans))}")
        names = f" as {tuple_text(i.var for i in stmt.iters)}" if stmt.iters else ""
        self._line(level, f"with block({', '.join(parts)}){names}:")
        if stmt.init is not None:
            self._line(level + 1, "with init():")
            self.suite(stmt.init, level + 2)
        self.suite(stmt.body, level + 1)

    def _let(self, stmt: Let, level: int) -> None:
        name, dtype = stmt.var.name, stmt.var.type
        value = self._expr(stmt.value, level, dtype)
        self._line(level, f"with let({dtype}, {value}) as {name}:")
        new = dtype is not i64 and name not in self._scalars
        if new:
            self._scalars[name] = dtype
        self.suite(stmt.body, level + 1)
        if new:
            del self._scalars[name]

    def _if(self, stmt: If, level: int) -> None:
        text = self._expr(stmt.cond, level)
        self._line(level, f"if {text}:")
        self.suite(stmt.then, level + 1)
        while isinstance(stmt.otherwise, If):
            parts, text = self._parts_of(stmt.otherwise.cond)
            if parts:  # they need a line before the condition: no elif
                break
            stmt = stmt.otherwise
            self.places.setdefault(stmt, len(self.lines))
            self._line(level, f"elif {text}:")
            self.suite(stmt.then, level + 1)
        if stmt.otherwise is not None:
            self._line(level, "else:")
            self.suite(stmt.otherwise, level + 1)

    def _check(self, stmt: Check, level: int) -> None:
        parts = [self._expr(stmt.cond, level), quote(stmt.message)]
        parts += [self._expr(v, level) for v in stmt.values]
        if stmt.error != "ShapeError":
            parts.append(f"error={quote(stmt.error)}")
        self._line(level, f"check({', '.join(parts)})")

    def _argument(self, arg: Any, level: int) -> str:
        if not isinstance(arg, BufferRef):
            return self._expr(arg, level)
        if arg.indices == (Index(as_int(0)),) * arg.buffer.rank:
            return self._name(arg.buffer)
        return f"address({self._at(arg.buffer, arg.indices, level)})"

    def _at(self, buffer: Buffer, indices: Sequence[Expr], level: int) -> str:
        return f"{self._name(buffer)}[{', '.join(self._expr(i, level) for i in indices) or '()'}]"

    def _expr(self, expr: Expr, level: int, dtype: DType | None = None) -> str:
        """The expression's text; lines that name its parts go before the statement."""
        lines, text = self._parts_of(expr, dtype)
        self._parts += len(lines)
        for line in lines:
            self._line(level, line)
        return text

    def _parts_of(self, expr: Expr, dtype: DType | None = None) -> tuple[list[str], str]:
        return expr_text(
            expr,
            type=dtype,
            source_name=self._name,
            scalars=self._scalars,
            first_name=self._parts,
        )

    def _name(self, buffer: Buffer | Flat) -> str:
        """What the buffer is called in the text: its name, if Python allows it."""
        if isinstance(buffer, Flat):
            return f"{self._name(buffer.buffer)}.flat"
        if is_name(buffer.name):
            return buffer.name
        found = self._names.get(buffer)
        if found is None:
            stem = found = as_name(buffer.name)
            taken, k = set(self._names.values()), 1
            while found in taken:
                found, k = f"{stem}_{k}", k + 1
            self._names[buffer] = found
        return found

    def _buffer_text(self, buffer: Buffer) -> str:
        text = type_text(buffer.dtype, buffer.shape)
        options = self._options(buffer, "param", quoted=True)
        return f"buffer({', '.join([text, *options])})" if options else text

    def _alloc_text(self, buffer: Buffer) -> str:
        text = type_text(buffer.dtype, buffer.shape, quoted=False)
        return f"alloc({', '.join([text, *self._options(buffer, 'register', quoted=False)])})"

    def _options(self, buffer: Buffer, scope: str, *, quoted: bool) -> list[str]:
        options = [] if is_name(buffer.name) else [f"name={quote(buffer.name)}"]
        if buffer.scope != scope:
            options.append(f"scope={quote(buffer.scope)}")
        if buffer.strides != compact_strides(buffer.shape):
            dims = [dims_text((s,), quoted=quoted) for s in buffer.strides]
            options.append(f"strides={tuple_text(dims)}")
        if buffer.align:
            options.append(f"align={buffer.align}")
        return options

    def _line(self, level: int, text: str) -> None:
        self.lines.append(_INDENT * level + text)


def _continues(inner: Stmt, outer: For, names: list[str]) -> TypeGuard[For]:
    """Whether the inner loop fits on the line of the outer one."""
    return (
        isinstance(inner, For)
        and inner.kind == outer.kind
        and not inner.notes
        and inner.extent.names.isdisjoint(names)
    )


def _is_plain(stmt: Seq) -> bool:
    """Whether the sequence is what a suite of several statements means."""
    return len(stmt.stmts) > 1 and not any(isinstance(s, Seq) for s in stmt.stmts)
