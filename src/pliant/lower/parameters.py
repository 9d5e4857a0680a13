"""What the sizes of a model are called in a kernel (`lower.canonical`): its parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from pliant.ir.expr import Axis, Index, Load, index_names
from pliant.ir.few_channels import filters_of
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.tensor import Compute, Input, Scatter, Tensor, own_nodes
from pliant.lower.constant_sizes import extents_to_keep, sides_of_weights, small_sides
from pliant.lower.groups import Group
from pliant.lower.layout import Order, order_in
from pliant.lower.pack import Plan
from pliant.lower.sizes_apart import Spot, places_of_sizes
from pliant.sym.atoms import Atom, VarAtom
from pliant.sym.digits import digit_of
from pliant.sym.expr import Int, as_int, rebuild_atom, var
from pliant.sym.facts import Facts

MIN_PARAMETER: Final = 16  # smaller constant extents (windows, steps) stay constants
SIDE: Final = 2  # but for these, of so many and more


def sizes_of(
    group: Group, plans: Mapping[str, Plan], tensors: Mapping[str, Tensor],
    given: Mapping[str, Input], wholes: Mapping[str, tuple[Int, ...]], orders: Mapping[str, Order],
    facts: Facts, lanes: int, constant_extents: bool, once: bool,
) -> Sizes:  # fmt: skip
    """The parameters of a kernel of these `tensors`, which is `given` values, parts of `wholes`."""
    alone = any(
        isinstance(m.tensor, Compute) and (filters_of(m.tensor) or narrow_groups(m.tensor))
        for m in group.members
    )
    patches = group.kind == "patches"
    packed = {plan.packed for plan in plans.values()}
    parts = [x for m in group.members for x in _split_extents(m.tensor, packed)]
    numbers = {x.value for a, b in parts for x in (a, b, a * b)}
    apart = places_of_sizes(group.space, tensors, given, numbers)
    weights = once and group.kind == "map"
    sides = sides_of_weights(tensors) if weights else small_sides(tensors, plans)
    small = {apart[x] for x in sides if x in apart}
    constant, kept = constant_extents or alone or patches, extents_to_keep(group)
    sizes = Sizes(facts, constant, kept, apart, small, derived=patches)
    for name, tensor in [*given.items(), *tensors.items()]:
        if dims := tensor.shape:
            *_, last = order_in(name, dims, orders)
            sizes.note_row((name, last), dims[last], lanes)
    for a, b in parts:
        sizes.note_product(a, b)
    places = [x for n, t in [*tensors.items(), *given.items()] for x in _places(n, t)]
    places += [((n, d), x) for n, dims in wholes.items() for d, x in enumerate(dims)]
    for place, x in places:
        sizes.note_place(place, x)
    within = {i for t in tensors.values() for i in _ints(t)}
    sizes.note_sums(dict.fromkeys([*(x for _, x in places), *group.space]), within)
    return sizes


class Sizes:
    """The mapping from the model's sizes to the kernel's parameters."""

    def __init__(
        self, facts: Facts, constant_extents: bool, kept: Collection[int],
        apart: Mapping[Spot, Spot], small: Collection[Spot], *, derived: bool,
    ) -> None:  # fmt: skip
        self._facts = facts
        self._constant_extents = constant_extents
        self._derived = derived
        self._kept = kept
        self._apart = apart
        self._small = small
        self._atoms: dict[Atom, Int] = {}
        self._constants: dict[int, Int] = {}
        self._at: dict[Spot, Int] = {}
        self._steps: dict[Spot | int, int] = {}
        self._memo: dict[Int, Int] = {}
        self._values: dict[str, Int] = {}

    def names(self) -> list[str]:
        return list(self._values)

    def values(self) -> list[Int]:
        return list(self._values.values())

    def _parameter(self, value: Int) -> Int:
        name = f"n{len(self._values)}"
        self._values[name] = value
        return var(name)

    def note_row(self, place: Spot, extent: Int, lanes: int) -> None:
        """Make this one, if it is constant, such a multiple of a parameter."""
        if extent.is_const and extent.value % lanes == 0:
            self._steps[self._apart.get(place, extent.value)] = lanes

    def note_place(self, place: Spot, x: Int) -> None:
        """Make the constant `x` a parameter: here, where it is known what else is the same size,
        and otherwise wherever it appears from now on."""
        size = self._apart.get(place)
        if size is None:
            self.note_extent(x)
            return
        least = SIDE if size in self._small else MIN_PARAMETER
        if size not in self._at and self._wanted(x, least):
            self._at[size] = self._in_steps(size, x.value)

    def note_extent(self, x: Int) -> None:
        """Make the constant `x` a parameter wherever it appears from now on."""
        if x.is_const and x.value not in self._constants and self._wanted(x):
            self._constants[x.value] = self._in_steps(x.value, x.value)

    def _wanted(self, x: Int, least: int = MIN_PARAMETER) -> bool:
        if self._constant_extents or not x.is_const or x.value in self._kept:
            return False
        return x.value >= least

    def _in_steps(self, size: Spot | int, value: int) -> Int:
        """A parameter times what it is known to be a multiple of."""
        step = self._steps.get(size, 1)
        return step * self._parameter(as_int(value // step))

    def free(self, elements: Int, unit: int) -> Int:
        """So many elements that lie free: a number of them is a parameter of its own."""
        if not elements.is_const:
            return self.rename(elements)
        if self._constant_extents:
            return elements
        step = unit if elements.value % unit == 0 else 1
        return step * self._parameter(as_int(elements.value // step))

    def note_product(self, a: Int, b: Int) -> None:
        """Make the product of these constants, wherever it appears, that of what they are, if it
        is no constant of the kernel."""
        if a.value * b.value in self._kept:
            return
        self.note_extent(a)
        self.note_extent(b)
        known = {a.value, b.value} & self._constants.keys()
        whole = a.value * b.value
        if known and whole not in self._constants:
            self._constants[whole] = prod(
                (self._constants.get(x.value, x) for x in (a, b)), start=as_int(1)
            )

    def note_sums(self, extents: Collection[Int], others: Collection[Int]) -> None:
        """Make extents as n - 4 parameters where n stands nowhere else: the kernel is that of
        extents which are sizes, and that there are not fewer than none is known of a parameter."""
        if self._derived:
            return
        for x in extents:
            terms = list(x.terms())
            if len(terms) != 2 or terms[0][0] != 1 or terms[1][1]:
                continue
            if any(name.startswith("_") for name in x.names):
                continue
            if all(y is x or x.names.isdisjoint(y.names) for y in (*extents, *others)):
                self._memo[x] = self._parameter(x)

    def shape(self, name: str, dims: Sequence[Int]) -> tuple[Int, ...]:
        """That of a value."""
        return tuple(self.at((name, d), x) for d, x in enumerate(dims))

    def at(self, place: Spot, x: Int) -> Int:
        """What is written there."""
        found = self._at.get(self._apart.get(place, place)) if x.is_const else None
        return self.rename(x) if found is None else found

    def rename(self, x: Int) -> Int:
        found = self._memo.get(x)
        if found is None:
            total = as_int(0)
            for coefficient, factors in x.terms():
                term = self._coefficient(coefficient)
                for atom, power in factors:
                    term = term * self._atom(atom) ** power
                total = total + term
            found = self._memo[x] = total
        return found

    def _coefficient(self, c: int) -> Int:
        if abs(c) in self._constants:
            return self._constants[abs(c)] * (1 if c > 0 else -1)
        return as_int(c)

    def _atom(self, atom: Atom) -> Int:
        found = self._atoms.get(atom)
        if found is not None:
            return found
        if isinstance(atom, VarAtom) and atom.name.startswith("_"):
            return var(atom.name)
        derived = self._derived and not isinstance(atom, VarAtom)
        if derived or any(n.startswith("_") for n in atom.names):
            return rebuild_atom(atom, self.rename)
        whole = as_int(0) + (
            var(atom.name) if isinstance(atom, VarAtom) else rebuild_atom(atom, _same)
        )
        if isinstance(atom, VarAtom) or self._facts.nonneg(whole):
            found = self._parameter(whole)
        elif self._facts.nonneg(-whole):
            found = -self._parameter(-whole)
        else:
            found = rebuild_atom(atom, self.rename)
        self._atoms[atom] = found
        return found


def _places(name: str, tensor: Tensor) -> Iterator[tuple[Spot, Int]]:
    """Where a tensor has extents, and these."""
    for d, extent in enumerate(tensor.shape):
        yield (name, d), extent
    if isinstance(tensor, Compute | Scatter):
        for axis in tensor.reduce_axes if isinstance(tensor, Compute) else tensor.axes:
            yield (name, axis.var), axis.extent


def _ints(tensor: Tensor) -> Iterator[Int]:
    """All that are written in its body."""
    for root in tensor.children():
        for node in own_nodes(root):
            if isinstance(node, Index):
                yield node.int_
            elif isinstance(node, Axis):
                yield node.extent


def _split_extents(tensor: Tensor, packed: Collection[str]) -> Iterator[tuple[Int, Int]]:
    """Of axes of constant extents that are read in two how many rows there are, and of how many
    elements: an image of the phases of a transposed convolution, channels in groups. Of those that
    are summed over, and are read in three and more, how large a part in the middle is, and what
    that is a part of: groups of heads. Not panels of what is `packed`."""
    if not isinstance(tensor, Compute):
        return
    extents = {a.var: a.extent.value for a in tensor.axes if a.extent.is_const}
    summed = frozenset(a.var for a in tensor.reduce_axes if a.extent.is_const)
    for load in own_nodes(tensor.body):
        if not isinstance(load, Load) or load.source.name in packed:
            continue
        for index, rows in zip(load.indices, load.source.shape, strict=True):
            if not rows.is_const or rows.value < 1:
                continue
            for name in index_names(index) & extents.keys():
                each, left = divmod(extents[name], rows.value)
                if each > 1 and not left and index is Index(var(name) // each):
                    yield rows, as_int(each)
        yield from _middle_digits(load, summed)


def _middle_digits(load: Load, names: frozenset[str]) -> list[tuple[Int, Int]]:
    """(modulus, low), both numbers, of indices of the load that are (name // low) % modulus; the
    lowest first."""
    atoms = [i.int_.sole_atom for i in load.indices if isinstance(i, Index)]
    digits = [d for atom in atoms if atom is not None and (d := digit_of(atom, names))]
    sources = {var(name) for name in names}
    found = [
        (d.modulus, d.low) for d in digits
        if d.source in sources and d.modulus is not None and d.low != 1
    ]  # fmt: skip
    known = [(modulus, low) for modulus, low in found if modulus.is_const and low.is_const]
    return sorted(known, key=lambda pair: pair[1].value)


def _same(x: Int) -> Int:
    return x
