"""Symbolic integers to i64 values, uniform or one per lane.

Sizes and indices are i64. Floor division by something >= 1 is an unsigned division where the
dividend is provably non-negative, else a signed one with a correction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pliant.codegen.llvm.advance import Advanced, Loop, Quotient, advance, quotient_of
from pliant.codegen.llvm.types import vector_type
from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, as_int

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

MOST_LANES: Final = 128  # twice its square is less than 65536


def emit_uniform(e: Emitter, x: Int) -> str:
    """`x` as an i64 that is the same in every lane."""
    return _emit(e, x, 1)


def emit_varying(e: Emitter, x: Int) -> str:
    """`x` as a vector of i64, one per lane of the loop that is vectorized."""
    return _emit(e, x, e.lanes)


def _emit(e: Emitter, x: Int, lanes: int) -> str:
    if x.is_const:
        return str(x.value) if lanes == 1 else f"splat (i64 {x.value})"
    if lanes > 1 and not e.is_varying(x):
        return e.splat(_emit(e, x, 1), "i64")
    key = (x, lanes)
    found: str | None = e.cached(key)
    if found is None:
        found = _sum(e, x, lanes)
        e.cache(key, found)
    return found


def _sum(e: Emitter, x: Int, lanes: int) -> str:
    """What does not vary is summed, and divided, once for all lanes."""
    kind = vector_type("i64", lanes)
    total: str | None = None
    varying = x
    if lanes > 1:
        uniform = x.make({m: c for m, c in x.pairs if e.lane_var not in m.names})
        if uniform != 0:
            total, varying = _emit(e, uniform, lanes), x - uniform
    for coefficient, factors in varying.terms():
        term: str | None = None
        for atom, power in factors:
            value = _atom(e, atom, lanes)
            for _ in range(power):
                term = value if term is None else e.text.assign(f"mul nsw {kind} {term}, {value}")
        if term is None:
            term = str(coefficient) if lanes == 1 else f"splat (i64 {coefficient})"
        elif coefficient != 1:
            c = str(coefficient) if lanes == 1 else f"splat (i64 {coefficient})"
            term = e.text.assign(f"mul nsw {kind} {term}, {c}")
        total = term if total is None else e.text.assign(f"add nsw {kind} {total}, {term}")
    assert total is not None  # zero is a constant
    return total


def _atom(e: Emitter, atom: Atom, lanes: int) -> str:
    kind = vector_type("i64", lanes)
    if lanes > 1 and e.lane_var not in atom.names:
        return e.splat(_atom(e, atom, 1), "i64")
    match atom:
        case VarAtom(name):
            return e.size(name, lanes)
        case DivAtom(num, den):
            quotient, _ = _divide(e, num, den, lanes)
            return quotient
        case ModAtom(num, den):
            _, remainder = _divide(e, num, den, lanes)
            return remainder
        case MinAtom(args) | MaxAtom(args):
            op = "smin" if isinstance(atom, MinAtom) else "smax"
            suffix = "i64" if lanes == 1 else f"v{lanes}i64"
            value = _emit(e, args[0], lanes)
            for other in args[1:]:
                second = _emit(e, other, lanes)
                value = e.text.intrinsic(
                    f"llvm.{op}.{suffix}", kind, [(kind, value), (kind, second)]
                )
            return value


def _divide(e: Emitter, num: Int, den: Int, lanes: int) -> tuple[str, str]:
    """Floor quotient and remainder; the divisor is >= 1."""
    nonneg = e.facts.nonneg(num)
    if nonneg and den.is_const and e.facts.lt(num, den):  # a digit of the loops around
        return _emit(e, as_int(0), lanes), _emit(e, num, lanes)
    if lanes == 1 and (found := quotient_of(e, num, den)) is not None:
        made = _advanced(e, *found)
        return made.quotient, made.remainder
    if lanes > 1 and (found_lanes := _lanes_of(e, num, den, lanes)) is not None:
        q0, steps, r = found_lanes
        kind = vector_type("i64", lanes)
        return e.text.assign(f"add nsw {kind} {e.splat(q0, 'i64')}, {steps}"), r
    n = _emit(e, num, lanes)
    if e.is_varying(den):
        d = _emit(e, den, lanes)
    else:
        d = _divisor(e, den) if lanes == 1 else e.splat(_divisor(e, den), "i64")
    return _floor(e, n, d, lanes, nonneg=nonneg)


def _divisor(e: Emitter, den: Int) -> str:
    """At least 1, whatever the sizes are: where a loop does not run, or a choice is not taken, one
    may be 0."""
    d = _emit(e, den, 1)
    if e.facts.positive(den):
        return d
    return e.text.intrinsic("llvm.umax.i64", "i64", [("i64", d), ("i64", "1")])


def _lanes_of(e: Emitter, num: Int, den: Int, lanes: int) -> tuple[str, str, str] | None:
    """The first lane's quotient, how much greater those of all lanes are, and the remainders; where
    the dividend is the first lane's and less than `lanes` more, and it takes more than a shift.

    The first lane is divided, by what numbers take. (No processor divides vectors.) In the others
    the remainder begins anew where it is as large as the divisor: once if that is no less than the
    lanes, else there are small numbers to divide. Nothing of this branches, so that it can be done
    before loops that change nothing of it.
    """
    den = e.resolve(den)
    shifts = den.is_const and den.value & (den.value - 1) == 0
    if e.is_varying(den) or shifts or lanes > MOST_LANES:
        return None
    steps = _steps(e, e.resolve(num), lanes)
    if steps is None:
        return None
    t, kind, flag = e.text, vector_type("i64", lanes), vector_type("i1", lanes)
    q0, r0 = _divide(e, num.subs({e.lane_var: as_int(0)}), den, 1)
    d = _divisor(e, den)
    many = e.splat(d, "i64")
    r = t.assign(f"add nsw {kind} {e.splat(r0, 'i64')}, {steps}")
    over = t.assign(f"icmp uge {kind} {r}, {many}")
    q = t.assign(f"zext {flag} {over} to {kind}")
    less = t.assign(f"sub {kind} {r}, {many}")
    rest = t.assign(f"select {flag} {over}, {kind} {less}, {kind} {r}")
    if e.facts.le(lanes, den):
        return q0, q, rest
    # r < d + lanes < 2*lanes, so that r/d is (r*m) >> 16 with m = 65536/d rounded up: that is less
    # than one too large, and r/65536 less than 1/d.
    digits = (1 << (2 * lanes).bit_length()) - 1  # known to be small, it is multiplied at once
    small = t.assign(f"and {kind} {r}, splat (i64 {digits})")
    m = t.assign(f"add i64 {t.assign(f'udiv i64 65535, {d}')}, 1")
    scaled = t.assign(f"mul nuw {kind} {small}, {e.splat(m, 'i64')}")
    often = t.assign(f"lshr {kind} {scaled}, splat (i64 16)")
    low = t.assign(f"and i64 {d}, {digits}")
    taken = t.assign(f"mul nuw {kind} {often}, {e.splat(low, 'i64')}")
    left = t.assign(f"sub {kind} {small}, {taken}")
    once = t.assign(f"icmp uge i64 {d}, {lanes}")
    return (
        q0,
        t.assign(f"select i1 {once}, {kind} {q}, {kind} {often}"),
        t.assign(f"select i1 {once}, {kind} {rest}, {kind} {left}"),
    )


def _steps(e: Emitter, num: Int, lanes: int) -> str | None:
    """How much greater a number is in each lane than in the first: the lane's own, or as a quotient
    of such a number is; None of others."""
    if (split := num.linear(e.lane_var)) is not None:
        alone = split[0] == 1 and e.lane_var not in split[1].names
        return e.size(e.lane_var, lanes) if alone else None
    for coefficient, factors in num.terms():
        match coefficient, factors:
            case 1, ((DivAtom(num=part, den=den) as atom, 1),) if e.lane_var in atom.names:
                rest = num - part // den
                if e.lane_var in rest.names:
                    return None
                found = _lanes_of(e, part, den, lanes)
                return None if found is None else found[1]
    return None


def _advanced(e: Emitter, loop: Loop, x: Quotient) -> Advanced:
    """What advances with the loop; first what it is a quotient of."""
    if x not in loop.found:
        of = None if x.of is None else _advanced(e, loop, x.of)
        nonneg = e.facts.nonneg(x.dividend(loop.var))
        with e.outside(loop):
            n, d = _emit(e, x.rest, 1), _divisor(e, x.den)
            n = e.text.assign(f"add nsw i64 {n}, {loop.first if of is None else of.first}")
            q, r = _floor(e, n, d, 1, nonneg=nonneg)
        loop.found[x] = advance(e.text, loop, q, r, d, of)
    return loop.found[x]


def _floor(e: Emitter, n: str, d: str, lanes: int, *, nonneg: bool) -> tuple[str, str]:
    """Floor quotient and remainder of values; `nonneg`: the dividend is not below 0."""
    kind = vector_type("i64", lanes)
    t = e.text
    if nonneg:
        return t.assign(f"udiv {kind} {n}, {d}"), t.assign(f"urem {kind} {n}, {d}")
    zero = "0" if lanes == 1 else "zeroinitializer"
    q, r = t.assign(f"sdiv {kind} {n}, {d}"), t.assign(f"srem {kind} {n}, {d}")
    below = t.assign(f"icmp slt {kind} {r}, {zero}")
    flag = vector_type("i1", lanes)
    less = t.assign(f"sext {flag} {below} to {kind}")
    shift = t.assign(f"and {kind} {less}, {d}")
    return t.assign(f"add {kind} {q}, {less}"), t.assign(f"add {kind} {r}, {shift}")
