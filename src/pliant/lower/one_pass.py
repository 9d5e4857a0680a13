"""Mean and variance of a row are sums of one pass, of differences from a value near the mean.

    s[i] = sum_r x[i, r]                        p[i] = (x[i, 0] + … + x[i, 7]) / 8
    m[i] = s[i] / n                             s[i] = sum_r x[i, r] - p[i]
    v[i] = sum_r (x[i, r] - m[i])²        ->    q[i] = sum_r (x[i, r] - p[i])²
                                                m[i] = p[i] + s[i] / n
                                                v[i] = q[i] - s[i]² / n

"Shifted data" in Chan, Golub, LeVeque, "Algorithms for Computing the Sample Variance" (1983). What
is lost are the digits of 1 + (m - p)² / (v / n): hardly any in practice, and never more than those
of n / 8, where all elements but the first are alike. Hence no rows of more than `MOST`: there a
layer norm is exact to 3e-5 then. Rows of one value lose nothing, other than by a rounded mean.

Nor rows that come from memory and are so long that a first cache (of 32 KB) has no room for what
else is as long: each pass over one finds some of it there, and memory goes on meanwhile. A sum
alone runs far ahead of what has come, two sums and a difference do not (Zen 4: layer norm of rows
of 10 to 32 KB takes 0.8 to 0.9 as long in three passes, of 4 KB 1.2 times). Where only a call can
tell whether they do, the group as it was is kept for it (`Group.uncached`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose, prod
from typing import Final

from pliant.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    const,
    loads_of,
    substitute,
)
from pliant.ir.tensor import Compute
from pliant.lower.access import bare_name, takes_long
from pliant.lower.groups import Group
from pliant.lower.inline_copies import through
from pliant.lower.layout import Order
from pliant.lower.row_facts import exceeds_long, rows_of
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import as_int, var

FIRST: Final = 8  # elements whose mean is taken away
LEAST: Final = 512  # columns of a row: passes over shorter ones take no longer than what is between
MOST: Final = 4096


@dataclass(frozen=True)
class _Variance:
    """`squares` is the sum of (value - mean)², `mean` what the `sum` of the values is times
    `share`, 1 / n."""

    value: Expr
    squares: Stage
    mean: Stage
    sum: Stage
    share: Const


def in_one_pass(s: Stages, groups: Sequence[Group], orders: dict[str, Order]) -> None:
    """Rewrite in place: kernels of rows, where a mean is all that is wanted of a sum."""
    new: dict[str, tuple[Stage, ...]] = {}
    for group in groups:
        if group.kind != "row":
            continue
        known, more = rows_of(group, s.facts)
        if known.large and exceeds_long(group):
            continue
        before = replace(group, members=list(group.members))
        for stage in before.members:
            found = _variance(group, stage)
            near = None if found is None else _near(group, found)
            if found is not None and near is not None:
                new |= _rewrite(s, group, found, near, orders)
                if more and exceeds_long(group):
                    group.uncached = before
    stages = (x for name, stage in s.stages.items() for x in new.get(name, (stage,)))
    s.stages = {x.name: x for x in stages}


def _variance(group: Group, stage: Stage) -> _Variance | None:
    """The parts of a variance, by the sum of its squares."""
    squares, members = stage.tensor, {m.name: m for m in group.members}
    if not isinstance(squares, Compute) or not isinstance(squares.body, Reduce):
        return None
    match squares.body:
        case Reduce("sum", axes, Binary("mul", Binary("sub", value, at) as d, e)) if d is e:
            mean = _of_row(at, squares, members)
        case _:
            return None
    match mean:
        case Stage(tensor=Compute(body=Binary("mul", at, Const() as share)) as tensor):
            total = _of_row(at, tensor, members)
        case _:
            return None
    if total is None or total.name in group.outputs:
        return None
    if [m for m in group.members if total.name in m.inputs] != [mean]:
        return None
    of_same = isinstance(total.tensor, Compute) and total.tensor.body is Reduce("sum", axes, value)
    count = prod((a.extent for a in axes), start=as_int(1))
    if not of_same or not count.is_const or not LEAST <= count.value <= MOST:
        return None
    if not isclose(share.value * count.value, 1, rel_tol=1e-6):
        return None
    return _Variance(value, stage, mean, total, share)


def _of_row(x: Expr, tensor: Compute, members: Mapping[str, Stage]) -> Stage | None:
    """The member of whose values `x` is that of the row for which the tensor is computed."""
    if not isinstance(x, Load) or x.source.name not in members:
        return None
    here = [bare_name(i) for i in x.indices] == [a.var for a in tensor.axes]
    return members[x.source.name] if here else None


def _near(group: Group, v: _Variance) -> Expr | None:
    """The mean of a row's first elements, in terms of what the kernel reads; None where they cannot
    be computed twice, or take long."""
    tensor = v.squares.tensor
    assert isinstance(tensor, Compute)
    terms = [substitute(v.value, place) for place in _first(tensor.reduce_axes)]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=True)
        terms = [Binary("add", a, b) for a, b in pairs]
    near = tensor.replace(body=Binary("mul", terms[0], const(1 / FIRST, terms[0].dtype)))
    # Maps of the kernel are computed again: they are stored after it.
    maps = {m.name: m.tensor for m in group.members if m.tensor.shape == group.space}
    for name, made in reversed(maps.items()):
        near = through(near, {name: made}) if isinstance(made, Compute) else near
    stored = any(n.source.name in maps for n in loads_of(near.body))
    return None if stored or takes_long(near.body) else near.body


def _first(axes: Sequence[Axis]) -> list[dict[str, int]]:
    """The places of the first elements, the last axis running fastest."""
    places: list[dict[str, int]] = []
    for k in range(FIRST):
        place: dict[str, int] = {}
        for axis in reversed(axes):
            k, place[axis.var] = divmod(k, axis.extent.value)
        places.append(place)
    return places


def _rewrite(
    s: Stages, group: Group, v: _Variance, near: Expr, orders: dict[str, Order]
) -> dict[str, tuple[Stage, ...]]:
    """Change the group. Gives what has taken the place of its stages."""
    total, squares = v.sum.tensor, v.squares.tensor
    assert isinstance(total, Compute) and isinstance(squares, Compute)
    rows = tuple(Index(var(a.var)) for a in squares.axes)

    def of_row(name: str) -> Load:
        return Load(s.types[name], rows)

    def changed(stage: Stage, body: Expr) -> Stage:
        assert isinstance(stage.tensor, Compute)
        return replace(stage, tensor=stage.tensor.replace(body=body))

    axes, spans = squares.reduce_axes, v.squares.spans
    first = s.added(f"{v.sum.name}_near", squares.replace(body=near), v.squares.op, spans)
    apart = Binary("sub", v.value, of_row(first.name))
    summed = Reduce("sum", axes, Binary("mul", apart, apart))
    wide = s.added(
        f"{v.squares.name}.squares_near", squares.replace(body=summed), v.squares.op, spans
    )
    sums, q = of_row(v.sum.name), of_row(wide.name)
    share = Binary("mul", sums, v.share)
    least = Binary("max", Binary("sub", q, Binary("mul", sums, share)), const(0.0, q.dtype))
    # What has overflown is so large, as it was before.
    kept = Select(Binary("lt", q, const(inf, q.dtype)), least, q)
    by_name = {
        v.sum.name: (first, changed(v.sum, Reduce("sum", axes, apart))),
        v.squares.name: (wide, changed(v.squares, kept)),
        v.mean.name: (changed(v.mean, Binary("add", of_row(first.name), share)),),
    }
    for stages in by_name.values():
        orders |= {x.name: orders[v.sum.name] for x in stages}
    group.members[:] = [x for m in group.members for x in by_name.get(m.name, (m,))]
    return by_name
