"""Which loops two accesses must agree in, if they touch the same element.

    A[8*o + i] with i < 8, and A[8*o' + i'] with i' < 8:     same element  =>  o == o' and i == i'

An index is read as a number in mixed radix: a term whose coefficient exceeds all that the other
terms can add up to is known once the index is. Quotient and remainder by the same divisor give
back the number. Everything is proved with symbolic extents; what cannot be proved is not claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pliant.loop.bounds import declare_loops, span
from pliant.loop.regions import Access, without_names
from pliant.loop.stmt import For, Nop, offset_of
from pliant.sym.atoms import DivAtom, MinAtom, ModAtom
from pliant.sym.expr import Int, const, rebuild_atom, var
from pliant.sym.facts import Facts


def agreed_loops(a: Access, b: Access, nest: Sequence[For], facts: Facts) -> frozenset[str]:
    """Those of the `nest` loops, around both, that have equal values whenever both touch the same
    element. `facts` hold outside the nest; inner loops are those of the accesses.

    A start of a reduction happens also where the loops that it runs over do not.
    """
    names = frozenset(loop.var for loop in nest)
    a, b = (x if names <= {y.var for y in x.loops} else without_names(x) for x in (a, b))
    if a.indices is None or b.indices is None:
        return frozenset()
    nests = [tuple(x for x in loops if x.var not in names) for loops in (a.loops, b.loops)]
    constant = [tuple(_at_most(x, None) for x in inner) for inner in nests]
    found = _agreed(a, b, nest, constant, facts)
    if names <= found:
        return names
    varying = names.union(x.var for inner in nests for x in inner)
    fixed = [tuple(_at_most(x, varying) for x in inner) for inner in nests]
    if fixed != constant:
        found |= _agreed(a, b, nest, fixed, facts)
    return names & found


def _agreed(
    a: Access, b: Access, nest: Sequence[For], inner: Sequence[Sequence[For]], facts: Facts
) -> frozenset[str]:
    inner_a, inner_b = inner
    early = a.before & b.before
    if _alike(a, inner_a, b, inner_b):
        ranges = {x.var: x.extent for x in (*nest, *inner_a)}
        inside = declare_loops(facts, (x for x in (*nest, *inner_a) if x.var not in early))
        known = [i for d in range(len(a.indices or ())) if (i := a.index(d)) is not None]
        offset = offset_of(a.buffer, a.indices or ())  # what was fused is one number here
        known += [] if offset is None else [offset]
        return _solve(known, ranges, inside)
    ranges = {x.var: x.extent for x in nest}
    running = (*nest, *_surely(inner_a, inner_b))
    inside = declare_loops(facts, (x for x in running if x.var not in early))
    names = set(ranges)
    known = []
    for d in range(len(a.indices or ())):
        i, j = a.index(d), b.index(d)
        if i is not None and j is not None:
            known += _outer_parts(i, j, names, inner_a, inner_b, inside)
    for i, j in (_alike_parts(a, inner_a, b, inner_b), *_fused(a, b)):
        known += _outer_parts(i, j, names, inner_a, inner_b, inside)
    return _solve(known, ranges, inside)


def _surely(inner_a: Sequence[For], inner_b: Sequence[For]) -> list[For]:
    """Inner loops that run, in one place as in the other: what is in an empty one touches nothing.
    Not those that depend on others, nor different ones of one name."""
    both = (*inner_a, *inner_b)
    names = {x.var for x in both}
    alike = [x for x in both if all(y.var != x.var or y.extent is x.extent for y in both)]
    return [x for x in alike if x.extent.names.isdisjoint(names)]


def _alike_parts(
    a: Access, inner_a: Sequence[For], b: Access, inner_b: Sequence[For]
) -> tuple[Int, Int]:
    """What the dimensions that both index alike add to their offsets: what was fused is one number
    there."""
    same = {y.var: var(x.var) for x, y in zip(inner_a, inner_b, strict=False)}
    parts: tuple[Int, Int] = const(0), const(0)
    for d, stride in enumerate(a.buffer.strides):
        i, j = a.index(d), b.index(d)
        if i is not None and j is not None and i is j.subs(same):
            parts = parts[0] + i * stride, parts[1] + j * stride
    return parts


def _fused(a: Access, b: Access) -> Iterator[tuple[Int, Int]]:
    """Numbers of which one dimension is indexed by the quotients, another by the remainders."""
    for d in range(a.buffer.rank):
        quotients = [None if i is None else i.sole_atom for i in (a.index(d), b.index(d))]
        match quotients:
            case [DivAtom(num=i, den=c), DivAtom(num=j, den=other)] if c is other:
                left = (i % c, j % c)
                if any((a.index(e), b.index(e)) == left for e in range(a.buffer.rank)):
                    yield i, j


def _alike(a: Access, inner_a: Sequence[For], b: Access, inner_b: Sequence[For]) -> bool:
    """Whether both are the same function of the loops, but for names of inner ones."""
    if len(inner_a) != len(inner_b):
        return False
    names = {y.var: var(x.var) for x, y in zip(inner_a, inner_b, strict=True)}
    if any(x.extent is not y.extent.subs(names) for x, y in zip(inner_a, inner_b, strict=True)):
        return False
    if any(a.index(d) is None for d in range(a.buffer.rank)):
        return a.indices == b.indices and inner_a == inner_b
    there = (b.index(d) for d in range(b.buffer.rank))
    return all(a.index(d) is (None if i is None else i.subs(names)) for d, i in enumerate(there))


def _at_most(loop: For, varying: Collection[str] | None) -> For:
    """The loop, or where its extent is the smaller of what stays and what varies (the clipped tile
    of a split) one of the former extent: nothing is claimed of more iterations that does not hold
    for fewer. What stays is a number, or what mentions no variable that varies."""
    atom = loop.extent.sole_atom
    if isinstance(atom, MinAtom):
        stay = [x for x in atom.args if x.is_const]
        if not stay and varying is not None and not loop.extent.names.isdisjoint(varying):
            stay = [x for x in atom.args if x.names.isdisjoint(varying)]
        if stay:
            return loop.replace(extent=stay[0], body=Nop())
    return loop


def _outer_parts(
    i: Int, j: Int, names: set[str], inner_a: Sequence[For], inner_b: Sequence[For], facts: Facts
) -> list[Int]:
    """What `i == j` (each with its own values of all loops) tells about the nest's variables."""
    outer_i, rest_i = _split(i, names)
    outer_j, rest_j = _split(j, names)
    if outer_i is not outer_j:
        return []
    span_i = _inner_span(rest_i, inner_a, names, facts)
    span_j = _inner_span(rest_j, inner_b, names, facts)
    if span_i is None or span_j is None:
        return []
    slack = (span_i[1] - span_j[0], span_j[1] - span_i[0])
    if all(facts.equal(s, 0) for s in slack):
        return [outer_i]
    coefficients = [c for c, _ in _terms(outer_i, names)]
    for step in coefficients:
        divides = all(facts.divisible(c, step) for c in coefficients if step is not c)
        if divides and all(facts.lt(s, step) for s in slack):
            return [outer_i]
    return []


def _inner_span(
    x: Int, inner: Sequence[For], names: set[str], facts: Facts
) -> tuple[Int, Int] | None:
    ends = span(x, {loop.var: loop.extent for loop in inner}, facts)
    if ends is None or not names.isdisjoint(ends[0].names | ends[1].names):
        return None
    return ends


def _split(x: Int, names: Iterable[str]) -> tuple[Int, Int]:
    """The terms that mention any of `names`, and the others."""
    wanted = frozenset(names)
    outer: Int = const(0)
    for coefficient, atom in _terms(x, wanted):
        outer = outer + coefficient * atom
    return outer, x - outer


def _terms(x: Int, names: Iterable[str]) -> list[tuple[Int, Int]]:
    """x's terms that mention any of `names`, as (coefficient without them, product with them)."""
    wanted = frozenset(names)
    grouped: dict[Int, Int] = {}
    for number, factors in x.terms():
        fixed: Int = const(number)
        moving: Int = const(1)
        for atom, power in factors:
            value = rebuild_atom(atom, lambda inner: inner) ** power
            if value.names.isdisjoint(wanted):
                fixed = fixed * value
            else:
                moving = moving * value
        if not moving.is_const:
            grouped[moving] = grouped.get(moving, const(0)) + fixed
    return [(c, t) for t, c in grouped.items()]


def _solve(known: list[Int], ranges: Mapping[str, Int], facts: Facts) -> frozenset[str]:
    """Variables of `ranges` that are functions of the known expressions."""
    open_names = {n for n, extent in ranges.items() if extent is not const(1)}
    found: dict[Int, None] = {}
    numbers = dict.fromkeys(known)
    while True:
        before = len(found), len(numbers), len(open_names)
        for x in list(numbers):
            found |= dict.fromkeys(_digits(x, {n: ranges[n] for n in open_names}, found, facts))
        open_names = {n for n in open_names if var(n) not in found}
        for part in found:
            numbers |= dict.fromkeys(_rejoined(part, found, numbers))
        if before == (len(found), len(numbers), len(open_names)):
            return frozenset(set(ranges) - open_names)


def _digits(x: Int, ranges: Mapping[str, Int], found: Collection[Int], facts: Facts) -> list[Int]:
    """The terms of `x` that are known once `x` and what was found are, by mixed radix."""
    terms = [(c, t) for c, t in _terms(x, ranges) if t not in found]
    digits: list[Int] = []
    while terms:
        top = _top_term(terms, ranges, facts)
        if top is None:
            break
        digits.append(terms.pop(top)[1])
    return digits


def _top_term(
    terms: Sequence[tuple[Int, Int]], ranges: Mapping[str, Int], facts: Facts
) -> int | None:
    """A term whose coefficient is greater than the width of the sum of all others."""
    for k, (coefficient, _) in enumerate(terms):
        rest: Int = const(0)
        for other, (c, t) in enumerate(terms):
            rest = rest + c * t if other != k else rest
        ends = span(rest, ranges, facts)
        if ends is None:
            continue
        width = ends[1] - ends[0]
        if facts.lt(width, coefficient) or facts.lt(width, -coefficient):
            return k
    return None


def _rejoined(part: Int, found: Collection[Int], numbers: Collection[Int]) -> list[Int]:
    """Numbers whose quotient and remainder by the same divisor are both known now.

    The quotient may have been written with its multiples outside, and the remainder without what
    changes nothing in it: (8*o + i)//6 is o + (2*o + i)//6, and (8*o + i)%6 is (2*o + i)%6; that of
    4*(t%9) + i by 12 is (4*t + i)%12. What is left of the quotient gives a number too.
    """
    atom = part.sole_atom
    if isinstance(atom, DivAtom) and atom.num % atom.den in found:
        return [atom.num]
    if not isinstance(atom, ModAtom):
        return []
    quotient = atom.num // atom.den
    if quotient in found or _flat(quotient) in found:
        return [atom.num]
    joined = []
    for y in numbers:
        for c, t in _terms(y, y.names):
            q = t.sole_atom
            if isinstance(q, DivAtom) and q.den is atom.den and q.num % q.den is part:
                joined.append(q.den * (y - c * t) + c * q.num)
    return joined


def _flat(x: Int) -> Int:
    """A quotient of a quotient as one: (2*o + i//4)//4 is (8*o + i)//16."""
    atom = x.sole_atom
    if isinstance(atom, DivAtom):
        for c, t in _terms(atom.num, atom.num.names):
            q = t.sole_atom
            if c == 1 and isinstance(q, DivAtom) and q.den.is_const:
                return _flat((q.den * (atom.num - t) + q.num) // (q.den * atom.den))
    return x
