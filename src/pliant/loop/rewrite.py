"""Rewriting loop programs: substitution, fresh names, and replacing a statement where it stands.

Loop variables, block iterators, `Let` variables and sizes share one name space; blocks and buffers
have one each. Names are unique in a function, so substitution never captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from pliant.base.dtypes import boolean, i64
from pliant.base.names import fresh_name
from pliant.ir.expr import Axis, Binary, Const, Expr, Index, Load, Unary, Var, const, loads_of
from pliant.ir.node import Node, transform
from pliant.loop.outline import outline
from pliant.loop.reducer import Reducer
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Flat,
    For,
    Function,
    If,
    Iter,
    Let,
    Nop,
    Seq,
    Stmt,
    Store,
    seq,
    statements,
)
from pliant.sym.expr import Int, IntLike, as_int, var

N = TypeVar("N", bound=Node)


def subst(root: N, sizes: Mapping[str, IntLike]) -> N:
    """Replace integer variables everywhere below `root`: indices, extents, bindings, shapes."""

    def visit(node: Any) -> Any:
        if isinstance(node, Var) and node.type is i64 and node.name in sizes:
            return Index(as_int(sizes[node.name]))
        return node

    return _subst_ints(root, sizes, visit) if sizes else root


def _subst_ints(root: N, sizes: Mapping[str, IntLike], other: Callable[[Any], Any]) -> N:
    """Replace integer variables where expressions of the integer algebra are; `other` sees the rest
    (a `Var` may be a `Let`'s own, which stays a name)."""

    def visit(node: Any) -> Any:
        match node:
            case Index(at):
                new = at.subs(sizes)
                return node if new is at else Index(new)
            case For():
                notes = tuple([(k, x.subs(sizes)) if isinstance(x, Int) else (k, x)
                               for k, x in node.notes])  # fmt: skip
                new = node.extent.subs(sizes)
                if new is node.extent and notes == node.notes:
                    return node
                return node.replace(extent=new, notes=notes)
            case Iter() | Axis():
                new = node.extent.subs(sizes)
                return node if new is node.extent else node.replace(extent=new)
            case Block():
                bindings = changed(node.bindings)
                return node if bindings is node.bindings else node.replace(bindings=bindings)
            case Buffer():
                shape, strides = changed(node.shape), changed(node.strides)
                if shape is node.shape and strides is node.strides:
                    return node
                return node.replace(shape=shape, strides=strides)
        return other(node)

    def changed(ints: tuple[Int, ...]) -> tuple[Int, ...]:
        """The same tuple where nothing is replaced, which is most often."""
        if all(x.names.isdisjoint(sizes) for x in ints):
            return ints
        return tuple([x.subs(sizes) for x in ints])

    names = sizes.keys()
    return transform(  # type: ignore[no-any-return]
        root, visit, stays=lambda node: names.isdisjoint(names_below(node))
    )


def names_below(root: Node) -> frozenset[str]:
    """All variables in a node and below it, those of buffers' shapes and of reducers, too. A node
    remembers them: of a program, a step of a schedule changes a part."""
    stack = [] if hasattr(root, "_names") else [root]
    while stack:
        node = stack[-1]
        waiting = [c for c in node.children() if not hasattr(c, "_names")]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        below = [c._names for c in node.children()]  # type: ignore[attr-defined]
        names = _own_names(node).union(*below)
        # Most often they are those of one child: then it is one set for both.
        object.__setattr__(node, "_names", next((x for x in below if x == names), names))
    return root._names  # type: ignore[attr-defined,no-any-return]


def _own_names(node: Node) -> frozenset[str]:
    match node:
        case Var(name):
            return frozenset((name,))
        case Index(at):
            return at.names
        case For():
            return node.extent.names.union(*(x.names for _, x in node.notes if isinstance(x, Int)))
        case Iter() | Axis():
            return node.extent.names
        case Block():
            return frozenset().union(*(x.names for x in node.bindings))
        case Buffer():
            return frozenset().union(*(x.names for x in (*node.shape, *node.strides)))
    return frozenset()


def rename(
    root: N,
    variables: Mapping[str, str],
    blocks: Mapping[str, str] | None = None,
    buffers: Mapping[str, str] | None = None,
) -> N:
    """Give names that are bound below `root` others."""
    block_names, buffer_names = blocks or {}, buffers or {}

    def visit(node: Any) -> Any:
        match node:
            case For() | Iter() | Axis() if node.var in variables:
                return node.replace(var=variables[node.var])
            case Var() if node.name in variables:
                return Var(variables[node.name], node.type)
            case Block() if node.name in block_names:
                return node.replace(name=block_names[node.name])
            case Buffer() if node.name in buffer_names:
                return node.replace(name=buffer_names[node.name])
        return node

    renamed: N = transform(root, visit)
    sizes = {old: var(new) for old, new in variables.items()}
    return _subst_ints(renamed, sizes, lambda node: node)


class Names:
    """Names in use in a function; hands out new ones."""

    def __init__(self, function: Function) -> None:
        self.variables: set[str] = set(function.sizes)
        self.blocks: set[str] = set()
        self.buffers: set[str] = {b.name for b in function.buffers}
        for s in outline(function.body).statements:
            variables, blocks, buffers = _bound(s)
            self.variables.update(variables)
            self.blocks.update(blocks)
            self.buffers.update(buffers)

    def variable(self, base: str) -> str:
        """An unused name for a loop variable or iterator."""
        return _fresh(base, self.variables)

    def block(self, base: str) -> str:
        """An unused block name."""
        return _fresh(base, self.blocks)

    def buffer(self, base: str) -> str:
        """An unused buffer name."""
        return _fresh(base, self.buffers)


def _fresh(base: str, used: set[str]) -> str:
    name = fresh_name(base, used)
    used.add(name)
    return name


def _bound(s: Stmt) -> tuple[list[str], list[str], list[str]]:
    """Variables, blocks and buffers that this one statement binds."""
    match s:
        case For():
            return [s.var], [], []
        case Let():
            return [s.var.name], [], []
        case Block():
            return [i.var for i in s.iters], [s.name], []
        case Alloc():
            return [], [], [s.buffer.name]
    return [], [], []


def copy_of(root: Stmt, names: Names, suffix: str) -> tuple[Stmt, dict[str, str]]:
    """`root` with fresh names for all that it binds, and what became of the old ones."""
    variables: dict[str, str] = {}
    blocks: dict[str, str] = {}
    buffers: dict[str, str] = {}
    for s in statements(root):
        some, block, buffer = _bound(s)
        variables |= {n: names.variable(n + suffix) for n in some if n not in variables}
        blocks |= {n: names.block(n + suffix) for n in block if n not in blocks}
        buffers |= {n: names.buffer(n + suffix) for n in buffer if n not in buffers}
    return rename(root, variables, blocks, buffers), variables | blocks


# ---- places


def path_to(root: Stmt, wanted: Callable[[Stmt], bool]) -> tuple[Stmt, ...] | None:
    """The statements from `root` down to the first one `wanted`; None if there is none."""
    stack: list[tuple[Stmt, tuple[Stmt, ...]]] = [(root, (root,))]
    while stack:
        node, path = stack.pop()
        if wanted(node):
            return path
        below = [c for c in node.children() if isinstance(c, Stmt)]
        stack += [(c, (*path, c)) for c in reversed(below)]
    return None


def replace_at(path: tuple[Stmt, ...], new: Stmt) -> Stmt:
    """The root of `path` with the last statement replaced; nests left empty go away."""
    for parent, child in reversed(list(pairwise(path))):
        new = with_child(parent, child, new)
    return new


def with_child(parent: Stmt, child: Stmt, new: Stmt) -> Stmt:
    """`parent` with `new` for `child`."""
    match parent:
        case Seq(stmts=stmts):
            return seq(*(new if s is child else s for s in stmts))
        case For() | Alloc() | Let() if isinstance(new, Nop):
            return new
        case If() if isinstance(new, Nop):
            kept = parent.then if child is not parent.then else parent.otherwise
            if kept is None:
                return new
            if kept is parent.then:
                return parent.replace(otherwise=None)
            return If(Unary("not", parent.cond), kept)
    return parent.map_children(lambda c: new if c is child else c)


def replace_loads(root: N, buffer: Buffer, fn: Callable[[tuple[Expr, ...]], Expr]) -> N:
    """Every load from `buffer` replaced by what `fn` makes of its indices."""

    def visit(node: Any) -> Any:
        if isinstance(node, Load) and node.source is buffer:
            return fn(node.indices)
        return node

    return transform(root, visit)  # type: ignore[no-any-return]


def replace_buffer(
    root: N, old: Buffer, new: Buffer, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
) -> N:
    """Loads, stores, addresses and the allocation of `old` become ones of `new`, at
    `place(indices)`. Loads by element offset keep the offset."""

    def visit(node: Any) -> Any:
        match node:
            case Load() if node.source is old:
                return Load(new, place(node.indices))
            case Store() if node.buffer is old:
                return Store(new, place(node.indices), node.value)
            case BufferRef() if node.buffer is old:
                return BufferRef(new, place(node.indices))
            case Flat() if node.buffer is old:
                return new.flat
            case Alloc() if node.buffer is old:
                return Alloc(new, node.body)
        return node

    return transform(root, visit)  # type: ignore[no-any-return]


# ---- conditions


def less(a: IntLike, b: IntLike) -> Expr:
    """a < b."""
    return Binary("lt", Index(as_int(a)), Index(as_int(b)))


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The parts of a conjunction; none for None and for true."""
    if cond is None or (isinstance(cond, Const) and cond.bits == 1):
        return []
    if isinstance(cond, Binary) and cond.op == "and" and cond.dtype is boolean:
        return conjuncts(cond.a) + conjuncts(cond.b)
    return [cond]


def conjoin(conditions: list[Expr]) -> Expr | None:
    """Their conjunction, each once; None when there is none."""
    result: Expr | None = None
    for c in dict.fromkeys(conditions):
        result = c if result is None else Binary("and", result, c)
    return result


def asked(cond: Expr | None) -> list[Expr]:
    """A block's condition in parts, of which each is asked where those before it hold: what one
    loads is there perhaps only where others, which say that an iteration is one at all, hold."""
    parts = conjuncts(cond)
    loading = [c for c in parts if any(loads_of(c))]
    found = conjoin([c for c in parts if c not in loading]), conjoin(loading)
    return [c for c in found if c is not None]


def where_holds(cond: Expr | None, body: Stmt) -> Stmt:
    """`body` where a block's condition holds."""
    for part in reversed(asked(cond)):
        body = If(part, body)
    return body


def true() -> Expr:
    return const(True, boolean)


def int_names(root: Node) -> frozenset[str]:
    """Integer variables that occur in an expression or statement."""
    found: frozenset[str] = frozenset()
    for i in ints_in(root):
        found |= i.names
    return found


def ints_in(root: Node) -> Iterator[Int]:
    """The symbolic integers in an expression or statement (not those of buffers' shapes)."""
    seen: set[Node] = {root}
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        match node:
            case Buffer() | Reducer():  # a reducer's names are its own
                continue
            case Index():
                yield node.int_
            case Var() if node.type is i64:
                yield var(node.name)
            case For() | Axis() | Iter():
                yield node.extent
            case Block():
                yield from node.bindings
        for child in node.children():
            if child not in seen:
                seen.add(child)
                stack.append(child)
