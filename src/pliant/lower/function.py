"""Lower one graph function: the passes over its stages in order, then groups, memory, host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pliant.graph.facts import facts_of
from pliant.graph.function import Function as GraphFunction
from pliant.graph.operator import Operators
from pliant.ir.tensor import Input
from pliant.loop.stmt import Function
from pliant.lower.as_graph import (
    Decisions,
    as_function,
    group_functions,
    prepare_name,
    split_functions,
)
from pliant.lower.batches import split_batches
from pliant.lower.canonical import Launch, Spec, outline
from pliant.lower.chosen_matrices import choose_matrices
from pliant.lower.constants import constant_values, part_places
from pliant.lower.contraction import KINDS, Factors
from pliant.lower.digits import split_digits
from pliant.lower.drop_units import drop_units
from pliant.lower.gaps import gaps_before
from pliant.lower.groups import Group, form_groups
from pliant.lower.host import host_function
from pliant.lower.inline_copies import inline_copies
from pliant.lower.joined import Joined, Part, join_in_place
from pliant.lower.layout import choose_layouts, relay, room_of
from pliant.lower.memory import MemoryPlan, plan_memory
from pliant.lower.narrow_values import narrow_values
from pliant.lower.one_pass import in_one_pass
from pliant.lower.pack import Plan, inline_into_packs, pack_contractions
from pliant.lower.pad_windows import pad_windows
from pliant.lower.pair_filters import pair_filters
from pliant.lower.quotients import multiply_by_reciprocals
from pliant.lower.read_pieces import read_pieces
from pliant.lower.resampled import rows_while_few
from pliant.lower.same_order import order_as_read
from pliant.lower.sampled import turn_sampled
from pliant.lower.scale_after import scale_after
from pliant.lower.split_axes import split_axes
from pliant.lower.split_sums import split_sums
from pliant.lower.stages import Stage, Stages, copy_of, fission
from pliant.lower.vector_products import vector_products
from pliant.lower.zero_points import read_bytes, sum_zeros_apart
from pliant.sym.expr import Int

Watch = Callable[[str, Callable[[], Sequence[Any]]], None]
"""Is told the name of a stage and can have its functions."""


@dataclass(frozen=True)
class Lowered:
    """A function ready for code: its host program, the kernels it launches (by symbol; with those
    that a launch may take instead), and the values that its weight table holds, in order."""

    host: Function
    kernels: dict[str, Spec]
    launches: tuple[tuple[str, Launch], ...]
    weights: tuple[str, ...]
    types: Mapping[str, Input]
    memory: MemoryPlan
    groups: tuple[Group, ...]
    parts: Mapping[str, Part]


@dataclass(frozen=True)
class Split:
    """A function in two: what is constant (`lower.constants`), run once, and the rest, run in every
    call.

    `prepared` are the values that pass from the first to the second.
    """

    prepare: Lowered | None
    main: Lowered
    prepared: tuple[str, ...]


def lower_function(
    function: GraphFunction,
    operators: Operators,
    columns: int,
    *,
    factors: Sequence[Factors] = KINDS,
    lanes: int = 1,
    constant_extents: bool = False,
    numerics: str = "fast",
    narrow: bool = False,
    pairs: bool = False,
    watch: Watch | None = None,
) -> Split:
    """`columns` is the width of a packed panel, `factors` are as in `pack_contractions`; `lanes`
    (of f32) and `constant_extents` are as in `outline`, `numerics` as in `pliant.compile`.
    `narrow`: values that bf16 products are made of are stored as bf16 (`narrow_values`). `pairs`:
    an instruction adds two products of bf16 to a sum (`pair_filters`). `watch` is shown what every
    pass has made."""
    watch = watch or _unwatched
    decided = Decisions()
    s = fission(function, operators, facts_of(function))
    materialise_results(s)
    watch("fission", lambda: [as_function(s, decided)])
    if numerics != "strict":
        read_bytes(s)
    wishes = split_axes(s, columns, factors)
    watch("phases", lambda: [as_function(s, decided)])
    inline_copies(s)
    split_batches(s)
    read_pieces(s)
    split_digits(s)
    if numerics != "strict":
        multiply_by_reciprocals(s)
        choose_matrices(s)
    vector_products(s)
    drop_units(s, wishes)
    if numerics != "strict":
        sum_zeros_apart(s, factors)
    pad_windows(s)
    turn_sampled(s)
    if numerics != "strict":
        split_sums(s)
    part_places(s)
    watch("views", lambda: [as_function(s, decided)])
    decided.orders = orders = choose_layouts(s, wishes)
    if numerics != "strict":
        rows_while_few(s, orders)
    relay(s, orders)
    order_as_read(s, orders)
    if numerics != "strict":
        scale_after(s, orders)
    watch("layouts", lambda: [as_function(s, decided)])
    decided.gaps = gaps = gaps_before(s)
    joined = Joined({}, set())
    if not narrow:
        joined = join_in_place(s, orders, gaps, constant_values(s))
    decided.parts = parts = joined.parts
    plans: dict[str, Plan] = {}
    if numerics != "strict":
        decided.plans = plans = pack_contractions(
            s, orders, gaps, columns, factors, {*parts, *joined.silent}
        )
        if pairs:
            pair_filters(s, orders)
        inline_into_packs(s)
    watch("packing", lambda: [as_function(s, decided)])
    constants = constant_values(s)
    # What lies in a value that a call makes is copied there in every call.
    early = {n for n in s.stages if n in constants and n not in parts}
    prepared = _crossing(s, early)
    halves = [_part(s, {n: st for n, st in s.stages.items() if n not in early}, s.results)]
    if early:
        first = _part(s, {n: st for n, st in s.stages.items() if n in early}, prepared)
        halves.insert(0, first)
    watch("split", lambda: split_functions(halves, prepared, decided))
    kernels = [
        form_groups(p, orders, plans, silent=joined.silent, in_order=numerics == "strict")
        for p in halves
    ]
    if narrow and numerics != "strict":
        narrow_values(halves[-1], kernels[-1], orders, gaps)
    for part, groups in zip(halves, kernels, strict=True):
        in_one_pass(part, groups, orders)
    watch(
        "groups",
        lambda: group_functions(
            split_functions(halves, prepared, decided), halves, kernels, decided
        ),
    )
    launch = partial(
        outline, facts=s.facts, orders=orders, gaps=gaps, plans=plans, results=set(s.results),
        constant_extents=constant_extents, numerics=numerics, flushes=narrow, lanes=lanes,
    )  # fmt: skip

    def room(name: str) -> Int:
        """The bytes of a value in memory."""
        value = s.types[name]
        return room_of(value.dims, orders[name], gaps.get(name)) * value.dtype.bytes

    prepare = None
    if early:
        once = function.replace(name=prepare_name(function), params=(), dims=(), equalities=())
        every = [v.name for v, _ in function.weights]
        launch_once = partial(launch, once=True)
        prepare = _lower_part(once, s, kernels[0], launch_once, room, {}, prepared, every)
        notes = (*prepare.host.notes, ("once", True))
        prepare = replace(prepare, host=prepare.host.replace(notes=notes))
    used = _used_weights(kernels[-1], s, prepared)
    main = _lower_part(function, s, kernels[-1], launch, room, parts, s.results, used)
    return Split(prepare, main, prepared)


def _unwatched(stage: str, functions: Callable[[], Sequence[Any]]) -> None:
    pass


def materialise_results(s: Stages) -> None:
    """Give every result a stage of its own: a parameter, weight or repeated value is copied."""
    results: list[str] = []
    for k, name in enumerate(s.results):
        if name in s.stages and name not in results:
            results.append(name)
            continue
        source = s.types[name]
        copied = s.fresh(f"{name}.result{k}")
        s.stages[copied] = Stage(copied, copy_of(source), "copy")
        s.types[copied] = Input(copied, source.dtype, source.dims)
        results.append(copied)
    s.results = tuple(results)


def _crossing(s: Stages, early: set[str]) -> tuple[str, ...]:
    """Early values that later stages read."""
    wanted: dict[str, None] = {}
    for name, stage in s.stages.items():
        if name not in early:
            wanted |= dict.fromkeys(i for i in stage.inputs if i in early)
    return tuple(wanted)


def _part(s: Stages, stages: dict[str, Stage], results: tuple[str, ...]) -> Stages:
    return Stages(s.name, s.params, s.weights, stages, results, s.facts, s.function, s.types)


def _used_weights(groups: list[Group], s: Stages, prepared: tuple[str, ...]) -> list[str]:
    """Weights and prepared values that the groups read, in order of first use."""
    table = {v.name for v, _ in s.weights} | set(prepared)
    used: dict[str, None] = {}
    for g in groups:
        for m in g.members:
            used |= dict.fromkeys(i for i in m.inputs if i in table)
    return list(used)


def _lower_part(
    function: GraphFunction,
    s: Stages,
    groups: list[Group],
    launch: Callable[[Group], Launch],
    room: Callable[[str], Int],
    parts: Mapping[str, Part],
    results: tuple[str, ...],
    weights: list[str],
) -> Lowered:
    """What `launch` makes of each group, in memory of which a value takes `room`."""
    # Of a whole whose parts lie in it there is nothing to launch.
    kept = [k for k, g in enumerate(groups) if g.kind != "joined"]
    places = {k: at for at, k in enumerate(kept)} | {-1: -1}
    groups = [
        replace(g, after=places.get(g.after, -1), obstacle=g.obstacle if g.after in places else "")
        for g in (groups[k] for k in kept)
    ]
    launches = [launch(g) for g in groups]
    specs = (spec for x in launches for spec in (x.spec, *(v.spec for v in x.variants)))
    symbols = {spec: kernel_symbol(spec) for spec in dict.fromkeys(specs)}
    sizes = {
        name: room(name)
        for name in (*(n for x in launches for n in x.outputs), *(p.whole for p in parts.values()))
        if name not in results and name not in parts
    }
    lies = {
        n: (p.whole, p.offset * s.types[n].dtype.bytes)
        for n, p in parts.items()
        if p.whole not in results
    }
    viewed = {n: p.whole for n, p in parts.items() if p.whole in results}
    memory = plan_memory(launches, sizes, s.facts, lies)
    host = host_function(function, launches, symbols, s.types, weights, results, viewed, memory)
    return Lowered(
        host, {name: spec for spec, name in symbols.items()},
        tuple([(symbols[x.spec], x) for x in launches]), tuple(weights), s.types, memory,
        tuple(groups), parts,
    )  # fmt: skip


def kernel_symbol(spec: Spec) -> str:
    """A name that says what the kernel is: its kind and a hash of its contents."""
    digest = hashlib.sha256(repr(spec).encode()).hexdigest()[:16]
    return f"k_{spec.kind}_{digest}"
