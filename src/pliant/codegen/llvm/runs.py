"""How far apart neighbouring lanes read, at least and at most, where that is no constant.

    (16*o + l) % n                     1 and, once in a while, 1 - n
    min(l - 2, 2*n - l)                1, then -1

Where no step is more than 1, the lanes lie in one run exactly if the last is as many elements
behind the first as there are lanes between them: two numbers that code can compare when it runs,
instead of gathering what nearly always is a vector (repeated, rolled, reflected tensors). The same
holds backwards where no step is less than -1.
"""

from __future__ import annotations

from math import inf

from pliant.sym.atoms import Atom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int

Steps = tuple[float, float]
"""The least and the greatest step; infinite where nothing is known."""

ANY: Steps = (-inf, inf)


def steps_of(x: Int, name: str) -> Steps:
    """How `x` changes where the variable grows by 1."""
    least = greatest = 0.0
    for coefficient, factors in x.terms():
        if all(name not in atom.names for atom, _ in factors):
            continue
        ((atom, power), *others) = factors
        if others or power != 1:
            return ANY
        ends = [coefficient * step for step in _steps_of_atom(atom, name)]
        least, greatest = least + min(ends), greatest + max(ends)
    return least, greatest


def _steps_of_atom(atom: Atom, name: str) -> Steps:
    match atom:
        case VarAtom():
            return 1, 1
        case ModAtom(num, den) if name not in den.names:
            least, greatest = steps_of(num, name)
            if least >= 0 and greatest <= 1:
                return -inf, 1
            return (-1, inf) if least >= -1 and greatest <= 0 else ANY
        case MinAtom(args) | MaxAtom(args):
            ends = [steps_of(a, name) for a in args]
            return min(least for least, _ in ends), max(greatest for _, greatest in ends)
    return ANY
