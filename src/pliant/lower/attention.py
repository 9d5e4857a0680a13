"""Two products with rows between them: attention, by whatever name.

    s[b, i, j] = sum over d of q[b, i, d] * k[b, j, d]
    x[b, i, j] = f(s[b, i, j], …)                         scale, mask, bias: any maps
    m[b, i]    = max over j of x[b, i, j]                 any maps and reductions of rows
    e[b, i, j] = exp(x[b, i, j] - m[b, i])
    l[b, i]    = sum over j of e[b, i, j]
    o[b, i, n] = sum over j of e[b, i, j] * v[b, j, n]

What lies between the products has as many elements as there are pairs of rows, and nobody else wants
it. In a kernel of its own a block of rows at a time is computed, used and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pliant.ir.expr import Binary, Cast, Expr, Index, Load, Reduce
from pliant.ir.tensor import Compute, own_nodes
from pliant.lower.access import classify, is_identity
from pliant.lower.pack import Plan
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import Int, var


@dataclass(frozen=True)
class Attention:
    """Stages that can be one kernel: the first product, what is between, the last product.

    `rows` are the dimensions of what lies between that are rows, as axes of the last product;
    `column` is the one that it sums over.
    """

    members: tuple[str, ...]
    rows: tuple[str, ...]
    column: int


class NoAttention(Exception):
    """Why a product of what comes of another product is no attention."""


def find_attention(s: Stages, plans: Mapping[str, Plan]) -> Iterator[tuple[str, Attention | str]]:
    """For each packed product, by name, of what depends on another's rows: what can share a kernel
    with it, or why that is not possible."""
    readers: dict[str, list[str]] = {}
    for name, stage in s.stages.items():
        for source in stage.inputs:
            readers.setdefault(source, []).append(name)
    for name in s.stages:
        if name not in plans:
            continue
        first = _first_product(s, plans, name)
        if first:
            try:
                yield name, _check(s, plans, readers, first, name)
            except NoAttention as reason:
                yield name, str(reason)


def _first_product(s: Stages, plans: Mapping[str, Plan], last: str) -> str:
    """The product whose rows the first operand of another is made of by maps and reductions of
    these rows; empty where there is none."""
    operand = _operand(plans[last])
    if operand is None or operand.source.name not in s.stages:
        return ""
    shape = operand.source.shape
    reduces, seen, todo = False, set[str](), [operand.source.name]
    found = list[str]()
    while todo:
        name = todo.pop()
        stage = s.stages.get(name)
        if stage is None or name in seen or not isinstance(stage.tensor, Compute):
            continue
        seen.add(name)
        if stage.tensor.shape not in (shape, shape[:-1]):
            continue
        kind = classify(stage.tensor)
        if name in plans:
            found.append(name)
        elif kind in ("map", "copy", "reduction"):
            reduces |= kind == "reduction"
            todo += stage.inputs
    return found[0] if len(found) == 1 and reduces else ""


def _operand(plan: Plan) -> Load | None:
    """The first operand, if it is a value as it is, or converted."""
    side: Expr = plan.a_side
    if isinstance(side, Cast):
        side = side.a
    return side if isinstance(side, Load) else None


def _check(
    s: Stages, plans: Mapping[str, Plan], readers: Mapping[str, list[str]], first: str, last: str
) -> Attention:
    one, two = plans[first], plans[last]
    scores, product = s.stages[first].tensor, s.stages[last].tensor
    operand = _operand(two)
    assert operand is not None
    assert isinstance(scores, Compute) and isinstance(product, Compute)
    axes = [a.var for a in scores.axes]
    names = [_bare(i) for i in operand.indices]
    if len(one.n) != 1 or len(one.m) != 1 or len(two.m) != 1 or len(two.n) != 1:
        raise NoAttention("rows or columns have several dimensions")
    if two.positions or two.inner not in names:
        raise NoAttention("the second product sums over more than the columns of the first")
    column = axes.index(one.n[0])
    if names.index(two.inner) != column:
        raise NoAttention("the second product sums over rows of the first")
    rows = [n for d, n in enumerate(names) if d != column]
    along = {axes[d]: n for d, n in enumerate(names)}
    if along[one.m[0]] != two.m[0] or sorted(map(str, rows)) != sorted([*two.batch, *two.m]):
        raise NoAttention("the products have other rows")
    if [along[b] for b in one.batch] != list(two.batch):
        raise NoAttention("the products are batched in other ways")
    if one.group != 1 or two.group != 1:
        raise NoAttention("factors are multiplied in groups")
    members = _between(s, readers, scores, column, first, last)
    return Attention((first, *members, last), tuple(map(str, rows)), column)


def _between(
    s: Stages,
    readers: Mapping[str, list[str]],
    scores: Compute,
    column: int,
    first: str,
    last: str,
) -> list[str]:
    """The stages between the products: everything that depends on the first and does not come
    after the second."""
    shape = scores.shape
    of_rows = tuple(x for d, x in enumerate(shape) if d != column)
    inside: dict[str, bool] = {first: True}  # whether it has columns
    order = list(s.stages)
    until = order.index(last)
    for name in order[order.index(first) + 1 : until]:
        stage = s.stages[name]
        if not any(i in inside for i in stage.inputs):
            continue
        inside[name] = _belongs(stage, inside, shape, of_rows, column)
    place = {name: k for k, name in enumerate(order)}
    for name, wide in inside.items():
        if name in s.results:
            raise NoAttention(f"{name} is a result")
        outside = [r for r in readers.get(name, ()) if r not in inside and r != last]
        if wide and outside:
            raise NoAttention(f"{outside[0]} reads {name} too")
        if any(place[r] < until for r in outside):
            raise NoAttention(f"{outside[0]} comes between")
    return [n for n in inside if n != first]


def _belongs(
    stage: Stage,
    inside: Mapping[str, bool],
    shape: tuple[Int, ...],
    of_rows: tuple[Int, ...],
    column: int,
) -> bool:
    """Whether a stage that reads such values has columns; it must keep to its rows."""
    tensor = stage.tensor
    kind = classify(tensor)
    if not isinstance(tensor, Compute) or kind not in ("map", "copy", "reduction"):
        raise NoAttention(f"{stage.name} is a {kind}")
    own = [a.var for a in tensor.axes]
    if tensor.reduce_axes:
        body = tensor.body
        if len(tensor.reduce_axes) != 1 or tensor.shape != of_rows:
            raise NoAttention(f"{stage.name} is no reduction of rows")
        assert isinstance(body, Reduce)
        if body.combiner in ("argmax", "argmin", "any", "all"):
            raise NoAttention(f"{stage.name} is an {body.combiner}")
        wide, own = False, [*own[:column], tensor.reduce_axes[0].var, *own[column:]]
    elif tensor.shape == shape:
        wide = True
    elif tensor.shape == of_rows:
        wide, own = False, [*own[:column], "", *own[column:]]
    else:
        raise NoAttention(f"{stage.name} has neither a value for each row nor the whole shape")
    rows = [n for d, n in enumerate(own) if d != column]
    for load in own_nodes(tensor.body):
        if isinstance(load, Load) and load.source.name in inside:
            at = [_bare(i) for i in load.indices]
            if at != (own if inside[load.source.name] else rows):
                raise NoAttention(f"{stage.name} reads {load.source.name} elsewhere than it writes")
    return wide


def _bare(index: object) -> str | None:
    if isinstance(index, Index) and len(index.int_.names) == 1:
        (name,) = index.int_.names
        if index.int_ is var(name):
            return name
    return None
