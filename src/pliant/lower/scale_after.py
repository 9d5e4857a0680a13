"""A factor of each row of a product's first operand leaves the sum.

    p[i, k] = e[i, k] * r[i]                        t[i, j] = sum_k e[i, k] * v[k, j]
    y[i, j] = sum_k p[i, k] * v[k, j]      ->       y[i, j] = t[i, j] * r[i]

Rows that are scaled by what was reduced of them (softmax) need not be run through once more: there
are fewer products than terms of theirs. The same holds of a divisor, and of a choice of a whole row
or zeros (`where(r[i], e[i, k], 0)`: softmax of rows that a mask may hide whole).
"""

from __future__ import annotations

from dataclasses import replace

from pliant.ir.einsum import names_in
from pliant.ir.expr import Binary, Const, Expr, Index, Load, Reduce, Select, const, substitute
from pliant.ir.node import transform
from pliant.ir.tensor import Compute, Input, all_of
from pliant.lower.access import classify, is_identity
from pliant.lower.layout import Order
from pliant.lower.stages import Stage, Stages, remove_dead
from pliant.sym.expr import as_int, var


def scale_after(s: Stages, orders: dict[str, Order]) -> None:
    """Rewrite in place: products of what nobody else reads, both of the same type. A sum that is
    scaled afterwards lies as the result does."""
    readers: dict[str, int] = {}
    for stage in s.stages.values():
        for source in stage.inputs:
            readers[source] = readers.get(source, 0) + 1
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        after: list[Stage] = []
        while (found := _scaled_operand(s, stage)) and readers[found[0].source.name] == 1:
            inner, outer = _apart(s, name, stage, *found)
            orders[inner.name] = orders[name]
            after.append(outer)
            stage = inner
        stages |= {x.name: x for x in (stage, *reversed(after))}
    s.stages = stages
    remove_dead(s)


def _scaled_operand(s: Stages, stage: Stage) -> tuple[Load, Load, Binary | Select] | None:
    """The load of a scaled value in a product, the load of what is scaled in terms of the product,
    and the scaled value with its own operands in terms of the product."""
    tensor = stage.tensor
    if not isinstance(tensor, Compute) or stage.notes or not tensor.dtype.is_float:
        return None
    if not isinstance(tensor.body, Reduce) or classify(tensor) != "contraction":
        return None
    product = tensor.body.body
    if not (isinstance(product, Binary) and product.op == "mul"):
        return None
    for side in (product.a, product.b):
        found = _scaled(s, side, {a.var for a in tensor.reduce_axes})
        if found is not None and found[0].dtype is tensor.dtype:
            return found
    return None


def _scaled(s: Stages, side: Expr, reduced: set[str]) -> tuple[Load, Load, Binary | Select] | None:
    if not isinstance(side, Load) or not all(isinstance(i, Index) for i in side.indices):
        return None
    made = s.stages.get(side.source.name)
    if made is None or made.name in s.results or not isinstance(made.tensor, Compute):
        return None
    scaled = made.tensor
    where = {a.var: i.int_ for a, i in zip(scaled.axes, side.indices, strict=True)}  # type: ignore
    for value, other in _choices(scaled.body):
        if not isinstance(value, Load) or not is_identity(value, scaled):
            continue
        if value.source.name not in s.stages:
            continue
        moved = substitute(other, where)
        if reduced & names_in(moved):
            continue
        here = Load(value.source, side.indices)
        match scaled.body:
            case Binary(op):
                return side, here, Binary(op, here, moved)
            case Select(_, a, b):
                return side, here, Select(moved, *(here if x is value else x for x in (a, b)))
    return None


def _choices(body: Expr) -> list[tuple[Expr, Expr]]:
    """What may be the scaled value, and the factor, the divisor or the condition beside it."""
    match body:
        case Binary("mul", a, b):
            return [(x, y) for x, y in ((a, b), (b, a)) if isinstance(y, Load)]
        case Binary("div", a, Load() as b):
            return [(a, b)]
        case Select(cond, a, Const(value=0)) | Select(cond, Const(value=0), a):
            return [(a, cond)]
    return []


def _apart(
    s: Stages, name: str, stage: Stage, operand: Load, value: Load, how: Binary | Select
) -> tuple[Stage, Stage]:
    tensor = stage.tensor
    assert isinstance(tensor, Compute)
    inner = s.fresh(f"{name}.sum")
    body = transform(tensor.body, lambda x: value if x is operand else x)
    s.types[inner] = Input(inner, tensor.dtype, tensor.shape)
    here = Load(s.types[inner], tuple(Index(var(a.var)) for a in tensor.axes))
    summed = Compute(tensor.label, tensor.axes, body)
    some = [
        Binary("lt", Index(as_int(0)), Index(a.extent))
        for a in tensor.reduce_axes
        if not s.facts.positive(a.extent)
    ]
    if some and isinstance(how, Binary):  # the sum of nothing is 0, whatever the factor
        one = const(1.0, how.b.dtype)
        how = Binary(how.op, how.a, Select(all_of(some), how.b, one))
    scaled = transform(how, lambda x: here if x is value else x)
    return (
        Stage(inner, summed, stage.op, stage.spans),
        replace(stage, tensor=tensor.replace(body=scaled)),
    )
