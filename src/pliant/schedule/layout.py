"""Layouts of copies: where element (i, j, …) of a buffer lies in a copy with other dimensions.

    panels = layout(lambda k, j: (j//32, k, j%32))

A layout is data: the copy's indices as integers over `_0`, `_1`, …, the buffer's indices. Extents
that a division does not divide are rounded up; what the copy holds there is padding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pliant.ir.expr import Expr, Index
from pliant.loop.rebuild import subst_exprs
from pliant.loop.rewrite import less
from pliant.sym.atoms import DivAtom, ModAtom
from pliant.sym.expr import Int, IntLike, as_int, ceildiv, const, maximum, var
from pliant.sym.facts import Facts
from pliant.sym.index_map import IndexMap

Layout = tuple[IntLike, ...]


def layout(fn: Callable[..., Sequence[IntLike]]) -> Layout:
    """The layout that `fn` of the buffer's indices gives."""
    rank = len(inspect.signature(fn).parameters)
    return tuple(map(as_int, fn(*(var(f"_{d}") for d in range(rank)))))


@dataclass(frozen=True)
class Packing:
    """A layout for one buffer: the copy's shape, and the way there and back."""

    shape: tuple[Int, ...]
    forward: tuple[Int, ...]  # over _0, _1, …
    inverse: IndexMap | None  # None: different elements lie in different places, no more is known
    source_shape: tuple[Int, ...]
    facts: Facts

    def place(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices into the copy."""
        values = {f"_{d}": i for d, i in enumerate(indices)}
        return tuple(subst_exprs(Index(f), values) for f in self.forward)

    def back(self, at: Sequence[Int]) -> tuple[tuple[Int, ...], list[Expr]]:
        """The element that the copy holds at `at`, and what must hold for it to exist. There must
        be an inverse."""
        assert self.inverse is not None
        given = dict(zip(self.inverse.inputs, at, strict=True))
        source = tuple(x.subs(given) for x in self.inverse.outputs)
        scope = self.inverse.scope(self.facts)
        outside = [
            less(x, extent)
            for x, y, extent in zip(source, self.inverse.outputs, self.source_shape, strict=True)
            if not scope.lt(y, extent)
        ]
        return source, outside


def packing(shape: tuple[Int, ...], how: Layout | None, facts: Facts) -> Packing | None:
    """The packing of a buffer of this shape; None where the layout has no inverse."""
    inputs = tuple(f"_{d}" for d in range(len(shape)))
    outputs = tuple(map(var, inputs)) if how is None else tuple(map(as_int, how))
    if not frozenset[str]().union(*(x.names for x in outputs)) >= set(inputs):
        return None
    rounded = []
    for name, extent in zip(inputs, shape, strict=True):
        step = const(1)
        for x in outputs:
            step = _larger(step, _divisor(x, name), facts)
        fits = facts.divisible(extent, step)
        rounded.append(extent if fits else ceildiv(extent, step) * step)
    inverse = IndexMap(inputs, tuple(rounded), outputs).inverse(facts)
    if inverse is None:
        return None
    return Packing(inverse.extents, outputs, inverse, shape, facts)


def spread(shape: tuple[Int, ...], how: Layout, facts: Facts) -> Packing | None:
    """The packing of a buffer of this shape, though it may have no inverse; None where elements
    are not known to lie in different places from 0 on."""
    packed = packing(shape, how, facts)
    if packed is not None:
        return packed
    outputs = tuple(map(as_int, how))
    to = IndexMap(tuple(f"_{d}" for d in range(len(shape))), shape, outputs)
    if not to.is_injective(facts):
        return None
    room: list[Int] = []
    for box in to.image(facts):
        if box is None or not facts.nonneg(box[0]):
            return None
        room.append(facts.simplify(maximum(box[0] + box[1], 0)))
    return Packing(tuple(room), outputs, None, shape, facts)


def enlarged(shape: tuple[Int, ...], larger: tuple[Int, ...], facts: Facts) -> Packing:
    """The packing that leaves every element where it is, in a buffer with more room."""
    inputs = tuple(f"_{d}" for d in range(len(shape)))
    same = tuple(map(var, inputs))
    return Packing(larger, same, IndexMap(inputs, larger, same), shape, facts)


def known_layout(how: Layout | None, rank: int, sizes: Iterable[str]) -> bool:
    """Whether a layout mentions nothing but `rank` indices and the sizes."""
    known = {f"_{d}" for d in range(rank)} | set(sizes)
    return all(as_int(x).names <= known for x in how or ())


def _larger(a: Int, b: Int, facts: Facts) -> Int:
    return b if facts.divisible(b, a) else a


def _divisor(x: Int, name: str) -> Int:
    """What `name` must be a multiple of for the divisions in `x` to leave no rest."""
    step: Int = const(1)
    for _, factors in x.terms():
        for atom, _ in factors:
            if not isinstance(atom, DivAtom | ModAtom) or name not in atom.num.names:
                continue
            inner = atom.num.sole_atom
            den = atom.den
            if isinstance(inner, DivAtom):
                den = den * inner.den
            step = step * den if not step.is_const or step.value == 1 else _lcm(step, den)
    return step


def _lcm(a: Int, b: Int) -> Int:
    if not a.is_const or not b.is_const:
        return a * b
    small, large = sorted((a.value, b.value))
    return const(large) if large % small == 0 else const(a.value * b.value)
