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
from typing import Any

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
    substitute,
)
from pliant.ir.node import transform
from pliant.ir.tensor import Compute, Input, compute
from pliant.lower.access import Contraction, classify, contraction
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


def pack_contractions(s: Stages, orders: dict[str, Order], columns: int) -> dict[str, Plan]:
    """Add packing stages and rewrite the contractions; the plan of each, by stage name."""
    plans: dict[str, Plan] = {}
    stages: dict[str, Stage] = {}
    made: dict[Compute, str] = {}
    for name, stage in s.stages.items():
        tensor = stage.tensor
        if isinstance(tensor, Compute) and stage.note("plan") is not None:
            plans[name] = _plan_before(tensor, stage)
        elif isinstance(tensor, Compute) and classify(tensor) == "contraction":
            c = contraction(tensor)
            assert c is not None
            c = _ordered(c, tensor, orders.get(name))
            panel, inner, gather = _panel(tensor, c, orders, s.facts, columns)
            packed = made.get(panel)
            if packed is None:
                packed = made[panel] = s.fresh(f"{name}.packed")
                stages[packed] = Stage(packed, panel, "pack", stage.spans)
                s.types[packed] = Input(packed, panel.dtype, panel.shape)
                orders[packed] = tuple(range(len(panel.axes)))
            positions = tuple(k for k in c.k if k != inner)
            plans[name] = Plan(c.batch, c.m, c.n, positions, inner, c.a_side, packed, gather)
            tensor = _rewritten(tensor, c, plans[name], s.types[packed], columns)
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


def _ordered(c: Contraction, tensor: Compute, order: Order | None) -> Contraction:
    """Axes in the order in which the output lies in memory."""
    if order is None:
        return c
    place = {tensor.axes[d].var: k for k, d in enumerate(order)}

    def by(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(names, key=place.__getitem__))

    return Contraction(by(c.batch), by(c.m), by(c.n), c.k, c.a, c.b, c.a_side, c.b_side)


def _panel(
    tensor: Compute, c: Contraction, orders: Mapping[str, Order], facts: Facts, columns: int
) -> tuple[Compute, str, bool]:
    """The packing stage, the innermost reduction axis, and whether a needs gathering."""
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    inner, gather = _inner_axis(c, extents, orders, facts)
    k_axes = [k for k in c.k if k != inner] + [inner]
    total_n = product([extents[v] for v in c.n])
    batch = [extents[v] for v in c.batch]
    depth = product([extents[v] for v in k_axes])
    shape = (*batch, ceildiv(total_n, columns), depth, as_int(columns))

    def element(*at: Int) -> Expr:
        b, (block, k, j) = at[: len(batch)], at[len(batch) :]
        column = block * columns + j
        where = dict(zip(c.batch, b, strict=True))
        where |= unflatten(column, c.n, extents) | unflatten(k, tuple(k_axes), extents)
        value: Expr = substitute(c.b_side, where)
        if total_n.is_const and total_n.value % columns == 0:
            return value
        inside = Binary("lt", Index(column), Index(total_n))
        return Select(inside, value, const(0.0, value.dtype))

    return simplify_indices(compute(shape, element), facts), inner, gather


def _inner_axis(
    c: Contraction, extents: Mapping[str, Int], orders: Mapping[str, Order], facts: Facts
) -> tuple[str, bool]:
    """The reduction axis along which rows of a are contiguous, and whether to gather anyway."""
    if not isinstance(_bare(c.a_side), Load) or not all(isinstance(i, Index) for i in c.a.indices):
        return c.k[-1], True
    source = c.a.source
    order = orders.get(source.name, tuple(range(len(source.shape))))
    offset = as_int(0)
    for index, stride in zip(c.a.indices, strides_of(source.shape, order), strict=True):
        assert isinstance(index, Index)
        offset = offset + index.int_ * stride
    offset = _simplified(offset, extents, facts)
    for k in reversed(c.k):
        split = offset.linear(k)
        if split is None or split[0] != 1:
            continue
        if isinstance(c.a_side, Select) and _mentions(c.a_side.cond, k):
            continue
        extent = extents[k]
        short = extent.is_const and extent.value < MIN_INNER and len(c.k) > 1
        return k, short or isinstance(c.a_side, Cast) or _odd_select(c.a_side)
    return c.k[-1], True


def _simplified(offset: Int, extents: Mapping[str, Int], facts: Facts) -> Int:
    local = facts.copy()
    for name, extent in extents.items():
        local.declare_index(name, extent)
    return local.simplify(offset)


def _bare(side: Expr) -> Expr:
    """The load behind a padding select."""
    return side.a if isinstance(side, Select) else side


def _odd_select(side: Expr) -> bool:
    """A select whose other branch is not zero cannot be a row of zeros."""
    return isinstance(side, Select) and side.b is not const(0.0, side.dtype)


def _mentions(cond: Expr, name: str) -> bool:
    found = False

    def visit(node: object) -> object:
        nonlocal found
        if isinstance(node, Index) and name in node.int_.names:
            found = True
        return node

    transform(cond, visit)
    return found


def _rewritten(tensor: Compute, c: Contraction, plan: Plan, packed: Input, columns: int) -> Compute:
    extents = {a.var: a.extent for a in (*tensor.axes, *tensor.reduce_axes)}
    n = flatten(plan.n, extents)
    k = flatten((*plan.positions, plan.inner), extents)
    at = (*(var(b) for b in plan.batch), n // columns, k, n % columns)
    body = tensor.body
    assert isinstance(body, Reduce)
    product_ = Binary("mul", c.a_side, Load(packed, tuple(as_expr(i) for i in at)))
    return tensor.replace(body=Reduce("sum", body.axes, product_))


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
