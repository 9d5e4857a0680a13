"""Give every store a block: what a person leaves out and schedules need.

    for i in grid(n):                   for i in grid(n):
        y[i] = sum(x[i, r]                  for r in grid(k):
                   for r in grid(k))            with block("y", S(i, n), R(r, k)) as (vi, vr):
                                  ->                with init():
                                                        y[vi] = 0.0
                                                    y[vi] = y[vi] + x[vi, vr]

The iterators are the loops around. One is data parallel ("S") where different values of it store to
different elements and nothing else of the buffer is read; the others reduce ("R") where the store
is an update by a known combiner; else they run in order ("O"). Blocks that were written stay as
they are. Loops around memory that a program allocates are data parallel for what lies in it: each
iteration has its own. Sums in expressions are stored first (`loop.sums_first`). Names used twice
get numbers, so that every loop, block and buffer has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from pliant.ir.expr import Binary, Expr, Index, Load, Reduce, loads_of
from pliant.ir.scalar import COMBINER_OPS
from pliant.loop.reduction import as_update, combine, identity
from pliant.loop.rewrite import Names, conjoin, int_names, rename, subst
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    Combine,
    For,
    Function,
    If,
    Iter,
    Let,
    Nop,
    Seq,
    Stmt,
    Store,
    While,
    for_,
    seq,
    stored,
)
from pliant.loop.sums_first import sums_first
from pliant.sym.expr import Int, IntLike, var
from pliant.sym.facts import Facts
from pliant.sym.index_map import IndexMap

_COMMUTATIVE = frozenset(COMBINER_OPS.values())


def derive_blocks(function: Function) -> Function:
    """The function with all stores in blocks and all names different."""
    taken = Names(function)
    first = sums_first(function.body, taken)
    body = _Deriving(taken, function.sizes).statement(first, (), None)
    fresh = Names(Function(function.name, function.buffers, function.sizes, Nop()))
    return function.replace(body=_with_own_names(body, fresh))


class _Deriving:
    def __init__(self, names: Names, sizes: Iterable[str]) -> None:
        self.names = names
        self.sizes = frozenset(sizes)
        self.outside: dict[Buffer, frozenset[str]] = {}  # loops around the buffer's allocation

    def statement(self, s: Stmt, loops: tuple[For, ...], where: Expr | None) -> Stmt:
        """The statement within `loops`, done where the condition holds."""
        match s:
            case For():
                return s.replace(body=self.statement(s.body, (*loops, s), where))
            case Seq(stmts):
                return seq(*(self.statement(x, loops, where) for x in stmts))
            case Store() | Combine():
                return self.store(s, loops, where)
            case If(cond, then, None) if (
                where is None and _only_stores(then) and not any(loads_of(cond))
            ):
                return self.statement(then, loops, cond)
            case If(cond, then, otherwise):
                other = None if otherwise is None else self.statement(otherwise, loops, None)
                return If(cond, self.statement(then, loops, None), other)
            case Alloc(made):
                self.outside[made] = frozenset(x.var for x in loops)
                return s.replace(body=self.statement(s.body, loops, None))
            case Let() | While():
                return s.replace(body=self.statement(s.body, loops, None))
        return s

    def store(self, s: Store | Combine, loops: tuple[For, ...], where: Expr | None) -> Stmt:
        init: Store | None = None
        inner: tuple[For, ...] = ()
        value = s.value if isinstance(s, Store) else None
        if isinstance(s, Store) and isinstance(value, Reduce) and value.combiner in COMBINER_OPS:
            own = {a.var: self.names.variable(a.var) for a in value.axes}
            inner = tuple(For(own[a.var], a.extent, Nop()) for a in value.axes)
            init = Store(s.buffer, s.indices, identity(value.combiner, s.buffer.dtype))
            term = subst(value.body, {a: var(b) for a, b in own.items()})
            s = s.replace(value=combine(value.combiner, Load(s.buffer, s.indices), term))
        s = _old_value_first(s) if isinstance(s, Store) else s
        nest = (*loops, *inner)
        kinds = _kinds(s, nest, self.sizes)
        homes = [self.outside.get(place.buffer, frozenset[str]()) for place in stored(s)]
        kinds |= dict.fromkeys(homes[0].intersection(*homes[1:]), "S")
        if init is not None:  # it begins anew in every iteration of the loops around
            kinds |= {x.var: "O" for x in loops if kinds[x.var] == "R"}
        iters = {x.var: self.names.variable(f"v{x.var}") for x in nest}
        given: dict[str, IntLike] = {old: var(new) for old, new in iters.items()}
        block = Block(
            self.names.block(next(stored(s)).buffer.name),
            tuple(Iter(iters[x.var], x.extent, kinds[x.var]) for x in nest),
            tuple(var(x.var) for x in nest),
            subst(s, given),
            None if init is None else subst(init, given),
            conjoin([] if where is None else [where]),
        )
        return for_([(x.var, x.extent) for x in inner], block)


def _only_stores(s: Stmt) -> bool:
    return all(isinstance(x, Store | Combine) for x in (s.stmts if isinstance(s, Seq) else (s,)))


def _old_value_first(s: Store) -> Store:
    """x + y[i] as y[i] + x: how an update is recognised."""
    value, here = s.value, Load(s.buffer, s.indices)
    if isinstance(value, Binary) and value.op in _COMMUTATIVE and value.b is here:
        return s.replace(value=Binary(value.op, here, value.a))
    return s


def _kinds(s: Store | Combine, loops: tuple[For, ...], sizes: frozenset[str]) -> dict[str, str]:
    places = tuple(stored(s))
    indices = [i for place in places for i in place.indices]
    values = (s.value,) if isinstance(s, Store) else s.values
    here = {place.load for place in places}
    own = {x for place in places for x in (place.buffer, place.buffer.flat)}
    reads = [x for e in (*indices, *values) for x in loads_of(e)]
    elsewhere = any(x.source in own and x not in here for x in reads)
    each = [_told_apart(place.indices, loops, sizes) for place in places]
    apart = frozenset[str]() if elsewhere else each[0].intersection(*each[1:])
    update = as_update(Block("", (), (), s)) is not None
    used = frozenset[str]().union(*(int_names(i) for i in indices))
    return {
        x.var: "S" if x.var in apart else "R" if update and x.var not in used else "O"
        for x in loops
    }


def _told_apart(
    indices: Iterable[Expr], loops: tuple[For, ...], sizes: frozenset[str]
) -> frozenset[str]:
    """Loops of which different iterations store to different elements, whatever the others do."""
    known = sizes.union(x.var for x in loops)
    places = [i.int_ for i in indices if isinstance(i, Index) and i.int_.names <= known]
    alone = {x.var for x in loops for at in places if _moves_alone(at, x.var, sizes)}
    rest = [x for x in loops if x.var not in alone and any(x.var in p.names for p in places)]
    if not rest or any(not x.extent.names <= sizes for x in rest):
        return frozenset(alone)
    inputs = tuple(x.var for x in rest)
    mixed = tuple(p for p in places if not p.names.isdisjoint(inputs))
    if any(not p.names <= sizes.union(inputs) for p in mixed):
        return frozenset(alone)
    facts = Facts()
    for name in sorted(sizes):
        facts.declare(name)
    found = IndexMap(inputs, tuple(x.extent for x in rest), mixed)
    return frozenset(alone.union(inputs if found.inverse(facts) is not None else ()))


def _moves_alone(at: Int, name: str, sizes: frozenset[str]) -> bool:
    """Whether the place is that loop's variable, times a number, and sizes."""
    line = at.linear(name)
    return line is not None and line[0].is_const and line[0] != 0 and line[1].names <= sizes


def _with_own_names(s: Stmt, names: Names) -> Stmt:
    """The statement with new names for what it binds, where others have them already."""
    match s:
        case For():
            s = _renamed(s, {s.var: names.variable(s.var)})
        case Let():
            s = _renamed(s, {s.var.name: names.variable(s.var.name)})
        case Alloc():
            buffer = names.buffer(s.buffer.name)
            s = s if buffer == s.buffer.name else rename(s, {}, {}, {s.buffer.name: buffer})
        case Block():
            own = {i.var: names.variable(i.var) for i in s.iters}
            s = _renamed(s.replace(name=names.block(s.name)), own)
    return s.map_children(lambda c: _with_own_names(c, names) if isinstance(c, Stmt) else c)


def _renamed(s: Stmt, variables: dict[str, str]) -> Stmt:
    changed = {old: new for old, new in variables.items() if old != new}
    return rename(s, changed) if changed else s
