"""Text of loop programs back to the same objects: the inverse of `printer`.

What people write may be shorter than what is printed:

    y[i] += x[i, r]                     y[i] = y[i] + x[i, r]
    a if c else b,  c and d,  not c     select(c, a, b), c & d, ~c
    0 <= i < n                          (0 <= i) & (i < n)
    for i in range(n):                  for i in grid(n):
    with block("t", S(i), R(r)):        with block("t", S(i, n), R(r, k)) as (vi, vr):

A block without names for its iterators names them after the loops that they are bound to, and an
iterator bound to a loop has its extent where none is written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

from pliant.base.dtypes import DType
from pliant.ir.expr import Expr, Reduce, Var, as_expr
from pliant.ir.node import Node, walk
from pliant.ir.parser import ExprParser, Scope, Text
from pliant.loop.printer import LEVEL_WORDS, LOOP_WORDS
from pliant.loop.reducer import Reducer, parameter
from pliant.loop.rewrite import subst
from pliant.loop.stmt import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    BufferRef,
    Check,
    Combine,
    For,
    Function,
    If,
    Invoke,
    Iter,
    Let,
    Nop,
    Seq,
    Stmt,
    Store,
    While,
    compact_strides,
)  # fmt: skip
from pliant.sym.expr import Int, var

_LOOP_KINDS: Final = {word: kind for kind, word in LOOP_WORDS.items()}
_LEVELS: Final = {"loop": (), **{word: (note,) for note, word in LEVEL_WORDS.items()}}


def parse_function(text: str) -> Function:
    """One program. Raises ParseError with the line."""
    source = Text(text)
    match source.tree.body:
        case [ast.FunctionDef() as node]:
            return function_of(source, node)
    raise source.error(source.tree, "expected one function")


def function_of(text: Text, node: ast.FunctionDef) -> Function:
    """The program that a definition in `text` says."""
    return text.located(node, lambda: _function(text, node))  # type: ignore[no-any-return]


def _function(text: Text, node: ast.FunctionDef) -> Function:
    parser = ExprParser(text, Scope())
    name = node.name
    notes: tuple[tuple[str, Any], ...] = ()
    options: list[ast.keyword] = []
    match node.decorator_list:
        case [ast.Name(id=word)] if word in _LEVELS:
            pass
        case [ast.Call(func=ast.Name(id=word), args=[], keywords=options)] if word in _LEVELS:
            pass
        case _:
            raise text.error(node, "a program begins with @loop, @host or @device")
    for option in options:
        match option.arg:
            case "name":
                name = parser.string(option.value)
            case "notes":
                notes = parser.pairs(option.value)
            case _:
                raise text.error(node, f"no option {option.arg!r}")
    buffers, sizes = parameters(text, node)
    body = suite(text, node.body, buffers)
    return Function(name, buffers, sizes, body, (*_LEVELS[word], *notes))


def parameters(text: Text, node: ast.FunctionDef) -> tuple[tuple[Buffer, ...], tuple[str, ...]]:
    """The buffers that a definition takes, and its sizes."""
    parser = ExprParser(text, Scope())
    buffers: list[Buffer] = []
    sizes: list[str] = []
    for arg in node.args.args:
        if arg.annotation is None:
            raise text.error(arg, f"{arg.arg} has no type")
        if isinstance(arg.annotation, ast.Name):
            sizes.append(arg.arg)
        else:
            buffers.append(_buffer(parser, arg.arg, arg.annotation, "buffer", "param"))
    return tuple(buffers), tuple(sizes)


def suite(
    text: Text, nodes: list[ast.stmt], buffers: tuple[Buffer, ...], by_hand: bool = False
) -> Stmt:
    """The body of a definition that takes these buffers, with the reducers that it defines. In one
    written `by_hand` a name for a sum is a value; else names are for what is printed only once."""
    reducers = [s for s in nodes if isinstance(s, ast.FunctionDef)]
    defined = {s.name: text.located(s, lambda s=s: _reducer(text, s)) for s in reducers}  # type: ignore[misc]
    rest = [s for s in nodes if s not in reducers]
    given = _given_names(rest) if by_hand else frozenset[str]()
    scope = Scope({b.name: b for b in buffers}, unset=given)
    return _Suite(text, defined, by_hand).suite(rest, scope)


def _given_names(nodes: list[ast.stmt]) -> frozenset[str]:
    """Names that assignments give to values."""
    found = set[str]()
    for x in (x for s in nodes for x in ast.walk(s)):
        match x:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if not (isinstance(value, ast.Call) and _called(value) == "alloc"):
                    found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


def _reducer(text: Text, node: ast.FunctionDef) -> Reducer:
    """`@reducer(identity…) def name(a0: f32, …, b0: f32, …): return result, …`."""
    start: list[ast.expr] = []
    match node.decorator_list:
        case [ast.Call(func=ast.Name(id="reducer"), args=start, keywords=[])]:
            pass
        case _:
            raise text.error(node, "a function inside a program is a @reducer(identity…)")
    plain = ExprParser(text, Scope())
    args = node.args.args
    if len(args) != 2 * len(start) or any(a.annotation is None for a in args):
        raise text.error(node, f"{len(start)} values take {2 * len(start)} parameters with types")
    types = [plain.dtype(a.annotation) for a in args if a.annotation is not None]
    identity = tuple(plain.expr(v, t) for v, t in zip(start, types[: len(start)], strict=True))
    names = [f"_{side}{k}" for side in "ab" for k in range(len(start))]
    parts = {a.arg: parameter(Var(n, t)) for a, n, t in zip(args, names, types, strict=True)}
    scope = Scope(parts=parts)
    *lets, last = node.body
    for line in lets:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                scope = scope.with_part(name, ExprParser(text, scope).expr(value))
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case _:
                raise text.error(line, "a reducer names values and returns some")
    if not isinstance(last, ast.Return) or last.value is None:
        raise text.error(last, "a reducer ends with return")
    results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    parser = ExprParser(text, scope)
    wanted = [*types[: len(start)], *[None] * len(results)]
    pairs = zip(results, wanted, strict=False)
    return Reducer(node.name, tuple(parser.expr(r, t) for r, t in pairs), identity)


def _buffer(parser: ExprParser, name: str, node: ast.expr, word: str, scope: str) -> Buffer:
    """`f32["n"]`, or `word(f32["n"], scope=…, strides=…, align=…)`."""
    options: dict[str, ast.expr] = {}
    match node:
        case ast.Call(func=ast.Name(id=called), args=[kind]) if called == word:
            options = {k.arg: k.value for k in node.keywords if k.arg}
            node = kind
    dtype, shape = parser.type(node)
    strides: tuple[Int, ...] = compact_strides(shape)
    align = 0
    for key, value in options.items():
        match key:
            case "name":
                name = parser.string(value)
            case "scope":
                scope = parser.string(value)
            case "strides":
                strides = parser.integers(value)
            case "align":
                align = parser.integer(value).value
            case _:
                raise parser.text.error(value, f"a buffer has no {key!r}")
    return Buffer(name, dtype, shape, strides, scope, align)


_KEEPS: Final = (
    "which it keeps; what changes lies in a buffer: s = alloc(f32[()]), then s[()] = 0.0 and "
    "s[()] += 1.0"
)
_REFUSED: Final[dict[type[ast.stmt], str]] = {
    ast.Return: "not a statement: a program gives nothing back, it stores into its parameters",
    ast.Break: "not a statement: a loop runs to its end; use `while`",
    ast.Continue: "not a statement: use `if`",
}

Wrap = Callable[[Stmt], Stmt]


class _Suite:
    """Statements of one text."""

    def __init__(self, text: Text, reducers: Mapping[str, Reducer], by_hand: bool = False) -> None:
        self.text, self.reducers, self.by_hand = text, reducers, by_hand

    def suite(self, nodes: list[ast.stmt], scope: Scope) -> Stmt:
        """A suite. What opens a scope (alloc, let) takes all that follows as its body."""
        wraps: list[tuple[list[Stmt], Wrap]] = []
        done: list[Stmt] = []
        for node in nodes:
            opened = self._open_at(node, scope)
            if opened is None:
                done.append(self._statement(node, scope))
                continue
            scope, wrap = opened
            if wrap is not None:
                wraps.append((done, wrap))
                done = []
        body = _sequence(done)
        for before, wrap in reversed(wraps):
            body = _sequence([*before, wrap(body)])
        return body

    def _open_at(self, node: ast.stmt, scope: Scope) -> tuple[Scope, Wrap | None] | None:
        return self.text.located(node, lambda: self._open(node, scope))  # type: ignore[no-any-return]

    def _open(self, node: ast.stmt, scope: Scope) -> tuple[Scope, Wrap | None] | None:
        """The scope after a statement that names something, and what to make of its body."""
        parser = ExprParser(self.text, scope)
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=kind, value=ast.expr() as value
            ):
                self._is_new(node, name, scope)
                return self._open_let(scope, name, parser.dtype(kind), parser, value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if isinstance(value, ast.Call) and _called(value) == "alloc":
                    buffer = _buffer(parser, name, value, "alloc", "register")
                    return scope.with_source(name, buffer), lambda body: Alloc(buffer, body)
                self._is_new(node, name, scope)
                made = parser.expr(value)
                if self.by_hand and any(isinstance(x, Reduce) for x in walk(made)):
                    # Computed here, and not again wherever it is read.
                    dtype = made.dtype
                    return scope.with_scalar(name, dtype), lambda body: Let(
                        Var(name, dtype), made, body
                    )
                return scope.with_part(name, made), None
        return None

    def _is_new(self, node: ast.stmt, name: str, scope: Scope) -> None:
        """A name keeps its value: another one would not be seen after the loop, or the branch, in
        which it is given."""
        known = scope.parts.keys() | scope.scalars.keys() | scope.extents.keys()
        if self.by_hand and name in known:
            raise self.text.error(node, f"{name} has a value here already, {_KEEPS}")

    def _open_let(
        self, scope: Scope, name: str, dtype: DType, parser: ExprParser, value: ast.expr
    ) -> tuple[Scope, Wrap]:
        bound = parser.expr(value, dtype)
        return scope.with_scalar(name, dtype), lambda body: Let(Var(name, dtype), bound, body)

    def _statement(self, node: ast.stmt, scope: Scope) -> Stmt:
        return self.text.located(node, lambda: self._parse(node, scope))  # type: ignore[no-any-return]

    def _parse(self, node: ast.stmt, scope: Scope) -> Stmt:
        parser = ExprParser(self.text, scope)
        match node:
            case ast.Pass():
                return Nop()
            case ast.Assign(
                targets=[target], value=ast.Call(func=ast.Name(id=name), args=args, keywords=[])
            ) if name in self.reducers:
                return self._combine(node, target, self.reducers[name], args, scope)
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=at)]):
                buffer = self._buffer_named(node, name, scope)
                value = parser.expr(node.value, buffer.dtype)
                return Store(buffer, tuple(parser.indices(at)), value)
            case ast.AugAssign(
                target=ast.Subscript(value=ast.Name(id=name) as place, slice=at),
                op=operator,
                value=operand,
            ):
                buffer = self._buffer_named(node, name, scope)
                old = ast.copy_location(ast.Subscript(place, at, ast.Load()), node)
                new = ast.copy_location(ast.BinOp(old, operator, operand), node)
                value = parser.expr(new, buffer.dtype)
                return Store(buffer, tuple(parser.indices(at)), value)
            case ast.AugAssign(target=ast.Name(id=name)):
                raise self.text.error(node, f"{name} is a name for a value, {_KEEPS}")
            case ast.For(target=target, iter=ast.Call() as loops, body=body, orelse=[]):
                return self._for(target, loops, body, scope)
            case ast.With(
                items=[ast.withitem(context_expr=ast.Call() as what, optional_vars=names)]
            ):
                return self._with(node, what, names, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                otherwise = self.suite(orelse, scope) if orelse else None
                return If(parser.expr(test), self.suite(body, scope), otherwise)
            case ast.While(test=test, body=body, orelse=[]):
                return While(parser.expr(test), self.suite(body, scope))
            case ast.Expr(value=ast.Call(func=ast.Name(id="check")) as call):
                return self._check(call, parser)
            case ast.Expr(value=ast.Call(func=ast.Name(id="barrier"), args=args, keywords=[])):
                return Barrier(*[parser.string(a) for a in args[:1]])
            case ast.Expr(value=ast.Call(func=ast.Name(id=callee), args=args, keywords=[])):
                if callee == "invoke":
                    callee, args = parser.string(args[0]), args[1:]
                return Invoke(callee, tuple([self._argument(a, parser) for a in args]))
        raise self.text.error(node, _REFUSED.get(type(node), "not a statement"))

    def _combine(
        self, node: ast.stmt, target: ast.expr, by: Reducer, args: list[ast.expr], scope: Scope
    ) -> Stmt:
        parser, count = ExprParser(self.text, scope), len(by.types)
        places = target.elts if isinstance(target, ast.Tuple) else [target]
        targets = []
        for place in places:
            if not (isinstance(place, ast.Subscript) and isinstance(place.value, ast.Name)):
                raise self.text.error(node, f"{ast.unparse(place)} is no element of a buffer")
            buffer = self._buffer_named(node, place.value.id, scope)
            targets.append(BufferRef(buffer, tuple(parser.indices(place.slice))))
        if len(places) != count or len(args) != 2 * count:
            raise self.text.error(node, f"{by.name} is for {count} elements and as many values")
        old = [parser.expr(a) for a in args[:count]]
        if old != [t.load for t in targets]:
            raise self.text.error(node, f"the first {count} values are those of the targets")
        pairs = zip(args[count:], by.types, strict=True)
        return Combine(by, tuple(targets), tuple([parser.expr(a, t) for a, t in pairs]))

    def _for(self, target: ast.expr, loops: ast.Call, nodes: list[ast.stmt], scope: Scope) -> Stmt:
        parser = ExprParser(self.text, scope)
        word = _called(loops)
        options = {k.arg: k.value for k in loops.keywords}
        if word == "each" and "kind" in options:
            kind = parser.string(options["kind"])
        elif word in _LOOP_KINDS:
            kind = _LOOP_KINDS[word]
        elif word == "range" and len(loops.args) == 1:
            kind = _LOOP_KINDS["grid"]
        elif word == "range":
            raise self.text.error(
                loops,
                "range takes the number of iterations alone: range(n - 1), with i + 1 in it",
            )
        else:
            raise self.text.error(loops, f"no kind of loop {word!r}")
        names = self._names(target)
        if len(names) != len(loops.args):
            raise self.text.error(loops, f"{len(names)} variables for {len(loops.args)} extents")
        extents = list(zip(names, map(parser.integer, loops.args), strict=True))
        body = self.suite(nodes, scope.with_extents(dict(extents)))
        for name, extent in reversed(extents):
            body = For(name, extent, body, kind)
        if "notes" in options and isinstance(body, For):
            return body.replace(notes=parser.pairs(options["notes"]))
        return body

    def _with(self, node: ast.With, what: ast.Call, names: ast.expr | None, scope: Scope) -> Stmt:
        parser = ExprParser(self.text, scope)
        match _called(what), names:
            case "block", _:
                return self._block(node, what, names, scope)
            case "sequence", None:
                return Seq(self._each(node.body, scope))
            case "alloc", ast.Name(id=name):
                buffer = _buffer(parser, name, what, "alloc", "register")
                return Alloc(buffer, self.suite(node.body, scope.with_source(name, buffer)))
            case "let", ast.Name(id=name) if len(what.args) == 2:
                dtype = parser.dtype(what.args[0])
                value = parser.expr(what.args[1], dtype)
                body = self.suite(node.body, scope.with_scalar(name, dtype))
                return Let(Var(name, dtype), value, body)
        raise self.text.error(node, "no such `with`")

    def _each(self, nodes: list[ast.stmt], scope: Scope) -> tuple[Stmt, ...]:
        """The statements of a `with sequence()`, one by one."""
        out: list[Stmt] = []
        for node in nodes:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # the `...` of an empty sequence
            opened = self._open_at(node, scope)
            if opened is None:
                out.append(self._statement(node, scope))
            elif opened[1] is None:
                scope = opened[0]
            else:
                raise self.text.error(node, "write `with` to open a scope in a sequence")
        return tuple(out)

    def _block(self, node: ast.With, what: ast.Call, names: ast.expr | None, scope: Scope) -> Stmt:
        parser = ExprParser(self.text, scope)
        if not what.args:
            raise self.text.error(node, "a block has a name")
        iters, bindings = self._iterators(node, what.args[1:], names, scope)
        options: dict[str, Any] = {}
        for option in what.keywords:
            match option.arg:
                case "where":
                    options["where"] = parser.expr(option.value)
                case "notes":
                    options["notes"] = parser.pairs(option.value)
                case "spans":
                    spans = parser.elements(option.value)
                    options["spans"] = tuple([parser.span(s) for s in spans])
                case _:
                    raise self.text.error(node, f"a block has no {option.arg!r}")
        inner = scope.with_extents({i.var: i.extent for i in iters})
        body = node.body
        match body:
            case [ast.With(items=[ast.withitem(context_expr=ast.Call() as first)]) as init, *rest]:
                if _called(first) == "init":
                    options["init"] = self.suite(init.body, inner)
                    body = rest
        block = self.suite(body, inner)
        if names is None:  # written in terms of the loops
            own = {str(b): var(i.var) for i, b in zip(iters, bindings, strict=True)}
            block = subst(block, own)
            if "init" in options:
                options["init"] = subst(options["init"], own)
        return Block(parser.string(what.args[0]), tuple(iters), tuple(bindings), block, **options)

    def _iterators(
        self, node: ast.With, args: list[ast.expr], names: ast.expr | None, scope: Scope
    ) -> tuple[list[Iter], list[Int]]:
        """The iterators of a block and what they are bound to."""
        parser = ExprParser(self.text, scope)
        variables = [f"v{ast.unparse(a.args[0])}" if isinstance(a, ast.Call) and a.args else ""
                     for a in args] if names is None else self._names(names)  # fmt: skip
        if len(variables) != len(args):
            raise self.text.error(node, f"{len(args)} iterators, {len(variables)} names")
        iters: list[Iter] = []
        bindings: list[Int] = []
        for name, arg in zip(variables, args, strict=True):
            match arg:
                case ast.Call(func=ast.Name(id=kind), args=[binding, *more], keywords=[]) if (
                    len(more) < 2
                ):
                    bound = parser.integer(binding)
                    extent = parser.integer(more[0]) if more else scope.extents.get(str(bound))
                case _:
                    raise self.text.error(
                        node, f"{ast.unparse(arg)} is no iterator: S(binding, extent)"
                    )
            if extent is None:
                raise self.text.error(
                    node, f"{ast.unparse(arg)} needs an extent: {bound} is no loop around the block"
                )
            if names is None and str(bound) not in scope.extents:
                raise self.text.error(
                    node, f"{ast.unparse(arg)} needs a name (`as`): {bound} is no loop"
                )
            while names is None and name in scope.extents:
                name += "_"
            iters.append(Iter(name, extent, kind))
            bindings.append(bound)
        return iters, bindings

    def _check(self, call: ast.Call, parser: ExprParser) -> Stmt:
        error = "ShapeError"
        for option in call.keywords:
            error = parser.string(option.value)
        if len(call.args) < 2:
            raise self.text.error(call, "check takes a condition and a message")
        cond, message, *values = call.args
        return Check(
            parser.expr(cond),
            error,
            parser.string(message),
            tuple([parser.expr(v) for v in values]),
        )

    def _argument(self, node: ast.expr, parser: ExprParser) -> Node:
        sources = parser.scope.sources
        match node:
            case ast.Name(id=name) if name in sources:
                zeros: tuple[Expr, ...] = (as_expr(0),) * sources[name].rank
                return BufferRef(sources[name], zeros)
            case ast.Call(
                func=ast.Name(id="address"),
                args=[ast.Subscript(value=ast.Name(id=name), slice=at)],
            ):
                buffer = self._buffer_named(node, name, parser.scope)
                return BufferRef(buffer, tuple(parser.indices(at)))
        return parser.expr(node)

    def _buffer_named(self, node: ast.AST, name: str, scope: Scope) -> Buffer:
        found = scope.sources.get(name)
        if not isinstance(found, Buffer):
            raise self.text.error(node, f"no buffer {name!r} here")
        return found

    def _names(self, target: ast.expr) -> list[str]:
        nodes = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [n.id for n in nodes if isinstance(n, ast.Name)]
        if len(names) != len(nodes):
            raise self.text.error(target, "expected names")
        return names


def _sequence(stmts: list[Stmt]) -> Stmt:
    if not stmts:
        return Nop()
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))


def _called(call: ast.Call) -> str:
    """The name of what is called; `threadIdx.x` for a thread axis."""
    return ast.unparse(call.func)
