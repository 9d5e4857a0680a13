"""Check that a loop program is well formed; the first fault is reported with its surroundings.

What holds of a verified program:

    names       defined before use; nothing hides a name of an enclosing scope
    buffers     declared (a parameter or an `Alloc` around), accessed with as many i64 indices as
                dimensions; those allocated in registers have constant extents
    types       of every operator, bound scalar, condition and stored value
    reducers    of different names where they differ
    loops       of a known kind; vectorized and unrolled ones have constant extents; those of
                threads keep the rules of loop/threads.py, barriers too
    blocks      iterators are of kind S, R or O; a binding that is a number lies in its domain, and
                no loop variable alone is bound to two iterators (instances would be left out)
    calls       addresses come before scalars; checks name an error class and fill their message
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pliant.base import errors
from pliant.base.dtypes import DType, boolean, i64
from pliant.base.errors import InvalidModelError, PliantError
from pliant.base.spans import Span
from pliant.ir.check import type_fault
from pliant.ir.expr import Axis, Binary, Expr, Index, Load, Var
from pliant.ir.tensor import own_nodes
from pliant.loop.printer import LOOP_WORDS, statement_lines
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
)
from pliant.loop.threads import thread_fault
from pliant.sym.expr import Int

CONTEXT_LINES: Final = 5  # before and after the fault


class _FaultError(Exception):
    """What is wrong; where is known by the walk."""


def verify_function(function: Function) -> None:
    """Raise InvalidModelError, with the lines around the fault, unless all is well formed."""
    verifier = _Verifier(function)
    try:
        verifier.run()
    except _FaultError as fault:
        raise InvalidModelError(_report(function, verifier, str(fault))) from None


class _Verifier:
    """One walk over the statements. `names` and `buffers` are what is in scope at this point."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.at: Stmt | None = None
        self.spans: tuple[Span, ...] = ()
        self.names: dict[str, DType] = {}
        self.buffers: dict[str, Buffer] = {}
        self.reducers: dict[str, Reducer] = {}  # of the whole function
        self._stack: list[tuple[str, Any]] = []

    def run(self) -> None:
        """Visit all statements; leaving a scope is an entry of the stack like any other."""
        for buffer in self.function.buffers:
            self._declare(buffer)
        for size in self.function.sizes:
            self._bind(size, i64)
        self._stack.append(("visit", self.function.body))
        while self._stack:
            action, what = self._stack.pop()
            match action:
                case "visit":
                    self.at = what
                    self._visit(what)
                case "unbind":
                    del self.names[what]
                case "undeclare":
                    del self.buffers[what]
                case "spans":
                    self.spans = what
        fault = thread_fault(self.function)
        if fault is not None:
            self.at = fault[0]
            raise _FaultError(fault[1])

    def _visit(self, stmt: Stmt) -> None:
        match stmt:
            case Nop() | Barrier():
                pass
            case Seq(stmts):
                self._stack += [("visit", s) for s in reversed(stmts)]
            case Store(buffer, indices, value):
                self._store(buffer, indices, value)
            case Combine():
                self._combine(stmt)
            case For():
                self._for(stmt)
            case Block():
                self._block(stmt)
            case Alloc(buffer, body):
                self._alloc(buffer)
                self._stack += [("undeclare", buffer.name), ("visit", body)]
            case Let(var, value, body):
                self._typed(value, var.type, f"the value of {var.name}")
                self._bind(var.name, var.type)
                self._stack += [("unbind", var.name), ("visit", body)]
            case If(cond, then, otherwise):
                self._expr(cond)
                branches = [then] if otherwise is None else [otherwise, then]
                self._stack += [("visit", s) for s in branches]
            case While(cond, body):
                self._typed(cond, boolean, "the condition of a while")
                self._stack.append(("visit", body))
            case Check():
                self._check(stmt)
            case Invoke():
                self._invoke(stmt)
            case _:
                raise _FaultError(f"{type(stmt).__name__} is no statement")

    def _bind(self, name: str, dtype: DType) -> None:
        if name in self.names:
            raise _FaultError(f"{name} hides a variable of the same name")
        self.names[name] = dtype

    def _declare(self, buffer: Buffer) -> None:
        if buffer.name in self.buffers:
            raise _FaultError(f"buffer {buffer.name} hides a buffer of the same name")
        self.buffers[buffer.name] = buffer

    def _alloc(self, buffer: Buffer) -> None:
        if buffer.scope == "param":
            raise _FaultError(f"{buffer.name} is allocated here and cannot be a parameter")
        for extent in (*buffer.shape, *buffer.strides):
            self._integer(extent, f"the layout of {buffer.name}")
            if buffer.scope == "register" and not extent.is_const:
                raise _FaultError(f"{buffer.name} is in registers, so {extent} must be a constant")
        self._declare(buffer)

    def _for(self, stmt: For) -> None:
        if stmt.kind not in LOOP_WORDS:
            raise _FaultError(f"no kind of loop {stmt.kind!r}")
        self._integer(stmt.extent, f"the extent of {stmt.var}")
        if stmt.kind in ("vectorized", "unrolled") and not stmt.extent.is_const:
            raise _FaultError(f"{stmt.var} is {stmt.kind}, so {stmt.extent} must be a constant")
        self._bind(stmt.var, i64)
        self._stack += [("unbind", stmt.var), ("visit", stmt.body)]

    def _block(self, stmt: Block) -> None:
        outer, self.spans = self.spans, stmt.spans or self.spans
        alone: dict[Int, str] = {}
        for it, binding in zip(stmt.iters, stmt.bindings, strict=True):
            self._integer(binding, f"the binding of {it.var}")
            self._integer(it.extent, f"the extent of {it.var}")
            if it.kind not in ("S", "R", "O"):
                raise _FaultError(f"{it.var}: no kind of iterator {it.kind!r}")
            if binding.is_const:
                inside = binding.value >= 0 and (
                    not it.extent.is_const or binding.value < max(it.extent.value, 1)
                )
                if not inside and not _never(stmt.where):
                    raise _FaultError(f"{it.var} is {binding}, outside [0, {it.extent})")
            elif alone.setdefault(binding, it.var) != it.var and binding.sole_atom is not None:
                raise _FaultError(f"{binding} is bound to {alone[binding]} and to {it.var}")
        for it in stmt.iters:
            self._bind(it.var, i64)
        if stmt.where is not None:
            self._typed(stmt.where, boolean, "the predicate")
        self._stack += [("spans", outer), *(("unbind", it.var) for it in stmt.iters)]
        self._stack.append(("visit", stmt.body))
        if stmt.init is not None:
            self._stack.append(("visit", stmt.init))

    def _store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
        self._access(buffer, indices, "store to")
        if buffer.scope.startswith(("weight", "input")):
            raise _FaultError(f"store to {buffer.name}, which is read only ({buffer.scope})")
        self._expr(value)

    def _combine(self, stmt: Combine) -> None:
        reducer = stmt.reducer
        if self.reducers.setdefault(reducer.name, reducer) is not reducer:
            raise _FaultError(f"two reducers are called {reducer.name}")
        for target, value in zip(stmt.targets, stmt.values, strict=True):
            self._store(target.buffer, target.indices, value)
        for result in reducer.results:
            exprs = [n for n in own_nodes(result) if isinstance(n, Expr)]
            fault = next((f for e in exprs if (f := type_fault(e))), None)
            if fault:
                raise _FaultError(f"reducer {reducer.name}: {fault}")

    def _check(self, stmt: Check) -> None:
        self._typed(stmt.cond, boolean, "the condition of a check")
        found = getattr(errors, stmt.error, None)
        if not (isinstance(found, type) and issubclass(found, PliantError)):
            raise _FaultError(f"no error class {stmt.error!r}")
        for value in stmt.values:
            self._expr(value)
            if not value.dtype.is_int:
                raise _FaultError(f"a message shows integers, not {value.dtype}")
        try:
            fields = {f for _, f, _, _ in string.Formatter().parse(stmt.message) if f is not None}
        except ValueError as error:
            raise _FaultError(f"the message {stmt.message!r}: {error}") from None
        known = {str(k) for k in range(len(stmt.values))}
        if not fields <= known:
            raise _FaultError(f"the message wants {sorted(fields - known)}, which are not given")

    def _invoke(self, stmt: Invoke) -> None:
        scalars = False
        for arg in stmt.args:
            if isinstance(arg, BufferRef):
                if scalars:
                    raise _FaultError(f"{stmt.callee}: addresses come before scalars")
                self._access(arg.buffer, arg.indices, "address of")
            elif isinstance(arg, Expr):
                scalars = True
                self._expr(arg)
            else:
                raise _FaultError(f"{stmt.callee}: {type(arg).__name__} is no argument")

    def _access(self, buffer: Any, indices: tuple[Expr, ...], what: str) -> None:
        self._declared(buffer, len(indices), what)
        for index in indices:
            self._typed(index, i64, f"an index of {buffer.name}")

    def _declared(self, buffer: Any, rank: int, what: str) -> None:
        if not isinstance(buffer, Buffer):
            raise _FaultError(f"{what} {buffer.name}, which is not a buffer")
        declared = self.buffers.get(buffer.name)
        if declared is None:
            raise _FaultError(f"{what} {buffer.name}, which is not declared here")
        if declared is not buffer:
            raise _FaultError(
                f"{what} {buffer.name}, declared otherwise: {_differ(declared, buffer)}"
            )
        if rank != buffer.rank:
            raise _FaultError(f"{what} {buffer.name} of rank {buffer.rank}: {rank} indices")

    def _typed(self, expr: Expr, dtype: DType, what: str) -> None:
        if expr.dtype is not dtype:
            raise _FaultError(f"{what} is {expr.dtype}, not {dtype}")
        self._expr(expr)

    def _expr(self, root: Expr) -> None:
        """All that is below `root`. Axes of reductions are names for the whole expression."""
        if isinstance(root, Index):
            self._integer(root.int_, "an index")
            return
        nodes = list(own_nodes(root))
        axes = {n.var for n in nodes if isinstance(n, Axis)}
        hidden = axes & self.names.keys()
        if hidden:
            raise _FaultError(f"the axis {min(hidden)} hides a variable of the same name")
        for node in nodes:
            match node:
                case Index(integer):
                    self._integer(integer, "an index", axes)
                case Axis(name, extent):
                    self._integer(extent, f"the extent of {name}", axes)
                case Var(name, dtype):
                    if self.names.get(name) is not dtype:
                        known = self.names.get(name, "not defined here")
                        raise _FaultError(f"{name} is used as {dtype} but is {known}")
                case Load(source, indices):
                    self._load(source, indices)
                case Expr():
                    fault = type_fault(node)
                    if fault:
                        raise _FaultError(fault)

    def _load(self, source: Any, indices: tuple[Expr, ...]) -> None:
        if isinstance(source, Flat):
            self._declared(source.buffer, source.buffer.rank, "load from")
        else:
            self._declared(source, len(indices), "load from")
        for index in indices:  # what is inside them is visited with the whole expression
            if index.dtype is not i64:
                raise _FaultError(f"an index of {source.name} is {index.dtype}, not i64")

    def _integer(self, integer: Int, what: str, axes: Iterable[str] = ()) -> None:
        for name in sorted(integer.names.difference(axes)):
            dtype = self.names.get(name)
            if dtype is None:
                raise _FaultError(f"{name}, in {what}, is not defined here")
            if dtype is not i64:
                raise _FaultError(f"{name}, in {what}, is {dtype} and not a size")


def _differ(declared: Buffer, used: Buffer) -> str:
    for field in ("dtype", "shape", "strides", "scope", "align"):
        a, b = getattr(declared, field), getattr(used, field)
        if a != b:
            return f"{field} {a}, here {b}"
    return "another object"


def _report(function: Function, verifier: _Verifier, fault: str) -> str:
    lines, places = statement_lines(function)
    at = places.get(verifier.at, 1) if verifier.at is not None else 1
    where = f" ({', '.join(map(str, verifier.spans))})" if verifier.spans else ""
    return "\n".join([f"{function.name}: {fault}{where}", *context(lines, at)])


def context(lines: list[str], at: int) -> Iterator[str]:
    """The lines around one, which is marked."""
    first = max(at - CONTEXT_LINES, 0)
    for k, line in enumerate(lines[first : at + CONTEXT_LINES + 1], first):
        yield f"{'>' if k == at else ' '} {k + 1:4} {line}"


def _never(where: Expr | None) -> bool:
    """Whether a block runs for no iteration: a part of its predicate compares numbers, and is
    false. Iterations that a pipeline runs by themselves are such where there are too few."""
    match where:
        case Binary("and", a, b):
            return _never(a) or _never(b)
        case Binary("lt", Index(a), Index(b)) if a.is_const and b.is_const:
            return a.value >= b.value
        case Binary("le", Index(a), Index(b)) if a.is_const and b.is_const:
            return a.value > b.value
    return False
