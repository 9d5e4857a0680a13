"""Sizes by cases: what holds of all values of a variable but the least, and of that one as well.

    s >= 0        max(0, s - 1) + min(1, s)          ->  s
                  from 1 on it is s - 1 + 1, and for 0 it is 0

Slices and concatenations of axes that may be empty are clipped at every step. Most of that says
nothing but that nothing is left of nothing, and hides from all that comes after that sizes are
equal.
"""

from __future__ import annotations

from functools import lru_cache

from pliant.sym.atoms import Atom, DivAtom, MaxAtom, MinAtom, ModAtom
from pliant.sym.expr import Int
from pliant.sym.simplify import simplify
from pliant.sym.store import FactStore


def by_cases(store: FactStore, x: Int) -> Int:
    """An equal expression that is shorter, if there is one."""
    x = simplify(store, x)
    for name in sorted(x.names) if _is_clipped(x) else ():
        shorter = _but_for_least(store, x, name)
        if shorter is not None:
            return by_cases(store, shorter)
    return x


def _but_for_least(store: FactStore, x: Int, name: str) -> Int | None:
    least = store.dim(name).min
    if least is None or name in store.uppers:
        return None
    found = simplify(_above_least(store, name), x)
    if len(str(found)) >= len(str(x)):
        return None
    try:
        there, here = (simplify(store, e.subs({name: least})) for e in (x, found))
    except ZeroDivisionError:
        return None
    return found if there is here else None


def _above_least(store: FactStore, name: str) -> FactStore:
    """The facts, and that the variable has not its least value."""
    found = store.above.get(name)
    if found is None:
        dim = store.dim(name)
        assert dim.min is not None
        found = store.above[name] = store.copy()
        found.put(name, dim.within(dim.min + 1, None, dim.multiple))
        found.forget_all()
    return found


@lru_cache(4096)
def _is_clipped(x: Int) -> bool:
    """Whether a minimum or maximum is anywhere in it."""
    return x.flags != 0 and any(_clips(a) for mono, _ in x.pairs for a, _ in mono.factors)


def _clips(atom: Atom) -> bool:
    match atom:
        case MinAtom() | MaxAtom():
            return True
        case DivAtom(num, den) | ModAtom(num, den):
            return _is_clipped(num) or _is_clipped(den)
    return False
