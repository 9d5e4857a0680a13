"""Contractions get their second operand packed, by a stage of its own.

    y[i, j] = sum_k x[i, k] * w[k, j]
 ->
    p[J, k, c] = w[k, J*32 + c]  (0 beyond the edge)
    y[i, j] = sum_k x[i, k] * p[j // 32, k, j % 32]

Packing a weight happens once, when the model is compiled; packing a value is a kernel like others.
Reduction axes are flattened with the axis that is contiguous in the first operand innermost.
Where a target multiplies so many neighbours of k at once (`group`; pairs of bf16), they lie
together, and the last group of a row is filled with zeros:

    p[J, k, c, e] = w[k*group + e, J*32 + c]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pliant.base.dtypes import DType, f32
from pliant.ir.expr import (
    Binary,
    Cast,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    as_expr,
    const,
    loads_of,
    substitute,
)
from pliant.ir.mapping import if_there
from pliant.ir.tensor import Compute, Input, Tensor, all_of, compute
from pliant.lower.access import classify
from pliant.lower.constants import constant_values
from pliant.lower.contraction import (
    COLS,
    DEPTH,
    POSITIONS,
    ROWS,
    Contraction,
    Factors,
    placed_contraction,
)
from pliant.lower.gaps import compact_values, gap_for, rows_collide
from pliant.lower.inline_copies import simplify_indices, through
from pliant.lower.layout import Gap, Order, strides_in
from pliant.lower.panel_width import panel_width
from pliant.lower.stages import Stage, Stages, readers_of, remove_dead
from pliant.sym.expr import Int, as_int, ceildiv, var
from pliant.sym.facts import Facts

MIN_INNER = 8  # shorter contiguous runs of the first operand are gathered into a tile first


@dataclass(frozen=True)
class Plan:
    """How a packed contraction is run.

    `positions` then `inner` are the reduction axes in the order of the panel's rows. With `gather`
    the first operand is evaluated into a dense tile; else it is read in place, row by row. Where
    `collide` is 0 in a call, it had better be a tile there, too.
    A word of the panel holds `group` neighbours of k; factors are converted to `sums` first.
    """

    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    positions: tuple[str, ...]
    inner: str
    a_side: Expr
    packed: str
    gather: bool
    group: int = 1
    sums: DType = f32
    collide: Int | None = None

    @property
    def source(self) -> str:
        """Where the elements of the first operand lie, whatever decides that they are there."""
        load = next(loads_of(if_there(self.a_side)))
        name: str = load.source.name
        return name

    def groups(self, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Which axes, by other `names`, run as which iterators of `contraction.tile_product`."""
        axes = {ROWS: self.m, COLS: self.n, POSITIONS: self.positions, DEPTH: (self.inner,)}
        return {x: tuple(names[v] for v in group) for x, group in axes.items()}

    def panel_shape(self, extents: Mapping[str, Int], columns: int) -> tuple[Int, ...]:
        """The shape of the packed operand, for these extents of the axes."""
        total_n = product([extents[v] for v in self.n])
        _, words = self.row(extents)
        batch = (extents[v] for v in self.batch)
        shape = (*batch, ceildiv(total_n, columns), words, as_int(columns))
        return shape if self.group == 1 else (*shape, as_int(self.group))

    def row(self, extents: Mapping[str, Int]) -> tuple[Int, Int]:
        """How many elements of the first operand lie in a row, and the words of a panel."""
        parts = [extents[v] for v in self.positions]
        run = product([*parts, extents[self.inner]]) if self.gather else extents[self.inner]
        runs = as_int(1) if self.gather else product(parts)
        return run, runs * ceildiv(run, self.group)

    def reduced_at(self, extents: Mapping[str, Int], word: Int, e: Int) -> tuple[Int, Int, Int]:
        """Which term of the sum an element of a panel's word is: its position in a row, of how
        many, and its position among all."""
        run, _ = self.row(extents)
        if self.group == 1:
            return word, run, word
        words = divisor(ceildiv(run, self.group))
        if self.gather or not self.positions:
            at = word * self.group + e
            return at, run, at
        at = word % words * self.group + e
        return at, run, word // words * run + at

    def panel_product(self, packed: Input, extents: Mapping[str, Int], columns: int) -> Expr:
        """What is summed: the first operand times an element of the packed one."""
        n = flatten(self.n, extents)
        k = flatten((*self.positions, self.inner), extents)
        lead = (*(var(b) for b in self.batch), n // columns)
        if self.group == 1:
            at: tuple[Int, ...] = (*lead, k, n % columns)
        else:
            run, _ = self.row(extents)
            first, along = as_int(0), k
            if not self.gather:
                first = flatten(self.positions, extents) * ceildiv(run, self.group)
                along = var(self.inner)
            at = (*lead, first + along // self.group, n % columns, along % self.group)
        panel = Load(packed, tuple(as_expr(i) for i in at))
        return Binary("mul", self.a_side.cast(self.sums), panel.cast(self.sums))

    def columns(self, packed: Input) -> int:
        """The width of a panel."""
        return packed.dims[-1 if self.group == 1 else -2].value


def pack_contractions(
    s: Stages,
    orders: dict[str, Order],
    gaps: dict[str, Gap],
    columns: int,
    factors: Sequence[Factors],
    fixed: Collection[str] = (),
) -> dict[str, Plan]:
    """Add packing stages and rewrite the contractions; the plan of each, by stage name. `factors`
    are the types that the target multiplies, preferred ones first, usually by panels of so many
    `columns`. `gaps` gets those of values whose rows had better not lie where they are, but of none
    whose place is `fixed`."""
    plans: dict[str, Plan] = {}
    stages: dict[str, Stage] = {}
    made: dict[Compute, str] = {}
    constants = constant_values(s)
    compact = {*compact_values(s, constants), *fixed}
    strides = partial(_strides, orders, gaps)
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and stage.note("plan") is not None:
            plans[name] = _plan_before(tensor, stage)
        elif isinstance(tensor, Compute) and classify(tensor) == "contraction":
            place = partial(
                placed_contraction, tensor, constants, orders[name], strides, s.facts,
                columns,
            )  # fmt: skip
            c, kind, plan = _planned(tensor, place, factors)
            width = columns
            if c.b.source.name in constants:
                width, plan = _fitted(tensor, c, kind, plan, columns)
            collide = None if plan.gather else rows_collide(c, kind, strides, s.facts)
            if collide is not None and not collide.is_const:
                plan = replace(plan, collide=collide)
            elif collide is not None:
                (depth,) = (a.extent for a in tensor.reduce_axes if a.var == plan.inner)
                gap = gap_for(c, depth, s, orders, {*compact, *gaps})
                if gap is None:
                    plan = replace(plan, gather=True)
                else:
                    gaps[c.a.source.name] = gap
            panel = _panel(tensor, c, plan, s.facts, width)
            packed = made.get(panel)
            if packed is None:
                added = s.added(f"{name}.packed", panel, "pack", stage.spans)
                packed = made[panel] = added.name
                stages[packed] = added
                orders[packed] = tuple(range(len(panel.axes)))
            plans[name] = replace(plan, packed=packed)
            tensor = _rewritten(tensor, plans[name], s.types[packed], width)
            stage = replace(stage, tensor=tensor)
        stages[name] = stage
    s.stages = stages
    return plans


def _planned(
    tensor: Compute,
    place: Callable[[Sequence[Factors]], tuple[Contraction, Factors]],
    factors: Sequence[Factors],
) -> tuple[Contraction, Factors, Plan]:
    """A contraction and how it is run, with the best types of factors."""
    c, kind = place(factors)
    c = _guarded(c, tensor)
    *positions, inner = c.k
    plan = Plan(
        c.batch, c.m, c.n, tuple(positions), inner, c.a_side, "", _is_gathered(tensor, c),
        kind.group, tensor.dtype,
    )  # fmt: skip
    return c, kind, plan


def _fitted(
    tensor: Compute, c: Contraction, kind: Factors, plan: Plan, columns: int
) -> tuple[int, Plan]:
    """The width of the panels of a weight, and the plan with the groups that it takes."""
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    run, words = replace(plan, group=1).row(extents)
    sizes = (product([extents[v] for v in c.n]), words, run)
    if not all(x.is_const and x.value > 0 for x in sizes):
        return columns, plan
    n, total, each = (x.value for x in sizes)
    width, group = panel_width(kind, columns, n, total // each, each)
    return width, replace(plan, group=group)


def plan_notes(plan: Plan) -> tuple[tuple[str, Any], ...]:
    """What is decided, beside what the rewritten contraction says itself."""
    axes = (plan.batch, plan.m, plan.n, plan.positions, plan.inner)
    notes = ("plan", axes), ("gather", plan.gather), ("group", plan.group)
    return notes if plan.collide is None else (*notes, ("collide", plan.collide))


def _plan_before(tensor: Compute, stage: Stage) -> Plan:
    """The plan of a contraction that is packed already."""
    body = tensor.body
    assert isinstance(body, Reduce) and isinstance(body.body, Binary)
    a_side, b_side = body.body.a, body.body.b
    if isinstance(b_side, Cast):
        assert isinstance(a_side, Cast)
        a_side, b_side = a_side.a, b_side.a
    assert isinstance(b_side, Load)
    batch, m, n, positions, inner = stage.note("plan")
    packed, gather, group = b_side.source.name, stage.note("gather"), stage.note("group")
    return Plan(
        batch, m, n, positions, inner, a_side, packed, gather, group, tensor.dtype,
        stage.note("collide"),
    )  # fmt: skip


def inline_into_packs(s: Stages) -> None:
    """Maps that only a packing stage reads are computed while packing."""
    readers = readers_of(s)
    for name, stage in list(s.stages.items()):
        if stage.op != "pack" or not isinstance(stage.tensor, Compute):
            continue
        for source in stage.inputs:
            producer = s.stages.get(source)
            alone = readers[source] == [name] and source not in s.results
            if producer is None or not alone or not isinstance(producer.tensor, Compute):
                continue
            if classify(producer.tensor) == "map":
                panel = s.stages[name].tensor
                assert isinstance(panel, Compute)
                tensor = simplify_indices(through(panel, {source: producer.tensor}), s.facts)
                s.stages[name] = Stage(name, tensor, "pack", stage.spans + producer.spans)
    remove_dead(s)


def _guarded(c: Contraction, tensor: Compute) -> Contraction:
    """Where only so many elements of an axis exist, rows of zeros stand for the others."""
    body = tensor.body
    if not c.bounds:
        return c
    assert isinstance(body, Reduce) and isinstance(body.body, Select)
    side, cond = c.a_side, body.body.cond
    if isinstance(side, Select) and side.b is const(0, side.dtype):
        both = Select(Binary("and", cond, side.cond), side.a, side.b)
    else:
        both = Select(cond, side, const(0, side.dtype))
    return replace(c, a_side=both)


def _panel(tensor: Compute, c: Contraction, plan: Plan, facts: Facts, columns: int) -> Compute:
    """The packing stage."""
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    total_n = product([extents[v] for v in c.n])
    batch = [extents[v] for v in c.batch]
    shape = plan.panel_shape(extents, columns)

    def element(*at: Int) -> Expr:
        b, (block, word, j, *rest) = at[: len(batch)], at[len(batch) :]
        along, run, k = plan.reduced_at(extents, word, rest[0] if rest else as_int(0))
        column = block * columns + j
        where = dict(zip(c.batch, b, strict=True))
        bounds = {name: count.subs(where) for name, count in c.bounds}
        where |= unflatten(column, c.n, extents) | unflatten(k, c.k, extents)
        value: Expr = substitute(c.b_side, where)
        if bounds:
            exist = [Binary("lt", Index(where[n]), Index(count)) for n, count in bounds.items()]
            value = Select(all_of(exist), value, const(0, value.dtype))
        inside = list[Expr]()
        if not (total_n.is_const and total_n.value % columns == 0):
            inside.append(Binary("lt", Index(column), Index(total_n)))
        if not facts.divisible(run, plan.group):
            inside.append(Binary("lt", Index(along), Index(run)))
        return Select(all_of(inside), value, const(0, value.dtype)) if inside else value

    return simplify_indices(compute(shape, element), facts)


def _is_gathered(tensor: Compute, c: Contraction) -> bool:
    """Whether rows of a are copied together: they do not lie element after element, or only in
    short runs."""
    (extent,) = (a.extent for a in tensor.reduce_axes if a.var == c.k[-1])
    short = extent.is_const and extent.value < MIN_INNER and len(c.k) > 1
    return not c.in_place or short


def _strides(
    orders: Mapping[str, Order], gaps: Mapping[str, Gap], source: Tensor
) -> tuple[Int, ...]:
    return strides_in(source.name, source.shape, orders, gaps)


def _rewritten(tensor: Compute, plan: Plan, packed: Input, columns: int) -> Compute:
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    body = tensor.body
    assert isinstance(body, Reduce)
    value = plan.panel_product(packed, extents, columns)
    return tensor.replace(body=Reduce("sum", body.axes, value))


def flatten(names: tuple[str, ...], extents: Mapping[str, Int]) -> Int:
    """The row-major position of iterators taken together."""
    total = as_int(0)
    for name in names:
        total = total * extents[name] + var(name)
    return total


def unflatten(at: Int, names: tuple[str, ...], extents: Mapping[str, Int]) -> dict[str, Int]:
    """The iterators at a row-major position."""
    out: dict[str, Int] = {}
    for k, name in reversed(list(enumerate(names))):
        extent = divisor(extents[name])
        out[name] = at if k == 0 else at % extent
        at = at // extent
    return out


def divisor(extent: Int) -> Int:
    """An extent to divide by: of nothing there are no positions, so any divisor will do."""
    return as_int(1) if extent.is_const and extent.value == 0 else extent


def product(extents: list[Int] | tuple[Int, ...]) -> Int:
    total = as_int(1)
    for e in extents:
        total = total * e
    return total
