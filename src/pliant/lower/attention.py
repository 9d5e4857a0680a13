"""Two products with rows between them: attention, by whatever name.

    s[b, i, j] = sum over d of q[b, i, d] * k[b, j, d]
    x[b, i, j] = f(s[b, i, j], …)                         scale, mask, bias: any maps
    m[b, i]    = max over j of x[b, i, j]                 any maps and reductions of rows
    e[b, i, j] = exp(x[b, i, j] - m[b, i])
    l[b, i]    = sum over j of e[b, i, j]
    o[b, i, n] = sum over j of e[b, i, j] * v[b, j, n]

What lies between the products has an element for each pair of rows, and nobody else wants it. In a
kernel of its own a block of rows is computed, used and forgotten. (Where the second operands are
weights, rows are as long as a layer is wide, whatever the sizes: those products stay apart.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pliant.base.dtypes import DType
from pliant.ir.expr import Expr, Load, Reduce
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import DEAR, ROW_COMBINERS, bare_name, classify, cost_of
from pliant.lower.pack import Plan
from pliant.lower.stages import Stage, Stages, readers_of
from pliant.sym.expr import Int

FEW: Final = 32  # elements of rows that fit into registers: nothing is gained by keeping them near


@dataclass(frozen=True)
class Attention:
    """Stages that can be one kernel: the first product, what is between, the last product.

    `rows` are the dimensions of what lies between that are rows, as axes of the last product.
    """

    members: tuple[str, ...]
    rows: tuple[str, ...]


class _ApartError(Exception):
    """Why two products cannot share a kernel."""


def find_attention(s: Stages, plans: Mapping[str, Plan]) -> Iterator[tuple[str, Attention | str]]:
    """For each packed product, by name, whose rows are made of another's: what can share a kernel
    with it, or why that is not possible."""
    readers = readers_of(s)
    # What is packed of weights is no stage here: it was when the model was compiled.
    products = [n for n in s.stages if n in plans and plans[n].packed in s.stages]
    for last in products:
        first = _first_product(s, plans, products, last)
        if first:
            try:
                yield last, _attention(s, plans, readers, first, last)
            except _ApartError as reason:
                yield last, str(reason)


def _first_product(s: Stages, plans: Mapping[str, Plan], products: list[str], last: str) -> str:
    """The product of whose rows, by maps and reductions, the first operand of another is made;
    empty where there is none."""
    operand = operand_of(plans[last])
    if operand is None:
        return ""
    rank = len(operand.indices)
    seen, todo = set[str](), [operand.source.name]
    found = list[str]()
    while todo:
        name = todo.pop()
        stage = s.stages.get(name)
        if name in seen or stage is None or len(stage.tensor.shape) not in (rank, rank - 1):
            continue
        seen.add(name)
        if name in products:
            found.append(name)
        elif classify(stage.tensor) in ("map", "copy", "reduction"):
            todo += stage.inputs
    return found[0] if len(found) == 1 else ""


def operand_of(plan: Plan) -> Load | None:
    """The first operand of a product, if it is a value as it is."""
    side: Expr = plan.a_side
    return side if isinstance(side, Load) else None


def _attention(
    s: Stages, plans: Mapping[str, Plan], readers: Mapping[str, list[str]], first: str, last: str
) -> Attention:
    one, two = plans[first], plans[last]
    scores, operand = s.stages[first].tensor, operand_of(two)
    assert operand is not None and isinstance(scores, Compute)
    if _factors(s, one) != _factors(s, two):
        raise _ApartError("the products have factors of other types, or other panels")
    if max(len(one.n), len(two.n)) > 1 or two.positions:
        raise _ApartError("columns have several dimensions")
    if not (one.m and one.n and two.m and two.n):
        raise _ApartError("there is but one row or column")
    if one.gather and not isinstance(one.a_side, Load):
        raise _ApartError("the rows of its first operand are made when they are copied")
    keys = next(a.extent for a in scores.axes if a.var == one.n[0])
    if keys.is_const and keys.value < FEW:
        raise _ApartError(f"rows between them have {keys} elements")
    axes = [a.var for a in scores.axes]
    names = [bare_name(i) or "" for i in operand.indices]
    column = axes.index(one.n[0])
    if operand.source.shape != scores.shape or names[column] != two.inner:
        raise _ApartError("the second product does not sum over columns of the first")
    there = dict(zip(axes, names, strict=True))
    # Of the dimensions of a batch any order will do: each of its products is a task of its own.
    if [there[x] for x in one.m] != [*two.m] or {there[x] for x in one.batch} != {*two.batch}:
        raise _ApartError("the products have other rows")
    between = _between(s, readers, column, first, last)
    _check_kept(s, between, scores.shape, operand.source.name)
    rows = tuple(n for d, n in enumerate(names) if d != column)
    return Attention((first, *between, last), rows)


def _factors(s: Stages, plan: Plan) -> tuple[DType, DType, int, int]:
    """What a product multiplies: one micro-kernel serves both."""
    packed = s.types[plan.packed]
    return plan.a_side.dtype, packed.dtype, plan.group, plan.columns(packed)


def _between(
    s: Stages, readers: Mapping[str, list[str]], column: int, first: str, last: str
) -> list[str]:
    """The stages between the products: all that depends on the first and comes before the last."""
    shape = s.types[first].dims
    place = {name: k for k, name in enumerate(s.stages)}
    inside: dict[str, bool] = {first: True}  # whether it has columns
    for name, stage in s.stages.items():
        if place[first] < place[name] < place[last] and not inside.keys().isdisjoint(stage.inputs):
            inside[name] = _has_columns(stage, inside, shape, column)
    for name, wide in inside.items():
        outside = [r for r in readers.get(name, ()) if r not in inside and r != last]
        if wide and outside:
            raise _ApartError(f"{outside[0]} reads {name} too")
        if name in s.results:
            raise _ApartError(f"{name} is a result")
    return [n for n in inside if n != first]


def _check_kept(s: Stages, between: list[str], shape: tuple[Int, ...], weights: str) -> None:
    """Of what has columns and needs its row's reductions, only the last product's operand is kept,
    and what it is made of where that has another type, in the place of the scores; the rest is
    computed where it is read, which must be cheap."""
    kept = {weights}
    late = set[str]()
    read = [x for name in between for x in s.stages[name].inputs]
    for name in between:
        tensor = s.stages[name].tensor
        assert isinstance(tensor, Compute)
        if not tensor.reduce_axes and late.isdisjoint(s.stages[name].inputs):
            continue
        late.add(name)
        wide = not tensor.reduce_axes and tensor.shape == shape
        if wide and name != weights and read.count(name) > 1 and cost_of(tensor.body) >= DEAR:
            if len(kept) > 1 or tensor.dtype is s.types[weights].dtype:
                raise _ApartError(f"{name} between them would have to be kept too")
            kept.add(name)


def _has_columns(
    stage: Stage, inside: Mapping[str, bool], shape: tuple[Int, ...], column: int
) -> bool:
    """Whether a stage that reads values `inside` has columns, or a value for each row; it keeps to
    its own row, and place in it."""
    tensor, kind = stage.tensor, classify(stage.tensor)
    if not isinstance(tensor, Compute) or kind not in ("map", "copy", "reduction"):
        raise _ApartError(f"{stage.name} between them is a {kind}")
    of_rows = (*shape[:column], *shape[column + 1 :])
    if tensor.shape != (of_rows if tensor.reduce_axes else shape) and tensor.shape != of_rows:
        raise _ApartError(f"{stage.name} between them has another shape")
    wide = tensor.shape == shape and not tensor.reduce_axes
    rows = [a.var for a in tensor.axes]
    if isinstance(tensor.body, Reduce):
        if len(tensor.reduce_axes) > 1 or tensor.body.combiner not in ROW_COMBINERS:
            raise _ApartError(f"{stage.name} between them is another reduction than rows have")
        here = [*rows[:column], tensor.reduce_axes[0].var, *rows[column:]]
    else:
        here = rows
        rows = rows[:column] + rows[column + wide :]
    for load in own_nodes(tensor.body):
        if isinstance(load, Load) and load.source.name in inside:
            at = [bare_name(i) for i in load.indices]
            if at != (here if inside[load.source.name] else rows):
                raise _ApartError(
                    f"{stage.name} between them reads {load.source.name} at other places"
                )
    return wide
