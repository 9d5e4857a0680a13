"""A reduction over rows and over what lies farther apart is two: of rows, then of what they gave.

    y[c] = sum_{n, h, w} x[n, c, h, w]       ->       t[n, c] = sum_{h, w} x[n, c, h, w]
                                                      y[c] = sum_n t[n, c]

Vectors run along rows of memory; for a reduction in one step the operand would have to be turned
around, which takes several times as long. Where rows are short, what lies apart comes first: then
vectors run along what is kept, too. Of what other stages make nothing need be done: it lies as its
readers want it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from pliant.ir.expr import Axis, Load, Reduce, substitute
from pliant.ir.tensor import Compute, Input, compute, own_nodes, reduce
from pliant.lower.access import ROW_COMBINERS, bare_name, classify
from pliant.lower.stages import Stage, Stages
from pliant.sym.expr import Int, IntLike, as_int, var

SHORT: Final = 16  # elements of a row that fill no vector


class _Halves(NamedTuple):
    """The axes of what is reduced first, in the order of the operand, and of what is left."""

    kept: tuple[Axis, ...]
    first: tuple[Axis, ...]
    then: tuple[Axis, ...]


def split_sums(s: Stages) -> None:
    """Rewrite in place: reductions of parameters and weights."""
    given = {v.name for v, _ in s.weights} | {p.name for p in s.params}
    stages: dict[str, Stage] = {}
    for name, stage in s.stages.items():
        halves = _halves(stage, given)
        if halves is not None:
            inner, stage = _apart(s, stage, halves)
            stages[inner.name] = inner
        stages[name] = stage
    s.stages = stages


def _halves(stage: Stage, given: set[str]) -> _Halves | None:
    tensor = stage.tensor
    if not isinstance(tensor, Compute) or stage.notes or classify(tensor) != "reduction":
        return None
    assert isinstance(tensor.body, Reduce)
    if tensor.body.combiner not in ROW_COMBINERS:
        return None
    axes = {a.var: a for a in (*tensor.axes, *tensor.reduce_axes)}
    names = _order(tensor, given, axes)
    reduced = {a.var for a in tensor.reduce_axes}
    rows = len(names)
    while rows and names[rows - 1] in reduced:
        rows -= 1
    inside, outside = names[rows:], [n for n in names[:rows] if n in reduced]
    if not inside or not outside:
        return None
    length = as_int(1)
    for n in inside:
        length = length * axes[n].extent
    first = outside if length.is_const and length.value < SHORT else inside
    kept = [n for n in names if n not in first]
    then = [n for n in kept if n in reduced]
    return _Halves(*(tuple(axes[n] for n in part) for part in (kept, first, then)))


def _order(tensor: Compute, given: set[str], axes: dict[str, Axis]) -> list[str]:
    """The iterators in the order in which they run through a given operand; empty where there is
    none whose dimensions are just these, or another one is as large."""
    found: list[list[str]] = []
    for load in own_nodes(tensor.body):
        if isinstance(load, Load):
            dims = zip(load.indices, load.source.shape, strict=True)
            names = [bare_name(i) or "" for i, n in dims if n != 1]
            if sorted(names) == sorted(axes):
                found += [names] * (names not in found)
            elif len(names) >= len(axes):
                return []
            if names in found and load.source.name not in given:
                return []
    return found[0] if len(found) == 1 else []


def _apart(s: Stages, stage: Stage, halves: _Halves) -> tuple[Stage, Stage]:
    tensor = stage.tensor
    assert isinstance(tensor, Compute) and isinstance(tensor.body, Reduce)
    combiner, value = tensor.body.combiner, tensor.body.body

    def of_rows(*at: Int) -> Reduce:
        here: dict[str, IntLike] = {a.var: x for a, x in zip(halves.kept, at, strict=True)}

        def term(*r: Int) -> object:
            there: dict[str, IntLike] = {a.var: x for a, x in zip(halves.first, r, strict=True)}
            return substitute(value, here | there)

        return reduce(combiner, [a.extent for a in halves.first], term)  # type: ignore

    name = s.fresh(f"{stage.name}.rows")
    rows = compute([a.extent for a in halves.kept], of_rows, "t")
    s.types[name] = source = Input(name, rows.dtype, rows.shape)
    places = {a.var: f"_r{k}" for k, a in enumerate(halves.then)}
    at = tuple(var(places.get(a.var, a.var)) for a in halves.kept)
    then = tuple(Axis(places[a.var], a.extent) for a in halves.then)
    body = Reduce(combiner, then, source[at])
    return (
        Stage(name, rows, stage.op, stage.spans),
        replace(stage, tensor=tensor.replace(body=body)),
    )
