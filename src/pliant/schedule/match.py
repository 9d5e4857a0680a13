"""Does a loop nest compute what a function says? For which sizes, and where in which buffers?

The starts of reductions are done before them and blocks are opened, on both sides. Loops
correspond in order; sizes of the function stand for integers of the program, found by unification;
a buffer of the function stands for part of one of the program's, with its strides: the address that
the nest computes must move with each loop as the function's does. An index that depends on data
must be the same expression. Operands of commutative operators may change places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pliant.ir.expr import COMMUTATIVE, Axis, Binary, Expr, Index, Load, Reduce
from pliant.ir.node import Node, transform
from pliant.loop.bounds import declare_loops
from pliant.loop.lower_init import CannotSeparateError, lower_init, reduction_loops
from pliant.loop.regions import bindings_of
from pliant.loop.rewrite import int_names, subst, where_holds
from pliant.loop.stmt import (
    Alloc,
    Block,
    Buffer,
    BufferRef,
    Combine,
    Flat,
    For,
    Function,
    Stmt,
    Store,
    statements,
    stored,
)
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, IntLike, as_int, const, var
from pliant.sym.facts import Facts

Memory = Buffer | Flat


class NoMatch(Exception):  # noqa: N818  (a result, not a failure)
    """Why a nest is not what a function says."""


@dataclass(frozen=True)
class Match:
    """What corresponds to what so far; a value, so that alternatives can be tried."""

    loops: Mapping[str, str] = field(default_factory=dict)  # the function's -> the program's
    sizes: Mapping[str, Int] = field(default_factory=dict)
    places: Mapping[Buffer, tuple[Memory, tuple[Int, ...]]] = field(default_factory=dict)
    once: frozenset[str] = frozenset()  # the function's loops that run once in the program
    later: tuple[tuple[Int, Int, str], ...] = ()  # what must be equal once all sizes are known

    def address(self, formal: Buffer) -> BufferRef:
        """Where the function's buffer begins."""
        actual, origin = self.places[formal]
        if isinstance(actual, Flat):
            return _flat_address(actual.buffer, origin)
        return BufferRef(actual, tuple(map(Index, origin)))


def match_nest(semantics: Function, nest: Stmt, facts: Facts, sizes: Iterable[str]) -> Match:
    """The match; raises NoMatch with the reason. `sizes` are those of the program."""
    inside = declare_loops(facts, (s for s in statements(nest) if isinstance(s, For)))
    want = _opened(semantics.body, semantics.sizes)
    matcher = _Matcher(semantics, inside)
    found = _with_idle_steps(semantics, matcher.stmt(want, _opened(nest, sizes), Match()))
    named = int_names(semantics.body)
    named = named.union(*(x.names for b in semantics.buffers for x in (*b.shape, *b.strides)))
    missing = [s for s in semantics.sizes if s in named and s not in found.sizes]
    missing += [b.name for b in semantics.buffers if b not in found.places]
    if missing:
        raise NoMatch(f"nothing tells {', '.join(missing)}")
    for a, b, what in found.later:
        matcher.integer(a, b, found, what)
    _check_aliases(semantics, found)
    return found


def _with_idle_steps(semantics: Function, found: Match) -> Match:
    """Where a loop runs once, nothing is said of how far a step of it goes: any number will do, and
    the program's buffer, of as many dimensions or more, has one."""
    sizes = dict(found.sizes)
    waiting = frozenset[str]().union(*(a.names for a, _, _ in found.later))
    for formal, (actual, _) in found.places.items():
        # Dimensions correspond from the innermost outwards.
        for step, own in zip(reversed(formal.strides), reversed(actual.strides), strict=False):
            name = str(step)
            if name in semantics.sizes and name not in sizes and name not in waiting:
                sizes[name] = own
    return replace(found, sizes=sizes)


def _check_aliases(semantics: Function, found: Match) -> None:
    for a in {x.buffer for x in stored(semantics.body)}:
        for b in semantics.buffers:
            one, other = _memory(found.places[a][0]), _memory(found.places[b][0])
            if a is not b and one is other:
                raise NoMatch(f"{a.name} and {b.name} would both be {one.name}")


def _memory(of: Memory) -> Buffer:
    return of.buffer if isinstance(of, Flat) else of


def _opened(root: Stmt, sizes: Iterable[str]) -> Stmt:
    """Blocks replaced by their bodies, after their reductions' starts were taken out."""
    inside = {s.var for s in statements(root) if isinstance(s, For)} | set(sizes)
    for s in statements(root):
        if isinstance(s, Block) and s.init is not None and not reduction_loops(s) <= inside:
            raise NoMatch(f"block {s.name} starts its reduction outside; decompose_reduction first")
    try:
        root = lower_init(Function("nest", (), tuple(sizes), root)).body
    except CannotSeparateError as error:
        raise NoMatch(str(error)) from error

    def visit(node: Any) -> Any:
        if not isinstance(node, Block):
            return node
        body = subst(node.body, bindings_of(node))
        where = None if node.where is None else subst(node.where, bindings_of(node))
        return where_holds(where, body)

    return transform(root, visit)  # type: ignore[no-any-return]


class _Matcher:
    def __init__(self, semantics: Function, facts: Facts) -> None:
        self.semantics, self.facts = semantics, facts

    def stmt(self, want: Stmt, have: Stmt, m: Match) -> Match:
        match want, have:
            case For(), For():
                m = self.integer(want.extent, have.extent, m, f"extent of {have.var}")
                m = replace(m, loops={**m.loops, want.var: have.var})
                if have.extent == 1:
                    m = replace(m, once=m.once | {want.var})
                return self.stmt(want.body, have.body, m)
            case Store(), Store():
                m = self.access(want.buffer, want.indices, have.buffer, have.indices, m)
                return self.expr(want.value, have.value, m)
            case Combine(), Combine() if want.reducer is have.reducer:
                for a, b in zip(want.targets, have.targets, strict=True):
                    m = self.access(a.buffer, a.indices, b.buffer, b.indices, m)
                return self.value(want.values, have.values, m, have)
            case Alloc(), _:
                raise NoMatch("semantics with buffers of their own cannot be matched")
        if type(want) is not type(have):
            raise NoMatch(f"found {_kind(have)} where it has {_kind(want)}")
        return self.fields(want, have, m)

    def fields(self, want: Node, have: Node, m: Match) -> Match:
        for name in want._fields:
            m = self.value(getattr(want, name), getattr(have, name), m, have)
        return m

    def value(self, want: Any, have: Any, m: Match, inside: Node) -> Match:
        if isinstance(want, tuple) and isinstance(have, tuple):
            if len(want) != len(have):
                raise NoMatch(f"{_kind(inside)} differ in their number of parts")
            for a, b in zip(want, have, strict=True):
                m = self.value(a, b, m, inside)
            return m
        match want, have:
            case Stmt(), Stmt():
                return self.stmt(want, have, m)
            case Expr(), Expr():
                return self.expr(want, have, m)
            case Int(), Int():
                return self.integer(want, have, m, "an integer")
        if want != have:
            raise NoMatch(f"found {_kind(inside)} of {have} where it has {want}")
        return m

    def expr(self, want: Expr, have: Expr, m: Match) -> Match:
        match want, have:
            case Index(), Index():
                return self.integer(want.int_, have.int_, m, "a value")
            case Load(), Load():
                return self.access(want.source, want.indices, have.source, have.indices, m)
            case Binary(), Binary() if want.op == have.op and want.op in COMMUTATIVE:
                return self.either_way(want, have, m)
            case Reduce(), Reduce():
                return self.reduction(want, have, m)
        if type(want) is not type(have):
            raise NoMatch(f"found {_kind(have)} where it has {_kind(want)}")
        return self.fields(want, have, m)

    def either_way(self, want: Binary, have: Binary, m: Match) -> Match:
        try:
            return self.expr(want.b, have.b, self.expr(want.a, have.a, m))
        except NoMatch as first:
            try:
                return self.expr(want.b, have.a, self.expr(want.a, have.b, m))
            except NoMatch:
                raise first from None

    def reduction(self, want: Reduce, have: Reduce, m: Match) -> Match:
        if want.combiner != have.combiner or len(want.axes) != len(have.axes):
            raise NoMatch(f"found a {have.combiner} where it has a {want.combiner}")
        for a, b in zip(want.axes, have.axes, strict=True):
            assert isinstance(a, Axis) and isinstance(b, Axis)
            m = self.integer(a.extent, b.extent, m, "the extent of a reduction")
            m = replace(m, loops={**m.loops, a.var: b.var})
        return self.expr(want.body, have.body, m)

    # ---- integers

    def integer(self, want: Int, have: Int, m: Match, what: str) -> Match:
        """want == have, binding at most one size that is not known yet."""
        known: dict[str, IntLike] = {a: 0 if a in m.once else var(b) for a, b in m.loops.items()}
        have = have.subs({m.loops[a]: 0 for a in m.once})
        unknown = [s for s in self.semantics.sizes if s in want.names and s not in m.sizes]
        # Sizes of the function and of the program may share names: keep those apart.
        moved = want.subs(known | {s: m.sizes[s] for s in want.names & m.sizes.keys()})
        if not unknown:
            if not self.facts.equal(moved, have):
                raise NoMatch(f"{what} is {have} where it has {moved}")
            return m
        if len(unknown) > 1:
            raise NoMatch(f"{what} does not tell {', '.join(unknown)} apart")
        hole = "_unknown"
        line = want.subs({unknown[0]: var(hole)})
        line = line.subs(known | {s: m.sizes[s] for s in want.names & m.sizes.keys()})
        value = _solved(line, hole, have)
        if value is None and line.linear(hole) is None:
            return replace(m, later=(*m.later, (want, have, what)))
        if value is None or not self.facts.equal(line.subs({hole: value}), have):
            raise NoMatch(f"{what} does not tell {unknown[0]}")
        if not value.names.isdisjoint(m.loops.values()):
            raise NoMatch(f"{what}, {have}, varies inside the nest")
        return replace(m, sizes={**m.sizes, unknown[0]: value})

    # ---- addresses

    def access(
        self,
        formal: Buffer,
        want: Sequence[Expr],
        actual: Memory,
        have: Sequence[Expr],
        m: Match,
    ) -> Match:
        if formal.dtype is not actual.dtype:
            raise NoMatch(f"{actual.name} holds {actual.dtype}, {formal.name} {formal.dtype}")
        known = m.places.get(formal)
        if known is not None and known[0] is not actual:
            raise NoMatch(f"{formal.name} is both {known[0].name} and {actual.name}")
        if not all(isinstance(i, Index) for i in (*want, *have)):
            return self.same_indices(formal, want, actual, have, m)
        inner = frozenset(m.loops.values())
        moved = _address(formal, _ints(want, formal))
        at = tuple(self.facts.simplify(i) for i in _ints(have, actual))
        here = _address(actual, at)
        for name, loop in m.loops.items():
            a, b = moved.linear(name), here.linear(loop)
            if a is None or b is None or not b[0].names.isdisjoint(inner):
                raise NoMatch(f"the address in {actual.name} is not linear in {loop}")
            if name not in m.once:
                m = self.integer(a[0], b[0], m, f"step of {actual.name} along {loop}")
            moved, here = a[1], b[1]
        origin = tuple(i.subs(dict.fromkeys(inner, 0)) for i in at)
        return self._anchored(formal, moved, actual, here, origin, m)

    def same_indices(
        self,
        formal: Buffer,
        want: Sequence[Expr],
        actual: Memory,
        have: Sequence[Expr],
        m: Match,
    ) -> Match:
        """Accesses at places that depend on data: the buffers begin at the same address, but one
        may begin as many elements later as the nest adds to what it looks up."""
        if len(want) != len(have):
            raise NoMatch(f"{actual.name} and {formal.name} are not indexed in the same way")
        have, start = self.later_start(actual, have, m)
        if m.places.get(formal, (actual, start))[1] != start:
            raise NoMatch(f"{actual.name} begins at two places")
        m = replace(m, places={**m.places, formal: (actual, start)})
        for a, b in zip(formal.strides, actual.strides, strict=True):
            m = self.integer(a, b, m, f"step of {actual.name}")
        for i, j in zip(want, have, strict=True):
            m = self.expr(i, j, m)
        return m

    def later_start(
        self, actual: Memory, have: Sequence[Expr], m: Match
    ) -> tuple[Sequence[Expr], tuple[Int, ...]]:
        """The indices without what no loop of the nest changes, where memory is flat, and that."""
        match actual, have:
            case Flat(buffer=memory), [Binary(op="add", a=looked_up, b=Index(int_=along))]:
                inner = frozenset(m.loops.values())
                start = along.subs(dict.fromkeys(inner, 0))
                rest = along - start
                if start != const(0) and rest.names <= inner and as_int(1) in memory.strides:
                    return (looked_up + Index(rest),), (start,)
        return have, (const(0),) * len(have)

    def _anchored(
        self, formal: Buffer, moved: Int, actual: Memory, here: Int,
        origin: tuple[Int, ...], m: Match,
    ) -> Match:  # fmt: skip
        """The rest of both addresses, which no loop moves, fits the buffer's origin."""
        known = m.places.get(formal)
        if known is None:
            if moved != const(0):
                raise NoMatch(f"the first access of {formal.name} is not at its origin")
            return replace(m, places={**m.places, formal: (actual, origin)})
        start = _address(actual, known[1])
        return self.integer(moved, here - start, m, f"offset in {actual.name}")


def _flat_address(memory: Buffer, origin: Sequence[Int]) -> BufferRef:
    """So many elements after a buffer's first, of which some lie beside one another if not 0."""
    (start,) = origin
    at = [const(0)] * memory.rank
    if start != const(0):
        at[memory.strides.index(as_int(1))] = start
    return BufferRef(memory, tuple(map(Index, at)))


def _ints(indices: Sequence[Expr], buffer: Memory) -> tuple[Int, ...]:
    found = [i.int_ for i in indices if isinstance(i, Index)]
    if len(found) < len(indices):
        raise NoMatch(f"an index of {buffer.name} depends on data")
    return tuple(found)


def _address(buffer: Memory, at: Sequence[Int]) -> Int:
    total: Int = as_int(0)
    for i, step in zip(at, buffer.strides, strict=True):
        total = total + i * step
    return total


def _solved(want: Int, hole: str, have: Int) -> Int | None:
    """What `hole` may be so that want == have, read off where both are built in the same way; that
    they are equal then is still to be shown."""
    parts = want.linear(hole)
    if parts is not None:
        return have - parts[1] if parts[0] == 1 else None
    mine, theirs = _only_atom(want - have), _only_atom(have - want)
    match mine, theirs:
        case DivAtom(a, x), DivAtom(b, y) if x is y:  # what was divided out goes back in
            added = (have - b // y) - (want - a // x)
            return None if hole in added.names else _solved(a, hole, b + y * added)
        case ModAtom(a, x), ModAtom(b, y) if x is y:
            return _solved(a, hole, b)
        case (MinAtom(a), MinAtom(b)) | (MaxAtom(a), MaxAtom(b)):
            left, right = [x for x in a if x not in b], [x for x in b if x not in a]
            return _solved(left[0], hole, right[0]) if len(left) == len(right) == 1 else None
        case ((MinAtom(a) | MaxAtom(a)), None):
            told = (_solved(x, hole, have) for x in a if hole in x.names)
            return next((x for x in told if x is not None), None)
    return None


def _only_atom(x: Int) -> Atom | None:
    """The one compound atom that is added to `x`'s other terms, and not subtracted."""
    found = [f[0][0] for c, f in x.terms() if c == 1 and len(f) == 1 and f[0][1] == 1]
    atoms = [a for a in found if not isinstance(a, VarAtom)]
    return atoms[0] if len(atoms) == 1 else None


def _kind(node: Node) -> str:
    op = getattr(node, "op", "")
    return f"{type(node).__name__.lower()} {op}".strip()
