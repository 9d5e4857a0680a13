"""Values between kernels are stored as bf16 where the products that follow want them so anyway.

    conv: f32, conv_bf16 = cast(conv)        ->     conv_bf16
    y = f32(w) * f32(conv_bf16) …                   y = …
    add = conv + z                                  add = f32(conv_bf16) + z

A model with bf16 products (`opt.bf16_products`) stores what they multiply in half the bytes; what
else reads it, or is on the way to it, would still move f32. Inside a kernel everything stays f32,
and so does what softmax, normalisations and other statistics are computed of, what is spread over
others' axes, what is a place or a phase, or rounded or compared, and what ends up in a result
without another product or window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pliant.base.dtypes import bf16, f32
from pliant.ir.bf16 import chosen_in_bf16, from_bf16
from pliant.ir.expr import (
    COMPARISONS,
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    Unary,
    index_names,
)
from pliant.ir.node import Node, transform
from pliant.ir.tensor import Compute, Input, compute, own_nodes
from pliant.lower.access import is_identity
from pliant.lower.groups import Group
from pliant.lower.layout import Gap, Order
from pliant.lower.stages import Stage, Stages

LINEAR: Final = ("sum", "max", "min", "fmax", "fmin")
"""Reductions that err no more than what they read."""

CONDITIONS: Final = ("and", "or", "lt", "le", "eq")
"""What says which elements a window has."""

FINE: Final = (
    "sin", "cos", "tan", "floormod", "truncmod", "floor", "ceil", "trunc", "round", "sign",
)  # fmt: skip
"""What makes as much of the last digits of a large value as of the first."""

MADE: Final = ("contraction", "patches", "reduction", "map")
"""Kinds of kernels that compute in f32 what they store as bf16."""


def narrow_values(
    s: Stages, groups: list[Group], orders: dict[str, Order], gaps: Mapping[str, Gap]
) -> None:
    """Change the groups of a function that has bf16 products so that outputs of theirs are stored
    as bf16."""
    if not any(s.types[n].dtype is bf16 for n in s.stages):
        return
    readers: dict[str, list[_Reader]] = {}
    for group in groups:
        inside = group.names()
        for stage in group.members:
            for source in stage.inputs:
                if source not in inside:
                    readers.setdefault(source, []).append(_Reader(group, stage))
    short: dict[str, str] = {}  # what is stored as bf16, and under which name
    made: dict[str, Stage] = {}  # the casts that do so where there was none, by what they cast
    for group in reversed(groups):
        for name in group.outputs:
            if s.types[name].dtype is not f32 or name in s.results or name in gaps:
                continue
            by = readers[name]
            wanted_so = all(_is_cast(r.stage, name) for r in by)
            made_here = group.kind in MADE or wanted_so
            if made_here and all(_may_be_short(r, name, s, short) for r in by):
                short[name] = _stored(s, group, name, orders, made)
    s.stages = _after(s.stages, made)
    for group in groups:
        inside = group.names()
        here = {n: to for n, to in short.items() if n not in inside}
        group.members[:] = [_reading(s, m, here) for m in group.members]
        outputs = dict.fromkeys(short.get(n, n) for n in group.outputs)
        group.outputs = tuple(outputs)
        _drop_round_trips(s, group)


@dataclass(frozen=True)
class _Reader:
    """A stage that reads a value of another kernel."""

    group: Group
    stage: Stage


def _may_be_short(r: _Reader, name: str, s: Stages, short: Mapping[str, str]) -> bool:
    """Whether what a stage computes suffers no more from a short value than a product does."""
    tensor, kind = r.stage.tensor, r.group.kind
    if _is_cast(r.stage, name):
        return kind not in ("serial", "attention")
    if not isinstance(tensor, Compute) or kind not in MADE:
        return False
    if _is_place(tensor.body, name) or _is_told_apart(r, name):
        return False
    if kind == "patches" and r.stage is r.group.members[0]:
        return True
    if isinstance(tensor.body, Reduce):
        return kind == "reduction" and _is_linear(tensor.body, name)
    if _is_spread(tensor, name):
        return False
    return all(n in short or s.types[n].dtype is bf16 for n in r.group.outputs)


def _is_cast(stage: Stage, name: str) -> bool:
    """Whether all that the stage reads of a value is its bf16."""
    tensor = stage.tensor
    if not isinstance(tensor, Compute) or _reads(tensor.body, name):
        return False
    for node in own_nodes(tensor.body):
        short = isinstance(node, Cast) and node.dtype is bf16
        if not short and any(_reads(x, name) for x in node.children()):
            return False
    return True


def _reads(x: Node, name: str) -> bool:
    return isinstance(x, Load) and x.source.name == name


def _is_place(body: Expr, name: str) -> bool:
    """Whether the value says where something else is read."""
    for node in own_nodes(body):
        if isinstance(node, Load):
            computed = [x for x in node.indices if not isinstance(x, Index)]
            if any(_reads(n, name) for x in computed for n in own_nodes(x)):
                return True
    return False


def _is_spread(tensor: Compute, name: str) -> bool:
    """Whether many elements are made of one of the value's: it is small, and may be a mean that is
    taken away, or what is over a deviation (of a single element, too, a mean is no reduction)."""
    axes = {a.var for a in tensor.axes}
    loads = (n for n in own_nodes(tensor.body) if isinstance(n, Load) and _reads(n, name))
    return any(axes - {v for i in n.indices for v in index_names(i)} for n in loads)


def _is_told_apart(r: _Reader, name: str) -> bool:
    """Whether the kernel makes much of small differences in the value, or what it makes of it."""
    made = {name}
    for stage in r.group.members[r.group.members.index(r.stage) :]:
        tensor = stage.tensor
        if made.isdisjoint(stage.inputs) or not isinstance(tensor, Compute):
            continue
        for node in filter(_is_fine, own_nodes(tensor.body)):
            if any(_reads(x, n) for x in own_nodes(node) for n in made):
                return True
        made.add(stage.name)
    return False


def _is_fine(x: Node) -> bool:
    """Such a function, or a comparison (with a number it is mostly the pieces of a function that
    meet there)."""
    if isinstance(x, Binary) and x.op in COMPARISONS:
        return not (isinstance(x.a, Const) or isinstance(x.b, Const))
    return isinstance(x, Unary | Binary) and x.op in FINE


def _is_linear(body: Reduce, name: str) -> bool:
    """A window or a mean: a reduction of the value's elements, or of these times something else;
    only places are compared (the place of a maximum is found by comparing values)."""
    loads = [n for n in own_nodes(body.body) if _reads(n, name)]
    arithmetic = [n for n in own_nodes(body.body) if isinstance(n, Binary)]
    products = [n for n in arithmetic if n.op == "mul"]
    others = [n for n in arithmetic if n.op != "mul" and n.op not in CONDITIONS]
    asked = [n for n in arithmetic if n.op in CONDITIONS]
    if any(_reads(x, name) for n in asked for x in own_nodes(n)):
        return False
    return body.combiner in LINEAR and len(loads) == 1 and len(products) <= 1 and not others


def _stored(
    s: Stages, group: Group, name: str, orders: dict[str, Order], made: dict[str, Stage]
) -> str:
    """The member that is the value as bf16; made where there is none."""
    wide = s.types[name]
    tensor = compute(wide.dims, lambda *i: wide[i].cast(bf16))
    for m in group.members:
        alike = isinstance(m.tensor, Compute) and m.tensor.body is tensor.body
        if alike and m.name in group.outputs and orders.get(m.name) == orders.get(name):
            return m.name
    short = s.fresh(f"{name}_bf16")
    made[name] = Stage(short, tensor, "cast", s.stages[name].spans)
    s.types[short] = Input(short, bf16, wide.dims)
    if name in orders:
        orders[short] = orders[name]
    group.members.append(made[name])
    return short


def _after(stages: Mapping[str, Stage], new: Mapping[str, Stage]) -> dict[str, Stage]:
    """The stages, each with its new one after it."""
    out: dict[str, Stage] = {}
    for name, stage in stages.items():
        out[name] = stage
        if name in new:
            out[new[name].name] = new[name]
    return out


def _reading(s: Stages, stage: Stage, short: Mapping[str, str]) -> Stage:
    """The stage with what is stored as bf16 read so."""
    tensor = stage.tensor
    if not isinstance(tensor, Compute) or short.keys().isdisjoint(stage.inputs):
        return stage

    def widened(node: Node) -> Node:
        if isinstance(node, Load) and node.source.name in short:
            return Load(s.types[short[node.source.name]], node.indices).cast(f32)
        if isinstance(node, Cast) and node.dtype is bf16:
            return from_bf16(node.a) or node
        return (chosen_in_bf16(node) or node) if isinstance(node, Select) else node

    body = transform(tensor.body, widened, {})
    changed = replace(stage, tensor=tensor.replace(body=body))
    s.stages[stage.name] = changed
    return changed


def _drop_round_trips(s: Stages, group: Group) -> None:
    """What copies bf16 does not widen it on the way."""
    for k, m in enumerate(group.members):
        source = _copied(m, group)
        tensor = None if source is None else s.stages[source].tensor
        short = from_bf16(tensor.body) if isinstance(tensor, Compute) else None
        if isinstance(tensor, Compute) and short is not None and not isinstance(short, Const):
            group.members[k] = s.stages[m.name] = replace(m, tensor=tensor.replace(body=short))
    read = {n for m in group.members for n in m.inputs}
    for m in [m for m in group.members if m.name not in read and m.name not in group.outputs]:
        group.members.remove(m)
        del s.stages[m.name]


def _copied(stage: Stage, group: Group) -> str | None:
    """The member whose bf16 the stage is."""
    tensor = stage.tensor
    if not isinstance(tensor, Compute) or not isinstance(tensor.body, Cast):
        return None
    load = tensor.body.a
    if tensor.dtype is not bf16 or not isinstance(load, Load) or not is_identity(load, tensor):
        return None
    return load.source.name if load.source.name in group.names() else None
