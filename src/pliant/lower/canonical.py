"""Kernels are outlined canonically: symbols of the model never appear in them.

Sizes become parameters `n0`, `n1`, … in order of first use: every symbol, every quotient or minimum
of symbols (its opposite where that is the size; neither where the sign is not known, for a kernel
takes parameters not to be negative), every constant extent from 16 up, and what
`constant_sizes.small_sides` adds. Where such a constant is the extent of rows in memory that fill
whole vectors, the parameter is how many vectors: nothing is left over in any call, so there is no
code for that. Tensors are renamed by role (`x0` … inputs, `t0` … members), and what is computed
comes before what is given in sums and products of the two. Two layers of equal structure are then
the same program, compiled once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from pliant.base.dtypes import bf16
from pliant.ir.expr import Axis, Binary, Cast, Const, Expr, Index, Load, Reduce, index_names
from pliant.ir.few_channels import filters_of
from pliant.ir.narrow_groups import narrow_groups
from pliant.ir.node import Node, transform
from pliant.ir.tensor import (
    Compute,
    Input,
    Opaque,
    OpaqueOutput,
    Scan,
    Scatter,
    Tensor,
    own_nodes,
    sources,
)
from pliant.lower.constant_sizes import extents_to_keep, small_sides
from pliant.lower.groups import Group
from pliant.lower.layout import Gap, Order, strides_in
from pliant.lower.pack import Plan
from pliant.lower.row_facts import NOTHING, Rows, rows_of
from pliant.lower.sliced import Place, Slice, by_slices
from pliant.sym.atoms import Atom, VarAtom
from pliant.sym.digits import digit_of
from pliant.sym.expr import Int, as_int, rebuild_atom, var
from pliant.sym.facts import Facts

MIN_PARAMETER = 16  # smaller constant extents (windows, steps) stay constants


@dataclass(frozen=True)
class Spec:
    """One kernel, canonically. Equal specs are equal code.

    `strides` gives every tensor's strides by name; `outputs` are member names; `plans` those of the
    packed contractions among the members. What `numerics` allows is for the kernel to keep: with
    "strict" a sum is in order of the indices. `known` is that of a kernel of rows. `flushes`: what
    becomes bf16 here is for products, which take subnormal numbers for 0, so it may lose them
    before. `read`, of maps: kernels after it read all that it stores. `once`, of maps: they run
    when a model is compiled, and not again.
    """

    kind: str
    space: tuple[Int, ...]
    order: Order
    rows: int
    members: tuple[tuple[str, Tensor], ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    strides: tuple[tuple[str, tuple[Int, ...]], ...]
    sizes: tuple[str, ...]
    plans: tuple[tuple[str, Plan], ...] = ()
    numerics: str = "fast"
    known: Rows = NOTHING
    flushes: bool = False
    read: bool = False
    once: bool = False

    def plan(self, name: str) -> Plan | None:
        """How a member is run that is a packed contraction."""
        return dict(self.plans).get(name)

    def strides_of(self, name: str) -> tuple[Int, ...]:
        return dict(self.strides)[name]

    def tensor(self, name: str) -> Tensor:
        return dict(self.members)[name]


@dataclass(frozen=True)
class Variant:
    """A kernel of the same parameters and meaning, which is faster where `guard`, of the symbols of
    the model, is 0."""

    guard: Int
    spec: Spec


@dataclass(frozen=True)
class Launch:
    """A kernel in a function: what to pass for its parameters. `spec` serves every call; of the
    `variants` the first whose guard holds is taken instead. `places` says for each input with which
    of its elements it begins: the first, where it says nothing."""

    spec: Spec
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: tuple[Int, ...]
    stages: tuple[str, ...]
    variants: tuple[Variant, ...] = ()
    places: tuple[Place, ...] = ()


def outline(
    group: Group,
    facts: Facts,
    orders: dict[str, Order],
    gaps: dict[str, Gap],
    plans: dict[str, Plan],
    *,
    results: Collection[str],
    constant_extents: bool = False,
    numerics: str = "fast",
    flushes: bool = False,
    lanes: int = 1,
    once: bool = False,
) -> Launch:
    """The canonical kernel of a group, and its arguments, as the facts about the model's sizes
    allow; with `flushes` as in `Spec`, where it makes bf16 at all. What is of `results` no kernel
    reads. Rows of a multiple of `lanes` elements are known to be that. What is launched `once` is
    launched when the model is compiled.

    With `constant_extents`, constants stay constants however large: a kernel for each size, to
    measure what sizes known only at run time cost. So do those of a convolution of few channels,
    of which a model has one: how many filters there are decides what fills registers. Others that
    stay are in `lower.constant_sizes`. Of patches also quotients of symbols stay such: a kernel
    knows how many there are in an image.
    """
    group, plans, slices = by_slices(group, plans, facts, orders, gaps)
    members = {m.name: f"t{k}" for k, m in enumerate(group.members)}
    externals: dict[str, Input] = {}
    for m in group.members:
        for source in _inputs(m.tensor):
            if source.name not in members:
                externals.setdefault(source.name, source)
    names = dict(members)
    names |= {n: f"x{k}" for k, n in enumerate(externals)}
    own = {m.name: plans[m.name] for m in group.members if m.name in plans}
    packed = {plan.packed for plan in own.values()}
    alone = any(
        isinstance(m.tensor, Compute) and (filters_of(m.tensor) or narrow_groups(m.tensor))
        for m in group.members
    )
    patches = group.kind == "patches"
    constant = constant_extents or alone or patches
    kept, small = extents_to_keep(group), small_sides(group, own)
    sizes = _Sizes(facts, constant, kept, small, derived=patches)
    shapes = {n: x.dims for n, x in externals.items() if n not in packed}
    shapes |= {m.name: m.tensor.shape for m in group.members}
    rows = [dims[orders[n][-1] if n in orders else -1] for n, dims in shapes.items() if dims]
    sizes.note_rows(rows, lanes)
    for m in group.members:
        for parts in _split_extents(m.tensor, packed):
            sizes.note_product(*parts)
    extents = [x for m in group.members for x in _extents(m.tensor)]
    extents += [x for n, source in externals.items() if n not in packed for x in source.dims]
    wholes = {n: x.whole.dims for n, x in slices.items() if n in externals}
    extents += [x for dims in wholes.values() for x in dims]
    for x in extents:
        sizes.note_extent(x)
    for name in (*externals, *members):
        if name in gaps and name not in packed:
            sizes.note_extent(as_int(gaps[name].elements))
    tensors = {m.name: m.tensor for m in group.members}
    for name, plan in own.items():  # what is packed follows from the extents: no parameters
        tensors[name] = _unpacked(tensors[name], plan)
    within = {i for t in tensors.values() for i in _ints(t)}
    sizes.note_sums(dict.fromkeys([*extents, *group.space]), within)
    renamed: dict[str, Input] = {}
    for name, tensor in [*externals.items(), *tensors.items()]:
        dims = () if name in packed else tuple(sizes.rename(d) for d in tensor.shape)
        renamed[name] = Input(names[name], tensor.dtype, dims)
    canon = {names[n]: _rename_tensor(t, renamed, sizes) for n, t in tensors.items()}
    for name, plan in own.items():
        a_side, panels = _rename_expr(plan.a_side, renamed, sizes), plan.packed
        own[name] = replace(plan, a_side=a_side, packed=names[panels], collide=None)
        renamed[panels], canon[names[name]] = _repacked(
            own[name], renamed[panels], canon[names[name]], plan.columns(externals[panels])
        )
    free = {
        n: Gap(g.dims, sizes.rename(as_int(g.elements))) for n, g in gaps.items() if n in renamed
    }
    lie = {n: tuple(map(sizes.rename, dims)) for n, dims in wholes.items()}
    strides = tuple(
        (i.label, strides_in(n, lie.get(n, i.dims), orders, free)) for n, i in renamed.items()
    )
    known, more = rows_of(group, facts) if group.kind == "row" else (NOTHING, ())
    spec = Spec(
        group.kind, tuple(map(sizes.rename, group.space)), group.order, group.rows,
        tuple(canon.items()),
        tuple(renamed[n] for n in externals), tuple(members[n] for n in group.outputs), strides,
        tuple(sizes.names()), tuple((names[n], plan) for n, plan in own.items()), numerics,
        known, flushes and _makes_bf16(group),
        group.kind == "map" and set(group.outputs).isdisjoint(results),
        group.kind == "map" and once,
    )  # fmt: skip
    given = [slices.get(n, Slice(x, ())) for n, x in externals.items()]
    launch = Launch(
        spec, tuple([x.whole.name for x in given]), group.outputs, tuple(sizes.values()),
        tuple(m.name for m in group.members), _gathered(spec, group, plans),
        tuple([x.place for x in given]),
    )  # fmt: skip
    if not more or numerics == "batch_invariant":  # kernels round differently
        return launch
    alike = launch
    if group.uncached is not None:
        alike = outline(
            group.uncached, facts, orders, gaps, plans, results=results,
            constant_extents=constant_extents, numerics=numerics, flushes=flushes, lanes=lanes,
            once=once,
        )  # fmt: skip
    return replace(launch, variants=tuple(_of_rows(launch, alike, more)))


def _of_rows(
    launch: Launch, uncached: Launch, known: Iterable[tuple[Int, Rows]]
) -> Iterator[Variant]:
    """Of rows, the kernels for what may be known of them in a call; `uncached` computes the same,
    where no cache keeps it."""
    same = (uncached.inputs, uncached.sizes, uncached.places) == (
        launch.inputs, launch.sizes, launch.places,
    )  # fmt: skip
    for guard, rows in known:
        spec = uncached.spec if rows.large and same else launch.spec
        yield Variant(guard, replace(spec, known=rows))


def _gathered(spec: Spec, group: Group, plans: dict[str, Plan]) -> tuple[Variant, ...]:
    """Of a product, the kernel for rows that push one another out of the cache."""
    if group.kind != "contraction":
        return ()
    collide = next(plans[m.name].collide for m in group.members if m.name in plans)
    if collide is None:
        return ()
    gathered = tuple([(n, replace(plan, gather=True)) for n, plan in spec.plans])
    return (Variant(collide, replace(spec, plans=gathered)),)


def _makes_bf16(group: Group) -> bool:
    bodies = [m.tensor.body for m in group.members if isinstance(m.tensor, Compute)]
    return any(isinstance(n, Cast) and n.dtype is bf16 for b in bodies for n in own_nodes(b))


def _unpacked(tensor: Tensor, plan: Plan) -> Tensor:
    """The contraction as if it summed its first operand."""
    assert isinstance(tensor, Compute) and isinstance(tensor.body, Reduce)
    return tensor.replace(body=tensor.body.replace(body=plan.a_side.cast(plan.sums)))


def _repacked(plan: Plan, packed: Input, tensor: Tensor, columns: int) -> tuple[Input, Tensor]:
    """The packed operand, and the contraction that reads it, in terms of the kernel's parameters:
    the width of a panel stays a constant, what is derived of extents follows from theirs."""
    assert isinstance(tensor, Compute) and isinstance(tensor.body, Reduce)
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    packed = packed.replace(dims=plan.panel_shape(extents, columns))
    value = plan.panel_product(packed, extents, columns)
    return packed, tensor.replace(body=tensor.body.replace(body=value))


def _inputs(tensor: Tensor) -> Iterator[Input]:
    return (s for s in sources(tensor) if isinstance(s, Input))


def _extents(tensor: Tensor) -> Iterator[Int]:
    yield from tensor.shape
    if isinstance(tensor, Compute):
        for axis in tensor.reduce_axes:
            yield axis.extent
    if isinstance(tensor, Scatter):
        for axis in tensor.axes:
            yield axis.extent


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


class _Sizes:
    """The mapping from the model's sizes to the kernel's parameters."""

    def __init__(
        self, facts: Facts, constant_extents: bool, kept: frozenset[int], small: frozenset[int], *,
        derived: bool,
    ) -> None:  # fmt: skip
        self._facts = facts
        self._constant_extents = constant_extents
        self._derived = derived
        self._kept = kept
        self._small = small
        self._atoms: dict[Atom, Int] = {}
        self._constants: dict[int, Int] = {}
        self._steps: dict[int, int] = {}
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

    def note_rows(self, extents: Iterable[Int], lanes: int) -> None:
        """Make constants of these that are multiples of `lanes` such multiples of parameters."""
        self._steps = {x.value: lanes for x in extents if x.is_const and x.value % lanes == 0}

    def note_extent(self, x: Int) -> None:
        """Make the constant `x` a parameter wherever it appears from now on."""
        if self._constant_extents or not x.is_const or x.value in self._kept:
            return
        wanted = x.value >= MIN_PARAMETER or x.value in self._small
        if wanted and x.value not in self._constants:
            step = self._steps.get(x.value, 1)
            self._constants[x.value] = step * self._parameter(as_int(x.value // step))

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


def _same(x: Int) -> Int:
    return x


def _rename_expr(x: Expr, renamed: dict[str, Input], sizes: _Sizes) -> Any:
    memo: dict[Node, Any] = {}
    for node in own_nodes(x):
        if isinstance(node, Load):
            memo[node.source] = renamed[node.source.name]

    def visit(node: Node) -> Node:
        if isinstance(node, Index):
            return Index(sizes.rename(node.int_))
        if isinstance(node, Axis):
            return Axis(node.var, sizes.rename(node.extent))
        if isinstance(node, Binary) and node.op in ("add", "mul") and _is_given(node.a):
            return node if _is_given(node.b) else node.replace(a=node.b, b=node.a)
        return node

    return transform(x, visit, memo)


def _is_given(x: Expr) -> bool:
    """Whether it is an element of an input, or a constant: what is computed comes before it."""
    return isinstance(x, Const) or (isinstance(x, Load) and x.source.name.startswith("x"))


def _rename_tensor(tensor: Tensor, renamed: dict[str, Input], sizes: _Sizes) -> Tensor:
    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.var, sizes.rename(a.extent)) for a in old)

    match tensor:
        case Compute():
            return Compute("t", axes(tensor.axes), _rename_expr(tensor.body, renamed, sizes))
        case Scan():
            body = _rename_expr(tensor.body, renamed, sizes)
            return tensor.replace(axes=axes(tensor.axes), body=body)
        case Scatter():
            return tensor.replace(
                base=renamed[tensor.base.name],
                axes=axes(tensor.axes),
                where=tuple(_rename_expr(w, renamed, sizes) for w in tensor.where),
                value=_rename_expr(tensor.value, renamed, sizes),
                skip=None if tensor.skip is None else _rename_expr(tensor.skip, renamed, sizes),
            )
        case Opaque():
            return tensor.replace(
                label="t",
                operands=tuple(renamed[o.name] for o in tensor.operands),
                results=tuple((d, tuple(map(sizes.rename, sh))) for d, sh in tensor.results),
            )
        case OpaqueOutput():
            return tensor.replace(of=_rename_tensor(tensor.of, renamed, sizes))
    raise AssertionError(tensor)
