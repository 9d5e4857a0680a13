"""Index maps that read positions from tables: page tables, sorted indices, gathered rows.

    page = pages[b, t//16]          (b, t, d)  ->  (page, t%16, d)

A lookup is one more variable, of which nothing is known but its range and whether different places
of the table hold different entries. All answers hold for every content of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.sym import solve
from pliant.sym.expr import Int, IntLike, var
from pliant.sym.facts import Facts
from pliant.sym.image import Box
from pliant.sym.index_map import Contiguity, IndexMap, contiguity_of


@dataclass(frozen=True, slots=True)
class Lookup:
    """The variable `name` is `table[index]`, and 0 <= name < extent."""

    name: str
    table: str
    index: tuple[Int, ...]
    extent: Int
    distinct: bool = False
    """Whether no entry occurs twice in the table."""

    def subs(self, values: dict[str, Int]) -> Lookup:
        """The lookup at another place."""
        index = tuple(x.subs(values) for x in self.index)
        name = str(values.get(self.name, self.name))
        return Lookup(name, self.table, index, self.extent, self.distinct)


@dataclass(frozen=True, slots=True)
class TableMap:
    """outputs(inputs, lookups), for 0 <= inputs[k] < extents[k].

    The index of a lookup may mention inputs and earlier lookups.
    """

    inputs: tuple[str, ...]
    extents: tuple[Int, ...]
    lookups: tuple[Lookup, ...]
    outputs: tuple[Int, ...]

    def __post_init__(self) -> None:
        seen = set(self.inputs)
        pending = {lookup.name for lookup in self.lookups}
        for lookup in self.lookups:
            if lookup.name in seen or any(x.names & pending for x in lookup.index):
                raise ValueError(f"lookup {lookup.name!r} is defined twice or used too early")
            seen.add(lookup.name)
            pending.remove(lookup.name)
        self._flat()

    def _flat(self) -> IndexMap:
        """The same outputs with the lookups as inputs: what holds of it holds of any tables."""
        names = tuple(lookup.name for lookup in self.lookups)
        sizes = tuple(lookup.extent for lookup in self.lookups)
        return IndexMap(names + self.inputs, sizes + self.extents, self.outputs)

    def scope(self, facts: Facts | None = None) -> Facts:
        """The facts inside the loops: those given, and the ranges of inputs and lookups."""
        return self._flat().scope(facts)

    def compose(self, inner: IndexMap | TableMap, facts: Facts | None = None) -> TableMap:
        """self after inner."""
        if len(inner.outputs) != len(self.inputs):
            raise ValueError(f"{len(inner.outputs)} outputs cannot feed {len(self.inputs)} inputs")
        before = inner.lookups if isinstance(inner, TableMap) else ()
        values = dict(zip(self.inputs, inner.outputs, strict=True))
        taken = {*inner.inputs, *(lookup.name for lookup in before)}
        for lookup in self.lookups:
            name = lookup.name
            while name in taken:
                name += "_"
            taken.add(name)
            values[lookup.name] = var(name)
        lookups = before + tuple(lookup.subs(values) for lookup in self.lookups)
        outputs = tuple(out.subs(values) for out in self.outputs)
        return TableMap(inner.inputs, inner.extents, lookups, outputs).simplified(facts)

    def then(self, outer: IndexMap, facts: Facts | None = None) -> TableMap:
        """outer after self."""
        if len(self.outputs) != len(outer.inputs):
            raise ValueError(f"{len(self.outputs)} outputs cannot feed {len(outer.inputs)} inputs")
        values = dict(zip(outer.inputs, self.outputs, strict=True))
        outputs = tuple(out.subs(values) for out in outer.outputs)
        return TableMap(self.inputs, self.extents, self.lookups, outputs).simplified(facts)

    def simplified(self, facts: Facts | None = None) -> TableMap:
        """The same map with simpler formulas, without the lookups that no output needs."""
        scope = self.scope(facts)
        outputs = tuple(map(scope.simplify, self.outputs))
        used = set().union(*(out.names for out in outputs))
        kept: list[Lookup] = []
        for lookup in reversed(self.lookups):
            if lookup.name in used:
                simple = replace(lookup, index=tuple(map(scope.simplify, lookup.index)))
                used.update(*(x.names for x in simple.index))
                kept.append(simple)
        return TableMap(self.inputs, self.extents, tuple(reversed(kept)), outputs)

    def image(self, facts: Facts | None = None) -> list[Box | None]:
        """For each output (min, extent) of an interval that contains it; None where unbounded."""
        return self._flat().image(facts)

    def is_injective(self, facts: Facts | None = None) -> bool:
        """Whether different points provably go to different outputs.

        The outputs must determine the variables they use, and those the inputs: a lookup tells
        its index if the table's entries are distinct, and nothing otherwise.
        """
        scope = self.scope(facts)
        flat = self._flat()
        system = solve.read_system(flat.inputs, flat.extents, self.outputs, scope)
        told = self._told(solve.readable(system, scope))
        return IndexMap(self.inputs, self.extents, told).is_injective(scope)

    def _told(self, known: list[Int]) -> tuple[Int, ...]:
        """The known formulas, and those that lookups give away, in the inputs alone."""
        names = {lookup.name for lookup in self.lookups}
        for lookup in reversed(self.lookups):
            if lookup.distinct and var(lookup.name) in known:
                known = [*known, *lookup.index]
        return tuple(dict.fromkeys(x for x in known if x.names.isdisjoint(names)))

    def offset(self, strides: Sequence[IntLike], facts: Facts | None = None) -> Int:
        """The flattened position: the sum of outputs times strides."""
        return self._flat().offset(strides, facts)

    def strides(
        self, strides: Sequence[IntLike], facts: Facts | None = None
    ) -> tuple[Int | None, ...]:
        """How far a step of each input moves the flattened position; None where a table decides."""
        offset = self.offset(strides, facts)
        moving = frozenset(self._flat().inputs)
        steps: list[Int | None] = []
        for name in self.inputs:
            linear = None if self._decides(name, offset) else offset.linear(name)
            fixed = linear is not None and linear[0].names.isdisjoint(moving)
            steps.append(linear[0] if linear is not None and fixed else None)
        return tuple(steps)

    def contiguity(self, strides: Sequence[IntLike], facts: Facts | None = None) -> Contiguity:
        """How the flattened position moves along the last input."""
        offset = self.offset(strides, facts)
        if self.inputs and self._decides(self.inputs[-1], offset):
            return "gather"
        return contiguity_of(offset, self._flat().inputs if self.inputs else ())

    def _decides(self, name: str, offset: Int) -> bool:
        """Whether the input is part of an index of a lookup that the offset needs."""
        used = set(offset.names)
        for lookup in reversed(self.lookups):
            if lookup.name in used:
                used.update(*(x.names - {name} for x in lookup.index))
                if any(name in x.names for x in lookup.index):
                    return True
        return False
