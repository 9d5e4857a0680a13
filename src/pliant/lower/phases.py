"""The phases of a reduction that is guarded by divisibility (a transposed convolution).

    y[o] = sum_k  x[(o + c - k) / s] * w[k]                    where s divides o + c - k
 ->
    t[q, p] = sum_j  x[q + (p + c) // s - j] * w[(p + c) % s + s*j]
    y[o] = t[o // s, o % s]

The condition relates an output axis and a reduction axis. For each phase p = o % s it leaves every
s-th position k, so nothing is left to test: a phase is an ordinary window over its own positions.
In general the condition is a*o + b*k + c ≡ 0 (mod s) with a unit a, and g = gcd(b, s):

    positions  k = k0(p) + (s/g)*j,   k0(p) = -(b/g)^-1 * (a*p + c)/g  mod s/g,   where g | a*p + c
    how many   count(p) = ceil((K - k0(p)) / (s/g)),  0 where g does not divide a*p + c

Phases that differ in their counts (3 positions, 2 phases) bound the new reduction: the body is
guarded by j < count(p), which `access.contraction` takes for the extent that it is.

Counting the outputs from -c instead of 0 frees the operand's index of the phase, at the cost of
outputs that nobody reads. `aligned` asks for that; it pays where phases share a panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from pliant.ir.expr import Axis, Binary, Expr, Index, Reduce
from pliant.ir.tensor import Compute
from pliant.lower.conditions import needed
from pliant.sym.atoms import ModAtom
from pliant.sym.expr import Int, as_int, ceildiv, minimum, var


@dataclass(frozen=True)
class Phase:
    """Output axis `outer`, shifted by `shift`, runs over quotients and phases modulo `step`.

    Of the reduction axis `inner` there are `extent` positions left, of which `position` is the one
    numbered `inner`, in phase `outer`; only the first `count` of them exist, where it is not None.
    `condition` holds by construction.
    """

    outer: str
    inner: str
    step: int
    shift: Int
    extent: Int
    position: Int
    count: Int | None
    condition: Expr


def phases(tensor: Compute, *, aligned: bool) -> tuple[Phase, ...]:
    """The phases of a sum, for every pair of axes that a condition relates."""
    body = tensor.body
    if not isinstance(body, Reduce) or body.combiner != "sum":
        return ()
    return phases_of(body.body, tensor.axes, body.axes, aligned=aligned)


def phases_of(
    term: Expr, axes: Sequence[Axis], reduced: Sequence[Axis], *, aligned: bool
) -> tuple[Phase, ...]:
    """The same of what a sum over the axes `reduced` adds up, for every one of `axes`."""
    found: list[Phase] = []
    for condition in dict.fromkeys(needed(term)):
        phase = _phase(condition, axes, reduced, aligned)
        if phase is not None and not any(
            phase.outer == f.outer or phase.inner == f.inner for f in found
        ):
            found.append(phase)
    return tuple(found)


def _phase(
    condition: Expr, axes: Sequence[Axis], reduced: Sequence[Axis], aligned: bool
) -> Phase | None:
    match condition:
        case Binary("eq", Index(remainder), Index(zero)) if zero == 0:
            atom = remainder.sole_atom
        case _:
            return None
    if not isinstance(atom, ModAtom) or not atom.den.is_const:
        return None
    outer = [a for a in axes if a.var in atom.num.names]
    inner = [a for a in reduced if a.var in atom.num.names]
    if len(outer) != 1 or len(inner) != 1:
        return None
    split = _linear(atom.num, outer[0].var, inner[0].var)
    s = atom.den.value
    if split is None or gcd(split[0], s) != 1:
        return None
    a, b, c = split
    shift = c * pow(a, -1, s) % s if aligned else as_int(0)
    return _solve(condition, outer[0], inner[0], s, (a, b, c - a * shift), shift)


def _linear(x: Int, outer: str, inner: str) -> tuple[int, int, Int] | None:
    """x = a*outer + b*inner + c with numbers a and b."""
    first = x.linear(outer)
    second = None if first is None else first[1].linear(inner)
    if first is None or second is None or not (first[0].is_const and second[0].is_const):
        return None
    return first[0].value, second[0].value, second[1]


def _solve(
    condition: Expr, outer: Axis, inner: Axis, s: int, abc: tuple[int, int, Int], shift: Int
) -> Phase:
    a, b, c = abc
    g = gcd(b, s)
    step = s // g
    inverse = -pow(b // g, -1, step)
    p, j = var(outer.var), var(inner.var)
    if g == 1:
        first = (inverse * a % step * p + inverse * c) % step
    else:
        first = inverse * ((a * p + c) // g) % step
    count: Int | None = ceildiv(inner.extent - first, step)
    if g > 1:
        assert count is not None
        count = count * (1 - minimum(1, (a * p + c) % g))
    elif inner.extent.is_const and inner.extent.value % step == 0:
        count = None
    extent = ceildiv(inner.extent, step)
    return Phase(outer.var, inner.var, s, shift, extent, first + step * j, count, condition)
