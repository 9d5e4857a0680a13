"""Compute quotients, remainders and extremes of integers once, where all that they need is known.

for p in parallel(m*n):               for p in parallel(m*n):
    for j in grid(p%n + 1):              h0: i64 = p%n
        y[p//n, j] = x[p%n]      ->      h1: i64 = p//n
                                         for j in grid(h0 + 1):
                                             y[h1, j] = x[h0]

Only what is used several times or inside another loop gets a name, and only where every divisor is
known to be at least 1: there it may be computed though nothing of what follows happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pliant.base.dtypes import i64
from pliant.ir.expr import Axis, Index, Var
from pliant.ir.node import Node, transform
from pliant.loop.bounds import declare_loops
from pliant.loop.rewrite import Names
from pliant.loop.stmt import Alloc, Buffer, For, Function, Let, Stmt, statements
from pliant.sym.atoms import Atom, DivAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, rebuild_atom, var
from pliant.sym.facts import Facts


def hoist(f: Function) -> Function:
    """The same program, of plain statements, with names for what is worth one."""
    facts = Facts()
    signed = set(dict(f.notes).get("signed", ()))
    for name in f.sizes:
        facts.declare(name, min=None if name in signed else 0)
    return f.replace(body=_Hoist(Names(f)).scope(f.body, frozenset(f.sizes), facts))


class _Hoist:
    def __init__(self, names: Names) -> None:
        self.names = names

    def scope(self, body: Stmt, known: frozenset[str], facts: Facts) -> Stmt:
        """`body`, at whose beginning the integers `known` are."""
        if isinstance(body, Let) and body.var.type is i64:
            return self._let(body, known, facts)
        table: dict[Atom, Int] = {}
        for atom in _worth(body, known):
            if _divisible(rebuild_atom(atom, lambda x: x), facts):
                table[atom] = var(self.names.variable("h"))
        bound = [(str(x), rebuild_atom(a, lambda part: _in(part, table))) for a, x in table.items()]
        known = known.union(name for name, _ in bound)
        facts = _knowing(facts, bound)
        inner = self._inside(_replaced(body, table) if table else body, known, facts)
        for name, value in reversed(bound):
            inner = Let(Var(name, i64), Index(value), inner)
        return inner

    def _let(self, s: Let, known: frozenset[str], facts: Facts) -> Stmt:
        value = s.value
        bound = [(s.var.name, value.int_)] if isinstance(value, Index) else []
        inside = _knowing(facts, bound) if bound else facts.copy()
        if not bound:
            inside.declare(s.var.name, min=None)
        return s.replace(body=self.scope(s.body, known | {s.var.name}, inside))

    def _inside(self, s: Stmt, known: frozenset[str], facts: Facts) -> Stmt:
        match s:
            case For(kind="serial" | "parallel"):
                inside = declare_loops(facts, [s])
                return s.replace(body=self.scope(s.body, known | {s.var}, inside))
            case Let():
                return self._let(s, known, facts)
            case For():
                return s.replace(body=self._inside(s.body, known, declare_loops(facts, [s])))
        return s.map_children(lambda c: self._inside(c, known, facts) if isinstance(c, Stmt) else c)


def _knowing(facts: Facts, bound: list[tuple[str, Int]]) -> Facts:
    inside = facts.copy()
    for name, value in bound:
        inside.define(name, value, relations=False)
    return inside


def _worth(body: Stmt, known: frozenset[str]) -> list[Atom]:
    """Compound atoms of known integers that are used in an inner loop, or more than once; those
    inside others first."""
    uses: dict[Atom, int] = {}
    for x, deep in _integers(body, False):
        for atom in _greatest(x, known):
            uses[atom] = uses.get(atom, 0) + (2 if deep else 1)
    wanted = [atom for atom, count in uses.items() if count > 1]
    parts: dict[Atom, int] = {}
    for atom in wanted:
        for inner in dict.fromkeys(_parts(atom)):
            parts[inner] = parts.get(inner, 0) + 1
    shared = [a for a, count in parts.items() if count > 1 and a not in wanted]
    return sorted([*shared, *wanted], key=_size)


def _size(atom: Atom) -> int:
    return len(str(rebuild_atom(atom, lambda x: x)))


def _greatest(x: Int, known: frozenset[str]) -> Iterator[Atom]:
    """Compound atoms of known integers that are in no other such."""
    for _, factors in x.terms():
        for atom, _ in factors:
            if isinstance(atom, VarAtom):
                continue
            if atom.names <= known:
                yield atom
            else:
                for part in _arguments(atom):
                    yield from _greatest(part, known)


def _parts(atom: Atom) -> Iterator[Atom]:
    """Compound atoms inside."""
    for x in _arguments(atom):
        for _, factors in x.terms():
            for inner, _ in factors:
                if not isinstance(inner, VarAtom):
                    yield inner
                    yield from _parts(inner)


def _arguments(atom: Atom) -> tuple[Int, ...]:
    match atom:
        case DivAtom(num, den) | ModAtom(num, den):
            return num, den
        case VarAtom():
            return ()
    return atom.args


def _divisible(x: Int, facts: Facts) -> bool:
    """Whether all divisors in the expression are known to be at least 1."""
    for _, factors in x.terms():
        for atom, _ in factors:
            if isinstance(atom, DivAtom | ModAtom) and not facts.positive(atom.den):
                return False
            if not all(_divisible(a, facts) for a in _arguments(atom)):
                return False
    return True


def _integers(root: Node, deep: bool) -> Iterator[tuple[Int, bool]]:
    """Integers below that are computed there, and whether inside of a loop."""
    stack: list[tuple[Node, bool]] = [(root, deep)]
    seen: set[tuple[Node, bool]] = set()
    while stack:
        node, inside = stack.pop()
        if (node, inside) in seen or isinstance(node, Buffer):
            continue
        seen.add((node, inside))
        match node:
            case Index(x):
                yield x, inside
            case Axis():
                yield node.extent, inside
            case For():
                yield node.extent, inside
                yield from ((x, inside) for _, x in node.notes if isinstance(x, Int))
                inside = inside or node.kind in ("serial", "parallel")
            case Alloc():
                yield from ((x, inside) for x in node.buffer.shape)
        stack += [(c, inside) for c in node.children()]


def _replaced(root: Stmt, table: Mapping[Atom, Int]) -> Stmt:
    own = {s.buffer for s in statements(root) if isinstance(s, Alloc)}

    def visit(node: Node) -> Node:
        match node:
            case Buffer() if node in own:
                shape, strides = (
                    tuple(_in(x, table) for x in y) for y in (node.shape, node.strides)
                )
                return node.replace(shape=shape, strides=strides)
            case Index(x):
                return Index(_in(x, table))
            case Axis():
                return node.replace(extent=_in(node.extent, table))
            case For():
                notes = tuple(
                    (k, _in(x, table) if isinstance(x, Int) else x) for k, x in node.notes
                )
                return node.replace(extent=_in(node.extent, table), notes=notes)
        return node

    return transform(root, visit)  # type: ignore[no-any-return]


def _in(x: Int, table: Mapping[Atom, Int]) -> Int:
    """The integer with values for whole atoms, at any depth."""
    change: dict[Atom, Int] = {}
    for _, factors in x.terms():
        for atom, _ in factors:
            if atom in table:
                change[atom] = table[atom]
            elif not isinstance(atom, VarAtom):
                change[atom] = rebuild_atom(atom, lambda part: _in(part, table))
    return x.map_atoms(change) if change else x
