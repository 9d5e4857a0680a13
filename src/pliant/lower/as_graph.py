"""Stages as graph functions of tensor expressions, which print, verify and run like any others.

    as_function(fission(f))      f: its operators taken apart
    split_functions(…)           f_prepare and f, which reads its results as weights "f_prepare.v"
    group_functions(…)           the same, each group a function of its own, called

What a pass has decided is a note: of a binding its operator (`op`), the order of its dimensions
(`layout`) and how a packed contraction is run (`plan`), of a group its kind, space and rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pliant.graph.expression import Notes, expression_binding
from pliant.graph.function import Binding, Function, TensorType, Value
from pliant.ir.expr import Axis, Expr, Index
from pliant.ir.tensor import Input, Opaque, OpaqueOutput, own_nodes
from pliant.lower.groups import Group
from pliant.lower.joined import Part
from pliant.lower.layout import Gap, Order
from pliant.lower.pack import Plan, plan_notes
from pliant.lower.stages import Stage, Stages


class Decisions:
    """What passes have decided so far, by stage."""

    def __init__(self) -> None:
        self.orders: Mapping[str, Order] = {}
        self.gaps: Mapping[str, Gap] = {}
        self.plans: Mapping[str, Plan] = {}
        self.parts: Mapping[str, Part] = {}

    def notes(self, stage: Stage) -> Notes:
        """The notes of a stage's binding."""
        out: list[tuple[str, Any]] = [("op", stage.op)]
        if stage.name in self.orders:
            out.append(("layout", self.orders[stage.name]))
        if stage.name in self.gaps:
            gap = self.gaps[stage.name]
            out.append(("gap", (gap.dims, gap.elements)))
        if stage.name in self.parts:
            part = self.parts[stage.name]
            out.append(("part", (part.whole, part.offset)))
        if stage.name in self.plans:
            out += plan_notes(self.plans[stage.name])
        return tuple(out)


def as_function(s: Stages, decisions: Decisions) -> Function:
    """All stages as the bindings of one function."""
    values = _values(s.types)
    bindings = _bindings(s, s.stages.values(), values, decisions)
    f = s.function
    return Function(
        s.name, s.params, s.weights, bindings, tuple(values[r] for r in s.results), f.dims,
        f.equalities,
    )  # fmt: skip


def prepare_name(function: Function) -> str:
    """What the part is called that is computed once (`lower.constants`)."""
    return f"{function.name}_prepare"


def split_functions(
    parts: Sequence[Stages], prepared: tuple[str, ...], decisions: Decisions
) -> list[Function]:
    """The part that is run once, if there is one, and the rest."""
    functions = [as_function(p, decisions) for p in parts]
    main = functions[-1]
    if len(functions) > 1:
        functions[0] = functions[0].replace(
            name=prepare_name(main), params=(), dims=(), equalities=()
        )
        values = _values(parts[-1].types)
        more = [(values[n], f"{prepare_name(main)}.{n}") for n in prepared]
        functions[1] = main.replace(weights=(*main.weights, *more))
    return [_without_unread_weights(f) for f in functions]


def group_functions(
    functions: Sequence[Function], parts: Sequence[Stages], groups: Sequence[Sequence[Group]],
    decisions: Decisions,
) -> list[Function]:  # fmt: skip
    """The functions with a call for each group, and what is called, before it."""
    out: list[Function] = []
    for function, part, own in zip(functions, parts, groups, strict=True):
        values = _values(part.types)
        calls: list[Binding] = []
        for k, group in enumerate(own):
            made = _group_function(f"{function.name}_{k}", group, part, values, decisions)
            out.append(made)
            spans = tuple(dict.fromkeys(s for m in group.members for s in m.spans))
            calls.append(Binding(made.results, made.name, made.params, (), spans))
        out.append(function.replace(bindings=tuple(calls)))
    return out


def _group_function(
    name: str, group: Group, s: Stages, values: Mapping[str, Value], decisions: Decisions
) -> Function:
    members = group.names()
    read = dict.fromkeys(i for m in group.members for i in m.inputs if i not in members)
    params = tuple([values[n] for n in read])
    bindings = _bindings(s, group.members, values, decisions)
    used = {n for v in (*params, *(v for b in bindings for v in b.outputs))
            for d in v.shape for n in d.names}  # fmt: skip
    used |= {n for m in group.members for n in _names_in(m)}
    dims = tuple([(n, known) for n, known in s.function.dims if n in used])
    space = tuple([d.value if d.is_const else d for d in group.space])
    notes = (("kind", group.kind), ("space", space), ("order", group.order))
    rows = (("rows", group.rows),) if group.kind in ("row", "attention") else ()
    results = tuple([values[n] for n in group.outputs])
    return Function(name, params, (), bindings, results, dims, (), (*notes, *rows))


def _names_in(stage: Stage) -> Iterable[str]:
    for root in stage.tensor.children():
        for node in own_nodes(root) if isinstance(root, Expr) else (root,):
            if isinstance(node, Index):
                yield from node.int_.names
            elif isinstance(node, Axis):
                yield from node.extent.names


def _values(types: Mapping[str, Input]) -> dict[str, Value]:
    return {n: Value(n, TensorType(t.dtype, t.dims)) for n, t in types.items()}


def _bindings(
    s: Stages, stages: Iterable[Stage], values: Mapping[str, Value], decisions: Decisions
) -> tuple[Binding, ...]:
    results = {
        (st.tensor.of, st.tensor.index): n
        for n, st in s.stages.items()
        if isinstance(st.tensor, OpaqueOutput)
    }
    out: list[Binding] = []
    for stage in stages:
        tensor = stage.tensor
        if isinstance(tensor, OpaqueOutput):
            continue  # bound with the program
        outputs: tuple[Value, ...] = (values[stage.name],)
        if isinstance(tensor, Opaque):
            outputs = tuple([
                values[results[tensor, k]] if (tensor, k) in results
                else Value(f"{stage.name}.unused{k}", TensorType(dtype, shape))
                for k, (dtype, shape) in enumerate(tensor.results)
            ])  # fmt: skip
        out.append(expression_binding(outputs, tensor, values, decisions.notes(stage), stage.spans))
    return tuple(out)


def _without_unread_weights(function: Function) -> Function:
    read = {v for b in function.bindings for v in b.operands()} | set(function.results)
    return function.replace(weights=tuple([(v, k) for v, k in function.weights if v in read]))
