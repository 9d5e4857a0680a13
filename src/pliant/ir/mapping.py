"""Which iterators of a computation run as which of another's: the one matching function.

    workload    y[n, o, p] = sum over c, k of x[n, c, p + k] * w[o, c, k]
    intrinsic   O[i, j] = sum over r of A[i, r] * B[r, j]

    operands    A = x, B = w                          (or A = w, B = x: products commute)
    signature   n p: {O, A}    o: {O, B}    c k: {A, B}, reduced over
                i:   {O, A}    j: {O, B}    r:   {A, B}, reduced over
    mapping     (n, p) -> i    o -> j    (c, k) -> r

An iterator's signature is what it indexes and whether it is reduced over. Iterators of the workload
run as the intrinsic's of the same signature, several together as one; the others stay outside. All
ways to do so are given, best first, and the reasons why others are none. Where the operands lie is
the business of whoever rewrites: they can be copied into place, which `Rank` counts.

Source: TensorIR (ASPLOS'23), section 4.2, which wants a unique mapping and plain indices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product, takewhile
from math import prod
from typing import Any, Final, NamedTuple

from pliant.ir.einsum import Einsum, names_in
from pliant.ir.expr import COMMUTATIVE, Binary, Cast, Const, Expr, Index, Load, Select, Unary, const
from pliant.ir.tensor import own_nodes
from pliant.sym.expr import Int, as_int
from pliant.sym.facts import Facts

Strides = Callable[[Any], Sequence[Int]]

USUAL: Final = 64  # of a size of which nothing is known
SIDE: Final = 224  # of an image's height or width
TURNED: Final = {8: 3, 4: 3, 2: 64, 1: 64}
"""Of so many bytes, elements copied row by row in the time in which one is stored across rows."""
IDLE: Final = 16  # products on padding in the time in which an element is copied (Zen 4)


class Rank(NamedTuple):
    """How good a mapping is: less is better, the first difference decides.

    An operand of the intrinsic that is read through a table of addresses may lie anywhere; the
    others must be copied into place. Padding counts at likely values of symbolic extents.
    """

    repeated: int  # copied in every call, although another operand is a constant
    awkward: int  # to be copied where a condition holds (1), or computed (2)
    spread: int  # iterators that only the operands to be copied have
    across: int  # operands to be copied that the output's last dimension does not depend on
    empty: float  # share of the first tile that holds padding alone
    scattered: int  # of the output and what is read through tables: not element after element
    outside: int  # iterators that are left outside though they would fit
    padding: float  # work on padding for each unit of work
    depth: int  # minus the length of the reduction


@dataclass(frozen=True)
class Operand:
    """What stands for an operand of the intrinsic: an expression of one load; without its `zero`,
    which is subtracted from each element, where it has one."""

    formal: Load
    value: Expr
    load: Load
    zero: Expr | None = None

    @property
    def moves(self) -> bool:
        """Whether the intrinsic finds it through a table of addresses."""
        return any(isinstance(n, Load) for i in self.formal.indices for n in own_nodes(i))

    @property
    def condition(self) -> Expr | None:
        """Where it is a choice: the condition."""
        return self.value.cond if isinstance(self.value, Select) else None

    @property
    def bare(self) -> bool:
        """Whether it is a load, or a load and 0 where a condition does not hold."""
        match self.value:
            case Select(_, Load(), other):
                return other is const(0, other.dtype)
        return isinstance(self.value, Load)


@dataclass(frozen=True)
class IteratorMap:
    """`groups` says for each iterator of the intrinsic which of the workload run as it, outermost
    first; `fitting` which have its signature. `outer` are those that the output has, as it lies,
    `outside` those that are in no group."""

    operands: tuple[Operand, ...]
    groups: Mapping[str, tuple[str, ...]]
    fitting: Mapping[str, tuple[str, ...]]
    outer: tuple[str, ...]
    outside: tuple[str, ...]
    runs: Set[str]  # iterators of the intrinsic whose innermost one steps through a table's operand
    rank: Rank

    def __str__(self) -> str:
        parts = [f"({', '.join(group)}) -> {name}" for name, group in self.groups.items()]
        if self.outside:
            parts.append(f"outside: {', '.join(self.outside)}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Found:
    """All mappings, best first, and why there are no others."""

    maps: tuple[IteratorMap, ...]
    reasons: tuple[str, ...] = field(default=())

    @property
    def best(self) -> IteratorMap | None:
        return self.maps[0] if self.maps else None


def match_iterators(
    workload: Einsum,
    intrinsic: Einsum,
    *,
    strides: Strides | None = None,
    facts: Facts | None = None,
    constants: Set[str] = frozenset(),
    lies: bool = False,
) -> Found:
    """All mappings of the workload's iterators to the intrinsic's.

    `strides` tells how the workload's operands lie in memory (by default row-major), `facts` what
    is known of sizes, `constants` which operands never change, by name; `lies` says that the order
    of the output's dimensions is decided.
    """
    matcher = _Matcher(workload, intrinsic, strides or row_major, facts or Facts(), constants, lies)
    maps = [m for operands in matcher.bindings() for m in matcher.mappings(operands)]
    maps.sort(key=lambda m: m.rank)
    return Found(tuple(maps), tuple(dict.fromkeys(matcher.reasons)))


def row_major(source: Any) -> Sequence[Int]:
    """Strides of a compact tensor; those of a buffer that has some."""
    own = getattr(source, "strides", None)
    if own is not None:
        return tuple(own)
    steps, step = list[Int](), as_int(1)
    for extent in reversed(source.shape):
        steps.append(step)
        step = step * extent
    return tuple(reversed(steps))


@lru_cache(256)
def _formal_step(load: Load, name: str) -> Int | None:
    """`step_along` of an intrinsic's operand: there are few."""
    return step_along(load, name, row_major(load.source), Facts())


def step_along(load: Load, name: str, strides: Sequence[Int], facts: Facts) -> Int | None:
    """How far a step of an iterator moves a load in memory; None where that varies, or depends on
    data. Parts of an index that data decides count as fixed."""
    total: Int = as_int(0)
    for index, stride in zip(load.indices, strides, strict=True):
        at = _fixed_part(index)
        if at is None:
            return None
        total = total + at * stride
    parts = facts.simplify(total).linear(name)
    return None if parts is None or name in parts[0].names else parts[0]


def _fixed_part(index: Expr) -> Int | None:
    """The symbolic integer in an index, which may be added to what a table holds."""
    match index:
        case Index(x):
            return x
        case Load():
            return as_int(0)
        case Binary("add", a, b):
            parts = _fixed_part(a), _fixed_part(b)
            return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
    return None


def likely_value(x: Int, facts: Facts, usual: int = USUAL) -> int:
    """What an extent may well be: of likely values the best, else what makes a usual size, within
    its range."""
    values: dict[str, int] = {}
    for name in x.names:
        expected = facts.likely(name)
        low, high = facts.range_of(name)
        near = max(1, usual // facts.unit_of(name))
        near = near if low is None else max(near, low)
        values[name] = expected[0] if expected else near if high is None else min(near, high)
    return x.eval(values)


_Copies = tuple[int, int, int, int]


class _Matcher:
    def __init__(
        self,
        workload: Einsum,
        intrinsic: Einsum,
        strides: Strides,
        facts: Facts,
        constants: Set[str],
        lies: bool,
    ) -> None:
        self.workload, self.intrinsic, self.lies = workload, intrinsic, lies
        self.strides, self.constants = strides, constants
        self.facts, self.several = facts.copy(), facts.copy()
        for name, axis in workload.extents.items():
            self.facts.declare_index(name, axis.extent)
            if axis.extent != 1:
                self.several.declare_index(name, axis.extent)
        self.reasons: list[str] = []

    # ---- operands

    def bindings(self) -> Iterator[tuple[Operand, ...]]:
        """Every way in which the workload's term is the intrinsic's."""
        want, have = self.intrinsic, self.workload
        if want.combiner != have.combiner:
            self.reasons.append(f"it is a {have.combiner}, not a {want.combiner}")
            return
        if want.term.dtype is not have.term.dtype:
            self.reasons.append(f"it adds up {have.term.dtype}, not {want.term.dtype}")
            return
        formals = [n for n in own_nodes(want.term) if isinstance(n, Load)]
        tables = {n for f in formals for i in f.indices for n in own_nodes(i)}
        formals = [f for f in formals if f not in tables]
        seen = set[tuple[Operand, ...]]()
        for bound in self.term(want.term, have.term, {}):
            found = tuple(bound[f] for f in formals)
            if found not in seen:
                seen.add(found)
                yield found

    def term(
        self, want: Expr, have: Expr, bound: Mapping[Load, Operand]
    ) -> Iterator[Mapping[Load, Operand]]:
        match want, have:
            case Load(), _:
                operand = self.operand(want, have)
                known = bound.get(want)
                if operand is not None and (known is None or known == operand):
                    yield {**bound, want: operand}
            case Cast(), _ if want.to is have.dtype:
                yield from self.converted(want, have, bound)
            case Binary(), Binary() if want.op == have.op:
                yield from self.both(want, have.a, have.b, bound)
                if want.op in COMMUTATIVE:
                    yield from self.both(want, have.b, have.a, bound)
            case Unary(), Unary() if want.op == have.op:
                yield from self.term(want.a, have.a, bound)
            case Const(), Const() if want is have:
                yield bound
            case _:
                self.reasons.append(f"it has {_kind(have)} where the intrinsic has {_kind(want)}")

    def both(
        self, want: Binary, a: Expr, b: Expr, bound: Mapping[Load, Operand]
    ) -> Iterator[Mapping[Load, Operand]]:
        for first in self.term(want.a, a, bound):
            yield from self.term(want.b, b, first)

    def converted(
        self, want: Cast, have: Expr, bound: Mapping[Load, Operand]
    ) -> Iterator[Mapping[Load, Operand]]:
        """A conversion, perhaps around a choice, and perhaps less a zero point."""
        zero: Expr | None = None
        inner = before_cast(have, want.a.dtype)
        if inner is None and isinstance(have, Binary) and have.op == "sub" and want.to.is_int:
            inner, zero = before_cast(have.a, want.a.dtype), have.b
            late = sorted(names_in(zero) & {a.var for a in self.workload.inner})
            if late:
                self.reasons.append(f"the zero point varies along {', '.join(late)}")
                return
        if inner is None:
            text = f"{_kind(have)} of type {_source_type(have)}"
            self.reasons.append(f"it has {text} where the intrinsic converts {want.a.dtype}")
            return
        for found in self.term(want.a, inner, bound):
            if zero is None:
                yield found
            elif isinstance(want.a, Load):
                o = found[want.a]
                yield {**found, want.a: Operand(o.formal, o.value, o.load, zero)}

    def operand(self, formal: Load, value: Expr) -> Operand | None:
        name = formal.source.name
        if value.dtype is not formal.dtype:
            self.reasons.append(f"{_kind(value)} is {value.dtype}, {name} {formal.dtype}")
            return None
        loads = [n for n in own_nodes(if_there(value)) if isinstance(n, Load)]
        if len(loads) != 1:
            what = "no element of a tensor" if not loads else f"made of {len(loads)} elements"
            self.reasons.append(f"what would be {name} is {what}")
            return None
        return Operand(formal, value, loads[0])

    # ---- iterators

    def mappings(self, operands: tuple[Operand, ...]) -> Iterator[IteratorMap]:
        guard = self.workload.guard
        always = frozenset[str]() if guard is None else self.names(guard)
        uses = [self.names(o.value) | always for o in operands]
        have = _signatures(self.workload, uses)
        want = _signatures(self.intrinsic, [names_in(o.formal) for o in operands])
        names = [o.load.source.name for o in operands]
        classes: dict[_Signature, list[str]] = {}
        for name, signature in want.items():
            classes.setdefault(signature, []).append(name)
        fitting = {s: [v for v in self.ordered() if have[v] == s] for s in classes}
        # Those that run once and index no operand may go anywhere.
        for reduced in (False, True):
            first = next((s for s in classes if s.reduced is reduced and fitting[s]), None)
            alone = _Signature(not reduced, frozenset(), reduced)
            once = {v for v, a in self.workload.extents.items() if a.extent == 1}
            if first is not None:
                idle = {v for v in once if have[v] == alone}
                fitting[first] = [v for v in self.ordered() if v in {*idle, *fitting[first]}]
        for signature in classes:
            if not fitting[signature]:
                self.reasons.append(self.missing(signature, names))
                return
        if self.intrinsic.begins:
            for axis in self.workload.inner:
                if all(axis.var not in group for group in fitting.values()):
                    where = self.described(have[axis.var], names)
                    self.reasons.append(
                        f"{axis.var}, which is summed over, indexes {where}, "
                        "and the intrinsic does not add to what is there"
                    )
                    return
        choices = [self.candidates(s, fitting[s], operands, f) for s, f in classes.items()]
        copies = self.copies(uses, operands)
        for chosen in product(*choices):
            groups: dict[str, tuple[str, ...]] = {}
            for formal, group in zip(classes.values(), chosen, strict=True):
                groups |= _distributed(formal, group)
            whole = {n: tuple(fitting[s]) for s, formal in classes.items() for n in formal}
            yield self.mapping(operands, {n: groups[n] for n in want}, whole, copies)

    def names(self, x: Expr) -> frozenset[str]:
        """The iterators that an expression depends on, as far as is seen; on one that runs once,
        where it is written that it does."""
        ints = {n.int_ for n in own_nodes(x) if isinstance(n, Index)}
        return frozenset[str]().union(*(self.several.simplify(i).names for i in ints))

    def ordered(self) -> list[str]:
        """All iterators: the outer ones as the output lies, then the inner ones."""
        return [*self.workload.order, *(a.var for a in self.workload.inner)]

    def missing(self, signature: _Signature, names: Sequence[str]) -> str:
        kind = "that is reduced over " if signature.reduced else ""
        return f"no iterator {kind}indexes {self.described(signature, names)}"

    def described(self, s: _Signature, names: Sequence[str]) -> str:
        """What an iterator of a signature indexes, in words."""
        inside = [self.workload.label] * s.output + [names[k] for k in sorted(s.operands)]
        others = [n for k, n in enumerate(names) if k not in s.operands]
        if not s.output and not s.reduced:
            others.insert(0, self.workload.label)
        if not inside:
            return "nothing"
        head = {1: "only ", 2: "both "}.get(len(inside), "") + " and ".join(inside)
        return head + (f" but not {' or '.join(others)}" if others and len(inside) > 1 else "")

    def candidates(
        self, s: _Signature, group: list[str], operands: Sequence[Operand], formal: Sequence[str]
    ) -> list[tuple[str, ...]]:
        """The iterators that may run together as the `formal` ones, outermost first. Those that the
        output has lie as there: any number of the last ones that gains by it. A sum has all, with
        one last along which an operand lies element after element; where the intrinsic adds to the
        output, any number of those."""
        if not s.reduced:
            together = [tuple(group[k:]) for k in range(len(group))]
            return [x for x in together if not self.in_vain(x, formal, operands)]
        leading = next((o for o in operands if o.moves), operands[0])
        last = [v for v in reversed(group) if self.contiguous(leading, v)] or group[-1:]
        orders = [(*(x for x in group if x != v), v) for v in last]
        if self.intrinsic.begins:
            return orders
        return list(dict.fromkeys(o[k:] for o in orders for k in range(len(o))))

    def in_vain(
        self, group: tuple[str, ...], formal: Sequence[str], operands: Sequence[Operand]
    ) -> bool:
        """Whether more than half as many tiles are done as where the last iterator runs alone,
        whose elements then begin with a tile's: together some lie across the borders of vectors,
        and are stored, and looked up, one by one."""
        tile = self.intrinsic.extents[formal[-1]].extent
        extent = self.workload.extents[group[-1]].extent
        if len(group) == 1 or len(formal) > 1 or not (tile.is_const and extent.is_const):
            return False
        each, count = extent.value, self.likely(group[:-1])
        alone = count * -(-each // tile.value)
        if each % max(tile.value // 2, 1) == 0 or 2 * -(-each * count // tile.value) <= alone:
            return False
        return not self.in_one_line(group, operands)

    def in_one_line(self, group: tuple[str, ...], operands: Sequence[Operand]) -> bool:
        """Whether one iterator would go through the output and the operands as these do, element
        after element: then there are no borders."""
        order, guard = self.workload.order, self.workload.guard
        if not self.lies or group != tuple(order[len(order) - len(group) :]):
            return False
        if guard is not None and self.names(guard) & set(group):
            return False
        moving = [o for o in operands if self.names(o.value) & set(group)]
        return all(o.value is o.load and self.steps_on(o.load, group) for o in moving)

    def steps_on(self, load: Load, group: tuple[str, ...]) -> bool:
        """Whether each iterator goes on where those inside of it end, which go element by
        element."""
        step, strides = as_int(1), self.strides(load.source)
        for name in reversed(group):
            if step_along(load, name, strides, self.facts) != step:
                return False
            step = step * self.workload.extents[name].extent
        return True

    def contiguous(self, o: Operand, name: str) -> bool:
        """Whether an operand lies element after element along an iterator, or is not there."""
        value = o.value.a if isinstance(o.value, Select) else o.value
        conditions = [c for c in (o.condition, self.workload.guard) if c is not None]
        if value is not o.load or any(name in names_in(c) for c in conditions):
            return False
        return step_along(o.load, name, self.strides(o.load.source), self.facts) == 1

    # ---- ranks

    def mapping(
        self,
        operands: tuple[Operand, ...],
        groups: Mapping[str, tuple[str, ...]],
        fitting: Mapping[str, tuple[str, ...]],
        copies: _Copies,
    ) -> IteratorMap:
        inside = {v for group in groups.values() for v in group}
        outside = tuple(v for v in self.ordered() if v not in inside)
        runs, scattered = self.memory(operands, groups)
        repeated, awkward, spread, across = copies
        rank = Rank(
            repeated + self.apart(operands, groups),
            awkward,
            spread,
            across,
            self.empty(groups),
            scattered,
            len([v for v in outside if any(v in f for f in fitting.values())]),
            self.padding(groups),
            -self.likely([v for v in inside if v not in self.workload.order]),
        )
        outer = self.workload.order
        return IteratorMap(operands, groups, fitting, outer, outside, runs, rank)

    def copies(self, uses: Sequence[Set[str]], operands: Sequence[Operand]) -> _Copies:
        """What the operands that must lie in their places cost; `uses` are their iterators."""
        constant = [o.load.source.name in self.constants for o in operands]
        care = [_care(o) for o in operands]
        repeated = awkward = spread = across = 0
        last = set(self.workload.order[-1:])
        for k, o in enumerate(operands):
            if o.moves or len(operands) == 1:
                continue
            others = frozenset[str]().union(*(u for j, u in enumerate(uses) if j != k))
            alone = uses[k] - others
            own = [a.var for a in self.workload.outer if a.var in alone and a.extent != 1]
            if any(constant) and not constant[k] and max(care) < 2:
                if last <= set(own) and self.turns(o, uses[k]):
                    own = own[-1:]  # the others are gone through outside
                else:
                    repeated += 1
            awkward, spread = awkward + care[k], spread + len(own)
            across += not last <= set(own)
        return repeated, awkward, spread, across

    def apart(self, operands: Sequence[Operand], groups: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether an operand is copied in every call beside a constant though the output does not
        lie along it."""
        constant = {o.moves: o.load.source.name in self.constants for o in operands}
        group = groups[self.intrinsic.order[-1]]
        turned = self.lies and constant.get(True, False) and not constant.get(False, True)
        return turned and group != tuple(self.workload.order[-len(group) :])

    def turns(self, operand: Operand, copied: Iterable[str]) -> bool:
        """Whether to store the output across its rows, as it lies, would cost more than to copy in
        every call an operand with these iterators."""
        if not self.lies:
            return False
        order, mine = self.workload.order, set(copied)
        tile = self.intrinsic.extents[self.intrinsic.order[-1]].extent
        sizes = {v: self.likely([v]) for v in self.workload.extents}
        idle = idle_products(sizes, order, mine, tile.value if tile.is_const else 1)
        here = self.likely([v for v in sizes if v in mine])
        return copied_sooner(operand.load, here, self.likely(order), idle)

    def memory(
        self, operands: Sequence[Operand], groups: Mapping[str, tuple[str, ...]]
    ) -> tuple[frozenset[str], int]:
        """Along which iterators operands with tables lie as the intrinsic wants them; how often
        they, or the output, do not."""
        runs, scattered = set[str](), 0
        for o in operands:
            for name in groups:
                if not o.moves or _formal_step(o.formal, name) != 1:
                    continue
                if o.bare and groups[name] and self.contiguous(o, groups[name][-1]):
                    runs.add(name)
                else:
                    scattered += 1
        into = self.intrinsic.order[-1:]
        for name in into:
            group = groups[name]
            scattered += group != tuple(self.workload.order[-len(group) :])
        return frozenset(runs), scattered

    def tiles(self, groups: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[int, int]]:
        """How many iterations there are, and how many the intrinsic always does."""
        for name, axis in self.intrinsic.extents.items():
            if axis.extent.is_const:
                yield self.likely(groups[name]), axis.extent.value

    def empty(self, groups: Mapping[str, tuple[str, ...]]) -> float:
        full = 1.0
        for count, tile in self.tiles(groups):
            full *= min(count, tile) / tile
        return 1.0 - full

    def padding(self, groups: Mapping[str, tuple[str, ...]]) -> float:
        work = 1.0
        for count, tile in self.tiles(groups):
            work *= -(-count // tile) * tile / max(count, 1)
        return work - 1.0

    def likely(self, names: Iterable[str]) -> int:
        total = 1
        for name in names:
            total *= likely_value(self.workload.extents[name].extent, self.facts)
        return total


def copied_sooner(operand: Load, elements: int, outputs: int, idle: int) -> bool:
    """Whether it costs less to copy an operand, of so many elements, as it lies, and to do so many
    `idle` products then, than to store so many outputs across their rows."""
    return elements + idle // IDLE <= TURNED[operand.dtype.bytes] * outputs


def idle_products(
    sizes: Mapping[str, int], order: Sequence[str], columns: Collection[str], tile: int
) -> int:
    """How many are done on what fills the last tile of columns, which are the last dimensions of an
    output that lies in `order`; `sizes` are those of all iterators."""
    run = prod(sizes[x] for x in takewhile(columns.__contains__, reversed(order)))
    return prod(sizes.values()) // max(run, 1) * (-run % tile)


class _Signature(NamedTuple):
    """What an iterator indexes: the output, which operands; and whether it is reduced over."""

    output: bool
    operands: frozenset[int]
    reduced: bool


def _signatures(form: Einsum, names: Sequence[Set[str]]) -> dict[str, _Signature]:
    reduced = {a.var for a in form.inner}
    return {
        v: _Signature(
            v not in reduced, frozenset(k for k, x in enumerate(names) if v in x), v in reduced
        )
        for v in form.extents
    }


def _distributed(formal: Sequence[str], group: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """A group over the intrinsic's iterators of its signature: the last gets the innermost one,
    the first the rest; others run once."""
    if len(formal) == 1:
        return {formal[0]: group}
    empty: dict[str, tuple[str, ...]] = dict.fromkeys(formal, ())
    return empty | {formal[0]: group[:-1], formal[-1]: group[-1:]}


def _care(o: Operand) -> int:
    """0: copied (and perhaps converted); 1: where a condition holds; 2: computed."""
    value, care = o.value, 0
    if isinstance(value, Select):
        value, care = value.a, 1
    while isinstance(value, Cast):
        value = value.a
    plain = isinstance(value, Load) and all(isinstance(i, Index) for i in value.indices)
    return care if plain else 2


def if_there(x: Expr) -> Expr:
    """What an operand is, perhaps converted, where a condition says that there is one."""
    while isinstance(x, Cast | Select):
        x = x.a
    return x


def before_cast(x: Expr, narrow: Any) -> Expr | None:
    """What of type `narrow` was converted to make `x`; None if nothing was. A choice of converted
    values is a converted choice, if the other branch is a number of that type."""
    match x:
        case Cast(_, a) if a.dtype is narrow:
            return a
        case Select(cond, a, Const() as other):
            inner = before_cast(a, narrow)
            try:
                same = const(other.value, narrow)
            except (ValueError, OverflowError):
                return None
            if inner is not None and same.value == other.value:
                return Select(cond, inner, same)
    return None


def _source_type(x: Expr) -> Any:
    return if_there(x).dtype


def _kind(x: Expr) -> str:
    if isinstance(x, Load):
        return f"an element of {x.source.name}"
    op = getattr(x, "op", "")
    return f"{type(x).__name__.lower()} {op}".strip()
