"""Run a loop as several, one after the other, each without the conditions that hold throughout it,
with what is chosen throughout it, and the loops in it as long as they are throughout it.

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for o, i in grid((n + 7)//8, 8):
            with block("y", S(i + 8*o, n), where=i + 8*o < n) as (a,):
                y[a] = x[a] * 2.0

Steps:

    p = p.loop_partition('o', sym('n//8'))

After:

    for o, i in grid(n//8, 8):
        with block("y", S(i + 8*o, n)) as (a,):
            y[a] = x[a] * 2.0
    for o_t, i_t in grid((n + 7)//8 - (n//8), 8):
        with block("y_t", S(i_t + 8*(n//8) + 8*o_t, n), where=i_t + 8*(n//8) + 8*o_t < n) as (a_t,):
            y[a_t] = x[a_t] * 2.0

Before:

    @loop
    def join(x: f32["n"], y: f32["m"], z: f32["n + m"], n: i64, m: i64):
        for i in grid(n + m):
            with block("z", S(i, n + m)) as (a,):
                z[a] = select(a < n, x[a], y[a - n])

Steps:

    p = p.loop_partition('i', sym('n'))

After:

    for i in grid(n):
        with block("z", S(i, m + n)) as (a,):
            z[a] = x[a]
    for i_t in grid(m):
        with block("z_t", S(i_t + n, m + n)) as (a_t,):
            z[a_t] = y[a_t - n]

Before:

    @loop
    def double(x: f32["n"], y: f32["n"], n: i64):
        for o in grid((n + 7)//8):
            for i in grid(min(8, -8*o + n)):
                with block("y", S(i + 8*o, n)) as (a,):
                    y[a] = x[a] * 2.0

Steps:

    p = p.loop_partition('o', sym('n//8'))

After:

    for o, i in grid(n//8, 8):
        with block("y", S(i + 8*o, n)) as (a,):
            y[a] = x[a] * 2.0
    for o_t in grid((n + 7)//8 - (n//8)):
        for i_t in grid(n - 8*(n//8) - 8*o_t):
            with block("y_t", S(i_t + 8*(n//8) + 8*o_t, n)) as (a_t,):
                y[a_t] = x[a_t] * 2.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import pairwise
from math import inf
from typing import Any

from pliant.ir.expr import Binary, Const, Expr, Select, Unary
from pliant.ir.node import transform
from pliant.loop.bounds import declare_loops, span
from pliant.loop.rewrite import conjoin, conjuncts, copy_of, replace_at, subst
from pliant.loop.stmt import Block, For, If, Stmt, seq, statements
from pliant.schedule.errors import SchedulingError
from pliant.schedule.flow import bound_ends
from pliant.schedule.nest import blocks_in, iterators_over, require_serial
from pliant.schedule.program import LoopRef, Program, primitive
from pliant.sym.atoms import HAS_EXTREME, DivAtom, MaxAtom, MinAtom
from pliant.sym.expr import Int, IntLike, as_int, maximum, minimum, var
from pliant.sym.facts import ContradictionError, Facts


@primitive
def loop_partition(p: Program, loop: str, *at: IntLike) -> Program:
    """The loop does the iterations before the first of the points `at`; new loops, one after the
    other, do those up to the next point, and the last of them the rest. Makes the new loops."""
    points = [as_int(point) for point in at]
    check_loop_partition(p, loop, points)
    path = p.loop_path("loop_partition", loop)
    target, names, facts = path[-1], p.names(), p.around(path)
    assert isinstance(target, For)
    parts: list[Stmt] = []
    made = []
    for first, end in pairwise([as_int(0), *points, target.extent]):
        body = without_proved(target.body, between(target, first, end, facts))
        if not parts:
            parts.append(target.replace(extent=end, body=body))
            continue
        copy, _ = copy_of(target.replace(body=body), names, "_t")
        assert isinstance(copy, For)
        body = later(copy, first, p.sizes)
        parts.append(For(copy.var, facts.simplify(end - first), body))
        made.append(LoopRef(copy.var))
    return p.with_body(replace_at(path, seq(*parts)), *made)


def later(loop: For, first: Int, sizes: Set[str]) -> Stmt:
    """What the loop does `first` iterations later. Where that depends on loops around, which are
    none that a reduction over this loop runs over, it is added inside of the reduction's block."""

    def visit(node: Any) -> Any:
        if not isinstance(node, Block):
            return node
        bindings, body = list(node.bindings), node.body
        for k, it in enumerate(node.iters):
            line = bindings[k].linear(loop.var) if it.kind == "R" else None
            if line is not None and line[0] != 0:
                bindings[k] = bindings[k] - line[0] * first
                body = subst(body, {it.var: var(it.var) + line[0] * first})
        return node.replace(bindings=tuple(bindings), body=body)

    body = subst(loop.body, {loop.var: var(loop.var) + first})
    return body if first.names <= sizes else transform(body, visit)


def check_loop_partition(p: Program, loop: str, at: Sequence[Int]) -> None:
    """There is a point; 0 <= each point <= the next <= extent is proved, the loop is serial, and no
    reduction that starts itself runs over it."""

    def refuse(reason: str) -> SchedulingError:
        return SchedulingError("loop_partition", f"loop {loop}", reason)

    path = p.loop_path("loop_partition", loop)
    target, facts = path[-1], p.around(path)
    assert isinstance(target, For)
    require_serial("loop_partition", target)
    around = {s.var for s in path[:-1] if isinstance(s, For)}
    if not at:
        raise refuse("there is no point to divide it at")
    for low, point in pairwise([as_int(0), *at]):
        if not point.names <= around | p.sizes:
            raise refuse(f"{point} is not known around it")
        if not (facts.le(low, point) and facts.le(point, target.extent)):
            raise refuse(f"{point} is not known to be from {low} to {target.extent}")
    for block in blocks_in(target):
        if block.init is not None and "R" in iterators_over(block, loop):
            raise refuse(f"block {block.name} has its init inside; decompose_reduction first")


def between(loop: For, first: Int, end: Int, facts: Facts) -> Facts:
    """What holds in the iterations of `loop` from `first` to `end`, in terms of its variable.

    i >= max(a, b) is i >= a and i >= b. i >= min(a, n) where i < n is i >= a: no proof has to go by
    cases afterwards. So for the end.
    """
    i = var(loop.var)
    inside = declare_loops(facts, [loop])
    for low in _sure(first, MaxAtom, lambda x: facts.le(loop.extent, x)):
        _assume(inside, low, i)
        whole = _undivided(low, i)
        if whole is not None:
            _assume(inside, *whole)
    multiple = _multiple_of(end)
    for high in [end] if multiple is None else [end, multiple]:
        for part in _sure(high, MinAtom, lambda x: facts.le(x, first)):
            _assume(inside, i + 1, part)
    return inside


def _undivided(low: Int, i: Int) -> tuple[Int, Int] | None:
    """a//c + b <= i, without the division: a <= c*(i - b) + c - 1. None where there is none."""
    for mono, factor in low.pairs:
        atom = mono.atom
        if factor == 1 and isinstance(atom, DivAtom) and atom.den.is_const:
            rest, c = low - low.make({mono: 1}), atom.den.value
            return atom.num, c * (i - rest) + c - 1
    return None


def _multiple_of(high: Int) -> Int | None:
    """a, where `high` is the greatest multiple of a number that is no more than a."""
    match high.pairs:
        case ((mono, factor),) if isinstance(mono.atom, DivAtom) and mono.atom.den == factor:
            return mono.atom.num
    return None


def _sure(x: Int, both: type[MinAtom | MaxAtom], excluded: Callable[[Int], bool]) -> list[Int]:
    """The arguments of an extreme that all bound: all those of `both` do, of the other kind only
    the one that is not excluded."""
    for mono, factor in x.pairs:
        atom = mono.atom
        if abs(factor) != 1 or not isinstance(atom, MinAtom | MaxAtom):
            continue
        rest = x - factor * x.make({mono: 1})
        args = [rest + factor * a for a in atom.args]
        if isinstance(atom, both) == (factor == 1):
            return [part for a in args for part in _sure(a, both, excluded)]
        left = [a for a in args if not excluded(a)]
        return _sure(left[0], both, excluded) if len(left) == 1 else [x]
    return [x]


def _assume(facts: Facts, low: Int, high: Int) -> None:
    with suppress(ContradictionError):  # there is no such iteration: anything holds in it
        facts.assume_le(low, high)


def inner_part(p: Program, loop: str, conditions: Sequence[Expr] | None = None) -> tuple[Int, Int]:
    """Points (first, end) to partition `loop` at: in between, the conditions in it (None: all) that
    are linear in its variable hold. 0 <= first <= end <= extent; others count for nothing.

        for i in grid(n): select((0 <= i - 1) & (i + 1 < n), …)    min(1, n), max(min(1, n), n - 1)
    """
    path = p.loop_path("inner_part", loop)
    target, facts, inside = path[-1], p.around(path), p.inside(path)
    assert isinstance(target, For)
    known = {s.var for s in path[:-1] if isinstance(s, For)} | p.sizes
    first, end = as_int(0), target.extent
    for cond in conditions_in(target.body) if conditions is None else conditions:
        gap = _least(target.body, cond, inside)
        if gap is not None:
            first, end = _narrowed(gap, loop, known, first, end) or (first, end)
    return _in_order(first, end, target.extent, facts)


def gap_of(p: Program, loop: str, condition: Expr) -> Int | None:
    """A condition in the loop holds where this is at least 0; None if it is of another kind."""
    return _gap(condition, _bindings(p.loop(loop)))


def live_part(p: Program, loop: str) -> tuple[Int, Int]:
    """Points (first, end) to partition `loop` at: before and after, a choice in it by a condition
    that is linear in its variable is a number throughout: its second value, unless only its first
    is one, or minus infinity. 0 <= first <= end <= extent.

        for i in grid(n): select(i <= m, …)        0, min(n, max(0, m + 1))
    """
    path = p.loop_path("live_part", loop)
    target, facts, inside = path[-1], p.around(path), p.inside(path)
    assert isinstance(target, For)
    around = {s.var for s in path[:-1] if isinstance(s, For)}
    first, end = as_int(0), target.extent
    for cond in _choices(target.body):
        gaps = _greatest(target.body, cond, inside)
        # One is enough; those that are the same in all loops around leave more.
        gaps.sort(key=lambda x: (x.names.isdisjoint(around), len(list(x.terms()))))
        bounds = (_narrowed(x, loop, around | p.sizes, first, end) for x in gaps)
        first, end = next((x for x in bounds if x is not None), (first, end))
    end = end if facts.nonneg(end) else maximum(end, 0)
    return _in_order(first, end, target.extent, facts)


def _narrowed(gap: Int, loop: str, known: Set[str], first: Int, end: Int) -> tuple[Int, Int] | None:
    """Of the points from `first` to `end` of a loop those where the gap, which is linear in its
    variable, is at least 0; None where it is not, or mentions more than is `known`."""
    line = gap.linear(loop)
    if line is None or not line[0].is_const or not line[1].names <= known:
        return None
    slope, rest = line[0].value, line[1]
    if slope > 0:
        first = maximum(first, (slope - 1 - rest) // slope)
    elif slope < 0:
        end = minimum(end, rest // -slope + 1)
    return first, end


def _in_order(first: Int, end: Int, extent: Int, facts: Facts) -> tuple[Int, Int]:
    """The points, with first <= end and first <= extent."""
    if not facts.le(first, extent):
        first = minimum(first, extent)
    return first, end if facts.le(first, end) else maximum(first, end)


def _choices(root: Stmt) -> list[Expr]:
    """The conditions by which values are chosen, each in its parts: those of the first value, or,
    where that alone is a number, or minus infinity, of the second."""
    found: dict[Expr, None] = {}

    def visit(node: Any) -> Any:
        if isinstance(node, Select):
            a, b = node.a, node.b
            hidden = isinstance(a, Const) and (a.value == -inf or not isinstance(b, Const))
            found.update(dict.fromkeys(_converses(node.cond) if hidden else conjuncts(node.cond)))
        return node

    transform(root, visit)
    return list(found)


def _converses(cond: Expr) -> list[Expr]:
    """Conditions that all hold where `cond` does not: of a <= b, or of several of which one is to
    hold, b < a."""
    match cond:
        case Binary("or", a, b):
            return [*_converses(a), *_converses(b)]
        case Binary(("lt" | "le") as op, a, b):
            return [Binary("le" if op == "lt" else "lt", b, a)]
        case Unary("not", a):
            return conjuncts(a)
    return []


def conditions_in(root: Stmt) -> list[Expr]:
    """The conditions under which blocks run or values are chosen, each in its parts."""
    found: dict[Expr, None] = {}

    def visit(node: Any) -> Any:
        match node:
            case Block(where=cond) | Select(cond=cond) | If(cond=cond) if cond is not None:
                found.update(dict.fromkeys(conjuncts(cond)))
        return node

    transform(root, visit)
    return list(found)


def without_proved(root: Stmt, facts: Facts) -> Stmt:
    """`root` without conditions that hold for all values of the loops in it, and without choices
    that one of them decides the other way; extents are as long as they are sure to be."""
    proofs = _Proofs(root, facts)

    def visit(node: Any) -> Any:
        match node:
            case For(extent=extent) if extent.flags & HAS_EXTREME:
                return node.replace(extent=facts.simplify(extent))
            case Block(where=cond) | Select(cond=cond) | If(cond=cond) if cond is not None:
                kept = [c for c in conjuncts(cond) if not proofs.holds(c)]
                if isinstance(node, Block):
                    return node.replace(where=conjoin(kept))
                if isinstance(node, Select) and any(map(proofs.fails, kept)):
                    return node.b
                if kept:
                    return node.replace(cond=conjoin(kept))
                return node.a if isinstance(node, Select) else node.then
        return node

    return transform(root, visit)  # type: ignore[no-any-return]


def is_idle(root: Stmt, facts: Facts) -> bool:
    """Whether it is proved that none of the blocks in `root` runs, whatever the loops' values."""
    proofs = _Proofs(root, facts)
    return all(any(map(proofs.fails, conjuncts(b.where))) for b in blocks_in(root))


class _Proofs:
    """What conditions in a statement are for all values of the loops in it."""

    def __init__(self, root: Stmt, facts: Facts) -> None:
        self.facts = facts
        self.loops = [s for s in statements(root) if isinstance(s, For)]
        self.ranges = {s.var: s.extent for s in self.loops}
        self.bindings = _bindings(root)
        self.known: dict[Int, bool] = {}

    def holds(self, cond: Expr) -> bool:
        match cond:
            case Binary("or", a, b):
                return self.holds(a) or self.holds(b)
            case Unary("not", a):
                return self.fails(a)
        gap = _gap(cond, self.bindings)
        return gap is not None and self.always(gap)

    def fails(self, cond: Expr) -> bool:
        match cond:
            case Binary("and", a, b):
                return self.fails(a) or self.fails(b)
            case Binary("or", a, b):
                return self.fails(a) and self.fails(b)
            case Unary("not", a):
                return all(map(self.holds, conjuncts(a)))
        gap = _gap(cond, self.bindings)
        return gap is not None and self.always(-1 - gap)

    def always(self, gap: Int) -> bool:
        if gap not in self.known:
            self.known[gap] = self.proved(gap)
        return self.known[gap]

    def proved(self, gap: Int) -> bool:
        low = span(gap, self.ranges, self.facts)
        if low is not None and self.facts.nonneg(low[0]):
            return True
        return declare_loops(self.facts, self.around(gap)).nonneg(gap)

    def around(self, gap: Int) -> list[For]:
        """The loops that are surely around the condition: others beside them may never run."""
        names = set(gap.names)
        for s in reversed(self.loops):  # inner ones first
            if s.var in names:
                names |= s.extent.names
        return [s for s in self.loops if s.var in names]


def _least(root: Stmt, cond: Expr, facts: Facts) -> Int | None:
    """The condition holds for all values of the loops in `root` where this is at least 0."""
    ends = _ends(root, cond, facts)
    return None if ends is None else ends[0]


def _greatest(root: Stmt, cond: Expr, facts: Facts) -> list[Int]:
    """It holds for none of them where one of these is less than 0."""
    ends = _ends(root, cond, facts)
    return [] if ends is None else _sure(ends[1], MinAtom, lambda _: False)


def _ends(root: Stmt, cond: Expr, facts: Facts) -> tuple[Int, Int] | None:
    gap = _gap(cond, _bindings(root))
    ranges = {s.var: s.extent for s in statements(root) if isinstance(s, For)}
    return None if gap is None else span(gap, ranges, facts)


def _gap(cond: Expr, bindings: Mapping[str, Int]) -> Int | None:
    """The condition holds where this is at least 0, in terms of loops."""
    ends = bound_ends(cond)
    return None if ends is None else _outside(ends[1] - ends[0], bindings)


def _bindings(root: Stmt) -> dict[str, Int]:
    """What the iterators of the blocks below are bound to."""
    blocks = [s for s in statements(root) if isinstance(s, Block)]
    pairs = [(i.var, x) for b in blocks for i, x in zip(b.iters, b.bindings, strict=True)]
    return dict(pairs)


def _outside(x: Int, bindings: Mapping[str, Int]) -> Int:
    """Block iterators replaced by what they are bound to, through nested blocks."""
    while not x.names.isdisjoint(bindings):
        x = x.subs({n: bindings[n] for n in x.names & bindings.keys()})
    return x
