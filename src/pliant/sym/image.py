"""Symbolic bounds of an expression over a box of inputs."""

from __future__ import annotations

from collections.abc import Mapping

from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, const, maximum, minimum, rebuild_atom
from pliant.sym.facts import Facts

Box = tuple[Int, Int]
"""(min, extent) of an interval."""


def bounding_box(x: Int, sizes: Mapping[str, Int], facts: Facts) -> Box | None:
    """An interval that contains x for all inputs below their sizes, in terms of other variables.

    Exact where each input occurs once; None where the sign of a coefficient is not known.
    """
    least = _extreme(x, sizes, facts, greatest=False)
    most = _extreme(x, sizes, facts, greatest=True)
    if least is None or most is None:
        return None
    return facts.simplify(least), facts.simplify(most - least + 1)


def _extreme(x: Int, sizes: Mapping[str, Int], facts: Facts, *, greatest: bool) -> Int | None:
    if x.names.isdisjoint(sizes):
        return x
    total: Int = const(0)
    for mono, coefficient in x.pairs:
        term: Int = const(coefficient)
        up = greatest == (coefficient > 0)
        for atom, power in mono.factors:
            value = _of_factor(atom, sizes, facts, up, mono.degree > 1)
            if value is None:
                return None
            term *= value**power
        total += term
    return total


def _of_factor(
    atom: Atom, sizes: Mapping[str, Int], facts: Facts, greatest: bool, in_product: bool
) -> Int | None:
    whole = rebuild_atom(atom, lambda arg: arg)
    moves = not atom.names.isdisjoint(sizes)
    value = _of_atom(atom, sizes, facts, greatest) if moves else whole
    if not in_product or value is None:
        return value
    # The extreme of a product is the product of extremes if all factors are at least 0.
    if not facts.nonneg(whole):
        return None
    return value if greatest or not moves else maximum(value, 0)


def _of_atom(atom: Atom, sizes: Mapping[str, Int], facts: Facts, greatest: bool) -> Int | None:
    match atom:
        case VarAtom(name):
            return sizes[name] - 1 if greatest else const(0)
        case DivAtom(num, den) if den.names.isdisjoint(sizes):
            inner = _extreme(num, sizes, facts, greatest=greatest)
            return None if inner is None else inner // den
        case ModAtom(_, den) if den.names.isdisjoint(sizes):
            return den - 1 if greatest else const(0)
        case MinAtom(args) | MaxAtom(args):
            found = [_extreme(arg, sizes, facts, greatest=greatest) for arg in args]
            known = [value for value in found if value is not None]
            if len(known) < len(args):
                return None
            return minimum(*known) if isinstance(atom, MinAtom) else maximum(*known)
    return None
