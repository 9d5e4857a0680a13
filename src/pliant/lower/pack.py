"""Contractions get their second operand packed, by a stage of its own.

    y[i, j] = sum_k x[i, k] * w[k, j]
 ->
    p[J, k, c] = w[k, J*32 + c]  (0 beyond the edge)
    y[i, j] = sum_k x[i, k] * p[j // 32, k, j % 32]

Packing a weight happens once, when the model is compiled; packing a value is a kernel like others.
Reduction axes are flattened with the axis that is contiguous in the first operand innermost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pliant.ir.expr import (
    Binary,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    as_expr,
    const,
    substitute,
)
from pliant.ir.tensor import Compute, Input, Tensor, all_of, compute
from pliant.lower.access import classify
from pliant.lower.constants import constant_values
from pliant.lower.contraction import (
    COLS,
    DEPTH,
    POSITIONS,
    ROWS,
    Contraction,
    placed_contraction,
)
from pliant.lower.inline_copies import simplify_indices, through
from pliant.lower.layout import Order, strides_of
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.expr import Int, as_int, ceildiv, var
from pliant.sym.facts import Facts

MIN_INNER = 8  # shorter contiguous runs of the first operand are gathered into a tile first


@dataclass(frozen=True)
class Plan:
    """How a packed contraction is run.

    `positions` then `inner` are the reduction axes in the order of the panel's rows. With `gather`
    the first operand is evaluated into a dense tile; else it is read in place, row by row.
    """

    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    positions: tuple[str, ...]
    inner: str
    a_side: Expr
    packed: str
    gather: bool

    def groups(self, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Which axes, by other `names`, run as which iterators of `contraction.tile_product`."""
        axes = {ROWS: self.m, COLS: self.n, POSITIONS: self.positions, DEPTH: (self.inner,)}
        return {x: tuple(names[v] for v in group) for x, group in axes.items()}

    def panel_shape(self, extents: Mapping[str, Int], columns: int) -> tuple[Int, ...]:
        """The shape of the packed operand, for these extents of the axes."""
        total_n = product([extents[v] for v in self.n])
        depth = product([extents[v] for v in (*self.positions, self.inner)])
        batch = (extents[v] for v in self.batch)
        return (*batch, ceildiv(total_n, columns), depth, as_int(columns))

    def panel_product(self, packed: Input, extents: Mapping[str, Int], columns: int) -> Expr:
        """What is summed: the first operand times an element of the packed one."""
        n = flatten(self.n, extents)
        k = flatten((*self.positions, self.inner), extents)
        at = (*(var(b) for b in self.batch), n // columns, k, n % columns)
        return Binary("mul", self.a_side, Load(packed, tuple(as_expr(i) for i in at)))


def pack_contractions(s: Stages, orders: dict[str, Order], columns: int) -> dict[str, Plan]:
    """Add packing stages and rewrite the contractions; the plan of each, by stage name."""
    plans: dict[str, Plan] = {}
    stages: dict[str, Stage] = {}
    made: dict[Compute, str] = {}
    constants = constant_values(s)
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and stage.note("plan") is not None:
            plans[name] = _plan_before(tensor, stage)
        elif isinstance(tensor, Compute) and classify(tensor) == "contraction":
            c = placed_contraction(
                tensor, constants, orders[name], partial(_strides, orders), s.facts, columns
            )
            c = _guarded(c, tensor)
            panel, gather = _panel(tensor, c, s.facts, columns), _is_gathered(tensor, c)
            packed = made.get(panel)
            if packed is None:
                packed = made[panel] = s.fresh(f"{name}.packed")
                stages[packed] = Stage(packed, panel, "pack", stage.spans)
                s.types[packed] = Input(packed, panel.dtype, panel.shape)
                orders[packed] = tuple(range(len(panel.axes)))
            *positions, inner = c.k
            plans[name] = Plan(c.batch, c.m, c.n, tuple(positions), inner, c.a_side, packed, gather)
            tensor = _rewritten(tensor, plans[name], s.types[packed], columns)
            stage = replace(stage, tensor=tensor)
        stages[name] = stage
    s.stages = stages
    return plans


def plan_notes(plan: Plan) -> tuple[tuple[str, Any], ...]:
    """What is decided, beside what the rewritten contraction says itself."""
    axes = (plan.batch, plan.m, plan.n, plan.positions, plan.inner)
    return ("plan", axes), ("gather", plan.gather)


def _plan_before(tensor: Compute, stage: Stage) -> Plan:
    """The plan of a contraction that is packed already."""
    body = tensor.body
    assert isinstance(body, Reduce) and isinstance(body.body, Binary)
    a_side, b_side = body.body.a, body.body.b
    assert isinstance(b_side, Load)
    batch, m, n, positions, inner = stage.note("plan")
    packed, gather = b_side.source.name, stage.note("gather")
    return Plan(batch, m, n, positions, inner, a_side, packed, gather)


def inline_into_packs(s: Stages) -> None:
    """Maps that only a packing stage reads are computed while packing."""
    readers: dict[str, list[str]] = {}
    for name, stage in s.stages.items():
        for source in stage.inputs:
            readers.setdefault(source, []).append(name)
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
    if isinstance(side, Select) and side.b is const(0.0, side.dtype):
        both = Select(Binary("and", cond, side.cond), side.a, side.b)
    else:
        both = Select(cond, side, const(0.0, side.dtype))
    return replace(c, a_side=both)


def _panel(tensor: Compute, c: Contraction, facts: Facts, columns: int) -> Compute:
    """The packing stage."""
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    total_n = product([extents[v] for v in c.n])
    batch = [extents[v] for v in c.batch]
    depth = product([extents[v] for v in c.k])
    shape = (*batch, ceildiv(total_n, columns), depth, as_int(columns))

    def element(*at: Int) -> Expr:
        b, (block, k, j) = at[: len(batch)], at[len(batch) :]
        column = block * columns + j
        where = dict(zip(c.batch, b, strict=True))
        bounds = {name: count.subs(where) for name, count in c.bounds}
        where |= unflatten(column, c.n, extents) | unflatten(k, c.k, extents)
        value: Expr = substitute(c.b_side, where)
        if bounds:
            exist = [Binary("lt", Index(where[n]), Index(count)) for n, count in bounds.items()]
            value = Select(all_of(exist), value, const(0.0, value.dtype))
        if total_n.is_const and total_n.value % columns == 0:
            return value
        inside = Binary("lt", Index(column), Index(total_n))
        return Select(inside, value, const(0.0, value.dtype))

    return simplify_indices(compute(shape, element), facts)


def _is_gathered(tensor: Compute, c: Contraction) -> bool:
    """Whether rows of a are copied together: they do not lie element after element, or only in
    short runs."""
    (extent,) = (a.extent for a in tensor.reduce_axes if a.var == c.k[-1])
    short = extent.is_const and extent.value < MIN_INNER and len(c.k) > 1
    return not c.in_place or short


def _strides(orders: Mapping[str, Order], source: Tensor) -> tuple[Int, ...]:
    return strides_of(source.shape, orders.get(source.name, tuple(range(len(source.shape)))))


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
