"""Kernels are outlined canonically: symbols of the model never appear in them.

Sizes become parameters `n0`, `n1`, … in order of first use: every symbol, every quotient or minimum
of symbols (its opposite where that is the size; neither where the sign is not known, for a kernel
takes parameters not to be negative), every constant extent from 16 up, what
`constant_sizes.small_sides` adds, and the gaps after rows in memory. Constants that just happen to
be equal are parameters apart (`lower.sizes_apart`). Where such a constant is the extent of rows in
memory that fill whole vectors, the parameter is how many vectors: nothing is left over in any call,
so there is no code for that. Tensors are renamed by role (`x0` … inputs, `t0` … members), and what
is computed comes before what is given in sums and products of the two. Two layers of equal
structure are then the same program, compiled once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pliant.base.dtypes import bf16
from pliant.ir.expr import Axis, Binary, Cast, Const, Expr, Index, Load, Reduce
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
from pliant.lower.gaps_alike import in_rows
from pliant.lower.groups import Group
from pliant.lower.layout import Gap, Order, strides_in
from pliant.lower.pack import Plan
from pliant.lower.parameters import Sizes, sizes_of
from pliant.lower.row_facts import NOTHING, Rows, rows_of
from pliant.lower.sizes_apart import SPACE
from pliant.lower.sliced import Place, Slice, by_slices
from pliant.sym.expr import Int, as_int
from pliant.sym.facts import Facts


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
    tensors = {m.name: m.tensor for m in group.members}
    products = {n: _unpacked(tensors[n], plan) for n, plan in own.items()}
    tensors |= products  # what is packed follows from the extents: no parameters
    given = {n: x for n, x in externals.items() if n not in packed}
    stored = {n: x.shape for n, x in given.items() if n not in slices}
    stored |= {n: tensors[n].shape for n in group.outputs}
    rows = {n for p, plan in own.items() for n in in_rows(products[p], plan, stored, orders)}
    wholes = {n: x.whole.dims for n, x in slices.items() if n in externals}
    sizes = sizes_of(
        group, own, tensors, given, wholes, orders, facts, lanes, constant_extents, once
    )  # fmt: skip
    renamed: dict[str, Input] = {}
    for name, tensor in [*externals.items(), *tensors.items()]:
        dims = () if name in packed else sizes.shape(name, tensor.shape)
        renamed[name] = Input(names[name], tensor.dtype, dims)
    canon = {names[n]: _rename_tensor(n, t, renamed, sizes) for n, t in tensors.items()}
    for name, plan in own.items():
        a_side, panels = _rename_expr(name, plan.a_side, renamed, sizes), plan.packed
        own[name] = replace(plan, a_side=a_side, packed=names[panels], collide=None)
        renamed[panels], canon[names[name]] = _repacked(
            own[name], renamed[panels], canon[names[name]], plan.columns(externals[panels])
        )
    free = {
        n: Gap(gap.dims, sizes.free(as_int(gap.elements), lanes))
        for n in renamed
        if (gap := gaps.get(n, Gap(1, 0) if n in rows else None))
    }
    lie = {n: sizes.shape(n, dims) for n, dims in wholes.items()}
    strides = tuple(
        (i.label, strides_in(n, lie.get(n, i.dims), orders, free)) for n, i in renamed.items()
    )
    known, more = rows_of(group, facts) if group.kind == "row" else (NOTHING, ())
    spec = Spec(
        group.kind, sizes.shape(SPACE, group.space), group.order, group.rows,
        tuple(canon.items()),
        tuple(renamed[n] for n in externals), tuple(members[n] for n in group.outputs), strides,
        tuple(sizes.names()), tuple((names[n], plan) for n, plan in own.items()), numerics,
        known, flushes and _makes_bf16(group),
        group.kind == "map" and set(group.outputs).isdisjoint(results),
        group.kind == "map" and once,
    )  # fmt: skip
    read = [slices.get(n, Slice(x, ())) for n, x in externals.items()]
    launch = Launch(
        spec, tuple([x.whole.name for x in read]), group.outputs, tuple(sizes.values()),
        tuple(m.name for m in group.members), _gathered(spec, group, plans),
        tuple([x.place for x in read]),
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


def _unpacked(tensor: Tensor, plan: Plan) -> Compute:
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


def _rename_expr(name: str, x: Expr, renamed: dict[str, Input], sizes: Sizes) -> Any:
    memo: dict[Node, Any] = {}
    for node in own_nodes(x):
        if isinstance(node, Load):
            memo[node.source] = renamed[node.source.name]

    def visit(node: Node) -> Node:
        if isinstance(node, Index):
            return Index(sizes.rename(node.int_))
        if isinstance(node, Axis):
            return Axis(node.var, sizes.at((name, node.var), node.extent))
        if isinstance(node, Binary) and node.op in ("add", "mul") and _is_given(node.a):
            return node if _is_given(node.b) else node.replace(a=node.b, b=node.a)
        return node

    return transform(x, visit, memo)


def _is_given(x: Expr) -> bool:
    """Whether it is an element of an input, or a constant: what is computed comes before it."""
    return isinstance(x, Const) or (isinstance(x, Load) and x.source.name.startswith("x"))


def _rename_tensor(name: str, tensor: Tensor, renamed: dict[str, Input], sizes: Sizes) -> Tensor:
    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.var, sizes.at((name, a.var), a.extent)) for a in old)

    match tensor:
        case Compute():
            return Compute("t", axes(tensor.axes), _rename_expr(name, tensor.body, renamed, sizes))
        case Scan():
            body = _rename_expr(name, tensor.body, renamed, sizes)
            return tensor.replace(axes=axes(tensor.axes), body=body)
        case Scatter():
            return tensor.replace(
                base=renamed[tensor.base.name],
                axes=axes(tensor.axes),
                where=tuple(_rename_expr(name, w, renamed, sizes) for w in tensor.where),
                value=_rename_expr(name, tensor.value, renamed, sizes),
                skip=tensor.skip and _rename_expr(name, tensor.skip, renamed, sizes),
            )
        case Opaque():
            return tensor.replace(
                label="t",
                operands=tuple(renamed[o.name] for o in tensor.operands),
                results=tuple((d, tuple(map(sizes.rename, sh))) for d, sh in tensor.results),
            )
        case OpaqueOutput():
            return tensor.replace(of=_rename_tensor(name, tensor.of, renamed, sizes))
    raise AssertionError(tensor)
