"""Quasi-affine maps from a box of loop indices to positions.

    IndexMap(("i", "j"), (n, 16), (16*i + j,))       fuse        (i, j) -> 16*i + j
    IndexMap(("f",), (16*n,), (f//16, f%16))         split, its inverse
    IndexMap(("i", "j"), (n, m), (j, i))             permute

Outputs are formulas in the inputs and in symbols that stay fixed. Judgements take the facts about
those symbols and are sound: True or an inverse means proved, False or None means not proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pliant.sym import solve
from pliant.sym.expr import Int, IntLike, as_int, const, var
from pliant.sym.facts import Facts
from pliant.sym.image import Box, bounding_box

Contiguity = Literal["contiguous", "strided", "broadcast", "gather"]


@dataclass(frozen=True, slots=True)
class IndexMap:
    """outputs(inputs), for 0 <= inputs[k] < extents[k]."""

    inputs: tuple[str, ...]
    extents: tuple[Int, ...]
    outputs: tuple[Int, ...]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.extents) or len(set(self.inputs)) != len(self.inputs):
            raise ValueError(f"need one extent for each of the distinct inputs {self.inputs}")
        if any(not extent.names.isdisjoint(self.inputs) for extent in self.extents):
            raise ValueError("the domain must be a box: extents cannot mention inputs")

    @staticmethod
    def identity(extents: Sequence[IntLike], prefix: str = "i") -> IndexMap:
        """The map of a box onto itself."""
        sizes = tuple(map(as_int, extents))
        inputs = _fresh(len(sizes), prefix, frozenset[str]().union(*(s.names for s in sizes)))
        return IndexMap(inputs, sizes, tuple(map(var, inputs)))

    def scope(self, facts: Facts | None = None) -> Facts:
        """The facts inside the loops: those given, and the ranges of the inputs."""
        inner = Facts() if facts is None else facts.copy()
        for name, extent in zip(self.inputs, self.extents, strict=True):
            inner.declare_index(name, extent)
        return inner

    def simplified(self, facts: Facts | None = None) -> IndexMap:
        """The same map with simpler outputs."""
        scope = self.scope(facts)
        return IndexMap(self.inputs, self.extents, tuple(map(scope.simplify, self.outputs)))

    def compose(self, inner: IndexMap, facts: Facts | None = None) -> IndexMap:
        """self after inner: apply inner, then self. Inner's outputs must lie in self's domain."""
        if len(inner.outputs) != len(self.inputs):
            raise ValueError(f"{len(inner.outputs)} outputs cannot feed {len(self.inputs)} inputs")
        values = dict(zip(self.inputs, inner.outputs, strict=True))
        outputs = tuple(out.subs(values) for out in self.outputs)
        return IndexMap(inner.inputs, inner.extents, outputs).simplified(facts)

    def inverse(self, facts: Facts | None = None, prefix: str = "o") -> IndexMap | None:
        """The map back, from the box of outputs (which starts at 0) onto the domain.

        Found for compositions of splits, fusions, permutations, flips, and insertions or removals
        of extent 1. Not found where a split leaves a rest: its outputs do not fill a box.
        """
        scope = self.scope(facts)
        taken = frozenset[str]().union(self.inputs, *(x.names for x in self.extents + self.outputs))
        names = _fresh(len(self.outputs), prefix, taken)
        solved = solve.solve(self._system(scope), names, scope)
        return IndexMap(names, *solved).simplified(facts) if solved else None

    def image(self, facts: Facts | None = None) -> list[Box | None]:
        """For each output (min, extent) of an interval that contains it; None where unbounded."""
        scope = self.scope(facts)
        sizes = dict(zip(self.inputs, self.extents, strict=True))
        return [bounding_box(scope.simplify(out), sizes, scope) for out in self.outputs]

    def is_injective(self, facts: Facts | None = None) -> bool:
        """Whether different points provably go to different outputs."""
        scope = self.scope(facts)
        return solve.is_injective(self._system(scope), scope)

    def covers(self, extents: Sequence[IntLike], facts: Facts | None = None) -> bool:
        """Whether every point of the box provably is an output of some input."""
        if len(extents) != len(self.outputs):
            raise ValueError(f"{len(self.outputs)} outputs, {len(extents)} extents")
        scope = self.scope(facts)
        return solve.covers(self._system(scope), tuple(map(as_int, extents)), scope)

    def _system(self, scope: Facts) -> solve.System:
        return solve.read_system(self.inputs, self.extents, self.outputs, scope)

    def offset(self, strides: Sequence[IntLike], facts: Facts | None = None) -> Int:
        """The flattened position: the sum of outputs times strides."""
        if len(strides) != len(self.outputs):
            raise ValueError(f"{len(self.outputs)} outputs, {len(strides)} strides")
        pairs = zip(self.outputs, strides, strict=True)
        return self.scope(facts).simplify(sum((out * s for out, s in pairs), const(0)))

    def strides(
        self, strides: Sequence[IntLike], facts: Facts | None = None
    ) -> tuple[Int, ...] | None:
        """How far a step of each input moves the flattened position, if that is always the same."""
        return affine_steps(self.offset(strides, facts), self.inputs)

    def contiguity(self, strides: Sequence[IntLike], facts: Facts | None = None) -> Contiguity:
        """How the flattened position moves along the last input."""
        return contiguity_of(self.offset(strides, facts), self.inputs)


def affine_steps(offset: Int, inputs: tuple[str, ...]) -> tuple[Int, ...] | None:
    """The coefficient of each input, none of which mentions an input; None if not affine."""
    found = []
    for name in inputs:
        linear = offset.linear(name)
        if linear is None or not linear[0].names.isdisjoint(inputs):
            return None
        found.append(linear[0])
    return tuple(found)


def contiguity_of(offset: Int, inputs: tuple[str, ...]) -> Contiguity:
    """The class of an offset along the last of the inputs."""
    if not inputs or inputs[-1] not in offset.names:
        return "broadcast"
    linear = offset.linear(inputs[-1])
    if linear is None or not linear[0].names.isdisjoint(inputs):
        return "gather"
    return "contiguous" if linear[0] == 1 else "strided"


def _fresh(count: int, prefix: str, taken: frozenset[str]) -> tuple[str, ...]:
    while any(f"{prefix}{at}" in taken for at in range(count)):
        prefix += "_"
    return tuple(f"{prefix}{at}" for at in range(count))
